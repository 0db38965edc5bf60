"""C1–C20: the minimal histories that a model check found, each a way to lose, double or resurrect rows."""

from __future__ import annotations

import pytest

from iceberg_catalog.plan import lineage_record
from iceberg_catalog.plan.types import Derive, Policy, UseMain
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, verdict
from tests.worlds.plan_support import (
    DELETED,
    FOLLOW,
    KEEP,
    WITHDRAWN,
    Model,
    abort,
    commit,
    from_records_alone,
    gone,
    plain,
    seg,
    txn,
)

POLICIES = pytest.mark.parametrize("policy", [FOLLOW, KEEP], ids=["follow", "keep"])


def test_c1_epochs_are_no_total_order_per_offset() -> None:
    a = seg("a", [plain(0, 10, 3)])
    b = seg("b", [plain(0, 6, 3), plain(7, 8, 4)])
    c = seg("c", [plain(11, 12, 5)], checkpoint=((3, 0), (5, 11)))
    model = Model()
    model.publish(a, b, c)
    assert model.rows == {**dict.fromkeys(range(11), 3), 11: 5, 12: 5}


def test_c1_published_in_steps() -> None:
    a = seg("a", [plain(0, 10, 3)])
    b = seg("b", [plain(0, 6, 3), plain(7, 8, 4)])
    c = seg("c", [plain(11, 12, 5)], checkpoint=((3, 0), (5, 11)))
    model = Model()
    model.publish(a)
    assert model.publish(a, b).rewind == 7
    assert model.rows == {**dict.fromkeys(range(7), 3), 7: 4, 8: 4}
    assert model.publish(a, b, c).rewind == 7
    assert model.rows == {**dict.fromkeys(range(11), 3), 11: 5, 12: 5}


def test_c2_a_rewind_goes_to_the_first_offset_of_a_transaction_open_there() -> None:
    a = seg("a", [plain(0, 7, 3), txn(8, 10, 1, 3)])
    marker = seg("m", [commit(11, 1, 3)], checkpoint=((3, 0),), opened=())
    model = Model()
    model.publish(a, marker)
    assert model.offsets == list(range(11))
    other = seg("b", [plain(0, 7, 3), txn(8, 10, 1, 3), abort(11, 1, 4), plain(12, 13, 4)], opened=())
    result = model.publish(a, marker, other)
    assert result.rewind == 8
    assert model.offsets == [*range(8), 12, 13]


def test_c3_a_dead_branch_does_not_come_back_when_its_better_is_deleted() -> None:
    a = seg("a", [plain(0, 10, 3)])
    b = seg("b", [plain(5, 6, 3), plain(7, 8, 4)], checkpoint=((3, 0), (4, 7)))
    model = Model()
    model.publish(seg("low", [plain(0, 4, 3)]), b)
    model.publish(gone(b))
    model.publish(a)
    assert all(epoch != 3 or offset < 7 for offset, epoch in model.rows.items())
    assert not model.publish(a).changes(model.state)


def test_c4_a_marker_lost_in_a_gap_is_not_replaced_by_the_next_one() -> None:
    model = Model()
    a = seg("a", [plain(0, 7), txn(8, 9, 1)])
    b = seg("b", [txn(22, 24, 1), commit(25, 1), plain(26, 30)], checkpoint=((0, 22),))
    result = model.publish(a, b)
    assert model.offsets == [*range(8), 22, 23, 24, *range(26, 31)]
    assert result.lost == ((8, 9),)
    assert result.gaps == ((10, 21),)


@POLICIES
def test_c5_a_marker_in_a_deleted_segment_still_decides(policy: Policy) -> None:
    model = Model(policy)
    n = seg("n", [plain(0, 3), txn(4, 4, 7)])
    marker = seg("m", [commit(5, 7), plain(6, 6)], state=DELETED, opened=())
    model.publish(n, marker)
    assert model.offsets == ([] if policy == FOLLOW else [0, 1, 2, 3, 4, 6])
    assert model.state.floor == 7


