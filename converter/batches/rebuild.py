"""Columns and kept bytes back to record batches.

Used on every fetch, and by the parser to prove what it parsed. Whatever the rows hold, nothing is read or written out
of bounds: indexes are checked once here, written sizes record by record, and the CRC32C of each batch is compared
with the index before it leaves.

`served_crc` of a batch is the CRC32C of its served bytes from byte 21 on for magic 2, where it equals the CRC field
unless that was wrong at the source, and of all its bytes for any other magic. The first 21 bytes of a kept batch of
magic 2, which no CRC covers, are compared with the batch table instead.
"""

from __future__ import annotations

import numpy as np

from converter import limits
from converter.batches.framing import CODEC_MASK, CRC_START, HEADER_BYTES, LENGTH_PREFIX_BYTES
from converter.batches.row_arrays import ByteStrings, RowArrays, checked_arrays
from converter.errors import SegmentError
from converter.kernels.checksum import checksums
from converter.kernels.kernel import Row, i64, kernel, readonly, u8
from converter.kernels.memory import copy
from converter.kernels.varint import size_of, write
from converter.types import BATCH_DTYPE, BatchFlag, BatchTable, Int64Array, RowBuffers, UInt8Array

_KEPT = int(BatchFlag.KEPT)
_EXACT = int(BatchFlag.EXACT_TIMESTAMPS)
SERVED_ATTRIBUTES = ~CODEC_MASK


@kernel
def _put(out: UInt8Array, p: int, value: int, size: int) -> None:
    """A big-endian integer."""
    for i in range(size):
        out[p + i] = u8((value >> (8 * (size - 1 - i))) & 0xFF)


@kernel
def put_header(out: UInt8Array, p: int, batch: Row, size: int, attributes: int) -> None:
    """The 61 bytes of a magic 2 header but for its CRC."""
    _put(out, p, batch.base_offset, 8)
    _put(out, p + 8, size - LENGTH_PREFIX_BYTES, 4)
    _put(out, p + 12, batch.leader_epoch, 4)
    out[p + 16] = 2
    _put(out, p + 21, attributes, 2)
    _put(out, p + 23, batch.last_offset_delta, 4)
    _put(out, p + 27, batch.base_timestamp, 8)
    _put(out, p + 35, batch.max_timestamp, 8)
    _put(out, p + 43, batch.producer_id, 8)
    _put(out, p + 51, batch.producer_epoch, 2)
    _put(out, p + 53, batch.base_sequence, 4)
    _put(out, p + 57, batch.count, 4)


@kernel
def _bytes_size(column: ByteStrings, i: int) -> int:
    if not column.valid[i]:
        return 1
    size = i64(column.offsets[i + 1] - column.offsets[i])
    return size_of(size) + size


@kernel
def _put_bytes(out: UInt8Array, p: int, column: ByteStrings, i: int) -> int:
    if not column.valid[i]:
        return write(out, p, -1)
    start = i64(column.offsets[i])
    size = i64(column.offsets[i + 1]) - start
    p = write(out, p, size)
    copy(out, p, column.data, start, size)
    return p + size


@kernel
def put_records(
    out: UInt8Array,
    p: int,
    end: int,
    batch: Row,
    row: int,
    rows: RowArrays,
    deltas: Int64Array,
    delta_at: int,
) -> bool:
    """The records of a batch into [p, end), exactly; False where they do not fit or cannot be had.

    Caller's promise: rows [row, row + count) exist, columns are consistent (row_arrays.checked_arrays), [p, end) lies
    in out, and deltas [delta_at, delta_at + count) exist for a batch flagged EXACT_TIMESTAMPS.
    """
    # Fields are read once, keys and values written in place: see records._fill_batch.
    exact = (batch.flags & _EXACT) != 0
    base_offset, base_timestamp, count = batch.base_offset, batch.base_timestamp, i64(batch.count)
    offsets, timestamps, timestamps_valid = rows.offsets, rows.timestamps_us, rows.timestamps_valid
    key_offsets, key_data, key_valid = rows.keys
    value_offsets, value_data, value_valid = rows.values
    header_offsets, names, texts = rows.header_offsets, rows.header_keys, rows.header_values
    for k in range(count):
        i = row + k
        if exact:
            delta = deltas[delta_at + k]
        else:
            if not timestamps_valid[i] or timestamps[i] % 1000 != 0:
                return False
            delta = timestamps[i] // 1000 - base_timestamp
        offset = offsets[i] - base_offset
        key_size = key_offsets[i + 1] - key_offsets[i] if key_valid[i] else i64(-1)
        value_size = value_offsets[i + 1] - value_offsets[i] if value_valid[i] else i64(-1)
        first = header_offsets[i]
        last = header_offsets[i + 1]
        size = 1 + size_of(delta) + size_of(offset) + size_of(key_size) + size_of(value_size) + size_of(last - first)
        size += max(key_size, i64(0)) + max(value_size, i64(0))
        for h in range(first, last):
            size += _bytes_size(names, h) + _bytes_size(texts, h)
        if size_of(size) + size > end - p:
            return False
        p = write(out, p, size)
        out[p] = 0
        p = write(out, p + 1, delta)
        p = write(out, p, offset)
        p = write(out, p, key_size)
        if key_size > 0:
            copy(out, p, key_data, key_offsets[i], key_size)
            p += key_size
        p = write(out, p, value_size)
        if value_size > 0:
            copy(out, p, value_data, value_offsets[i], value_size)
            p += value_size
        p = write(out, p, last - first)
        for h in range(first, last):
            p = _put_bytes(out, p, names, h)
            p = _put_bytes(out, p, texts, h)
    return p == end


