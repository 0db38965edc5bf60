"""What a segment index says, once decoded. docs/format.md gives the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from converter.types import (
    BatchTable,
    Cause,
    ConvertOptions,
    IndexType,
    Int64Array,
    LeaderEpoch,
    PageTable,
    SegmentMetadata,
)

#: One block of the index: up to 4096 batches with what is needed to read them. Stored as it is in the directory.
BLOCK_DTYPE = np.dtype(
    [
        ("first_batch", "<i8"),  # number of its first batch in the segment
        ("batches", "<i4"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),  # inclusive
        ("position", "<i8"),  # served position of its first batch
        ("row_start", "<i8"),
        ("rows", "<i8"),
        ("deltas_start", "<i8"),  # first of its timestamp deltas
        ("deltas", "<i8"),
        ("pages", "<i4"),
        ("encoders", "<i8"),  # rows whose encoders are listed: all of them, or none
        ("offset", "<i8"),  # where its bytes begin in the index object
        ("batches_length", "<i4"),  # stored bytes of its four parts, which follow one another
        ("deltas_length", "<i4"),
        ("encoders_length", "<i4"),
        ("pages_length", "<i4"),
        ("batches_raw", "<i4"),  # what they decompress to
        ("deltas_raw", "<i4"),
        ("encoders_raw", "<i4"),
        ("pages_raw", "<i4"),
        ("crc32c", "<u4"),  # of the stored bytes of all four parts
    ]
)

BlockTable = npt.NDArray[np.void]  # dtype BLOCK_DTYPE


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """The keys one copy attempt writes to, under the store's root; `attempt_id` is 16 bytes.

    `tail_key`: of the second data file, for the rows from the segment's first undecided one on.
    """

    attempt_id: bytes
    data_key: str
    kept_key: str
    tail_key: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was written: its key, its size in bytes and the CRC32C of all of it."""

    key: str
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class IndexSection:
    """A range of the index object: `[offset, offset + size)`, with the CRC32C of its bytes."""

    offset: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class UndecidedTransaction:
    """Batches of one producer whose decision is not in this segment; offsets inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that the producer snapshot calls open at the segment's end.

    `committed`: how it ended, where transaction indexes of later segments said so; None where they did not.
    """

    producer_id: int
    first_offset: int
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How many batches have a cause, with their records and served bytes."""

    cause: Cause
    batches: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What publishing needs of the batches, so that it reads no block.

    `leader_epochs` are the runs of the batches, as epochs.py has them: (epoch, base offset of its first batch). With
    `undecided_overflow` the list of undecided transactions is empty and the blocks must be read. `open_transactions` is
    None when the broker's files did not say: that is not the same as none open. With `transaction_conflict` markers in
    the segment contradict those files, and its rows must not be published. `pending`: why the rows lack the value
    columns of the topic's table; None: they have them, or the topic is not typed.
    """

    batches: int
    rows: int
    served_bytes: int
    markers: int
    leader_epochs: tuple[LeaderEpoch, ...]
    undecided: tuple[UndecidedTransaction, ...]
    undecided_overflow: bool
    open_transactions: tuple[OpenTransaction, ...] | None
    transaction_conflict: bool
    quarantined: tuple[CauseCount, ...]
    kept: tuple[CauseCount, ...]
    verbatim: bool
    pending: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The front of a segment index: everything but the batches.

    `data` is None for a segment without rows and `kept` for one without kept bytes: no object exists then, `footer`
    is None with `data`. `tail` holds the rows from the first one on whose transaction is open at the segment's end;
    None when there is no such row, or none before it. Page offsets go on from one file to the next: what lies at
    data.size or above lies in the tail. `files` holds Kafka's own indexes byte for byte, and under OFFSET our own
    sparse one; TRANSACTION is missing when the segment had none. `checksum` is the header's: it differs between two
    versions of one segment's index.

    `proven`: how values that are stored as columns alone become bytes again (values/proof/proven.py); empty where every
    value's bytes are in the data file.

    `left_out`: the producer snapshot, when it was too large to be stored, and how many bytes it had.

    `first_written_ms`: when the segment's first index was written, by the store's clock in milliseconds since the
    epoch, where this one is a later one; None: it is the first.

    A segment whose data files were merged with others' names the merged file, and has no footer: that file's is not its
    own.
    """

    metadata: SegmentMetadata
    options: ConvertOptions
    attempt_id: bytes
    data: StoredObject | None
    kept: StoredObject | None
    summary: Summary
    files: Mapping[IndexType, IndexSection]
    footer: IndexSection | None
    footer_raw_size: int
    blocks: BlockTable
    directory_size: int
    total_size: int
    tail: StoredObject | None = None
    tail_footer: IndexSection | None = None
    tail_footer_raw_size: int = 0
    proven: bytes = b""
    checksum: int = 0
    left_out: Mapping[IndexType, int] = field(default_factory=dict)
    first_written_ms: int | None = None

    @property
    def data_files(self) -> tuple[StoredObject, ...]:
        """The data file and its tail, as far as there are any."""
        return tuple(stored for stored in (self.data, self.tail) if stored is not None)

    @property
    def data_size(self) -> int:
        """Bytes of the data file and its tail."""
        return sum(stored.size for stored in self.data_files)

    @property
    def merged(self) -> bool:
        """Whether the data file holds rows of other segments too."""
        return self.data is not None and self.footer is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One decoded block: its batches, the pages that hold their rows, their timestamp deltas, the rows' encoders.

    `deltas[0]` is the delta number `deltas_start` of the segment. `encoders` has for each row of the block the number
    of the encoding, from 1, that gives its value back from columns; 0: its bytes are stored. Empty where all are.
    """

    number: int
    first_batch: int
    batches: BatchTable
    pages: PageTable
    deltas: Int64Array
    deltas_start: int
    encoders: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
