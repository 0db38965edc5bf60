"""Transactions that are published before their marker is tiered, and what happens when it comes."""

from __future__ import annotations

import pytest

from iceberg_catalog.commit.state import decode_state, encode_state
from iceberg_catalog.plan.types import BatchKind, Segment, UseMain
from tests.worlds.plan_support import KEEP, WITHDRAWN, B, Model, abort, commit, gone, plain, seg, txn

OPEN = ((7, 2),)


def tail(*, committed: bool, name: str = "a") -> Segment:
    batches = [plain(0, 1), txn(2, 4, 7), plain(5, 6)]
    return seg(name, batches, opened=OPEN, peeked=((7, 2, committed),))


def later(*batches: B, first: int = 2, opened: tuple[tuple[int, int], ...] = ()) -> Segment:
    """The segment behind: its transaction index says what its markers say."""
    aborts = [(7, first, b.base) for b in batches if b.kind == BatchKind.ABORT]
    return seg("b", batches, opened=opened, aborts=aborts)


def test_what_is_known_to_be_committed_is_published_as_it_is() -> None:
    model = Model()
    result = model.publish(tail(committed=True))
    assert (result.add, result.state.frontier) == ((UseMain("a"),), 7)
    assert result.state.peeked == ((7, 2, True),)
    assert model.offsets == [0, 1, 2, 3, 4, 5, 6]


def test_what_is_known_to_be_aborted_holds_nothing_back() -> None:
    model = Model()
    result = model.publish(tail(committed=False))
    assert (result.state.frontier, result.state.peeked) == (7, ((7, 2, False),))
    assert model.offsets == [0, 1, 5, 6]


def test_the_marker_confirms_it() -> None:
    model = Model()
    a = tail(committed=True)
    model.publish(a)
    result = model.publish(a, later(plain(7, 7), commit(8, 7)))
    assert (result.rewind, result.state.peeked, result.state.frontier) == (None, (), 9)
    assert model.offsets == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_says_otherwise_is_right(committed: bool) -> None:
    """After an unclean election the transaction may end otherwise: nothing above the segment had been tiered."""
    model = Model()
    a = tail(committed=committed)
    model.publish(a)
    end = later(abort(7, 7) if committed else commit(7, 7), plain(8, 8))
    result = model.publish(a, end)
    assert (result.rewind, result.state.peeked, result.state.frontier) == (2, (), 9)
    assert model.offsets == ([0, 1, 5, 6, 8] if committed else [0, 1, 2, 3, 4, 5, 6, 8])


def test_the_transaction_goes_on_in_the_next_segment() -> None:
    model = Model()
    a = tail(committed=True)
    model.publish(a)
    b = seg("b", [txn(7, 8, 7), plain(9, 9)], opened=OPEN)  # this copy came without the later indexes
    assert model.publish(a, b).state.frontier == 7
    c = seg("c", [commit(10, 7)], opened=())
    assert model.publish(a, b, c).state.peeked == ()
    assert model.offsets == list(range(10))


def test_each_segment_speaks_of_its_own_batches_alone() -> None:
    model = Model()
    b = seg("b", [txn(7, 8, 7), plain(9, 9)], opened=OPEN)
    assert model.publish(tail(committed=True), b).state.frontier == 7
    told = seg("b", [txn(7, 8, 7), plain(9, 9)], opened=OPEN, peeked=((7, 2, True),))
    assert model.publish(tail(committed=True), told).state.frontier == 10


def test_rows_of_a_newer_epoch_were_not_what_an_older_leader_saw_committed() -> None:
    """Its marker was cut off before it was tiered, and the transaction goes on in the next leader's log."""
    model = Model(KEEP)
    seen = seg("a", [plain(0, 1), txn(2, 2, 7, 1)], opened=OPEN, peeked=((7, 2, True),))
    other = seg("b", [txn(3, 3, 7, 3), plain(4, 5, 3)], checkpoint=((0, 0), (1, 2), (3, 3)), opened=OPEN)
    model.publish(seen, other)
    assert model.rows == {0: 0, 1: 0, 2: 1}
    end = seg("c", [abort(6, 7, 3)], checkpoint=((0, 0), (1, 2), (3, 3)), aborts=[(7, 2, 6)], opened=())
    result = model.publish(seen, other, end)
    assert (result.rewind, result.state.frontier) == (2, 7)
    assert model.rows == {0: 0, 1: 0, 4: 3, 5: 3}


