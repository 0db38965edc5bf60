"""Whole record batches out of a segment's bytes, and the checks that fail a copy.

A log segment is a row of record batches without gaps. Two layouts share the first twelve bytes and the place of the
magic byte:

    magic 2, KIP-98                          magic 0 and 1 (message sets)
     0  base offset        i64                0  offset      i64  of the message; of the last one when compressed
     8  batch length       i32                8  size        i32
    12  leader epoch       i32               12  CRC-32      u32
    16  magic              i8                16  magic       i8
    17  CRC32C of 21…      u32               17  attributes  i8
    21  attributes         i16               18  …
    23  last offset delta  i32
    27  base timestamp     i64
    35  max timestamp      i64
    43  producer id        i64
    51  producer epoch     i16
    53  base sequence      i32
    57  record count       i32
    61  records

What contradicts the file itself or the broker's metadata raises SegmentError("invalid_segment"): a cut tail, lengths
outside the file, a size other than `segment_size_bytes`, offsets outside the segment or not ascending: no broker makes
these. Everything inside a rightly framed batch is the business of other files and fails nothing; so is its leader
epoch, which may be at odds with the metadata's (epochs.py). A batch of unknown magic is framed by its first twelve
bytes alone.
"""

from __future__ import annotations

import numpy as np

from converter import limits
from converter.errors import SegmentError
from converter.kernels.kernel import Row, i8, i64, kernel, readonly, u32
from converter.types import BATCH_DTYPE, BatchTable, Int64Array, SegmentMetadata, UInt8Array

HEADER_BYTES = 61  # of magic 2
LENGTH_PREFIX_BYTES = 12  # base offset and length, not counted in the length
PREFIX_BYTES = 17  # up to and with the magic byte
CRC_START = 21  # first byte the CRC of magic 2 covers

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_MIN_LENGTH = np.array([14, 22, HEADER_BYTES - LENGTH_PREFIX_BYTES], dtype=np.int64)  # by magic

_MESSAGES = (
    "",
    "batch length is shorter than a batch header",
    "batch ends beyond the segment",
    "base offset lies outside the segment's offsets",
    "last offset lies outside the segment's offsets",
    "base offset is not above the batch before",
)


@kernel
def _big_endian(data: UInt8Array, p: int, size: int) -> int:
    """A signed integer of 2, 4 or 8 bytes."""
    value = i64(0)
    for i in range(size):
        value = (value << 8) | i64(data[p + i])
    shift = 64 - 8 * size
    return (value << shift) >> shift


@kernel
def _read_header(data: UInt8Array, p: int, row: Row) -> None:
    """The magic 2 header at p into a row. Caller's promise: 61 bytes are there."""
    row.base_offset = _big_endian(data, p, 8)
    row.length = _big_endian(data, p + 8, 4)
    row.leader_epoch = _big_endian(data, p + 12, 4)
    row.magic = 2
    row.crc = u32(_big_endian(data, p + 17, 4) & 0xFFFFFFFF)
    row.attributes = _big_endian(data, p + 21, 2)
    row.last_offset_delta = _big_endian(data, p + 23, 4)
    row.base_timestamp = _big_endian(data, p + 27, 8)
    row.max_timestamp = _big_endian(data, p + 35, 8)
    row.producer_id = _big_endian(data, p + 43, 8)
    row.producer_epoch = _big_endian(data, p + 51, 2)
    row.base_sequence = _big_endian(data, p + 53, 4)
    row.count = _big_endian(data, p + 57, 4)


@kernel
def _read_old_header(data: UInt8Array, p: int, row: Row) -> None:
    """The first fields of another magic into a row. Caller's promise: 26 bytes are there."""
    row.base_offset = _big_endian(data, p, 8)
    row.length = _big_endian(data, p + 8, 4)
    row.leader_epoch = -1
    row.magic = _big_endian(data, p + 15, 2)
    row.crc = u32(_big_endian(data, p + 12, 4) & 0xFFFFFFFF)
    row.attributes = i64(data[p + 17])
    row.last_offset_delta = 0
    row.base_timestamp = -1
    row.max_timestamp = -1
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.count = 0


@kernel
def _check_offsets(row: Row, previous: int, bounds: Int64Array) -> int:
    """0, or the number of a message. `bounds` is first and last offset of the segment, both inclusive."""
    if row.base_offset < bounds[0] or row.base_offset > bounds[1]:
        return 3
    if row.last_offset_delta < 0 or row.last_offset_delta > bounds[1] - row.base_offset:
        return 4
    if row.base_offset <= previous:
        return 5
    return 0


