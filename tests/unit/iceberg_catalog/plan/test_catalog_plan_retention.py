"""When rows leave: with Kafka, never, or once they are old as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan.types import Derive, FileRef, KeepUntil, Segment, UseMain
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, verdict
from tests.worlds.plan_support import FOLLOW, KEEP, WITHDRAWN, Model, commit, gone, plain, seg, txn


def until(horizon_ms: int) -> Model:
    return Model(KeepUntil(horizon_ms))


def test_a_deleted_file_stays_until_it_is_old() -> None:
    model = until(100)
    a, b = seg("a", [plain(0, 4, time_ms=100)]), seg("b", [plain(5, 9, time_ms=200)])
    model.publish(a, b)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.policy = KeepUntil(101)
    result = model.publish(gone(a), b)
    assert (len(result.remove), result.replace) == (1, ())
    assert model.offsets == list(range(5, 10))


def test_an_old_file_stays_while_kafka_has_it() -> None:
    model = until(10_000)
    a = seg("a", [plain(0, 4, time_ms=100)])
    assert model.publish(a).add == (UseMain("a"),)
    assert model.offsets == list(range(5))


def test_a_file_is_as_old_as_its_newest_row() -> None:
    model = until(150)
    a = seg("a", [plain(0, 4, time_ms=200), plain(5, 6, time_ms=100)])
    model.publish(a)
    model.publish(gone(a))
    assert model.offsets == list(range(7))


def test_rows_without_a_timestamp_never_get_old() -> None:
    model = until(10_000)
    a = seg("a", [plain(0, 4, time_ms=-1)])
    model.publish(a)
    model.publish(gone(a))
    assert model.offsets == list(range(5))


def test_a_segment_deleted_before_it_was_published_comes_if_it_is_young() -> None:
    model = until(150)
    old, young = seg("old", [plain(0, 4, time_ms=100)]), seg("young", [plain(5, 9, time_ms=200)])
    result = model.publish(gone(old), gone(young))
    assert result.add == (UseMain("young"),)
    assert (result.gaps, result.state.frontier, result.state.floor) == ((), 10, 10)


def test_the_tail_of_a_deleted_segment_waits_for_its_marker_too() -> None:
    model = until(50)
    n = seg("n", [plain(0, 3, time_ms=100), txn(4, 4, 7)])
    model.publish(gone(n))
    assert (model.offsets, model.state.frontier) == ([0, 1, 2, 3], 4)
    n = seg("n", [plain(0, 3, time_ms=100), txn(4, 4, 7)])
    result = model.publish(gone(n), seg("m", [commit(5, 7), plain(6, 6, time_ms=100)], opened=()))
    # Row 4 has timestamp 0: by now it is too old to come.
    assert result.add == (UseMain("m"),)
    assert model.offsets == [0, 1, 2, 3, 6]


def test_a_withdrawn_copy_adds_nothing_under_any_policy() -> None:
    for policy in (FOLLOW, KEEP, KeepUntil(0)):
        model = Model(policy)
        model.publish(gone(seg("a", [plain(0, 4, time_ms=100)]), WITHDRAWN))
        assert model.offsets == []


@pytest.mark.parametrize("kept", [KEEP, KeepUntil(0)], ids=["keep", "duration"])
def test_a_table_that_is_no_archive_any_more_follows_kafka(kept: object) -> None:
    model = Model(kept)  # type: ignore[arg-type]
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a, b)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.policy = FOLLOW
    assert len(model.publish(gone(a), b).remove) == 1
    assert model.offsets == list(range(5, 10))


def test_a_table_that_becomes_an_archive_takes_up_where_it_is() -> None:
    model = Model(FOLLOW)
    a, b, c = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)]), seg("c", [plain(8, 9), plain(10, 12)])
    model.publish(gone(a), b)
    model.policy = KEEP
    result = model.publish(gone(a), gone(b), gone(c))
    assert result.add == (Derive((("c", 10, 12),)),)
    assert model.offsets == list(range(5, 13))


def test_a_segment_comes_without_its_file_that_is_old() -> None:
    """Kafka deleted a short copy without rows; a longer one has them, and they lie in two files, below and above."""
    model = until(2)
    short = gone(seg("short", [plain(0, 1, rows=False, time_ms=1)]))
    longer = seg("longer", [plain(0, 1, time_ms=1), replace(txn(2, 2, 7), time_ms=3)], opened=((7, 2),))
    result = model.publish(short, longer, seg("after", [commit(3, 7), plain(4, 4, time_ms=4)], opened=()))
    assert result.add == (UseMain("longer", tail=True), UseMain("after"))
    assert (model.offsets, result.gaps, result.state.frontier, result.state.floor) == ([2, 4], (), 5, 2)


def pending(*, tail_ms: int, apart: bool) -> Segment:
    """A deleted segment with old rows, then from offset 2 on a transaction; `apart`: in a tail."""
    batches = [plain(0, 1, time_ms=1), replace(txn(2, 2, 7), time_ms=tail_ms), plain(3, 4, time_ms=1)]
    made = gone(seg("pending", batches, opened=((7, 2),)))
    return made if apart else replace(made, main=FileRef(first=0, last=4, rows=5), tail=None)


@pytest.mark.parametrize("apart", [True, False], ids=["tail", "derived"])
@pytest.mark.parametrize("at_once", [True, False])
def test_each_file_of_a_deleted_segment_is_judged_by_itself(apart: bool, at_once: bool) -> None:
    """Whether it is the segment's own or derived where the rows before the transaction came before its marker."""
    whole_file = at_once and not apart
    for tail_ms, expected in ((1, []), (2, [0, 1, 2, 3, 4] if whole_file else [2, 3, 4])):
        model = until(2)
        segment = pending(tail_ms=tail_ms, apart=apart)
        if not at_once:
            assert model.publish(segment).add == ()
            assert (model.state.frontier, model.state.floor) == (2, 5)
        result = model.publish(segment, seg("marker", [commit(5, 7)], opened=()))
        assert (model.offsets, model.state.frontier) == (expected, 6)
        assert (result.gaps, result.lost) == ((), ())


def test_the_frontier_passes_rows_that_are_too_old() -> None:
    model = until(100)
    old = [gone(seg(f"old{n}", [plain(10 * n, 10 * n + 9, time_ms=99)])) for n in range(3)]
    for number in range(3):
        result = model.publish(*old[: number + 1])
        assert result.add == ()
        assert (model.state.frontier, model.state.floor) == (10 * number + 10, 10 * number + 10)
    assert model.publish(*old, seg("live", [plain(30, 39, time_ms=99)])).add == (UseMain("live"),)


def test_a_rewind_takes_no_row_from_a_deletion_that_was_taken_in() -> None:
    """Its data file may be gone by then, and only its tombstone left: the reclaimer may have died in between."""
    model = Model(KEEP)
    head, row, marker = seg("head", [plain(0, 2)]), gone(seg("row", [txn(3, 3, 1)])), seg("marker", [commit(4, 1)])
    marker = replace(marker, checkpoint=((0, 0),))
    model.publish(head, row, marker)
    assert model.offsets == [0, 1, 2, 3]
    assert verdict(row, model.state) is TombstoneVerdict.FREE
    batches = [plain(2, 2), txn(3, 3, 1), commit(4, 1, 1), plain(5, 5, 1)]
    result = model.publish(head, row, marker, seg("newer", batches, checkpoint=((0, 0), (1, 4))))
    assert result.rewind == 3
    assert result.add == (Derive((("newer", 3, 5),)),)
    assert model.offsets == [0, 1, 2, 3, 5]
