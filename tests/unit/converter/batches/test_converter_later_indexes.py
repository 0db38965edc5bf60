"""What transaction indexes of later segments prove about transactions that are open at a segment's end (100)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from converter.batches.later_indexes import ABORTED, COMMITTED, UNKNOWN, LaterAborts
from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.types import BatchFlag, ConvertOptions
from tests.oracle.records import Batch, Record, marker
from tests.oracle.strategies import make_segment
from tests.oracle.transactions import producer_snapshot, transaction_index

END = 100
OPEN = [(5, 40), (6, 60), (7, 90)]


def ends(indexes: list[bytes], *, complete: bool) -> list[int]:
    opened = np.array(OPEN, dtype=np.int64)
    return [int(end) for end in LaterAborts.parse(indexes, complete=complete).decide(opened, END)]


def entry(producer: int, first: int, last: int, stable: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


def test_no_entry_in_all_of_them_is_a_commit() -> None:
    assert ends([], complete=True) == [COMMITTED] * 3
    assert ends([], complete=False) == [UNKNOWN] * 3


def test_an_entry_is_an_abort_however_many_are_missing() -> None:
    later = [transaction_index([(6, 60, 120)]), transaction_index([(9, 130, 140)])]
    assert ends(later, complete=True) == [COMMITTED, ABORTED, COMMITTED]
    assert ends(later[:1], complete=False)[1] == ABORTED


@pytest.mark.parametrize(("stable", "found"), [(40, UNKNOWN), (41, COMMITTED), (61, COMMITTED)])
def test_a_stable_offset_above_it_is_a_commit(stable: int, found: int) -> None:
    """The entry of another transaction says that below its last stable offset nothing was open any more."""
    assert ends([entry(9, 105, 120, stable)], complete=False)[0] == found


def test_the_next_transaction_of_the_producer_is_another_one() -> None:
    assert ends([transaction_index([(5, 110, 120)])], complete=True) == [COMMITTED] * 3


def test_the_one_before_is_another_one() -> None:
    assert ends([transaction_index([(5, 10, 100)])], complete=True) == [COMMITTED] * 3


@pytest.mark.parametrize("first", [39, 41])
def test_an_entry_that_begins_elsewhere_proves_nothing(first: int) -> None:
    assert ends([transaction_index([(5, first, 120)])], complete=True)[0] == UNKNOWN


def test_a_cut_entry_is_left_out() -> None:
    whole = entry(5, 40, 120, 121)
    for cut in range(1, len(whole)):
        assert ends([whole[:cut]], complete=True) == [COMMITTED] * 3
    assert ends([whole + whole[:5]], complete=True)[0] == ABORTED


@pytest.mark.parametrize("damage", [struct.pack(">h", 1) + entry(9, 105, 110, 111)[2:], entry(9, 111, 110, 111)])
def test_a_damaged_file_ends_the_list(damage: bytes) -> None:
    assert ends([damage, transaction_index([(6, 60, 120)])], complete=True) == [UNKNOWN] * 3
    assert ends([transaction_index([(6, 60, 120)]), damage], complete=True) == [COMMITTED, ABORTED, COMMITTED]


def txn(base: int, producer: int) -> Batch:
    return Batch(base, (Record(0, 0, b"k", b"v"),), transactional=True, producer_id=producer, producer_epoch=0)


def flags(told: Transactions, later: LaterAborts) -> tuple[list[BatchFlag], int]:
    segment = make_segment([txn(0, 5), txn(1, 6), txn(2, 7), marker(3, 7, 1), txn(4, 7)])
    parser = SegmentParser(segment.metadata, ConvertOptions(), later.peek(told, segment.metadata.end_offset))
    steps = [*parser.feed(segment.data), *parser.finish()]
    return [BatchFlag(int(flag)) for step in steps for flag in step.batches["flags"]], parser.transaction_conflicts


def test_a_batch_that_is_known_to_be_committed_does_not_wait() -> None:
    told = Transactions.parse(b"", producer_snapshot([(5, 0), (6, 1), (7, 4)]))
    later = LaterAborts.parse([transaction_index([(6, 1, 10)])], complete=True)
    found, conflicts = flags(told, later)
    assert [flag & (BatchFlag.PEEKED | BatchFlag.UNDECIDED) for flag in found] == [
        BatchFlag.PEEKED,
        BatchFlag.UNDECIDED,
        0,
        0,
        BatchFlag.PEEKED,
    ]
    assert all(BatchFlag.ROWS in flag for flag in found if BatchFlag.CONTROL not in flag)
    assert conflicts == 0


def test_without_a_snapshot_nothing_is_known() -> None:
    found, _ = flags(Transactions.parse(b"", None), LaterAborts.parse([], complete=True))
    assert not any(BatchFlag.PEEKED in flag for flag in found)
