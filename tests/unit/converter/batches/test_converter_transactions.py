"""The two small files, the decisions they give, and the cross-check with the markers."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from converter.batches.transactions import ABORTED, COMMITTED, UNDECIDED, Transactions
from converter.types import BatchFlag, ConvertOptions
from tests.oracle.records import Batch, Record, marker
from tests.oracle.strategies import make_segment
from tests.oracle.transactions import producer_snapshot, transaction_index


def decide(transactions: Transactions, *batches: tuple[int, int]) -> list[int]:
    producers, offsets = np.array(batches, dtype=np.int64).T
    decided: list[int] = transactions.decide(producers, offsets).tolist()
    return decided


def txn(base: int, producer: int) -> Batch:
    return Batch(base, (Record(0, 0, b"k", b"v"),), transactional=True, producer_id=producer, producer_epoch=0)


def flags_and_conflicts(batches: list[Batch], transactions: Transactions) -> tuple[list[BatchFlag], int]:
    from converter.batches.parser import SegmentParser

    segment = make_segment(list(batches))
    parser = SegmentParser(segment.metadata, ConvertOptions(), transactions)
    steps = [*parser.feed(segment.data), *parser.finish()]
    flags = np.concatenate([step.batches["flags"] for step in steps]).tolist()
    return [BatchFlag(flag) for flag in flags], parser.transaction_conflicts


def test_aborted_between_first_offset_and_marker() -> None:
    transactions = Transactions.parse(transaction_index([(5, 10, 20), (5, 40, 50), (7, 15, 30)]), producer_snapshot([]))
    cases = [(5, 9), (5, 10), (5, 19), (5, 20), (5, 21), (5, 39), (5, 45), (5, 51), (7, 14), (7, 15), (6, 15), (8, 15)]
    of_5 = [COMMITTED, ABORTED, ABORTED, ABORTED, COMMITTED, COMMITTED, ABORTED, COMMITTED]
    of_others = [COMMITTED, ABORTED, COMMITTED, COMMITTED]
    assert decide(transactions, *cases) == [*of_5, *of_others]


def test_entries_may_overlap_and_come_in_any_order() -> None:
    transactions = Transactions.parse(transaction_index([(5, 30, 35), (5, 10, 100)]), producer_snapshot([]))
    assert decide(transactions, (5, 50), (5, 101), (5, 9)) == [ABORTED, COMMITTED, COMMITTED]


def test_open_at_the_end() -> None:
    transactions = Transactions.parse(None, producer_snapshot([(5, 100), (6, -1), (7, 0)]))
    assert decide(transactions, (5, 99), (5, 100), (5, 101), (6, 100), (7, 0)) == [
        COMMITTED,
        UNDECIDED,
        UNDECIDED,
        COMMITTED,
        UNDECIDED,
    ]
    assert transactions.opened.tolist() == [[5, 100], [7, 0]]


GOOD = producer_snapshot([(5, 100)])
DAMAGED = {
    "absent": None,
    "empty": b"",
    "cut": GOOD[:-1],
    "longer": GOOD + b"\0",
    "flipped bit": GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:],
    "wrong CRC": GOOD[:3] + bytes([GOOD[3] ^ 1]) + GOOD[4:],
    "another version": struct.pack(">h", 2) + GOOD[2:],
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_snapshot_leaves_everything_undecided(damage: str) -> None:
    transactions = Transactions.parse(transaction_index([(6, 0, 10)]), DAMAGED[damage])
    assert not transactions.known
    assert decide(transactions, (5, 1), (6, 5), (6, 11)) == [UNDECIDED, ABORTED, UNDECIDED]


@pytest.mark.parametrize(
    "index",
    [
        b"\0",
        transaction_index([(1, 0, 5)])[:-1],
        b"\0\1" + transaction_index([(1, 0, 5)])[2:],
        transaction_index([(1, 6, 5)]),
    ],
    ids=["one byte", "cut", "another version", "first above last"],
)  # fmt: skip
def test_a_damaged_index_leaves_everything_undecided(index: bytes) -> None:
    transactions = Transactions.parse(index, GOOD)
    assert not transactions.known
    assert decide(transactions, (1, 3), (5, 200)) == [UNDECIDED, UNDECIDED]


def test_agreement_is_no_conflict() -> None:
    batches = [txn(0, 1), txn(1, 2), marker(2, 1, 1), marker(3, 2, 0), txn(4, 1), marker(5, 9, 1), marker(6, 2, 0)]
    transactions = Transactions.parse(transaction_index([(2, 1, 3)]), producer_snapshot([(1, 4), (2, -1)]))
    flags, conflicts = flags_and_conflicts(batches, transactions)
    assert conflicts == 0
    assert flags[0] == BatchFlag.ROWS
    assert BatchFlag.ABORTED in flags[1]
    assert BatchFlag.UNDECIDED in flags[4]


CONFLICTS: dict[str, tuple[list[Batch], bytes, bytes]] = {
    "abort marker, no entry": ([txn(0, 1), marker(1, 1, 0)], b"", producer_snapshot([])),
    "commit marker, aborted by the index": (
        [txn(0, 1), marker(1, 1, 1)],
        transaction_index([(1, 0, 1)]),
        producer_snapshot([]),
    ),
    "open by the snapshot, marker here": ([txn(0, 1), marker(1, 1, 1)], b"", producer_snapshot([(1, 0)])),
    "not open by the snapshot, no marker": ([txn(0, 1)], b"", producer_snapshot([(1, -1)])),
    "aborted by the index, no marker": ([txn(0, 1)], transaction_index([(1, 0, 1)]), producer_snapshot([])),
    "entry covers half": (
        [txn(0, 1), txn(1, 1), marker(2, 1, 0)],
        transaction_index([(1, 1, 2)]),
        producer_snapshot([]),
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_disagreement_is_counted(case: str) -> None:
    batches, index, snapshot = CONFLICTS[case]
    assert flags_and_conflicts(batches, Transactions.parse(index, snapshot))[1] == 1


def test_an_unknown_snapshot_is_no_conflict() -> None:
    assert flags_and_conflicts([txn(0, 1), marker(1, 1, 0)], Transactions.parse(None, None))[1] == 0


def test_conflicts_across_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is carried from step to step: a marker decides batches of earlier steps."""
    from converter import limits

    monkeypatch.setattr(limits, "STEP_BATCHES_MAX", 2)
    batches = [txn(0, 1), txn(1, 2), txn(2, 1), marker(3, 2, 1), marker(4, 1, 0)]
    good = Transactions.parse(transaction_index([(1, 0, 4)]), producer_snapshot([]))
    assert flags_and_conflicts(batches, good)[1] == 0
    bad = Transactions.parse(transaction_index([(1, 1, 4)]), producer_snapshot([]))
    assert flags_and_conflicts(batches, bad)[1] == 1