@POLICIES
def test_c6_an_old_listing_does_not_remove_what_it_does_not_show(policy: Policy) -> None:
    model = Model(policy)
    n, later = seg("n", [plain(0, 4)]), seg("n1", [plain(5, 9)])
    model.publish(n, later)
    assert not model.publish(n).changes(model.state)
    assert model.offsets == list(range(10))


def test_c7_a_failed_copy_taken_again_is_not_lost() -> None:
    a = seg("a", [plain(0, 4)])
    model = Model()
    model.publish(a)
    again = seg("again", [plain(0, 4), plain(5, 6)])
    result = model.publish(gone(a, WITHDRAWN), again)
    assert result.state.floor == 0
    assert model.offsets == list(range(7))


def test_c8_a_segment_the_first_listing_missed_is_not_a_gap() -> None:
    # The page with base 0 was read before its segment existed, the page with 5 after.
    model = Model()
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    assert model.publish(b, relisted=False).need_relist
    model.publish(a, b, relisted=True)
    assert model.offsets == list(range(10))


def test_c9_a_delete_of_an_overlapped_segment_rewrites_nothing() -> None:
    a, b = seg("a", [plain(0, 50), plain(51, 100)]), seg("b", [plain(51, 100), plain(101, 150)])
    model = Model()
    assert model.publish(a, b).add == (UseMain("a"), Derive((("b", 101, 150),)))
    result = model.publish(gone(a), b)
    assert (result.trim, len(result.remove), result.state.floor) == ((), 1, 101)
    assert model.offsets == list(range(101, 151))


def test_c10_a_withdrawn_copy_outlives_plans_made_while_it_was_live() -> None:
    # A plan on this head may name its data file until the head has moved.
    model = Model()
    a, b = seg("a", [plain(0, 4)]), gone(seg("b", [plain(5, 9)]), WITHDRAWN)
    model.publish(a, b)
    assert model.state.frontier == 5
    assert verdict(b, model.state) is TombstoneVerdict.FENCE


def test_c11_a_head_that_has_not_seen_an_epoch_cannot_judge_its_segments() -> None:
    model = Model()
    model.publish(seg("a", [plain(0, 20, 3)]))
    newer = seg("b", [plain(5, 8, 4)], checkpoint=((3, 0), (4, 5)), state=DELETED)
    assert model.state.frontier > newer.last
    assert verdict(newer, model.state) is TombstoneVerdict.NEEDED
    assert verdict(gone(newer, WITHDRAWN), model.state) is TombstoneVerdict.NEEDED
    model.publish(seg("a", [plain(0, 20, 3)]), newer)
    assert verdict(newer, model.state) is TombstoneVerdict.FREE


def test_c12_a_late_upload_below_the_frontier_is_never_added() -> None:
    model = Model()
    b = seg("b", [plain(5, 9)])
    model.publish(b)
    assert not model.publish(seg("a", [plain(0, 4)]), b).add
    assert model.offsets == list(range(5, 10))


def test_c13_offsets_retention_removed_do_not_come_back() -> None:
    model = Model()
    a = seg("a", [plain(0, 9)])
    model.publish(gone(a))
    # A new leader had not learned the log start yet.
    model.publish(gone(a), seg("b", [plain(0, 9), plain(10, 12, 1)]))
    assert model.offsets == [10, 11, 12]
    assert model.state.floor == 10


def test_c14_a_row_whose_death_nothing_shows_does_not_hold_the_frontier() -> None:
    model = Model(KEEP)
    old = seg("old", [txn(0, 0, 1, 0)])
    model.publish(old)
    assert model.state.frontier == 0
    model.publish(old, seg("new", [plain(1, 3, 1)], checkpoint=((1, 1),), opened=()))
    assert model.state.frontier == 4
    assert model.offsets == [1, 2, 3]


def test_c15_the_floor_sinks_to_where_an_unclean_leader_was_cut() -> None:
    # Truncation below the log start lowers it: a log start, and so the floor, is not monotone over unclean elections.
    model = Model()
    a, b = seg("a", [plain(0, 4, 1)]), seg("b", [plain(5, 9, 1)], checkpoint=((1, 0),))
    model.publish(a, b)
    model.publish(gone(a), gone(b))
    assert model.state.floor == 10
    model.publish(gone(a), gone(b), seg("c", [plain(7, 12, 2)], checkpoint=((1, 5), (2, 7))))
    assert model.state.floor == 7
    assert model.rows == dict.fromkeys(range(7, 13), 2)


