"""Each rule of the publish plan, with the smallest history that needs it."""

from __future__ import annotations

from dataclasses import replace

from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import BatchKind, Derive, PartState, Segment, Trim, UseMain
from tests.worlds.plan_support import FOLLOW, KEEP, WITHDRAWN, B, Model, abort, commit, gone, plain, seg, txn


def test_nothing_makes_nothing() -> None:
    result = plan([], [], PartState(), FOLLOW, relisted=False)
    assert not result.changes(PartState())
    assert not result.need_relist


def test_a_plain_segment_is_added_as_it_is() -> None:
    model = Model()
    result = model.publish(seg("a", [plain(0, 9)]))
    assert result.add == (UseMain("a"),)
    assert result.state.frontier == 10
    assert model.offsets == list(range(10))


def test_the_next_segment_adds_only_itself() -> None:
    model = Model()
    a, b = seg("a", [plain(0, 9)]), seg("b", [plain(10, 19)])
    model.publish(a)
    assert model.publish(a, b).add == (UseMain("b"),)
    assert model.publish(b).add == ()


def test_a_second_upload_of_the_same_range_adds_nothing() -> None:
    model = Model()
    a, again = seg("a", [plain(0, 9)]), seg("again", [plain(0, 9)])
    model.publish(a)
    model.publish(a, again)
    assert model.offsets == list(range(10))
    assert len(model.files) == 1


def test_of_two_first_uploads_one_is_used() -> None:
    model = Model()
    assert len(model.publish(seg("a", [plain(0, 9)]), seg("b", [plain(0, 9)])).add) == 1


def test_a_superset_published_first_is_used_whole() -> None:
    model = Model()
    a, whole = seg("a", [plain(0, 4)]), seg("whole", [plain(0, 4), plain(5, 9)])
    assert model.publish(a, whole).add == (UseMain("whole"),)


def test_a_superset_by_a_new_leader_is_derived_above_the_frontier() -> None:
    model = Model()
    a = seg("a", [plain(0, 4), plain(5, 9)])
    b = seg("b", [plain(5, 9), plain(10, 12), plain(13, 19, epoch=1)], checkpoint=((0, 0), (1, 13)))
    model.publish(a)
    assert model.publish(a, b).add == (Derive((("b", 10, 19),)),)
    assert model.offsets == list(range(20))


def test_rows_below_an_undecided_transaction_come_at_once_and_the_others_later() -> None:
    model = Model()
    a = seg("a", [plain(0, 1), txn(2, 4, 7), plain(5, 6)])
    first = model.publish(a)
    assert (first.add, first.state.frontier) == ((UseMain("a"),), 2)
    second = model.publish(a, seg("b", [commit(7, 7)], opened=()))
    assert (second.add, second.state.frontier) == ((UseMain("a", tail=True),), 8)
    assert model.offsets == [0, 1, 2, 3, 4, 5, 6]


def test_rows_of_an_aborted_transaction_never_come_and_those_above_it_do() -> None:
    model = Model()
    a = seg("a", [plain(0, 1), txn(2, 4, 7), plain(5, 6)])
    model.publish(a)
    assert model.publish(a, seg("b", [abort(7, 7)], opened=())).add == (Derive((("a", 5, 6),)),)
    assert model.offsets == [0, 1, 5, 6]


def test_a_transaction_decided_at_once_needs_no_derived_file() -> None:
    model = Model()
    result = model.publish(seg("a", [plain(0, 1), txn(2, 4, 7), plain(5, 6)]), seg("b", [commit(7, 7)], opened=()))
    assert result.add == (UseMain("a"), UseMain("a", tail=True))


def test_a_tail_decided_in_parts_is_derived() -> None:
    model = Model()
    a = seg("a", [plain(0, 0), txn(1, 1, 1), plain(2, 2), txn(3, 3, 2), plain(4, 4)])
    assert model.publish(a).add == (UseMain("a"),)
    b = seg("b", [commit(5, 1)], opened=((2, 3),))
    assert model.publish(a, b).add == (Derive((("a", 1, 2),)),)
    assert model.publish(a, b, seg("c", [abort(6, 2)], opened=())).add == (Derive((("a", 4, 4),)),)
    assert model.offsets == [0, 1, 2, 4]


def test_a_segment_that_begins_with_an_open_transaction_has_one_file() -> None:
    model = Model()
    a = seg("a", [txn(0, 1, 7), plain(2, 2)])
    assert model.publish(a).add == ()
    assert model.publish(a, seg("b", [commit(3, 7)], opened=())).add == (UseMain("a"),)