def test_two_that_differ_prove_nothing() -> None:
    model = Model()
    a = tail(committed=True)
    again = tail(committed=False, name="again")
    assert model.publish(a, again).state.frontier == 2


def test_the_next_transaction_of_the_producer_waits() -> None:
    model = Model()
    a = tail(committed=True)
    b = later(commit(7, 7), txn(8, 8, 7), opened=((7, 8),))
    result = model.publish(a, b)
    assert (result.state.frontier, result.state.peeked) == (8, ())


def test_behind_a_hole_nothing_is_confirmed_or_denied() -> None:
    model = Model()
    a = tail(committed=True)
    model.publish(a)
    far = seg("far", [plain(20, 21), abort(22, 7)], opened=(), checkpoint=((0, 20),))
    result = model.publish(a, far)
    assert (result.rewind, result.state.peeked, result.state.frontier) == (None, (), 23)
    assert 2 in model.offsets


def test_a_deleted_transaction_needs_no_marker() -> None:
    model = Model()
    a = tail(committed=True)
    model.publish(a)
    result = model.publish(gone(a), later(abort(7, 7), plain(8, 8)))
    assert model.offsets == [8]
    assert result.state.peeked == ()


def test_an_archive_keeps_rows_that_nothing_could_replace() -> None:
    model = Model(KEEP)
    a, b = tail(committed=True), later(abort(7, 7), plain(8, 8))
    model.publish(a)
    result = model.publish(b)  # the segment was deleted and its index reclaimed meanwhile
    assert (result.rewind, result.state.peeked) == (None, ())
    assert model.offsets == [0, 1, 2, 3, 4, 5, 6, 8]


def test_what_a_segment_still_has_is_replaced() -> None:
    """The copy was withdrawn, and the log begins within the transaction when it is made again."""
    model = Model()
    a = seg("a", [plain(0, 1), txn(2, 4, 7), txn(5, 6, 7)], opened=OPEN, peeked=((7, 2, True),))
    model.publish(a)
    again = seg("again", [txn(5, 6, 7), plain(7, 7)], opened=OPEN, checkpoint=((0, 5),), aborts=[])
    b = seg("b", [abort(8, 7)], opened=(), aborts=[(7, 2, 8)], checkpoint=((0, 5),))
    result = model.publish(gone(a, WITHDRAWN), again, b)
    assert result.rewind == 5
    assert model.offsets == [0, 1, 2, 3, 4, 7]


def test_one_listing_is_not_believed_there_either() -> None:
    model = Model()
    a, b = tail(committed=True), later(abort(7, 7))
    model.publish(a)
    assert model.publish(b, relisted=False).need_relist
    assert model.publish(a, b).rewind == 2


def test_the_state_keeps_it() -> None:
    model = Model()
    model.publish(tail(committed=True))
    data, digest = encode_state({0: model.state})
    assert b'"peeked":[[7,2,true]]' in data
    assert decode_state(data, digest) == {0: model.state}


def test_no_more_are_passed_than_the_record_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted over all runs: what was passed before and has no marker yet takes its room, lowest offsets first."""
    monkeypatch.setattr("iceberg_catalog.plan.judge.PEEKED_MAX", 2)
    batches = [plain(0, 1), txn(2, 2, 9), txn(3, 3, 8), txn(4, 4, 7), plain(5, 5)]
    opened = ((7, 4), (8, 3), (9, 2))
    a = seg("a", batches, opened=opened, peeked=tuple((pid, first, True) for pid, first in opened))
    model = Model()
    result = model.publish(a)
    assert (result.state.peeked, result.state.frontier) == (((8, 3, True), (9, 2, True)), 4)
    again = model.publish(a)
    assert (again.add, again.state) == ((), result.state)
    end = seg("b", [commit(6, 9)], opened=((7, 4), (8, 3)), peeked=((7, 4, True), (8, 3, True)))
    result = model.publish(a, end)
    assert (result.state.peeked, result.state.frontier) == (((7, 4, True), (8, 3, True)), 7)
    assert model.offsets == [0, 1, 2, 3, 4, 5]
