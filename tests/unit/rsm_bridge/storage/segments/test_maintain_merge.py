"""R14 over a real small table: pointers first, the same rows and bytes at every step, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from converter.errors import SegmentError
from iceberg_catalog.commit.commit import commit
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Keep
from rsm_bridge.storage.keys import stored_key
from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from rsm_bridge.tables.maintain import merge as merging
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from rsm_bridge.tables.maintain.undelete import undelete
from tests.support.killed import KilledError, die_at
from tests.worlds.maintain_support import World, files_of, make_world, published

LIMITS = MergeLimits(
    small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=60_000, span_ms=24 * 3_600_000
)
STEPS = ("merge-written", "merge-pointer", "merge-pointed", "before-swap", "after-swap")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, merging=LIMITS)


def files(world: World) -> set[str]:
    """Keys of the table's data files."""
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    return {stored_key(world.store, path) or path for path in files_of(world.loaded(), snapshot.manifest_list)}


def segments(world: World) -> list[KnownSegment]:
    return read_segments(world.store, world.topic_id)


def merged(world: World) -> int:
    """A pass after the files have become old enough; how many it merged."""
    world.later(61)
    return world.maintain().merged


def test_small_files_become_one_and_nothing_else_changes(world: World) -> None:
    published(world, (3, 1, 4, 1, 5))
    before = world.observe().states
    assert merged(world) == 5
    assert len(files(world)) == 1
    assert world.offsets() == list(range(14))
    assert {known.data.key for known in segments(world) if known.data} == files(world)
    assert world.observe().states == before
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"
    world.check()
    assert world.publish().files_added == 0
    assert merged(world) == 0


def test_segments_stay_as_old_as_they_are(world: World) -> None:
    """Status took a merge for a copy, and a delete of before it for one of half the table."""
    published(world)
    before = {known.listed.key: known.written_ms for known in segments(world)}
    assert merged(world) == 3
    after = {known.listed.key: known.written_ms for known in segments(world)}
    assert after == before
    assert all(known.listed.modified_ms > known.written_ms for known in segments(world))
    world.copy(1)
    world.publish()
    assert merged(world) == 0


def test_young_files_and_dry_runs_change_nothing(world: World) -> None:
    published(world)
    assert world.maintain().merged == 0
    world.later(61)
    before = world.stored()
    told = world.maintain(dry_run=True)
    assert (told.merged, told.merged_into) == (3, 1)
    assert "  small files merged: 3 into 1" in told.lines()
    assert world.stored() == before


def test_what_was_merged_goes_when_no_snapshot_and_no_copy_can_name_it(world: World) -> None:
    published(world)
    old = files(world)
    merged(world)
    assert old < set(world.stored("data"))
    world.later(world.graces.reclaim - 70)
    assert not world.maintain().objects["snapshot"]
    world.later(70)
    assert world.maintain().objects["snapshot"] == 1
    world.check()
    assert not world.maintain().objects["data"]
    world.later(COPY_IS_OVER_SECONDS)
    assert world.maintain().objects["data"] == 3
    assert set(world.stored("data")) == files(world)
    world.check()


def test_merged_files_are_merged_again(world: World) -> None:
    for _ in range(3):
        published_more(world)
        merged(world)
        assert len(files(world)) == 1
    assert world.offsets() == list(range(27))
    assert len({known.data.key for known in segments(world) if known.data}) == 1
    world.check()


def published_more(world: World) -> None:
    for count in (2, 3, 4):
        world.copy(count)
    world.publish()


@pytest.mark.parametrize(("step", "times"), [*((step, 1) for step in STEPS), ("merge-pointer", 2)])
@pytest.mark.parametrize("crashes", [1, 3])
def test_a_crash_at_any_step_is_repaired_by_the_next_pass(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, times: int, crashes: int
) -> None:
    published(world, (2, 2, 2, 2))
    world.later(61)
    for _ in range(crashes if step != "after-swap" else 1):
        with monkeypatch.context() as patched:
            die_at(patched, step, times)
            with pytest.raises(KilledError):
                world.maintain()
        world.check()
    assert world.offsets() == list(range(8))
    assert world.publish().files_added == 0
    merged(world)
    assert len(files(world)) == 1
    assert {known.data.key for known in segments(world) if known.data} == files(world)
    world.check()
    world.later(6 * 24 * 3600)
    world.maintain()
    world.maintain()
    assert set(world.stored("data")) == files(world)
    world.check()