@kernel
def _scan(
    data: UInt8Array,
    remaining: int,
    previous: int,
    bounds: Int64Array,
    table: BatchTable,
    bytes_max: int,
) -> tuple[int, int, int, int]:
    """Headers of the whole batches in data, until the table or bytes_max is full.

    `remaining` counts the bytes from data[0] to the segment's end, `previous` is the last offset of the batch before.

    Returns:
        batches read, bytes they have, last offset seen, number of a message (0: all is well).
    """
    n = 0
    p = i64(0)
    end = i64(len(data))
    while n < len(table) and p < bytes_max and end - p >= PREFIX_BYTES:
        length = _big_endian(data, p + 8, 4)
        magic = _big_endian(data, p + 15, 2)
        magic = i64(i8(magic & 0xFF))
        minimum = _MIN_LENGTH[magic] if 0 <= magic <= 2 else _MIN_LENGTH[0]
        if length < minimum:
            return n, p, previous, 1
        size = length + LENGTH_PREFIX_BYTES
        if size > remaining - p:
            return n, p, previous, 2
        if size > end - p:
            break
        row = table[n]
        if magic == 2:
            _read_header(data, p, row)
        else:
            _read_old_header(data, p, row)
        problem = _check_offsets(row, previous, bounds)
        if problem != 0:
            return n, p, previous, problem
        row.source_position = p
        previous = row.base_offset + row.last_offset_delta
        p += size
        n += 1
    return n, p, previous, 0


class Framer:
    """Collects bytes and hands out whole batches, a step at a time.

    Holds at most a step, plus one partial batch, plus what one feed() brought.
    """

    def __init__(self, metadata: SegmentMetadata, step_bytes: int = limits.STEP_BYTES) -> None:
        self._size = metadata.segment_size_bytes
        self._step_bytes = step_bytes
        self._bounds = np.array([metadata.start_offset, metadata.end_offset], dtype=np.int64)
        self._previous = metadata.start_offset - 1
        self._buffer = np.empty(step_bytes, dtype=np.uint8)
        self._head = 0  # first byte not handed out
        self._tail = 0  # end of what came
        self._table = np.zeros(limits.STEP_BATCHES_MAX, dtype=BATCH_DTYPE)
        self.position = 0  # of _head in the segment
        self.batches = 0  # handed out so far

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Take more bytes of the segment.

        Raises:
            SegmentError: invalid_segment, more came than the segment has.
        """
        came = np.frombuffer(data, dtype=np.uint8)
        held = self._tail - self._head
        if len(came) > self._size - self.position - held:
            raise SegmentError(
                "invalid_segment",
                f"more bytes came than the segment's {self._size}",
                batch=self.batches,
                position=self._size,
            )
        if len(came) > len(self._buffer) - self._tail:
            self._make_room(held, len(came))
        self._buffer[self._tail : self._tail + len(came)] = came
        self._tail += len(came)

    def _make_room(self, held: int, coming: int) -> None:
        target = self._buffer
        if held + coming > len(target):
            target = np.empty(max(held + coming, min(2 * len(target), self._size)), dtype=np.uint8)
        elif held == 0 and len(target) > limits.SCRATCH_BYTES_MAX:
            target = np.empty(max(self._step_bytes, coming), dtype=np.uint8)
        target[:held] = self._buffer[self._head : self._tail]
        self._buffer, self._head, self._tail = target, 0, held

    def take(self, last: bool) -> tuple[BatchTable, UInt8Array] | None:
        """The next whole batches and the read-only bytes they have, valid until the next append(); None: none yet.

        `source_position` of the table is absolute, the other header fields are filled, the rest is zero. Until `last`,
        waits for a step's worth of bytes.

        Raises:
            SegmentError: invalid_segment.
        """
        held = self._tail - self._head
        if held < self._step_bytes and not last:
            return None
        data = readonly(self._buffer[self._head : self._tail], np.uint8)
        n, size, previous, problem = _scan(
            data,
            self._size - self.position,
            self._previous,
            self._bounds,
            self._table,
            self._step_bytes,
        )
        if problem:
            raise SegmentError(
                "invalid_segment", _MESSAGES[problem], batch=self.batches + n, position=self.position + size
            )
        if n == 0:
            return None
        table = self._table[:n].copy()
        table["source_position"] += self.position
        self._previous = previous
        self._head += size
        self.position += size
        self.batches += n
        return table, data[:size]

    def close(self) -> None:
        """Check that the segment ended where it should. Call after take(last=True) has returned None.

        Raises:
            SegmentError: invalid_segment, cut tail or fewer bytes than segment_size_bytes.
        """
        held = self._tail - self._head
        if held:
            raise SegmentError(
                "invalid_segment",
                f"the segment ends inside a batch, {held} bytes after its start",
                batch=self.batches,
                position=self.position,
            )
        if self.position != self._size:
            raise SegmentError(
                "invalid_segment",
                f"{self.position} bytes came, the segment has {self._size}",
                batch=self.batches,
                position=self.position,
            )