def test_c16_a_dead_marker_below_the_log_start_decides_nothing() -> None:
    """No checkpoint shows that offset 3 is another leader's by now; the producer snapshot of `c` does."""
    model = Model(KEEP)
    a = seg("a", [plain(0, 1), txn(2, 2, 7, 1)], checkpoint=((0, 0), (1, 2)))
    dead = seg(
        "b", [abort(3, 7, 1), plain(4, 4, 2)], checkpoint=((0, 0), (1, 2), (2, 4)), aborts=[(7, 2, 3)], opened=()
    )
    c = seg("c", [txn(4, 4, 7, 3)], checkpoint=((3, 4),), opened=((7, 2),))
    d = seg("d", [commit(5, 7, 3), plain(6, 6, 4)], checkpoint=((3, 4), (4, 6)), aborts=[], opened=())
    result = model.publish(a, dead, c, d)
    assert (result.conflict, result.state.frontier) == (None, 7)
    assert model.rows == {0: 0, 1: 0, 2: 1, 4: 3, 6: 4}


def test_c16_a_marker_of_the_history_a_snapshot_tells_still_contradicts_it() -> None:
    for told in ((1, 4), (3, 3)):  # the marker's own epoch; a newer one, from the marker on
        a = seg("a", [txn(2, 2, 7, 1), abort(3, 7, told[0])], aborts=[(7, 2, 3)], opened=())
        c = seg("c", [plain(4, 4, told[0])], checkpoint=(told,), opened=((7, 2),))
        assert Model(KEEP).publish(a, c).conflict == 2


@POLICIES
def test_what_retention_deleted_is_needed_until_the_frontier_has_passed_it(policy: Policy) -> None:
    model = Model(policy)
    tail = seg("n", [plain(0, 3), txn(4, 4, 7)])
    marker = gone(seg("m", [commit(5, 7), plain(6, 6), txn(7, 7, 7)], opened=((7, 7),)))
    model.publish(tail)
    assert verdict(marker, model.state) is TombstoneVerdict.NEEDED
    model.publish(tail, marker)
    # Under `keep` the last row of the deleted segment still waits for its marker.
    assert verdict(marker, model.state) is (TombstoneVerdict.FREE if policy == FOLLOW else TombstoneVerdict.NEEDED)


def test_c17_an_older_epoch_that_wins_back_is_published_from_its_first_offset_on() -> None:
    """Two unclean elections in a row: what the second leader wrote dies whole, and the first one's rows are alive."""
    e1 = seg("e1", [plain(0, 1, 1)])
    e2 = seg("e2", [plain(0, 5, 2)])
    e3 = seg("e3", [plain(2, 4, 3)], checkpoint=((1, 0), (3, 2)))
    model = Model()
    model.publish(e1)
    assert model.publish(e1, e2).rewind == 0
    assert from_records_alone(model, e1, e2, e3).rewind == 0
    assert model.publish(e1, e2, e3).rewind == 0
    assert model.rows == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3}


@pytest.mark.parametrize("entries_max", [1000, 3])
def test_rows_of_a_winner_where_nobody_had_any_are_published(entries_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody had [1, 2] when the walk went over them to epoch 3. Epoch 2 wins back, with rows there."""
    monkeypatch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", entries_max)
    e2 = seg("e2", [plain(0, 0, 2)])
    e3 = seg("e3", [plain(3, 4, 3)], checkpoint=((3, 3),))
    e4 = seg("e4", [plain(1, 3, 2), plain(4, 4, 4)], checkpoint=((2, 0), (4, 4)))
    model = Model()
    assert model.publish(e2, e3).gaps == ((1, 2),)
    assert model.publish(e2, e3, e4).rewind == 1
    assert model.rows == {0: 2, 1: 2, 2: 2, 3: 2, 4: 4}
