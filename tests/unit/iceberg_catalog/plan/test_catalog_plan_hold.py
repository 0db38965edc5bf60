"""Rows that Kafka deleted stay while a declared projection has not read them, up to its limit, and leave then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan.hold import NO_HOLD, Deletion, Hold, Reader, ReadTo, first_unread, waiting
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import FileRef, KeepUntil, PartState, Policy, Segment, UseMain
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, verdict
from tests.worlds.plan_support import FOLLOW, KEEP, Model, commit, gone, plain, seg, txn

LIMIT = 100
NOW = 1_000


def held(*segments: Segment, read: int = 0, at: int = NOW, now: int = NOW, limit: int = LIMIT) -> Hold:
    """One projection that has read below `read`; the segments were deleted `at`."""
    deletions = tuple(Deletion(item.base, item.last, item.runs, at) for item in segments)
    return Hold((Reader(ReadTo(read), limit),), deletions, now)


def begun(policy: Policy = FOLLOW) -> tuple[Model, Segment, Segment]:
    """A table of two segments."""
    model, a, b = Model(policy), seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a, b)
    return model, a, b


def test_rows_that_a_projection_has_not_read_stay() -> None:
    model, a, b = begun()
    model.hold = held(a, read=0)
    assert model.publish(gone(a), b).remove == ()
    assert (model.offsets, model.state.floor) == (list(range(10)), 5)


def test_rows_that_it_has_read_leave() -> None:
    model, a, b = begun()
    model.hold = held(a, b, read=5)
    assert len(model.publish(gone(a), gone(b)).remove) == 1
    assert model.offsets == list(range(5, 10))
    model.hold = held(a, b, read=10)
    model.publish(gone(a), gone(b))
    assert model.offsets == []


def test_a_file_stays_until_its_last_row_is_read() -> None:
    model, a, b = begun()
    model.hold = held(a, read=4)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))


def test_nothing_waits_longer_than_the_limit() -> None:
    model, a, b = begun()
    model.hold = held(a, at=NOW, now=NOW + LIMIT - 1)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.hold = held(a, at=NOW, now=NOW + LIMIT)
    model.publish(gone(a), b)
    assert model.offsets == list(range(5, 10))


def test_a_projection_with_a_limit_of_nothing_holds_nothing() -> None:
    model, a, b = begun()
    model.hold = replace(held(a, limit=0), deletions=None)
    model.publish(gone(a), b)
    assert model.offsets == list(range(5, 10))


def test_the_projection_that_has_read_least_decides_and_each_by_its_own_limit() -> None:
    model, a, b = begun()
    slow, quick = Reader(ReadTo(0), LIMIT), Reader(ReadTo(5), 10 * LIMIT)
    model.hold = replace(held(a, b), readers=(slow, quick))
    model.publish(gone(a), gone(b))
    assert model.offsets == list(range(10))
    model.hold = replace(model.hold, now_ms=NOW + LIMIT)
    model.publish(gone(a), gone(b))
    assert model.offsets == list(range(5, 10))
    model.hold = replace(model.hold, now_ms=NOW + 10 * LIMIT)
    model.publish(gone(a), gone(b))
    assert model.offsets == []


def test_a_deletion_further_up_tells_since_when_those_below_are_gone() -> None:
    """The delete of the lower segment was repeated for long until it succeeded."""
    model, a, b = begun()
    late = Deletion(a.base, a.last, a.runs, NOW + 99)
    model.hold = Hold((Reader(ReadTo(), LIMIT),), (*(held(b).deletions or ()), late), NOW + LIMIT)
    model.publish(gone(a), gone(b))
    assert model.offsets == []


def test_the_dead_part_of_a_deleted_segment_tells_nothing() -> None:
    """It was deleted long ago with offsets to 9, but from 5 on another leader's rows live."""
    model = Model()
    dead = seg("dead", [plain(0, 9)])
    live = seg("live", [plain(0, 4), plain(5, 9, 1)])
    model.publish(live)
    long_ago = held(dead, at=0).deletions or ()
    model.hold = Hold((Reader(ReadTo(), LIMIT),), (*long_ago, *(held(live).deletions or ())), NOW)
    model.publish(gone(dead), gone(live))
    assert model.offsets == list(range(10))


def test_what_no_deletion_tells_of_does_not_wait() -> None:
    """The table was an archive; the tombstone of its first rows has been reclaimed."""
    model, a, b = begun(KEEP)
    model.publish(gone(a), gone(b))
    model.policy, model.hold = FOLLOW, held(a)
    model.publish(gone(a))
    assert model.offsets == list(range(5))


def test_what_was_deleted_before_it_was_published_comes_while_a_projection_waits() -> None:
    model = Model()
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a)
    model.hold = held(a, b)
    assert model.publish(gone(a), gone(b)).add == (UseMain("b"),)
    assert (model.offsets, model.state.frontier, model.state.floor) == (list(range(10)), 10, 10)
    model.hold = held(a, b, now=NOW + LIMIT)
    model.publish(gone(a), gone(b))
    assert model.offsets == []


def test_what_was_deleted_before_it_was_published_and_waited_too_long_does_not_come() -> None:
    model = Model()
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a)
    model.hold = held(a, b, now=NOW + LIMIT)
    assert model.publish(gone(a), gone(b)).add == ()
    assert (model.offsets, model.state.frontier) == ([], 10)