def test_an_abort_within_leaves_the_tail_as_it_is() -> None:
    model = Model()
    aborted = [txn(1, 1, 1), abort(2, 1)]  # as if the transaction index had been absent: it became rows
    a = seg("a", [plain(0, 0), *aborted, plain(3, 3), txn(4, 4, 2)])
    b = seg("b", [commit(5, 2)], opened=())
    assert model.publish(a, b).add == (UseMain("a", tail=True), Derive((("a", 0, 0), ("a", 3, 3))))
    assert model.offsets == [0, 3, 4]


def test_the_frontier_stops_at_the_first_of_several_open_transactions() -> None:
    model = Model()
    a = seg("a", [plain(0, 0), txn(1, 1, 1), txn(2, 2, 2), plain(3, 3)])
    model.publish(a)
    b = seg("b", [commit(4, 1), plain(5, 5)], opened=((2, 2),))
    assert model.publish(a, b).state.frontier == 2
    assert model.offsets == [0, 1]
    c = seg("c", [commit(6, 2)], opened=())
    model.publish(a, b, c)
    assert model.offsets == [0, 1, 2, 3, 5]


def test_committed_rows_below_the_waiting_one_come_from_every_segment() -> None:
    model = Model()
    a, b = seg("a", [txn(0, 2, 1), plain(3, 4)]), seg("b", [commit(5, 1), plain(6, 7), txn(8, 8, 1)], opened=((1, 8),))
    result = model.publish(a, b)
    assert result.add == (UseMain("a"), UseMain("b"))
    assert result.state.frontier == 8


def test_batches_without_rows_wait_for_nothing() -> None:
    model = Model()
    a = seg("a", [plain(0, 1), B(2, 3, 0, 7, BatchKind.TXN, rows=False), plain(4, 5)])
    assert model.publish(a).add == (UseMain("a"),)
    assert model.state.frontier == 6


def verbatim(name: str, *batches: B) -> Segment:
    """Stored as it came: a segment without rows, and its markers."""
    return seg(name, [replace(batch, rows=False) for batch in batches])


def test_a_copy_with_rows_comes_before_one_without_wherever_the_walk_begins() -> None:
    model = Model()
    batches = plain(0, 1), txn(2, 4, 7)
    model.publish(verbatim("a", *batches), seg("b", batches), verbatim("c", *batches))
    assert (model.offsets, model.state.frontier) == ([0, 1], 2)
    model.publish(verbatim("a", *batches), seg("b", batches), verbatim("c", *batches), seg("d", [commit(5, 7)]))
    assert model.offsets == [0, 1, 2, 3, 4]


def test_a_larger_copy_with_rows_comes_before_one_without_that_begins_here() -> None:
    model = Model()
    model.publish(seg("low", [plain(0, 1)]))
    model.publish(verbatim("a", plain(2, 3)), seg("b", [plain(0, 1), plain(2, 3)]))
    assert model.offsets == [0, 1, 2, 3]


def test_a_waiting_tail_in_another_cut_comes_from_the_new_segment() -> None:
    # A new leader uploads the same offsets in one larger segment before the marker is known.
    model = Model()
    a = seg("a", [plain(0, 1), txn(2, 4, 7)])
    model.publish(a)
    b = seg("b", [txn(2, 4, 7), commit(5, 7, 1), plain(6, 7, 1)], checkpoint=((0, 0), (1, 5)), opened=())
    assert model.publish(a, b).add == (UseMain("b"),)
    assert model.offsets == [0, 1, 2, 3, 4, 6, 7]


def test_a_waiting_row_on_a_dead_branch_never_comes() -> None:
    model = Model()
    a = seg("a", [plain(0, 1, 1), txn(2, 4, 7, 1)])
    model.publish(a)
    result = model.publish(a, seg("b", [plain(2, 3, 2)], checkpoint=((1, 0), (2, 2)), opened=()))
    assert result.rewind is None  # nothing of it was published
    assert model.rows == {0: 1, 1: 1, 2: 2, 3: 2}


def test_a_rewind_below_a_partly_published_segment_cuts_its_derived_file() -> None:
    model = Model()
    a = seg("a", [plain(0, 1, 1), plain(2, 3, 1), txn(4, 5, 7, 1)])
    model.publish(a)
    result = model.publish(a, seg("b", [plain(2, 9, 2)], checkpoint=((1, 0), (2, 2)), opened=()))
    assert (result.rewind, len(result.trim)) == (2, 1)
    assert model.rows == {0: 1, 1: 1, **dict.fromkeys(range(2, 10), 2)}


