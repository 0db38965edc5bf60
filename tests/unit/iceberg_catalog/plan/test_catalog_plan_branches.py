"""Branches that lost and won back: what a reader with a model of their own found, each with rows missing or a stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.plan import plan, plan_ahead
from iceberg_catalog.plan.types import PartState, Plan, Policy
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, still_to_raise, verdict
from tests.worlds.plan_support import FOLLOW, KEEP, Model, abort, commit, gone, plain, seg, txn

POLICIES = pytest.mark.parametrize("policy", [FOLLOW, KEEP], ids=["follow", "keep"])

X = seg("x", [plain(0, 0, 1), replace(txn(1, 1, 7, 1), rows=False), abort(2, 7, 2)], opened=(), aborts=[(7, 1, 2)])
Y = seg("y", [plain(0, 0, 1), txn(1, 1, 7, 1), plain(2, 2, 1)], aborts=[])
Y2 = seg("y2", [commit(3, 7, 3), plain(4, 4, 3)], checkpoint=((1, 0), (3, 3)), opened=(), aborts=[])
Z = seg("z", [plain(3, 4, 2), plain(5, 6, 4)], checkpoint=((2, 3), (4, 5)), aborts=[])


def test_who_has_an_epoch_has_all_below_it_whichever_branch_was_stronger_meanwhile() -> None:
    assert fold([X, Y, Y2, Z], PartState()) == Lineage(((1, 0), (2, 2), (4, 5)), 7)
    assert fold([Y, Y2, Z], PartState()) == Lineage(((1, 0), (2, 3), (4, 5)), 7)


@POLICIES
def test_a_winner_whose_checkpoint_is_cut_contradicts_nobody(policy: Policy) -> None:
    model = Model(policy)
    result = model.publish(X, Y, Y2, Z)
    assert (result.conflict, result.state.frontier) == (None, 7)
    assert model.rows == {0: 1, 3: 2, 4: 2, 5: 4, 6: 4}


P = seg("p", [plain(0, 4, 1)])
Q = seg("q", [plain(0, 3, 2)])
BACK = seg("back", [plain(0, 9, 1)]), seg("back2", [plain(10, 11, 3)], checkpoint=((1, 0), (3, 10)))


@POLICIES
def test_what_a_branch_that_lost_deleted_for_its_old_epochs_raises_no_floor(policy: Policy) -> None:
    model = Model(policy)
    for stored in ((P,), (P, Q), (gone(P), Q), (gone(P), Q, *BACK)):
        model.publish(*stored)
    assert (model.offsets, model.state.floor) == (list(range(12)), 0)


def test_the_next_deletion_that_tells_raises_it() -> None:
    model = Model()
    model.publish(gone(P), Q, *BACK)
    later = seg("later", [plain(12, 13, 3)], checkpoint=((3, 12),))
    result = model.publish(gone(P), Q, gone(BACK[0]), gone(BACK[1]), later)
    assert (model.offsets, result.state.floor) == ([12, 13], 12)


def test_a_listing_from_the_frontier_does_not_tell_what_a_deletion_says() -> None:
    """Who made it may have lost, and the copies that show it may all lie below the frontier."""
    model = Model()
    model.publish(P)
    assert plan_ahead([gone(P)], model.state, FOLLOW) is None
    late = seg("late", [plain(7, 9, 1)], checkpoint=((1, 3),))
    assert plan_ahead([late], model.state, FOLLOW) is None
    told = replace(model.state, floor=5)
    assert plan_ahead([gone(P)], told, FOLLOW) == Plan(state=told)


def test_below_the_record_a_listing_from_the_frontier_does_not_tell_whose_a_kept_deletion_is() -> None:
    old, new = seg("old", [plain(0, 9)]), seg("new", [plain(10, 19, 1)], checkpoint=((0, 0), (1, 10)))
    state = PartState(frontier=20, floor=12, lineage=((1, 10),), known_end=20)
    assert plan([gone(old), new], (), state, KEEP, relisted=False).state.lineage == ((0, 0), (1, 10))
    assert plan_ahead([gone(old)], state, KEEP) is None
    assert plan_ahead([gone(old)], state, FOLLOW) == Plan(state=state)
    assert plan_ahead([old], state, KEEP) == Plan(state=state)


def test_a_record_is_completed_by_all_that_agree_at_once() -> None:
    """What has its first epoch begins at 2, where its own log began; another has the epoch of that from 0 on."""
    old, new = (
        seg("old", [plain(2, 9)], checkpoint=((0, 0),)),
        seg("new", [plain(10, 19, 1)], checkpoint=((0, 2), (1, 10))),
    )
    state = PartState(frontier=20, floor=12, lineage=((1, 10),), known_end=20)
    made = plan([gone(old), new], (), state, KEEP, relisted=False)
    assert made.state.lineage == ((0, 0), (1, 10))
    assert not plan([gone(old), new], (), made.state, KEEP, relisted=False).changes(made.state)


@pytest.mark.parametrize("merged", [False, True])
def test_rows_of_a_deleted_segment_stay_in_an_archive_where_the_log_was_left_only_below_them(*, merged: bool) -> None:
    """A leader's log start hid where its epoch began; the next one tells it. Its segment may have no objects."""
    old, left = seg("s1", [plain(0, 4)]), seg("s2", [plain(n, n) for n in range(5, 13)], checkpoint=((0, 0),))
    new, more = (
        seg("s3", [plain(7, 10, 1)], checkpoint=((1, 7),)),
        seg("s4", [plain(11, 12, 1)], checkpoint=((1, 7),)),
    )
    tells = seg("s5", [plain(13, 15, 2)], checkpoint=((0, 0), (1, 6), (2, 13)))
    model = Model(KEEP)
    for stored in ((old, left), (old, left, new, more), (gone(old), left, gone(new), more)):
        model.publish(*stored)
    assert model.rows == dict.fromkeys(range(7), 0) | dict.fromkeys(range(7, 13), 1)
    if merged:
        rows = {offset: row for _, held in model.files.values() for offset, row in held.items()}
        model.files.clear()
        model.add("merged", rows, ((0, 0), (1, 7)))
    result = model.publish(gone(old), left, gone(new), more, tells)
    assert model.rows == dict.fromkeys(range(6), 0) | dict.fromkeys(range(7, 13), 1) | dict.fromkeys(range(13, 16), 2)
    assert (result.rewind, result.gaps) == (6, ((6, 6),))