def test_rows_that_waited_for_a_marker_come_and_stay_too() -> None:
    model = Model()
    n = seg("n", [plain(0, 3), txn(4, 4, 7)])
    model.hold = held(n)
    model.publish(gone(n))
    assert (model.offsets, model.state.frontier, model.state.floor) == ([0, 1, 2, 3], 4, 5)
    assert verdict(gone(n), model.state, 0) is TombstoneVerdict.NEEDED
    model.publish(gone(n), seg("m", [commit(5, 7), plain(6, 6)], opened=()))
    assert model.offsets == [0, 1, 2, 3, 4, 6]


def test_a_hold_that_ends_leaves_a_table_that_follows_kafka() -> None:
    """Rows that still waited for their marker are given up with the others."""
    model = Model()
    n = seg("n", [plain(0, 3), txn(4, 4, 7)])
    model.hold = held(n)
    model.publish(gone(n))
    model.hold = NO_HOLD
    model.publish(gone(n))
    assert (model.offsets, model.state.frontier) == ([], 5)


def test_a_duration_and_a_hold_both_have_to_end() -> None:
    model, a, b = Model(KeepUntil(100)), seg("a", [plain(0, 4, time_ms=100)]), seg("b", [plain(5, 9, time_ms=200)])
    model.publish(a, b)
    model.hold = held(a)
    model.policy = KeepUntil(101)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.policy, model.hold = KeepUntil(100), NO_HOLD
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.policy = KeepUntil(101)
    model.publish(gone(a), b)
    assert model.offsets == list(range(5, 10))


def test_an_archive_needs_no_hold() -> None:
    model, a, b = begun(KEEP)
    model.hold = held(a, b, now=NOW + LIMIT)
    model.publish(gone(a), gone(b))
    assert model.offsets == list(range(10))


@pytest.mark.parametrize("event", ["rewinds", "repairs"])
def test_what_was_taken_back_or_came_late_is_to_be_read_again(event: str) -> None:
    model, a, b = begun()
    seen = ((1, 3),)
    model.state = replace(model.state, rewinds=seen) if event == "rewinds" else replace(model.state, repairs=seen)
    model.hold = held(a, read=10)
    model.publish(gone(a), b)
    assert model.offsets == list(range(10))
    model.hold = Hold((Reader(ReadTo(10, 1, 1), LIMIT),), model.hold.deletions, NOW)
    model.publish(gone(a), b)
    assert model.offsets == list(range(5, 10))


def test_rows_of_the_new_branch_wait_in_the_very_plan_that_rewinds() -> None:
    """The projection had read to 10; from 5 on another leader's rows came, and were deleted before we heard of them."""
    model, a, b = begun()
    new = seg("new", [plain(5, 9, 1)], checkpoint=((0, 0), (1, 5)))
    model.hold = held(new, read=10)
    result = model.publish(a, b, gone(new))
    assert (result.rewind, result.add) == (5, (UseMain("new"),))
    assert model.rows[7] == 1


def test_a_branch_that_died_leaves_whatever_waits() -> None:
    model, a, b = begun()
    model.hold = held(a, b)
    model.publish(gone(a), gone(b))
    new = seg("new", [plain(5, 7, 1)], checkpoint=((0, 0), (1, 5)))
    model.publish(gone(a), gone(b), new)
    assert (model.offsets, model.rows[5]) == (list(range(8)), 1)


def test_events_that_are_not_remembered_any_more_mean_all_of_it() -> None:
    state = PartState(rewinds=((3, 70), (4, 80)))
    assert first_unread(ReadTo(100, 2), state) == 70
    assert first_unread(ReadTo(100, 1), state) == 0
    assert first_unread(ReadTo(100, 4), state) == 100
    assert first_unread(ReadTo(100, 4), state, rewind=60) == 60
    assert first_unread(ReadTo(50, 4), state, rewind=60) == 50


def test_nobody_waits_without_readers_or_deletions() -> None:
    for hold in (NO_HOLD, Hold((Reader(ReadTo(), LIMIT),), ()), Hold((), (Deletion(0, 4, (), NOW),), NOW)):
        start, end = waiting(hold, Lineage(), PartState())
        assert start >= end


def test_a_tombstone_above_rows_that_wait_tells_since_when() -> None:
    """Their own file may have been merged: then nothing else would keep it."""
    state = PartState(frontier=20, floor=20, lineage=((0, 0),), known_end=20)
    stone = gone(seg("s", [plain(10, 19)]))
    assert verdict(stone, state, waiting=19) is TombstoneVerdict.NEEDED
    assert verdict(stone, state, waiting=20) is TombstoneVerdict.FREE
    assert verdict(stone, state) is TombstoneVerdict.FREE


def test_no_row_comes_from_a_deletion_whose_objects_are_being_removed() -> None:
    """An undelete has put the state back that it was taken in by."""
    leaving = replace(gone(seg("leaving", [plain(0, 4)])), leaving=True)
    assert leaving.main == FileRef(first=0, last=4, rows=5)
    for model in (Model(KEEP), Model(FOLLOW, hold=held(leaving))):
        result = model.publish(leaving, seg("after", [plain(5, 9)]))
        assert result.add == (UseMain("after"),)
