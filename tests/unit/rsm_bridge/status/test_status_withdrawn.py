"""Copies that Kafka withdrew: their rows stay in the table, and they count as tiered no more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from converter.types import SegmentMetadata
from rsm_bridge.metrics.progress.facts import StoredTopic, Withdrawn
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.gather import beyond_tiered
from tests.support.status_facts import NOW, kafka, kafka_partition, kafka_topic, stored, stored_partition, table
from tests.worlds.maintain_support import DAY, World, make_world
from tests.worlds.status_support import in_kafka, indexes, looked, of, persons

C = CauseCode
SHORT = {"local.retention.ms": "3600000"}


def aged(world: World, seconds: float) -> None:
    """Index objects as if they had been written so long ago."""
    for path in indexes(world):
        os.utime(path, (time.time() - seconds,) * 2)


def copied(folder: Path, *withdrawn: int) -> tuple[World, list[SegmentMetadata]]:
    """Three segments of three rows, published three days ago; some of them were withdrawn then."""
    world = make_world(folder)
    world.ahead_ms = -3 * DAY * 1000
    segments = [world.copy(3) for _ in range(3)]
    world.publish()
    for number in withdrawn:
        world.withdraw(segments[number])
    world.publish()
    assert world.offsets() == list(range(9))
    aged(world, 3 * DAY)
    world.ahead_ms = 0
    return world, segments


def idle(world: World, **config: str) -> Any:
    """Its records are three days old."""
    then_ms = int(time.time() * 1000) - 3 * DAY * 1000
    part = {"newest_ms": then_ms, "newest_offset": 8, "pending_ms": then_ms, "record_bytes": 100}
    return in_kafka(world, {0: part}, **(config or SHORT))


@pytest.mark.parametrize("withdrawn", [(1, 2), (2,), (0, 1, 2)])
def test_what_is_not_copied_again_for_days_is_stuck(tmp_path: Path, withdrawn: tuple[int, ...]) -> None:
    world, _ = copied(tmp_path, *withdrawn)
    world.reclaim()
    world.maintain()
    world.publish()
    report = looked(tmp_path, idle(world))
    assert persons(report) == {("copy_stuck", 0)}
    (finding,) = of(report, C.COPY_STUCK)
    assert finding.said.startswith(f"{3 * len(withdrawn)} offsets not tiered")
    assert "rows of which are in the table from copies that Kafka withdrew 3 d ago" in finding.said


def test_also_where_nothing_else_says_that_a_segment_has_closed(tmp_path: Path) -> None:
    """It had been copied once."""
    world, _ = copied(tmp_path, 2)
    assert persons(looked(tmp_path, idle(world, **{"local.retention.ms": "-1"}))) == {("copy_stuck", 0)}


def test_the_moment_before_it_is_copied_again(tmp_path: Path) -> None:
    world, segments = copied(tmp_path)
    world.withdraw(segments[2])
    report = looked(tmp_path, idle(world))
    assert persons(report) == set()
    assert [item.level for item in of(report, C.COPYING)] == [Level.WAITS]
    promised = looked(tmp_path, idle(world), freshness_target="10m")
    assert persons(promised) == set()
    world.copy_range(6, 8)
    world.publish()
    assert persons(looked(tmp_path, idle(world))) == set()
    assert not of(looked(tmp_path, idle(world)), C.COPYING)


def test_what_was_copied_again_or_deleted_is_nothing(tmp_path: Path) -> None:
    world, segments = copied(tmp_path, 2)
    again = world.copy_range(6, 8)
    world.publish()
    assert persons(looked(tmp_path, idle(world))) == set()
    world.delete(segments[0], segments[1], again)
    world.publish()
    whole = in_kafka(world, {0: {"log_start": 9}}, **SHORT)
    assert persons(looked(tmp_path, whole)) <= {("mass_delete", None)}


def test_a_log_start_above_it_ends_it(tmp_path: Path) -> None:
    """Records deleted by hand, or never copied before retention took them."""
    world, _ = copied(tmp_path, 2)
    assert persons(looked(tmp_path, in_kafka(world, {0: {"log_start": 9}}, **SHORT))) == set()


def test_an_index_that_was_lost_is_not_taken_for_one(tmp_path: Path) -> None:
    """Kafka has copied it: that is a gap."""
    world, _ = copied(tmp_path)
    indexes(world)[2].unlink()
    assert persons(looked(tmp_path, idle(world))) == {("gap_unexplained", 0)}


def test_kafka_is_asked_for_the_first_record_that_is_withdrawn() -> None:
    asked = kafka(kafka_topic(kafka_partition(end=100)))
    withdrawn: StoredTopic = stored(
        stored_partition(tiered_end=80), table=table(), withdrawn={0: Withdrawn(80, NOW - 1000)}
    )
    assert beyond_tiered(asked, {withdrawn.topic_id: withdrawn}) == {("orders", 0): 80}