@kernel
def _rebuild(
    out: UInt8Array,
    batches: BatchTable,
    rows: RowArrays,
    deltas: Int64Array,
    kept: UInt8Array,
    bases: Int64Array,
) -> int:
    """Every batch into out, one after another; the number of the first that fails, or -1. `bases`: see rebuild()."""
    p = i64(0)
    for i in range(len(batches)):
        batch = batches[i]
        size = i64(batch.served_size)
        if (batch.flags & _KEPT) != 0:
            start = batch.kept_start - bases[1]
            if start < 0 or start > len(kept) or size > len(kept) - start:
                return i
            copy(out, p, kept, start, size)
            p += size
            continue
        row = batch.row_start - bases[0]
        count = i64(batch.count)
        delta_at = i64(0)
        if batch.magic != 2 or size < HEADER_BYTES or count != batch.row_count:
            return i
        if row < 0 or count < 0 or row > len(rows.offsets) or count > len(rows.offsets) - row:
            return i
        if (batch.flags & _EXACT) != 0:
            delta_at = batch.timestamps_start - bases[2]
            if delta_at < 0 or delta_at > len(deltas) or count > len(deltas) - delta_at:
                return i
        put_header(out, p, batch, size, batch.attributes & SERVED_ATTRIBUTES)
        _put(out, p + 17, i64(batch.served_crc), 4)
        if not put_records(out, p + HEADER_BYTES, p + size, batch, row, rows, deltas, delta_at):
            return i
        p += size
    return -1


@kernel
def _find_foreign_prefix(out: UInt8Array, batches: BatchTable, starts: Int64Array) -> int:
    """Number of the first kept batch of magic 2 whose uncovered first 21 bytes are not the table's, or -1."""
    prefix = np.empty(HEADER_BYTES, dtype=np.uint8)
    for i in range(len(batches)):
        batch = batches[i]
        if (batch.flags & _KEPT) == 0 or batch.magic != 2:
            continue
        if batch.served_size < HEADER_BYTES:
            return i
        put_header(prefix, 0, batch, i64(batch.served_size), i64(batch.attributes))
        _put(prefix, 17, i64(batch.crc), 4)
        for k in range(CRC_START):
            if prefix[k] != out[starts[i] + k]:
                return i
    return -1


def _bases(batches: BatchTable) -> Int64Array:
    """Where the slices of rows, kept bytes and deltas start: row_start, kept_start, first timestamps_start."""
    exact = batches["timestamps_start"][batches["timestamps_start"] >= 0]
    return np.array([batches["row_start"][0], batches["kept_start"][0], exact[0] if len(exact) else 0], dtype=np.int64)


def rebuild(batches: BatchTable, rows: RowBuffers, deltas: Int64Array, kept: UInt8Array) -> UInt8Array:
    """The served bytes of some consecutive batches.

    Args:
        batches: a slice of the batch table.
        rows: rows from the first batch's row_start on. May be empty where no batch is rebuilt from rows.
        deltas: timestamp deltas from the first non-negative timestamps_start of `batches` on.
        kept: kept bytes from the first batch's kept_start on.

    Returns:
        sum of served_size bytes.

    Raises:
        SegmentError: corrupt_object, the parts do not give the batches the table describes. `batch` is relative to
            the slice. Nothing else is raised, whatever the arrays hold.
    """
    if len(batches) == 0:
        return np.empty(0, dtype=np.uint8)
    table = readonly(batches, BATCH_DTYPE)
    sizes = table["served_size"].astype(np.int64)
    if (sizes < LENGTH_PREFIX_BYTES).any() or sizes.sum() > limits.REBUILD_BYTES_MAX:
        raise SegmentError("corrupt_object", "served sizes in the batch table are out of range")
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    failed = _rebuild(
        out,
        table,
        checked_arrays(rows),
        readonly(deltas, np.int64),
        readonly(kept, np.uint8),
        _bases(table),
    )
    if failed < 0:
        failed = _find_foreign_prefix(out, table, starts)
    if failed >= 0:
        raise SegmentError("corrupt_object", "columns or kept bytes do not give this batch", batch=int(failed))
    compare_checksums(table, out, starts, ends)
    return out


def compare_checksums(batches: BatchTable, out: UInt8Array, starts: Int64Array, ends: Int64Array) -> None:
    """Compare each batch's CRC32C with its served_crc.

    Raises:
        SegmentError: corrupt_object, naming the first batch that differs.
    """
    found = served_checksums(batches, readonly(out, np.uint8), starts, ends)
    wrong = np.flatnonzero(found != batches["served_crc"])
    if len(wrong):
        raise SegmentError("corrupt_object", "CRC32C of the batch differs from the index", batch=int(wrong[0]))


def served_checksums(
    batches: BatchTable, data: UInt8Array, starts: Int64Array, ends: Int64Array
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """`served_crc` of batches whose served bytes are data[start:end]; `data` is read-only, see kernel.readonly."""
    covered = np.where(batches["magic"] == 2, np.minimum(starts + CRC_START, ends), starts)
    return checksums(data, covered, ends, np.ones(len(starts), dtype=np.bool_))
