"""An index that cannot be read hides nothing of its topic but what it may explain."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.metrics.progress.facts import Gap
from rsm_bridge.metrics.progress.stored import covered_from, gaps_between, unindexed
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.report import Accepted
from rsm_bridge.status.text import as_text
from rsm_bridge.storage.keys import IndexKey, parse_index_key
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.projections.hold import ProjectionReaders
from rsm_bridge.storage.segments.known import KnownSegment, read_known
from tests.unit.rsm_bridge.metrics.progress.test_status_stored import known, seg
from tests.worlds.maintain_support import DAY, World, make_world, published
from tests.worlds.plan_support import plain
from tests.worlds.status_support import damage, in_kafka, indexes, looked, of, persons

C = CauseCode
DAMAGE_IS_KNOWN = Accepted(frozenset({(C.INDEX_DAMAGED, None)}))
FOR_EVER = {"retention.ms": "-1"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four segments of three rows in each of three partitions, all in the table."""
    made = make_world(tmp_path)
    for partition in (0, 1, 2):
        for _ in range(4):
            made.copy(3, partition)
    made.publish()
    return made


def test_a_mass_delete_is_said_beside_it(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.delete(*published(world, (3,) * 10)[:8])
    world.publish()
    damage(indexes(world)[-1])
    report = looked(tmp_path, in_kafka(world, {0: {"log_start": 24}}, **FOR_EVER))
    assert persons(report) == {("index_damaged", None), ("index_damaged", 0), ("mass_delete", None)}
    assert persons(report, DAMAGE_IS_KNOWN) == {("mass_delete", None)}


def test_one_that_the_index_may_explain_is_a_note(tmp_path: Path) -> None:
    """Six rows went, and the index that cannot be read has up to nine."""
    world = make_world(tmp_path)
    world.delete(*published(world, (3, 3, 2, 9))[:2])
    world.publish()
    assert persons(looked(tmp_path, in_kafka(world, {0: {"log_start": 6}}, **FOR_EVER))) == set()
    damage(indexes(world)[-1])
    report = looked(tmp_path, in_kafka(world, {0: {"log_start": 6}}, **FOR_EVER))
    assert persons(report, DAMAGE_IS_KNOWN) == set()
    (finding,) = of(report, C.MASS_DELETE)
    assert (finding.level, "or under half" in finding.said) == (Level.NOTE, True)


@pytest.mark.parametrize("asked", [True, False])
def test_a_gap_of_another_partition_is_said_and_no_row_says_that_all_is_published(
    world: World, tmp_path: Path, asked: bool
) -> None:
    indexes(world, 0)[1].unlink()
    damage(indexes(world, 1)[-1])
    report = looked(tmp_path, *([in_kafka(world)] if asked else []))
    assert persons(report, DAMAGE_IS_KNOWN) == {("gap_unexplained", 0)}
    assert [item.said for item in of(report, C.GAP_UNEXPLAINED)] == ["no index covers offsets 3 to 5"]
    (topic,) = report.topics
    assert [(part.cause, part.level) for part in topic.partitions] == [
        (C.GAP_UNEXPLAINED, Level.PERSON),
        (C.INDEX_DAMAGED, Level.PERSON),
        (C.INDEX_DAMAGED, Level.NOTE),
    ]
    text = as_text(report)
    assert "orders-1: offsets 9 to 11 by their keys" in text
    assert "orders-2: published up to offset 12, and no further while an index of the topic is damaged" in text


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_its_own_offsets_are_no_gap_and_nothing_waits_to_be_copied(world: World, tmp_path: Path, number: int) -> None:
    damage(indexes(world, 1)[number])
    idle: dict[str, Any] = {"newest_ms": 1, "pending_ms": 1, "record_bytes": 100}
    report = looked(tmp_path, in_kafka(world, {1: idle}, **{"local.retention.ms": "1000"}))
    assert persons(report, DAMAGE_IS_KNOWN) == set()
    (finding,) = [item for item in of(report, C.INDEX_DAMAGED) if item.partition == 1]
    assert f"offsets {3 * number} to {3 * number + 2} by their keys" in finding.said


def test_a_gap_beside_it_is_said(world: World, tmp_path: Path) -> None:
    """Below all others Kafka's log start proves it, between two that can be read the upper one would tell."""
    paths = indexes(world, 1)
    damage(paths[0])
    paths[1].unlink()
    report = looked(tmp_path, in_kafka(world))
    assert persons(report, DAMAGE_IS_KNOWN) == {("gap_unexplained", 1)}
    assert [item.said for item in of(report, C.GAP_UNEXPLAINED)] == ["no index covers offsets 3 to 5"]


def test_objects_lost_are_said_beside_it(world: World, tmp_path: Path) -> None:
    key = next(item for item in map(parse_index_key, world.stored("index")) if item is not None)
    (data,) = read_known(world.store, key, world.store.stat(str(key))).objects()
    Path(world.store.uri(data).removeprefix("file://")).unlink()
    damage(indexes(world, 1)[-1])
    report = looked(tmp_path, in_kafka(world))
    assert persons(report, DAMAGE_IS_KNOWN) == {("objects_lost", None)}


def test_rows_that_a_projection_is_about_to_lose_are_said_beside_it(tmp_path: Path) -> None:
    projections = {"topics": [{"pattern": "orders", "copies": [{"table": "{topic}_by_day", "hold": "2d"}]}]}
    world = make_world(tmp_path)
    segments = published(world, (3,) * 4)
    settings = load_settings(None, {"data_dir": tmp_path, **projections})
    world.rule(projections=ProjectionReaders(settings, world.store).waiting)
    world.ahead_ms = -int(1.5 * DAY) * 1000
    world.delete(*segments[:2])
    world.publish()
    damage(indexes(world)[-1])
    report = looked(tmp_path, in_kafka(world, {0: {"log_start": 6}}), **projections)
    assert ("copy_loses_rows", None) in persons(report)


def test_what_waits_in_other_partitions_is_judged(world: World, tmp_path: Path) -> None:
    """Also where the index's batches alone are damaged, which are read when they wait to be published."""
    world.copy(3, 0)
    world.copy(3, 1)
    long_ago = time.time() - 7200
    for partition in (0, 1):
        os.utime(indexes(world, partition)[-1], (long_ago, long_ago))
    whole = looked(tmp_path)
    assert persons(whole) == {("publish_stuck", 0), ("publish_stuck", 1)}
    path = indexes(world, 1)[-1]
    for at in range(path.stat().st_size // 2, 8, -8):
        kept = path.read_bytes()
        damage(path, at)
        report = looked(tmp_path)
        assert persons(report) == {("index_damaged", None), ("index_damaged", 1), ("publish_stuck", 0)}, at
        path.write_bytes(kept)


def test_what_waits_above_it_is_judged(world: World, tmp_path: Path) -> None:
    """It lies below what is published, and is not needed for what waits."""
    world.copy(3, 1)
    long_ago = time.time() - 7200
    os.utime(indexes(world, 1)[-1], (long_ago, long_ago))
    damage(indexes(world, 1)[1])
    assert persons(looked(tmp_path), DAMAGE_IS_KNOWN) == {("publish_stuck", 1)}


def test_the_only_index_of_a_partition_is_shown(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.copy(3, 0)
    world.copy(3, 1)
    world.publish()
    damage(indexes(world, 1)[0])
    report = looked(tmp_path, in_kafka(world))
    assert persons(report) == {("index_damaged", None), ("index_damaged", 1)}
    assert [part.partition for part in report.topics[0].partitions] == [0, 1]
    assert not of(report, C.GAP_UNEXPLAINED)


def test_what_is_asked_of_gaps() -> None:
    a, b, c, d = (known(seg(name, plain(10 * n, 10 * n + 9))) for n, name in enumerate("abcd"))
    assert gaps_between([a, c], 0, [b.key]) == ()
    assert gaps_between([a, c, d], 0) == (Gap(10, 19, explained=False),)
    assert gaps_between([a, d], 0, [b.key]) == (Gap(20, 29, explained=False),)
    assert gaps_between([a], 0, [c.key]) == ()  # its copy may say that the log began there
    assert gaps_between([c, d], 0, [a.key]) == ()  # it may be a tombstone
    assert (covered_from([c], 0), covered_from([c], 0, [b.key]), covered_from([c], 0, [a.key])) == (20, 10, 20)


def test_published_rows_under_it_have_an_index(world: World) -> None:
    observed = world.observe()
    assert observed.head is not None
    top = next(item for item in observed.segments if (item.key.partition, item.key.base) == (2, 9))
    rest = [item for item in observed.segments if item is not top]
    assert unindexed(rest, observed.states, observed.head.files) == {2: Gap(9, 11, explained=False)}
    assert unindexed(rest, observed.states, observed.head.files, [top.key]) == {}


def test_one_that_is_listed_and_denied_hides_as_little(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = str(indexes(world, 1)[-1].relative_to(tmp_path / "store"))

    def read(store: ObjectStore, key: IndexKey, listed: ListedObject) -> KnownSegment:
        if listed.key == denied:
            raise ObjectNotFoundError(denied)
        return read_known(store, key, listed)

    monkeypatch.setattr("rsm_bridge.status.store.topic.read_known", read)
    assert persons(looked(tmp_path, in_kafka(world))) == set()
    indexes(world, 0)[1].unlink()
    report = looked(tmp_path, in_kafka(world))
    assert persons(report) == {("gap_unexplained", 0)}
    assert [item.said for item in of(report, C.PARTLY_READ)] == ["10 of 11 indexes were read"]