def test_a_publisher_that_is_faster_only_delays_the_swap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    published(world)
    calls: list[int] = []

    def late(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            world.copy(1)
            world.publish()
        return commit(*arguments, **named)

    monkeypatch.setattr(merging, "commit", late)
    assert merged(world) == 3
    assert len(calls) == 3
    assert world.offsets() == list(range(11))
    assert len(files(world)) == 3
    world.check()


def test_files_that_left_meanwhile_are_not_swapped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = published(world)

    def late(*arguments: Any, **named: Any) -> Any:
        world.delete(first)
        world.publish()
        return commit(*arguments, **named)

    monkeypatch.setattr(merging, "commit", late)
    assert merged(world) == 0
    assert world.offsets() == list(range(3, 9))
    world.check()


def test_a_segment_deleted_while_it_is_merged_stays_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = published(world)
    point = merging.Merger._point

    def deleting(merger: Any, made: Any, pointer: Any) -> None:
        if second.segment_id.hex() in pointer.known.listed.key:
            world.delete(second)
        point(merger, made, pointer)

    monkeypatch.setattr(merging.Merger, "_point", deleting)
    assert merged(world) == 3
    assert [known.live for known in segments(world)] == [True, False, True]
    world.check()
    world.delete(first)
    world.publish()
    # A file leaves when all of its rows are below the floor.
    assert world.offsets() == list(range(9))
    world.check()


def test_deletes_take_the_merged_file_only_with_the_last_segment(world: World) -> None:
    first, *others = published(world)
    merged(world)
    (key,) = files(world)
    world.delete(first)
    world.later(3 * COPY_IS_OVER_SECONDS)
    world.reclaim(world.publish())
    world.maintain()
    assert key in world.stored("data")
    world.check()
    world.delete(*others)
    world.publish()
    assert world.offsets() == []
    world.later(3 * COPY_IS_OVER_SECONDS)
    assert world.reclaim().objects["tombstone"] == 3
    assert key in world.stored("data")
    world.check()
    world.later(3 * COPY_IS_OVER_SECONDS)
    world.maintain()
    world.maintain()
    assert world.stored() == []


def test_an_undelete_brings_back_what_was_merged(world: World) -> None:
    made = published(world)
    merged(world)
    world.delete(*made)
    world.publish()
    assert world.offsets() == []
    undelete(world.store, world.catalog, world.topic_id, world.context)
    assert world.offsets() == list(range(9))
    world.check()


def test_rows_of_derived_files_join_and_the_segments_own_files_go(world: World) -> None:
    """A transaction that was open at a segment's end cost a second copy of its rows; the merge gives that back."""
    log = world.log()
    log.write(2)
    log.write(2, 5)
    world.copy_range(0, 3)
    world.publish()
    log.end_transaction(5, commit=True)
    world.copy_range(4, 4)
    world.copy(2)
    world.publish()
    assert len(files(world)) == 3
    assert merged(world) == 3
    assert world.offsets() == [0, 1, 2, 3, 5, 6]
    assert {known.data.key for known in segments(world) if known.data} == files(world)
    world.check()


def test_a_segment_with_aborted_rows_keeps_its_own_file(world: World) -> None:
    log = world.log()
    log.write(2)
    log.write(2, 5)
    world.copy_range(0, 3)
    log.end_transaction(5, commit=False)
    world.copy_range(4, 4)
    for _ in range(2):
        world.copy(2)
    world.publish()
    assert merged(world) == 3
    assert world.offsets() == [0, 1, 5, 6, 7, 8]
    own = [known for known in segments(world) if known.data and known.data.key not in files(world)]
    assert [known.key.base for known in own] == [0]
    world.check()
    world.later(6 * 24 * 3600)
    world.maintain()
    world.maintain()
    world.check()


def test_the_floor_parts_what_is_merged_in_an_archive(tmp_path: Path) -> None:
    world = make_world(tmp_path, merging=LIMITS, policy=Keep())
    world.rule(retention=lambda _topic: "keep")
    made = published(world, (1,) * 6)
    world.delete(*made[:3])
    world.publish()
    assert merged(world) == 6
    assert len(files(world)) == 2
    assert world.offsets() == list(range(6))
    world.check()


def test_an_archive_is_merged_when_kafka_has_deleted_all_of_it(tmp_path: Path) -> None:
    world = make_world(tmp_path, merging=LIMITS, policy=Keep())
    world.rule(retention=lambda _topic: "keep")
    world.delete(*published(world, (1,) * 6))
    world.publish()
    assert not any(known.live for known in segments(world))
    assert merged(world) == 6
    assert len(files(world)) == 1
    assert world.offsets() == list(range(6))
    world.check()


def test_a_file_that_does_not_prove_itself_is_named_by_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    published(world)
    named = {known.data.key for known in segments(world) if known.data}
    write = merging.Merger._write

    def shifted(merger: Any, *arguments: Any) -> Any:
        made = write(merger, *arguments)
        return replace(made, offsets=made.offsets + (made.offsets >= 3))

    monkeypatch.setattr(merging.Merger, "_write", shifted)
    with pytest.raises(SegmentError, match="does not come back"):
        merged(world)
    assert {known.data.key for known in segments(world) if known.data} == named
    assert files(world) == named
    world.check()
