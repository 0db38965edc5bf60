"""Which transactional batches of a segment are aborted, which are open at its end.

Two small files of the broker say it, so one pass over the log is enough:

* the transaction index lists every abort whose marker lies in the segment: producer id, first offset, marker's offset;
* the producer snapshot, taken at the segment's end, lists for every producer the first offset of its open transaction.

A transactional batch is ABORTED if the index covers it, UNDECIDED if its transaction is open at the end, committed
otherwise. Where transaction indexes of later segments came with the copy (later_indexes.py) and prove that an open
transaction was committed, its batches are PEEKED instead of UNDECIDED. The markers in the segment are compared with
that on the way (:class:`MarkerCheck`): a batch is decided by the first COMMIT or ABORT of the same producer id above
it; epochs are not compared, because from transaction.version 2 on the marker's epoch is one more than the data's.

A file that is absent or damaged never fails a copy. Then every transactional batch that the other file does not say to
be aborted is UNDECIDED: the publisher decides it by the markers, those of this segment included. (No transaction index
at all is normal: no abort.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from converter import limits
from converter.kernels.checksum import checksum
from converter.kernels.kernel import kernel, readonly
from converter.types import BatchFlag, BatchTable, IndexType, Int64Array, UInt8Array

COMMITTED, ABORTED, UNDECIDED, PEEKED = range(4)
CONTROL_ABORT, CONTROL_COMMIT = 0, 1

_TRANSACTIONAL = 0x10

_ABORTED_TXN_DTYPE = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")]
)
_PRODUCER_DTYPE = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("open_first", ">i8"),
    ]
)
_SNAPSHOT_VERSION = 1
_SNAPSHOT_CRC_END = 6
_SNAPSHOT_HEAD_BYTES = 10


@kernel
def _decide(
    producers: Int64Array,
    offsets: Int64Array,
    aborted: Int64Array,
    opened: Int64Array,
    peeked: Int64Array,
    out: UInt8Array,
) -> None:
    """`aborted` is (n, 4): producer id, first, highest last so far, …; `opened` (m, 2); both ascending.

    `peeked` has 1 for an open transaction that is known to be committed.
    """
    for i in range(len(producers)):
        low, high = 0, len(aborted)
        while low < high:
            middle = (low + high) // 2
            if aborted[middle, 0] < producers[i] or (
                aborted[middle, 0] == producers[i] and aborted[middle, 1] <= offsets[i]
            ):
                low = middle + 1
            else:
                high = middle
        if low > 0 and aborted[low - 1, 0] == producers[i] and offsets[i] <= aborted[low - 1, 2]:
            out[i] = ABORTED
            continue
        low, high = 0, len(opened)
        while low < high:
            middle = (low + high) // 2
            if opened[middle, 0] < producers[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(opened) and opened[low, 0] == producers[i] and opened[low, 1] <= offsets[i]:
            out[i] = PEEKED if peeked[low] == 1 else UNDECIDED


@kernel
def _reach(table: Int64Array) -> None:
    """Markers' offsets become the highest among the producer's entries so far; ordered by producer and first offset."""
    for i in range(1, len(table)):
        if table[i, 0] == table[i - 1, 0] and table[i, 2] < table[i - 1, 2]:
            table[i, 2] = table[i - 1, 2]


def _parse_aborted(data: bytes) -> Int64Array | None:
    """(n, 4) as _decide() wants it; None where the file is damaged."""
    table = aborted_entries(data)
    if table is None:
        return None
    table = np.ascontiguousarray(table[np.lexsort((table[:, 1], table[:, 0]))])
    _reach(table)
    return table


def entry_bytes() -> int:
    """Size of one entry of a transaction index."""
    return _ABORTED_TXN_DTYPE.itemsize


def aborted_entries(data: bytes) -> Int64Array | None:
    """A transaction index as it lies in the file; None where it is damaged.

    Shape (n, 4): producer id, first offset, offset of the marker that aborted it, last stable offset after it.
    """
    if len(data) % _ABORTED_TXN_DTYPE.itemsize or len(data) > limits.TRANSACTION_FILE_BYTES_MAX:
        return None
    entries = np.frombuffer(data, dtype=_ABORTED_TXN_DTYPE)
    if (entries["version"] != 0).any() or (entries["first"] > entries["last"]).any():
        return None
    return np.column_stack([entries[name].astype(np.int64) for name in ("producer_id", "first", "last", "stable")])


def _parse_snapshot(data: bytes) -> Int64Array | None:
    """(m, 2): producer id and first offset of the open transactions; None where the file is damaged."""
    if not _SNAPSHOT_HEAD_BYTES <= len(data) <= limits.TRANSACTION_FILE_BYTES_MAX:
        return None
    version = int.from_bytes(data[:2], "big", signed=True)
    crc = int.from_bytes(data[2:_SNAPSHOT_CRC_END], "big")
    count = int.from_bytes(data[_SNAPSHOT_CRC_END:_SNAPSHOT_HEAD_BYTES], "big", signed=True)
    if version != _SNAPSHOT_VERSION or checksum(data[_SNAPSHOT_CRC_END:]) != crc:
        return None
    if count < 0 or len(data) - _SNAPSHOT_HEAD_BYTES != count * _PRODUCER_DTYPE.itemsize:
        return None
    entries = np.frombuffer(data, dtype=_PRODUCER_DTYPE, offset=_SNAPSHOT_HEAD_BYTES)
    entries = entries[entries["open_first"] >= 0]
    table = np.column_stack([entries[name].astype(np.int64) for name in ("producer_id", "open_first")])
    return np.ascontiguousarray(table[np.lexsort((table[:, 1], table[:, 0]))])


NO_ABORTS = np.empty((0, 4), dtype=np.int64)
_NONE_OPEN = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Transactions:
    """What the broker's files say. `known` is False where one of them could not be used.

    `peeked`: of each transaction in `opened`, 1 where it is known to be committed later, 0 where aborted, else -1; None
    where nobody looked.
    """

    known: bool = True
    aborted: Int64Array = field(default_factory=NO_ABORTS.copy)
    opened: Int64Array = field(default_factory=_NONE_OPEN.copy)
    peeked: Int64Array | None = None

    @classmethod
    def parse(cls, txn_index: bytes | None, producer_snapshot: bytes | None) -> Transactions:
        """From the bytes of the two files; `None` is a file the broker did not send. Never raises for bad bytes."""
        aborted = _parse_aborted(txn_index or b"")
        opened = None if producer_snapshot is None else _parse_snapshot(producer_snapshot)
        if aborted is None or opened is None:
            return cls(False, NO_ABORTS.copy() if aborted is None else aborted, _NONE_OPEN.copy())
        return cls(True, aborted, opened)

    @classmethod
    def of_files(cls, files: Mapping[IndexType, bytes]) -> Transactions:
        """From the files beside a log: without a producer snapshot nothing is known."""
        return cls.parse(files.get(IndexType.TRANSACTION), files.get(IndexType.PRODUCER_SNAPSHOT))

    def ends(self) -> Int64Array:
        """`peeked`, with -1 for all where nobody looked."""
        return np.full(len(self.opened), -1, dtype=np.int64) if self.peeked is None else self.peeked

    def decide(self, producer_ids: Int64Array, base_offsets: Int64Array) -> UInt8Array:
        """COMMITTED, ABORTED, UNDECIDED or PEEKED for each transactional data batch."""
        out = np.full(len(producer_ids), COMMITTED if self.known else UNDECIDED, dtype=np.uint8)
        _decide(
            readonly(producer_ids, np.int64),
            readonly(base_offsets, np.int64),
            readonly(self.aborted, np.int64),
            readonly(self.opened, np.int64),
            readonly(self.ends(), np.int64),
            out,
        )
        return out


class MarkerCheck:
    """Compares decisions with the markers seen in the segment. Holds one small entry per open producer."""

    def __init__(self, transactions: Transactions) -> None:
        self._known = transactions.known
        self._pending: dict[int, int] = {}  # producer id -> decisions since its last marker, as bits 1 << decision
        self.conflicts = 0

    def see(self, batches: BatchTable) -> None:
        """Take the next batches of the segment, flags and control types filled."""
        if not self._known:
            return
        flags = batches["flags"]
        transactional = (batches["attributes"] & _TRANSACTIONAL) != 0
        control = (flags & BatchFlag.CONTROL) != 0
        marker = control & np.isin(batches["control_type"], (CONTROL_ABORT, CONTROL_COMMIT))
        data = transactional & ~control & ((flags & (BatchFlag.ROWS | BatchFlag.ABORTED)) != 0)
        picked = np.flatnonzero(marker | data)
        if len(picked) == 0:
            return
        picked = picked[np.argsort(batches["producer_id"][picked], kind="stable")]
        decision = np.where((flags[picked] & BatchFlag.ABORTED) != 0, ABORTED, COMMITTED)
        undecided = BatchFlag.UNDECIDED | BatchFlag.PEEKED  # peeked: not by a marker of this segment
        decision = np.where((flags[picked] & undecided) != 0, UNDECIDED, decision)
        self._see_sorted(batches["producer_id"][picked], marker[picked], batches["control_type"][picked], decision)

    def _see_sorted(
        self,
        producers: npt.NDArray[np.int64],
        marker: npt.NDArray[np.bool_],
        control: npt.NDArray[np.int16],
        decision: npt.NDArray[np.int64],
    ) -> None:
        """Work on runs: batches of one producer up to and with a marker, or up to its last batch here."""
        starts = np.ones(len(producers), dtype=np.bool_)
        starts[1:] = (producers[1:] != producers[:-1]) | marker[:-1]
        first = np.flatnonzero(starts)
        last = np.append(first[1:], len(producers)) - 1
        bits = np.where(marker, 0, 1 << decision)
        seen = np.bitwise_or.reduceat(bits, first)
        new_producer = np.ones(len(first), dtype=np.bool_)
        new_producer[1:] = producers[first[1:]] != producers[first[:-1]]
        for run in np.flatnonzero(new_producer).tolist():
            seen[run] |= self._pending.pop(int(producers[first[run]]), 0)
        ended = marker[last]
        expected = np.where(control[last] == CONTROL_ABORT, 1 << ABORTED, 1 << COMMITTED)
        self.conflicts += int(np.count_nonzero(ended & (seen != 0) & (seen != expected)))
        for run in np.flatnonzero(~ended).tolist():
            self._pending[int(producers[first[run]])] = int(seen[run])

    def finish(self) -> int:
        """Number of conflicts, those included that lack a marker for a batch said to be decided."""
        open_ = sum(1 for bits in self._pending.values() if bits != 1 << UNDECIDED)
        self._pending.clear()
        self.conflicts += open_
        return self.conflicts
