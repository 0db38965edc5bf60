"""A rule that says `mode: verbatim` where there is a table, or rows that are to go to one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from rsm_bridge.status.causes import CauseCode, Level
from tests.worlds.maintain_support import World, make_world, published
from tests.worlds.requeue_support import run
from tests.worlds.status_support import indexes, looked, of, persons

VERBATIM: dict[str, Any] = {"topics": [{"pattern": ".*", "mode": "verbatim"}]}


def aged(world: World) -> None:
    """Index objects as if they had been written two hours ago."""
    for path in indexes(world):
        os.utime(path, (time.time() - 7200,) * 2)


def said(folder: Path) -> str:
    (finding,) = of(looked(folder, **VERBATIM), CauseCode.VERBATIM_RULE)
    assert finding.level is Level.NOTE
    return finding.said


def test_rows_that_were_tiered_before_the_rule_and_wait_are_judged(tmp_path: Path) -> None:
    """Bridges publish them, whatever the rule says now."""
    world = make_world(tmp_path)
    published(world)
    world.copy()
    aged(world)
    assert persons(looked(tmp_path, **VERBATIM)) == {("publish_stuck", 0)}
    assert said(tmp_path) == "kafka.orders stays, with what was tiered before"
    world.publish()
    assert persons(looked(tmp_path, **VERBATIM)) == set()


def test_also_where_the_table_is_still_to_be_made(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.copy()
    aged(world)
    assert persons(looked(tmp_path, **VERBATIM)) == {("publish_stuck", 0)}
    assert said(tmp_path) == "what was tiered before may have rows"


def test_segments_of_the_rule_wait_for_nobody(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    world.log().write(3)
    world.copy_range(9, 11, mode="verbatim")
    world.publish()
    aged(world)
    report = looked(tmp_path, **VERBATIM)
    assert persons(report) == set()
    assert [part.cause for part in report.topics[0].partitions] == [CauseCode.PUBLISHED]


def test_a_topic_that_never_had_a_row_has_no_table(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.log().write(3)
    world.copy_range(0, 2, mode="verbatim")
    world.publish()
    aged(world)
    report = looked(tmp_path, **VERBATIM)
    assert persons(report) == set()
    assert [part.cause for part in report.topics[0].partitions] == [CauseCode.TIERED]
    assert said(tmp_path) == "there is no table"


def test_once_the_rule_is_another_what_it_left_out_is_named_until_it_has_rows(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data", single_process=False)
    published(world)
    world.log().write(3)
    world.copy_range(9, 11, mode="verbatim")
    world.publish()
    assert of(looked(tmp_path / "data", **VERBATIM), CauseCode.STORED_BY_RULE) == []
    (finding,) = of(looked(tmp_path / "data"), CauseCode.STORED_BY_RULE)
    assert (finding.level, finding.said) == (Level.NOTE, "1 segment without rows")
    assert run(tmp_path, "orders").exit_code == 0
    assert of(looked(tmp_path / "data"), CauseCode.STORED_BY_RULE) == []