def test_an_unknown_snapshot_decides_nothing() -> None:
    # Absent or damaged is not "nothing open": the marker comes with the next segment.
    model = Model()
    unknown = replace(seg("a", [txn(0, 2, 7)]), open_end=None)
    first = model.publish(unknown)
    assert (first.add, first.lost, first.state.frontier) == ((), (), 0)
    second = model.publish(unknown, seg("b", [commit(3, 7)], opened=()))
    assert (second.lost, model.offsets) == ((), [0, 1, 2])


def test_a_known_snapshot_without_the_transaction_ends_it() -> None:
    model = Model()
    result = model.publish(seg("a", [txn(0, 2, 7)], opened=()), seg("b", [commit(3, 7)], opened=()))
    assert (result.lost, model.offsets) == (((0, 2),), [])


def test_a_conflicting_segment_holds_its_partition_back() -> None:
    model = Model()
    below, above = seg("a", [plain(0, 4)]), seg("c", [plain(10, 14)])
    conflicting = replace(seg("b", [txn(5, 8, 7), commit(9, 7)]), conflict=True)
    held = model.publish(below, conflicting, above)
    assert (held.add, held.state.frontier) == ((UseMain("a"),), 5)
    freed = model.publish(below, gone(conflicting), above)
    assert freed.state.frontier == 15
    assert model.offsets == [10, 11, 12, 13, 14]


def test_segments_above_a_waiting_one_wait_too() -> None:
    model = Model()
    result = model.publish(seg("a", [txn(0, 0, 7)]), seg("b", [plain(1, 2)], opened=((7, 0),)))
    assert (result.add, result.state.frontier) == ((), 0)


def test_segments_below_a_waiting_one_are_published() -> None:
    model = Model()
    result = model.publish(seg("a", [plain(0, 4)]), seg("b", [txn(5, 6, 7)]))
    assert (result.add, result.state.frontier) == ((UseMain("a"),), 5)


def test_markers_of_other_producers_decide_nothing() -> None:
    model = Model()
    model.publish(seg("a", [txn(0, 0, 7)]), seg("b", [txn(1, 1, 8), commit(2, 8)], opened=((7, 0),)))
    assert model.offsets == []


def test_each_transaction_of_a_producer_takes_its_own_marker() -> None:
    model = Model()
    model.publish(seg("a", [txn(0, 1, 7), abort(2, 7), txn(3, 4, 7), commit(5, 7), txn(6, 6, 8), commit(7, 8)]))
    assert model.offsets == [3, 4, 6]


def test_interleaved_transactions_become_exact_ranges() -> None:
    model = Model()
    a = seg("a", [txn(0, 0, 1), txn(1, 2, 2), txn(3, 3, 1), abort(4, 2), commit(5, 1), plain(6, 6)])
    assert model.publish(a).add == (Derive((("a", 0, 0), ("a", 3, 6))),)


def test_batches_without_rows_do_not_keep_a_file_from_being_used() -> None:
    model = Model()
    a = seg("a", [plain(0, 1), plain(2, 3, rows=False), txn(4, 4, 9), commit(5, 9), plain(6, 6)])
    assert model.publish(a).add == (UseMain("a"),)


def test_a_segment_without_rows_moves_the_frontier_only() -> None:
    model = Model()
    result = model.publish(seg("a", [plain(0, 5, rows=False)]))
    assert (result.add, result.state.frontier) == ((), 6)


def test_a_gap_asks_for_another_listing_and_is_then_jumped() -> None:
    model = Model()
    a, c = seg("a", [plain(0, 4)]), seg("c", [plain(8, 9)])
    assert model.publish(a, c, relisted=False).need_relist
    assert model.files == {}
    result = model.publish(a, c, relisted=True)
    assert result.gaps == ((5, 7),)
    assert model.offsets == [0, 1, 2, 3, 4, 8, 9]


def test_the_first_start_above_zero_needs_a_second_listing_and_no_gap() -> None:
    model = Model()
    b = seg("b", [plain(5, 9)])
    result = model.publish(b)
    assert (result.gaps, result.state.frontier) == ((), 10)
    assert not model.publish(b, relisted=False).need_relist


def test_retention_removes_a_file_and_raises_the_floor() -> None:
    model = Model()
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a, b)
    result = model.publish(gone(a), b)
    assert result.state.floor == 5
    assert len(result.remove) == 1
    assert (result.replace, result.trim) == ((), ())
    assert model.offsets == list(range(5, 10))


def test_keep_never_removes_by_retention() -> None:
    model = Model(policy=KEEP)
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    model.publish(a, b)
    model.publish(gone(a), gone(b))
    assert model.offsets == list(range(10))


