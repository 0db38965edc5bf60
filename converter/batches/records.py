"""Records of magic 2 batches to columns, in two passes: measure, then fill.

A record (KIP-98) is a length and then attributes (i8, unused), timestamp delta (long), offset delta (int), key, value
and headers; all lengths and deltas are varints, a negative length is null. What Kafka's DefaultRecord refuses is
refused here: lengths outside the record or batch, bytes left over in either, negative header counts, null header
names. Beyond Kafka, offset deltas must ascend within [0, last offset delta], because rows are in offset order and no
offset may come twice.

The measuring pass checks everything, so that the filling pass may trust the bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from converter.batches.row_arrays import ByteStrings, RowArrays
from converter.kernels.kernel import Row, i32, i64, kernel
from converter.kernels.memory import copy
from converter.kernels.varint import BAD, read_int, read_long
from converter.types import BatchFlag, BatchTable, BoolArray, Int64Array, UInt8Array

# Columns of the measure table, one row per batch.
KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, EXACT = range(6)
MEASURES = 6

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000  # the largest a microsecond column holds; its negative is the smallest
NO_TIMESTAMP = -1

_LOG_APPEND_TIME = 0x08
_ROWS = int(BatchFlag.ROWS)

#: Where one batch's uncompressed records are: [start, end) of the buffer `source` (0: the segment, 1: decompressed).
EXTENT_DTYPE = np.dtype([("source", "i1"), ("start", "<i8"), ("end", "<i8")])
Extents = npt.NDArray[np.void]


@kernel
def _measure_headers(data: UInt8Array, p: int, end: int, sums: Int64Array) -> int:
    """Check the headers at p and add up their sizes; returns the position after them or BAD."""
    count, p = read_int(data, p, end)
    if p == BAD or count < 0 or count > end - p:
        return BAD
    sums[HEADERS] += count
    for _ in range(count):
        size, p = read_int(data, p, end)
        if p == BAD or size < 0 or size > end - p:
            return BAD
        sums[HEADER_KEY_BYTES] += size
        p += size
        size, p = read_int(data, p, end)
        if p == BAD or size > end - p:
            return BAD
        if size > 0:
            sums[HEADER_VALUE_BYTES] += size
            p += size
    return p


@kernel
def _measure_batch(data: UInt8Array, p: int, end: int, batch: Row, sums: Int64Array) -> bool:
    """Check the records in [p, end) and add up their sizes; False where they cannot be decoded."""
    previous = i64(-1)
    log_append_time = (batch.attributes & _LOG_APPEND_TIME) != 0
    exact = i64(1) if log_append_time else i64(0)
    for _ in range(batch.count):
        size, p = read_int(data, p, end)
        if p == BAD or size < 1 or size > end - p:
            return False
        last = p + size
        delta, p = read_long(data, p + 1, last)
        if p == BAD:
            return False
        timestamp = batch.base_timestamp + delta
        if timestamp == NO_TIMESTAMP or timestamp > TIMESTAMP_MS_MAX or timestamp < -TIMESTAMP_MS_MAX:
            exact = i64(1)
        offset, p = read_int(data, p, last)
        if p == BAD or offset <= previous or offset > batch.last_offset_delta:
            return False
        previous = offset
        size, p = read_int(data, p, last)
        if p == BAD or size > last - p:
            return False
        if size > 0:
            sums[KEY_BYTES] += size
            p += size
        size, p = read_int(data, p, last)
        if p == BAD or size > last - p:
            return False
        if size > 0:
            sums[VALUE_BYTES] += size
            p += size
        p = _measure_headers(data, p, last, sums)
        if p != last:
            return False
    sums[EXACT] = exact
    return p == end


@kernel
def measure(
    raw: UInt8Array, plain: UInt8Array, batches: BatchTable, extents: Extents, wanted: BoolArray, sums: Int64Array
) -> None:
    """Check the records of the wanted batches and add up what their columns need.

    `raw` is the segment's bytes, `plain` decompressed records; `extents` says where each batch's are. `wanted` is set
    to False for batches that cannot be decoded. `sums` comes as zeros, (batches, MEASURES).
    """
    for i in range(len(batches)):
        if not wanted[i]:
            continue
        data = plain if extents[i].source == 1 else raw
        wanted[i] = _measure_batch(data, extents[i].start, extents[i].end, batches[i], sums[i])
        if not wanted[i]:
            sums[i, :] = 0


@kernel
def control_types(raw: UInt8Array, plain: UInt8Array, batches: BatchTable, extents: Extents, wanted: BoolArray) -> None:
    """Set control_type from the key of the first record: version i16, type i16; -1 where there is none to read."""
    for i in range(len(batches)):
        if not wanted[i]:
            continue
        data = plain if extents[i].source == 1 else raw
        batches[i].control_type = _control_type(data, extents[i].start, extents[i].end, batches[i].count)


@kernel
def _control_type(data: UInt8Array, p: int, end: int, count: int) -> int:
    size, p = read_int(data, p, end)
    if count < 1 or p == BAD or size < 1 or size > end - p:
        return -1
    last = p + size
    _, p = read_long(data, p + 1, last)
    if p == BAD:
        return -1
    _, p = read_int(data, p, last)
    if p == BAD:
        return -1
    size, p = read_int(data, p, last)
    if p == BAD or size < 4 or size > last - p or data[p] >= 0x80 or data[p + 2] >= 0x80:
        return -1
    return (i64(data[p + 2]) << 8) | i64(data[p + 3])


@kernel
def _fill_bytes(data: UInt8Array, p: int, size: int, i: int, column: ByteStrings) -> int:
    """Append the byte string of `size` bytes at p (negative: null) as value i of a column; returns the end."""
    to = column.offsets[i]
    column.valid[i] = size >= 0
    if size > 0:
        copy(column.data, to, data, p, size)
        p += size
        to += size
    column.offsets[i + 1] = to
    return p


@kernel
def _fill_batch(
    data: UInt8Array,
    p: int,
    batch: Row,
    row: int,
    header: int,
    delta_at: int,
    rows: RowArrays,
    timestamp_types: npt.NDArray[np.int32],
    deltas: Int64Array,
) -> tuple[int, int]:
    """Fill the rows of one batch from `row` on; returns the numbers of the next header and the next delta."""
    # Fields are read once: within the loop the compiler must assume that every store may change them.
    end = len(data)
    exact = batch.timestamps_start >= 0
    log_append_time = (batch.attributes & _LOG_APPEND_TIME) != 0
    timestamp_type = i32(1) if log_append_time else i32(0)
    offsets, timestamps, timestamps_valid = rows.offsets, rows.timestamps_us, rows.timestamps_valid
    key_offsets, key_data, key_valid = rows.keys
    value_offsets, value_data, value_valid = rows.values
    header_offsets = rows.header_offsets
    base_offset, base_timestamp, max_timestamp = batch.base_offset, batch.base_timestamp, batch.max_timestamp
    for _ in range(batch.count):
        _, p = read_int(data, p, end)
        delta, p = read_long(data, p + 1, end)
        if exact:
            deltas[delta_at] = delta
            delta_at += 1
        timestamp = max_timestamp if log_append_time else base_timestamp + delta
        known = timestamp != NO_TIMESTAMP and -TIMESTAMP_MS_MAX <= timestamp <= TIMESTAMP_MS_MAX
        timestamps[row] = timestamp * 1000 if known else 0
        timestamps_valid[row] = known
        timestamp_types[row] = timestamp_type
        offset, p = read_int(data, p, end)
        offsets[row] = base_offset + offset
        # Keys and values in place: calls that hand over arrays count references, 80 ns a record.
        size, p = read_int(data, p, end)
        key_valid[row] = size >= 0
        to = key_offsets[row]
        if size > 0:
            copy(key_data, to, data, p, size)
            p += size
            to += size
        key_offsets[row + 1] = to
        size, p = read_int(data, p, end)
        value_valid[row] = size >= 0
        to = value_offsets[row]
        if size > 0:
            copy(value_data, to, data, p, size)
            p += size
            to += size
        value_offsets[row + 1] = to
        count, p = read_int(data, p, end)
        for _ in range(count):
            size, p = read_int(data, p, end)
            p = _fill_bytes(data, p, size, header, rows.header_keys)
            size, p = read_int(data, p, end)
            p = _fill_bytes(data, p, size, header, rows.header_values)
            header += 1
        row += 1
        header_offsets[row] = header
    return header, delta_at


@kernel
def fill(
    raw: UInt8Array,
    plain: UInt8Array,
    batches: BatchTable,
    extents: Extents,
    rows: RowArrays,
    timestamp_types: npt.NDArray[np.int32],
    deltas: Int64Array,
) -> None:
    """Fill the columns from every batch flagged ROWS. Caller's promise: measure() passed, arrays have its sizes.

    The offsets of every column begin with 0. `deltas` receives the timestamp deltas of the batches whose
    timestamps_start is not negative, one after another.
    """
    row = 0
    header = 0
    delta_at = 0
    for i in range(len(batches)):
        if (batches[i].flags & _ROWS) == 0:
            continue
        data = plain if extents[i].source == 1 else raw
        header, delta_at = _fill_batch(
            data, extents[i].start, batches[i], row, header, delta_at, rows, timestamp_types, deltas
        )
        row += batches[i].count
