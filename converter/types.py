"""What the files of this room hand to each other, and to the other rooms.

Nothing here computes. Arrays are numpy, little-endian, one element per record batch or per row; `[a, b)` means a
inclusive, b exclusive. Offsets are Kafka's absolute offsets, timestamps milliseconds since the epoch unless a name
ends in `_us`, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ValueFormat = Literal["raw", "string"]
Mode = Literal["table", "verbatim"]


class IndexType(IntEnum):
    """Kafka's index files, numbered as on the wire (proto `IndexType`)."""

    OFFSET = 1
    TIMESTAMP = 2
    PRODUCER_SNAPSHOT = 3
    TRANSACTION = 4
    LEADER_EPOCH = 5


class BatchFlag(IntFlag):
    """How one batch is stored and what it is."""

    KEPT = 1  # served from the kept bytes, not rebuilt from columns
    ROWS = 2  # its records are rows of the data file
    CONTROL = 4  # a control batch: never rows
    ABORTED = 8  # records of a transaction known as aborted: never rows
    UNDECIDED = 16  # transactional, decision not in this segment: rows of the tail
    QUARANTINED = 32  # its records cannot become rows; `cause` says why
    EXACT_TIMESTAMPS = 64  # the index holds the batch's timestamp deltas, the column cannot give them back
    LEGACY = 128  # magic 0 or 1
    PEEKED = 256  # decision not in this segment, but known from later ones to be a commit: rows like any other


class Cause(IntEnum):
    """Why a batch is kept rather than rebuilt, or its records withheld. Stable numbers: they are stored."""

    NONE = 0
    BAD_CRC = 1  # wrong at the source
    DECOMPRESSION_LIMIT = 2
    UNDECODABLE = 3  # the records or their compression do not follow the format
    LEGACY_MAGIC = 4
    NOT_CANONICAL = 5  # decodes, but does not come back byte for byte
    SERVED_SIZE = 6  # uncompressed it would be larger than max(original size, 1 MiB)
    NO_ROWS = 7  # control, aborted or empty batch: nothing to rebuild it from
    INTERNAL = 8  # an unexpected error of ours: the segment is stored verbatim
    VERBATIM = 9  # `mode: verbatim`


#: One record batch. Fields up to `count` are the v2 header as the broker sent it (KIP-98); for magic 0 and 1 only
#: base_offset, length, magic, crc, attributes and last_offset are meaningful.
BATCH_DTYPE = np.dtype(
    [
        ("base_offset", "<i8"),
        ("length", "<i4"),  # batchLength: original size is length + 12
        ("leader_epoch", "<i4"),
        ("magic", "i1"),
        ("crc", "<u4"),  # of the original bytes
        ("attributes", "<i2"),
        ("last_offset_delta", "<i4"),
        ("base_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("producer_id", "<i8"),
        ("producer_epoch", "<i2"),
        ("base_sequence", "<i4"),
        ("count", "<i4"),  # recordsCount
        ("control_type", "<i2"),  # key type of a control batch's record (0 abort, 1 commit, ...); -1: no control batch
        # How it is stored.
        ("flags", "<u2"),  # BatchFlag
        ("cause", "u1"),  # Cause
        ("row_start", "<i8"),  # first row in the data file; rows are [row_start, row_start + row_count)
        ("row_count", "<i4"),
        ("kept_start", "<i8"),  # first byte in the kept bytes; length is served_size when KEPT
        ("served_size", "<i4"),  # bytes this batch has when served
        (
            "served_crc",
            "<u4",
        ),  # CRC32C of the served bytes from 21 on (magic 2) or of all (others), see batches/rebuild.py
        ("position", "<i8"),  # served position, see index/position.py
        ("source_position", "<i8"),  # where it began in the broker's segment
        ("timestamps_start", "<i8"),  # first of its `count` deltas in the timestamp deltas; -1: none
    ]
)

#: Makes a context of work that takes more memory than usual: entered before that is allocated, left when it is free
#: again. Entering may wait for others, and within it may be entered again.
LargeWork = Callable[[], AbstractContextManager[object]]

BatchTable = npt.NDArray[np.void]  # dtype BATCH_DTYPE
Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """A leader epoch and the first offset it wrote."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMetadata:
    """RemoteLogSegmentMetadata (KIP-405) as the broker gave it. `end_offset` is inclusive; ids are 16 bytes."""

    cluster_name: str
    topic: str
    topic_id: bytes
    partition: int
    segment_id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    leader_epochs: tuple[LeaderEpoch, ...]
    custom_metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What a topic's rule says about conversion. All limits come from limits.py or the settings, never from here."""

    value_format: ValueFormat = "raw"
    mode: Mode = "table"
    decompressed_batch_bytes_max: int = 256 * 1024 * 1024


@dataclass(slots=True)
class ParsedStep:
    """What one step of input (about 4 MiB, whole batches) became.

    `rows` has the schema of columns.py and as many rows as the sum of the batches' row_count, in offset order.
    row_start, kept_start, timestamps_start and position of `batches` are absolute within the segment.
    """

    batches: BatchTable
    rows: pa.RecordBatch
    kept: list[memoryview | bytes] = field(default_factory=list)
    timestamp_deltas: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(slots=True)
class VarBytes:
    """A column of byte strings: value i is data[offsets[i]:offsets[i + 1]], null where valid[i] is False."""

    offsets: Int64Array  # length n + 1
    data: UInt8Array
    valid: BoolArray  # length n

    def __len__(self) -> int:
        return len(self.valid)


@dataclass(slots=True, kw_only=True)
class RowBuffers:
    """Rows as the rebuild kernel wants them; made by the parser (for the proof) and by the page reader.

    Headers of row i are entries [header_offsets[i], header_offsets[i + 1]) of header_keys and header_values.
    `timestamps_us` is microseconds; where timestamps_valid is False the exact value is in the index.
    """

    offsets: Int64Array
    timestamps_us: Int64Array
    timestamps_valid: BoolArray
    keys: VarBytes
    values: VarBytes
    header_offsets: Int64Array
    header_keys: VarBytes
    header_values: VarBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Where the pages of a data file's leaf columns lie, so that a fetch needs neither footer nor Parquet index.

    Arrays have one element per page, ordered by (column, first_row). `column` numbers the leaves of
    columns.LEAF_COLUMNS that the file has. `length` includes the page header.
    """

    column: npt.NDArray[np.int16]
    first_row: Int64Array
    row_count: npt.NDArray[np.int32]
    offset: Int64Array
    length: npt.NDArray[np.int32]