@POLICIES
@pytest.mark.parametrize("between", [False, True])
def test_a_copy_that_lacks_rows_ends_where_a_whole_one_begins(policy: Policy, *, between: bool) -> None:
    """The marker that aborted row 1 in the first copy is dead; the second one has the row, and begins with it."""
    y = seg("y", [txn(1, 1, 7, 1), plain(2, 2, 2), commit(3, 7, 2)], checkpoint=((1, 0), (2, 2)), opened=(), aborts=[])
    x = seg("x", [plain(0, 0, 1), replace(txn(1, 1, 7, 1), rows=False), abort(2, 7, 1)], opened=(), aborts=[(7, 1, 2)])
    model = Model(policy)
    if between:
        model.publish(x)
    model.publish(x, y)
    assert model.offsets == [0, 1, 2]


def test_a_copy_without_rows_ends_where_one_with_rows_begins() -> None:
    verbatim = seg("verbatim", [plain(0, 4, rows=False), plain(5, 9, rows=False)])
    model = Model()
    model.publish(verbatim, seg("rows", [plain(5, 9), plain(10, 12)], checkpoint=((0, 0),)))
    assert model.offsets == list(range(5, 13))


@POLICIES
@pytest.mark.parametrize("between", [False, True])
def test_rows_below_the_frontier_that_nobody_has_read_come_with_a_rewind(policy: Policy, *, between: bool) -> None:
    """The log began at 11. Who wins has a log from 0 on, and its first copy lies where the walk never was."""
    old, low = seg("old", [plain(11, 15, 3)]), seg("low", [plain(0, 2, 2)])
    model = Model(policy)
    model.publish(old)
    if between:
        model.publish(old, low)
        assert model.offsets == list(range(11, 16))
    model.publish(old, low, seg("next", [plain(3, 5, 7)], checkpoint=((2, 0), (7, 3))))
    assert model.rows == {0: 2, 1: 2, 2: 2, 3: 7, 4: 7, 5: 7}


HELD = gone(seg("held", [txn(0, 0, 7)], opened=((7, 0),), aborts=[], checkpoint=((0, 0),)))


def test_a_marker_is_no_row_that_nobody_has_read() -> None:
    model = Model(KEEP)
    lost = seg("lost", [commit(1, 7), plain(2, 2, 1)], opened=(), aborts=[], checkpoint=((0, 1), (1, 2)))
    won = seg("won", [commit(1, 7), plain(2, 2, 2)], opened=(), aborts=[], checkpoint=((0, 0), (2, 2)))
    model.publish(HELD, lost)
    assert model.publish(HELD, lost, won).rewind == 2
    assert model.rows == {0: 0, 2: 2}


def test_rows_that_cannot_come_again_stay_where_only_others_were_not_read() -> None:
    """Row 1 was aborted, which looks as if nobody had read it. The transaction of row 0 is open there, yet decided."""
    model = Model(KEEP)
    both = seg("both", [txn(1, 1, 8), commit(2, 7)], opened=((8, 1),), aborts=[], checkpoint=((0, 1),))
    lost = seg("lost", [abort(3, 8), plain(4, 4, 1)], opened=(), aborts=[(8, 1, 3)], checkpoint=((0, 1), (1, 4)))
    won = seg("won", [abort(3, 8), plain(4, 4, 2)], opened=(), aborts=[(8, 1, 3)], checkpoint=((0, 0), (2, 4)))
    model.publish(HELD, both, lost)
    assert model.rows == {0: 0, 4: 1}
    model.publish(HELD, both, lost, won)
    assert model.rows == {0: 0, 4: 2}


def test_what_shows_that_a_deletion_raises_no_floor_stays_as_long_as_that_is_waited_for() -> None:
    model = Model()
    for stored in ((P,), (P, Q), (gone(P), Q), (gone(P), gone(Q), *BACK)):
        model.publish(*stored)
    assert verdict(gone(Q), model.state) is TombstoneVerdict.FREE
    assert still_to_raise([gone(P), gone(Q)], model.state) == {1: 5}
    assert verdict(gone(Q), model.state, raising={1: 5}) is TombstoneVerdict.NEEDED
    assert still_to_raise([gone(P)], replace(model.state, floor=12)) == {}
