"""How tables of integers are stored in a block: residuals, zigzag, byte planes, zstd.

A column is first replaced by what it differs from a prediction (row_start from the rows before it, served CRC from the
original CRC, …), so that most columns are all zero. Residuals are zigzagged and cut into byte planes, lowest first, as
many as the largest needs; planes of like bytes compress to nearly nothing, and what cannot (checksums) costs just its
own bytes. All arithmetic is modulo 2^64, so every value comes back whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import zstandard

from converter.errors import SegmentError
from converter.kernels.kernel import i64, kernel, readonly, u64
from converter.limits import BLOCK_PART_BYTES_MAX, ZSTD_LEVEL_INDEX
from converter.types import BATCH_DTYPE, BatchFlag, BatchTable, Int64Array, PageTable, UInt8Array

_BATCH_COLUMNS = tuple(BATCH_DTYPE.names or ())


def pack(columns: Sequence[Int64Array]) -> tuple[bytes, int]:
    """Store equally long columns; returns the bytes and their size before compression, nothing and 0 for no rows."""
    if not len(columns[0]):
        return b"", 0
    widths = bytearray()
    planes: list[bytes] = []
    for column in columns:
        zigzag = ((column << 1) ^ (column >> 63)).astype("<u8")
        width = (int(zigzag.max()).bit_length() + 7) // 8
        widths.append(width)
        planes.append(zigzag.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes())
    raw = bytes(widths) + b"".join(planes)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_INDEX).compress(raw), len(raw)


def unpack(data: bytes | memoryview, raw_size: int, columns: int, rows: int) -> list[Int64Array]:
    """The inverse of :func:`pack`; raises SegmentError("corrupt_object")."""
    if rows == 0:
        if len(data) or raw_size:
            raise SegmentError("corrupt_object", "index columns do not have the size they claim")
        return [np.empty(0, dtype=np.int64) for _ in range(columns)]
    raw = np.frombuffer(inflate(data, raw_size), dtype=np.uint8)
    widths = raw[:columns].astype(np.int64)
    if len(widths) != columns or widths.max(initial=0) > 8 or len(raw) != columns + int(widths.sum()) * rows:
        raise SegmentError("corrupt_object", "index columns do not have the size they claim")
    out = np.zeros((columns, rows), dtype=np.int64)
    _join_planes(readonly(raw, np.uint8), widths, out)
    return list(out)


@kernel
def _join_planes(raw: UInt8Array, widths: Int64Array, out: Int64Array) -> None:
    """Byte planes, zigzagged, to columns of zeros.

    Caller's promise: no width is over 8, and behind the widths `raw` has as many planes of a byte per row as they say.
    """
    columns, rows = out.shape
    at = columns
    for column in range(columns):
        for plane in range(widths[column]):
            shift = u64(8 * plane)
            for row in range(rows):
                out[column, row] |= i64(u64(raw[at + row]) << shift)
            at += rows
        for row in range(rows):
            zigzag = u64(out[column, row])
            out[column, row] = i64(zigzag >> u64(1)) ^ -i64(zigzag & u64(1))


def inflate(data: bytes | memoryview, raw_size: int) -> bytes:
    """Decompress one zstd frame of exactly `raw_size` bytes; raises SegmentError("corrupt_object")."""
    if not 0 <= raw_size <= BLOCK_PART_BYTES_MAX:
        raise SegmentError("corrupt_object", f"a part of the index claims {raw_size} bytes")
    try:
        # decompress() ignores its limit when the frame declares a size, so the declared size is checked first.
        if zstandard.frame_content_size(data) != raw_size:
            raise SegmentError("corrupt_object", "a part of the index declares another size")
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise SegmentError("corrupt_object", f"a part of the index does not decompress: {error}") from error


#: Stored as the difference from the batch before.
_DIFFERENCES = ("leader_epoch", "base_timestamp", "producer_id", "base_sequence", "timestamps_start")
#: Stored as the difference from another column, plus a constant.
_RELATIVE = {
    "count": ("last_offset_delta", 1),
    "max_timestamp": ("base_timestamp", 0),
    "served_size": ("length", 12),
    "served_crc": ("crc", 0),
}


def pack_batches(batches: BatchTable) -> tuple[bytes, int]:
    """Store a slice of the batch table."""
    columns = {name: batches[name].astype(np.int64) for name in _BATCH_COLUMNS}
    residuals = dict(columns)
    for name, step in _steps(columns).items():
        residuals[name] = _difference(columns[name]) - _after(step)
    for name, (other, constant) in _RELATIVE.items():
        residuals[name] = columns[name] - columns[other] - constant
    for name in _DIFFERENCES:
        residuals[name] = _difference(columns[name])
    return pack([residuals[name] for name in _BATCH_COLUMNS])


def unpack_batches(data: bytes | memoryview, raw_size: int, count: int) -> BatchTable:
    """The inverse of :func:`pack_batches`; raises SegmentError("corrupt_object")."""
    columns = dict(zip(_BATCH_COLUMNS, unpack(data, raw_size, len(_BATCH_COLUMNS), count), strict=True))
    for name in _DIFFERENCES:
        columns[name] = np.cumsum(columns[name])
    for name, (other, constant) in _RELATIVE.items():
        columns[name] = columns[name] + columns[other] + constant
    for name, step in _steps(columns).items():
        columns[name] = np.cumsum(columns[name] + _after(step))
    batches = np.empty(count, dtype=BATCH_DTYPE)
    for name, column in columns.items():
        batches[name] = column
    return batches


def _steps(columns: dict[str, Int64Array]) -> dict[str, Int64Array]:
    """By how much a running column is expected to grow from each batch to the next."""
    original = columns["length"] + 12
    kept = (columns["flags"] & int(BatchFlag.KEPT)) != 0
    return {
        "base_offset": columns["last_offset_delta"] + 1,
        "row_start": columns["row_count"],
        "kept_start": np.where(kept, columns["served_size"], 0),
        "position": np.minimum(original, columns["served_size"]),
        "source_position": original,
    }


def _difference(column: Int64Array) -> Int64Array:
    """Each value less the one before; the first less 0."""
    out = column.copy()
    out[1:] -= column[:-1]
    return out


def _after(step: Int64Array) -> Int64Array:
    """`step` one place later, with 0 in front."""
    return np.concatenate((np.zeros(1, dtype=np.int64), step[:-1])) if len(step) else step


def pack_pages(pages: PageTable) -> tuple[bytes, int]:
    """Store a slice of the page table."""
    first_row, offset = pages.first_row, pages.offset
    row_count, length = pages.row_count.astype(np.int64), pages.length.astype(np.int64)
    return pack(
        [
            _difference(pages.column.astype(np.int64)),
            _difference(first_row) - _after(row_count),
            row_count,
            _difference(offset) - _after(length),
            length,
        ]
    )


def unpack_pages(data: bytes | memoryview, raw_size: int, count: int) -> PageTable:
    """The inverse of :func:`pack_pages`; raises SegmentError("corrupt_object")."""
    column, first_row, row_count, offset, length = unpack(data, raw_size, 5, count)
    return PageTable(
        column=np.cumsum(column).astype(np.int16),
        first_row=np.cumsum(first_row + _after(row_count)),
        row_count=row_count.astype(np.int32),
        offset=np.cumsum(offset + _after(length)),
        length=length.astype(np.int32),
    )


def pack_integers(integers: Int64Array) -> tuple[bytes, int]:
    """Store timestamp deltas, or numbers of encoders."""
    return pack([integers])


def unpack_integers(data: bytes | memoryview, raw_size: int, count: int) -> Int64Array:
    """The inverse of :func:`pack_integers`; raises SegmentError("corrupt_object")."""
    return unpack(data, raw_size, 1, count)[0]
