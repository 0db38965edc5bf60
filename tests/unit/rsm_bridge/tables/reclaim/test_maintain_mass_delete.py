"""Which deletes are a mass delete, how long they are held, and that it shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.plan.types import FileRef, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.limits import MASS_DELETE_WINDOW_SECONDS
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment, KnownTombstone
from rsm_bridge.tables.reclaim.mass_delete import DelayedDeletes, mass_deletes
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import DAY, World, make_world, published
from tests.worlds.plan_support import plain, seg

WINDOW_MS = int(MASS_DELETE_WINDOW_SECONDS * 1000)
DAY_MS = DAY * 1000
START = 1_700_000_000_000
TOPIC = b"t" * 16


def known(
    number: int, rows: int, deleted_ms: int | None, *, written_ms: int = START, withdrawn: bool = False
) -> KnownSegment:
    segment = seg(f"s{number}", [plain(number * 100, number * 100 + 99)])
    segment = dataclasses.replace(segment, main=FileRef(first=number * 100, last=number * 100 + 99, rows=rows))
    kind = SegmentState.WITHDRAWN if withdrawn else SegmentState.DELETED
    deletion = None if deleted_ms is None else KnownTombstone(kind=kind, time_ms=deleted_ms, had_index=True)
    key = IndexKey(
        topic_id=TOPIC, partition=0, last=number * 100 + 99, base=number * 100, segment_id=number.to_bytes(16, "big")
    )
    listed = ListedObject(str(key), 1, written_ms)
    return KnownSegment(
        key=key,
        listed=listed,
        owner=Owner("c", "t", TOPIC),
        value_format="raw",
        segment=segment,
        data=None,
        kept=None,
        deletion=deletion,
    )


def numbers(segments: list[KnownSegment]) -> list[list[int]]:
    """Which segments each mass delete has, by their number."""
    place = {item.listed.key: number for number, item in enumerate(segments)}
    return [sorted(place[key] for key in mass.keys) for mass in mass_deletes(segments, DAY)]


def forgotten(*segments: KnownSegment) -> list[KnownSegment]:
    """The same, deleted by `topic forget`."""
    found = [(item, item.deletion) for item in segments]
    return [
        dataclasses.replace(item, deletion=dataclasses.replace(gone, forgotten=True)) for item, gone in found if gone
    ]


def kafkas(segments: list[KnownSegment]) -> list[list[int]]:
    """Numbers of what Kafka's own mass deletes have."""
    place = {item.listed.key: number for number, item in enumerate(segments)}
    found = mass_deletes(segments, DAY, by_kafka=True)
    return [sorted(place[key] for key in mass.keys) for mass in found]


def test_what_was_forgotten_is_held_and_is_no_mass_delete_of_kafkas() -> None:
    all_of_it = forgotten(*(known(n, 10, START + n) for n in range(5)))
    assert numbers(all_of_it) == [[0, 1, 2, 3, 4]]
    assert kafkas(all_of_it) == []


@pytest.mark.parametrize("after_ms", [1, WINDOW_MS - 1, WINDOW_MS, 30 * WINDOW_MS])
def test_a_forget_neither_makes_nor_hides_a_mass_delete_of_kafkas_before_it(after_ms: int) -> None:
    """Its rows were there until then."""
    rest = forgotten(*(known(n, 10, START + after_ms, written_ms=START + after_ms) for n in range(6, 11)))
    half, more = [known(n, 10, START) for n in range(5)], [known(n, 10, START) for n in range(6)]
    assert kafkas([*half, *rest]) == []
    assert kafkas([*more, *rest]) == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("after_ms", [1, WINDOW_MS, 30 * WINDOW_MS])
def test_a_forget_hides_no_mass_delete_of_kafkas_after_it(after_ms: int) -> None:
    """Of a topic that lived, for all that was said of its cluster: its rows were not there any more."""
    gone = forgotten(*(known(n, 1000, START) for n in range(3)))
    later = [known(n, 10, START + after_ms) for n in range(3, 6)]
    assert kafkas([*gone, *later, known(6, 20, None, written_ms=START)]) == [[3, 4, 5]]
    assert kafkas([*gone, *later, known(6, 30, None, written_ms=START)]) == []


def test_over_half_within_ten_minutes() -> None:
    live = [known(n, 10, None) for n in range(4)]
    gone = [known(n, 10, START + n * 1000) for n in range(4, 9)]
    assert numbers(gone + live) == [[0, 1, 2, 3, 4]]


def test_half_is_not_over_half() -> None:
    live = [known(n, 10, None) for n in range(4)]
    gone = [known(n, 10, START + n * 1000) for n in range(4, 8)]
    assert numbers(gone + live) == []


