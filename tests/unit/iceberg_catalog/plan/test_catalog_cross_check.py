"""Markers in one segment against Kafka's files in another: where they differ the partition stops, and says where."""

from __future__ import annotations

from iceberg_catalog.plan.types import Segment
from tests.worlds.plan_support import Model, abort, commit, gone, plain, seg, txn

OPEN = ((7, 2),)
#: A checkpoint of a log that begins at 0, as each copy brings it.
WHOLE = ((0, 0),)


def first() -> Segment:
    return seg("a", [plain(0, 1), txn(2, 4, 7), plain(5, 6)], aborts=[], opened=OPEN)


def test_agreement_stops_nothing() -> None:
    for marker, aborts in ((commit(7, 7), []), (abort(7, 7), [(7, 2, 7)])):
        model = Model()
        result = model.publish(first(), seg("b", [marker, plain(8, 8)], opened=(), aborts=aborts, checkpoint=WHOLE))
        assert (result.conflict, result.state.frontier) == (None, 9)


def test_an_abort_that_the_transaction_index_does_not_list() -> None:
    model = Model()
    result = model.publish(first(), seg("b", [abort(7, 7), plain(8, 8)], opened=(), aborts=[], checkpoint=WHOLE))
    assert (result.conflict, result.state.frontier) == (2, 2)
    assert model.offsets == [0, 1]


def test_a_commit_that_the_transaction_index_lists_as_aborted() -> None:
    model = Model()
    result = model.publish(first(), seg("b", [commit(7, 7)], opened=(), aborts=[(7, 2, 7)], checkpoint=WHOLE))
    assert (result.conflict, result.state.frontier) == (2, 2)


def test_an_entry_of_another_transaction_is_none_of_this_one() -> None:
    model = Model()
    for entry in ((8, 2, 7), (7, 5, 7)):
        b = seg("b", [abort(7, 7)], opened=(), aborts=[entry], checkpoint=WHOLE)
        assert model.publish(first(), b).conflict == 2


def test_a_snapshot_that_still_lists_what_a_marker_has_ended() -> None:
    model = Model()
    b = seg("b", [commit(7, 7), plain(8, 8)], opened=OPEN, aborts=[], checkpoint=WHOLE)
    result = model.publish(first(), b)
    assert (result.conflict, result.state.frontier) == (2, 2)


def test_files_that_are_not_known_contradict_nothing() -> None:
    model = Model()
    b = seg("b", [abort(7, 7), plain(8, 8)], opened=(), checkpoint=WHOLE)
    assert model.publish(first(), b).conflict is None
    assert model.offsets == [0, 1, 5, 6, 8]


def test_an_abort_of_what_the_new_leader_may_not_have() -> None:
    """Its checkpoint was cut at the log start: it may never have had that log, or not know any more what is below."""
    for told, conflict in ((((1, 7),), None), (((0, 6), (1, 7)), None), (((0, 2), (1, 7)), 2), (((0, 0), (1, 7)), 2)):
        b = seg("b", [abort(7, 7, 1), plain(8, 8, 1)], checkpoint=told, opened=(), aborts=[])
        model = Model()
        assert model.publish(first(), b).conflict == conflict
        assert model.offsets == ([0, 1, 5, 6, 8] if conflict is None else [0, 1])


def test_a_commit_of_another_log_that_the_transaction_index_lists_still_contradicts_it() -> None:
    b = seg("b", [commit(7, 7, 1), plain(8, 8, 1)], checkpoint=((1, 7),), opened=(), aborts=[(7, 2, 7)])
    assert Model().publish(first(), b).conflict == 2


def test_it_goes_on_once_the_segments_are_deleted() -> None:
    model = Model()
    a, b = first(), seg("b", [abort(7, 7), plain(8, 8)], opened=(), aborts=[], checkpoint=WHOLE)
    c = seg("c", [plain(9, 9)], aborts=[], checkpoint=WHOLE)
    assert model.publish(a, b, c).state.frontier == 2
    assert model.publish(gone(a), gone(b), c).state.frontier == 10
    assert model.offsets == [9]


def test_what_is_below_it_is_published_and_what_is_above_waits() -> None:
    model = Model()
    b = seg("b", [abort(7, 7), txn(8, 8, 9), commit(9, 9)], opened=(), aborts=[], checkpoint=WHOLE)
    model.publish(first(), b, seg("c", [plain(10, 12)], aborts=[], checkpoint=WHOLE))
    assert model.offsets == [0, 1]