def test_a_file_partly_below_the_floor_stays_whole() -> None:
    """No rewrite on retention; rows leave a file at a time."""
    model = Model()
    a, b = seg("a", [plain(0, 5)]), seg("b", [plain(3, 5), plain(6, 9)])
    model.publish(a, b)
    result = model.publish(gone(seg("small", [plain(0, 2)])), a, b)
    assert result.state.floor == 3
    assert (result.remove, result.trim) == ((), ())


def test_a_live_segment_is_published_from_the_floor_on() -> None:
    model = Model()
    model.publish(gone(seg("small", [plain(0, 2)])), seg("a", [plain(0, 2), plain(3, 5)]))
    assert model.offsets == [3, 4, 5]


def test_a_withdrawn_copy_does_not_raise_the_floor() -> None:
    """Published, its reply lost, withdrawn, uploaded again under another id."""
    model = Model()
    a = seg("a", [plain(0, 4)])
    model.publish(a)
    model.publish(gone(a, WITHDRAWN))
    assert model.offsets == list(range(5))
    model.publish(gone(a, WITHDRAWN), seg("again", [plain(0, 4)]), seg("b", [plain(5, 9)]))
    assert model.offsets == list(range(10))
    assert model.state.floor == 0


def test_a_withdrawn_copy_adds_no_rows() -> None:
    model = Model()
    model.publish(gone(seg("a", [plain(0, 4)]), WITHDRAWN))
    assert model.offsets == []
    model.publish(gone(seg("a", [plain(0, 4)]), WITHDRAWN), seg("again", [plain(0, 4)]))
    assert model.offsets == list(range(5))


def test_a_marker_in_a_withdrawn_segment_decides() -> None:
    model = Model()
    model.publish(seg("a", [txn(0, 2, 7)]), gone(seg("b", [commit(3, 7)], opened=()), WITHDRAWN))
    assert model.offsets == [0, 1, 2]


def test_a_transaction_the_next_producer_snapshot_does_not_list_is_lost() -> None:
    model = Model()
    a = seg("a", [txn(0, 0, 1), plain(1, 2)])
    b = seg("b", [plain(3, 5)], opened=())
    result = model.publish(a, b)
    assert (result.lost, model.offsets) == (((0, 0),), [1, 2, 3, 4, 5])


def test_a_snapshot_that_lists_a_younger_transaction_does_not_hold_the_older() -> None:
    model = Model()
    a = seg("a", [txn(0, 0, 1)])
    b = seg("b", [txn(1, 1, 1)], opened=((1, 1),))
    result = model.publish(a, b)
    assert result.lost == ((0, 0),)
    assert result.state.frontier == 1


def test_a_file_that_sticks_out_over_the_frontier_is_cut() -> None:
    model = Model()
    a = seg("a", [plain(0, 9)])
    model.publish(a)
    (path,) = model.files
    model.state = PartState(frontier=6, floor=0, lineage=model.state.lineage, known_end=model.state.known_end)
    result = model.publish(a)
    assert result.trim == (Trim(path, 6),)
    assert result.add == (Derive((("a", 6, 9),)),)
    assert model.offsets == list(range(10))


def test_files_without_a_recorded_frontier_are_kept() -> None:
    model = Model()
    a = seg("a", [plain(0, 9)])
    model.publish(a)
    model.state = PartState()
    result = model.publish(a)
    assert (result.remove, result.replace, result.trim, result.add) == ((), (), (), ())
    assert result.state.frontier == 10


def test_batches_below_the_frontier_are_not_loaded() -> None:
    model = Model()
    old, new = seg("old", [plain(0, 9)]), seg("new", [plain(10, 19)])
    model.publish(old)

    def fail() -> None:
        raise AssertionError("loaded")

    object.__setattr__(old, "load", fail)
    model.publish(old, new)
    assert model.offsets[-1] == 19


def test_many_segments_at_the_first_start_are_planned_fast() -> None:
    model = Model()
    segments = [seg(f"s{n}", [plain(n * 2, n * 2 + 1)], checkpoint=((0, 0),)) for n in range(3000)]
    result = model.publish(*segments)
    assert len(result.add) == 3000
    assert result.state.frontier == 6000


def test_a_merged_file_is_never_added_as_a_segments_own() -> None:
    """It holds rows of other segments too: after a rewind only the segment's own rows are taken from it."""
    model = Model()
    a = seg("a", [plain(0, 9)])
    assert a.main is not None
    result = model.publish(replace(a, main=replace(a.main, shared=True)))
    assert result.add == (Derive((("a", 0, 9),)),)