def test_the_same_spread_over_more_time_is_retention() -> None:
    live = [known(n, 10, None) for n in range(5)]
    gone = [known(n, 10, START + n * WINDOW_MS) for n in range(5, 12)]
    assert numbers(gone + live) == []


def test_the_end_of_the_window_is_exclusive() -> None:
    live = [known(0, 10, None)]
    inside = [known(1, 10, START), known(2, 10, START + WINDOW_MS - 1)]
    outside = [known(1, 10, START), known(2, 10, START + WINDOW_MS)]
    assert numbers(inside + live) == [[0, 1]]
    assert numbers(outside + live) == []


def test_what_arrives_later_does_not_dilute_the_verdict() -> None:
    gone = [known(n, 10, START + n) for n in range(3)]
    later = [known(n, 1000, None, written_ms=START + 2 * WINDOW_MS) for n in range(3, 9)]
    earlier = [known(9, 1000, None, written_ms=START - 1)]
    assert numbers(gone + later) == [[0, 1, 2]]
    assert numbers(gone + later + earlier) == []


def test_what_is_merged_later_was_there_before() -> None:
    """A merge writes the indexes of live rows anew: a delete became half of a table that was never so small."""
    merged = [
        dataclasses.replace(known(n, 10, None, written_ms=START + DAY_MS), first_written_ms=START) for n in range(9)
    ]
    assert numbers([known(9, 10, START + 1), *merged]) == []


def test_withdrawals_are_no_deletes() -> None:
    gone = [known(n, 10, START + n, withdrawn=True) for n in range(5)]
    assert numbers(gone) == []


def test_segments_without_rows_come_along() -> None:
    gone = [known(0, 10, START), known(1, 0, START + 5)]
    assert numbers(gone) == [[0, 1]]


def test_one_long_delete_is_due_together() -> None:
    gone = [known(n, 10, START + n * 60_000) for n in range(30)]
    (mass, *rest) = mass_deletes(gone, DAY)
    assert not rest
    assert mass.last_ms == START + 29 * 60_000
    assert mass.due_ms == mass.last_ms + DAY * 1000
    assert mass.rows == 10 * len(mass.keys)
    assert {gone[n].listed.key for n in range(20, 30)} <= mass.keys


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4 * WINDOW_MS)), max_size=12),
    st.lists(st.integers(0, 50), max_size=4),
)
def test_every_window_over_half_is_held_and_nothing_else(gone: list[tuple[int, int]], live: list[int]) -> None:
    segments = [known(n, rows, START + at) for n, (rows, at) in enumerate(gone)]
    segments += [known(100 + n, rows, None) for n, rows in enumerate(live)]
    expected: set[int] = set()
    for _, begin in gone:
        window = {n for n, (_, at) in enumerate(gone) if begin <= at < begin + WINDOW_MS}
        total = sum(rows for rows, at in gone if at >= begin) + sum(live)
        if 2 * sum(gone[n][0] for n in window) > total:
            expected |= window
    assert {n for group in numbers(segments) for n in group} == expected


def test_the_gauges_add_up_over_topics() -> None:
    metrics = Metrics()
    held = DelayedDeletes(metrics)
    held.note(b"a", mass_deletes([known(n, 10, START) for n in range(3)], DAY))
    held.note(b"b", mass_deletes([known(9, 7, START)], DAY))
    assert metrics.registry.get_sample_value("tierberg_mass_delete_segments") == 4
    assert metrics.registry.get_sample_value("tierberg_mass_delete_rows") == 37
    held.note(b"a", ())
    assert metrics.registry.get_sample_value("tierberg_mass_delete_segments") == 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, graces=Graces(600.0, float(DAY)))


def test_a_mass_delete_is_reclaimed_only_after_its_own_grace(world: World) -> None:
    segments = published(world)
    world.delete(*segments[:2])
    world.publish()
    world.later(3600)
    assert not world.reclaim().objects
    assert world.offsets() == [6, 7, 8]
    world.check()
    world.later(DAY)
    assert world.reclaim().objects["tombstone"] == 2
    world.check()


def test_an_ordinary_delete_beside_it_does_not_wait(world: World) -> None:
    segments = published(world, (2, 3, 3, 3))
    world.delete(segments[0])
    world.publish()
    world.later(3600)
    world.delete(*segments[1:3])
    world.publish()
    assert world.reclaim().objects["tombstone"] == 1
    assert len(world.stored("index")) == 3


def test_graces_of_zero_hold_nothing(world: World) -> None:
    assert Graces(0.0, float(DAY)).of_mass() is None
    assert Graces(600.0, 0.0).of_mass() is None
    assert Graces(600.0, 60.0).of_mass() == 600.0
