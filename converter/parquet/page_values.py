"""The encodings of a data page: levels, PLAIN byte arrays, DELTA_BINARY_PACKED integers.

Kernels over one decompressed page. Each returns -1 (or False) instead of reading or writing out of bounds, whatever the
page holds: a length is compared with what is left before it is used.

Spec: apache/parquet-format Encodings.md.
"""

from __future__ import annotations

from typing import Final

from converter.kernels.kernel import i64, kernel, u64
from converter.kernels.memory import copy
from converter.parquet.page_header import read_varint, zigzag
from converter.types import BoolArray, Int64Array, UInt8Array

#: Definition level of a header that is there, though its key or value may be null; one more when that is not null.
#: Below: the list is null (0), empty (1), or has a null element (2), which is never written.
HEADER_ENTRY: Final = 3


@kernel
def read_u32(data: UInt8Array, p: int) -> int:
    """A little-endian u32; the caller has checked that four bytes are there."""
    return i64(data[p]) | i64(data[p + 1]) << 8 | i64(data[p + 2]) << 16 | i64(data[p + 3]) << 24


@kernel
def read_levels(page: UInt8Array, p: int, width: int, level_max: int, out: UInt8Array) -> int:
    """Levels of a v1 page, length-prefixed RLE/bit-packed hybrid of `width` bits (at most 8), into all of `out`.

    Returns the position after them, or -1.
    """
    if len(page) - p < 4:
        return -1
    size = read_u32(page, p)
    p += 4
    if size > len(page) - p:
        return -1
    end = p + size
    n = len(out)
    i = 0
    while i < n:
        head, p = read_varint(page, p, end)
        if p < 0 or head < 0:
            return -1
        if head & 1:
            groups = head >> 1
            # At least one byte per group, so that groups * width cannot overflow below.
            if groups == 0 or groups > end - p or groups * width > end - p:
                return -1
            count = min(groups * 8, n - i)
            bit = 0
            for k in range(count):
                at = p + (bit >> 3)
                word = i64(page[at])
                if (bit & 7) + width > 8:
                    word |= i64(page[at + 1]) << 8
                level = (word >> (bit & 7)) & ((1 << width) - 1)
                if level > level_max:
                    return -1
                out[i + k] = level
                bit += width
            p += groups * width
        else:
            count = min(head >> 1, n - i)
            if count == 0 or p >= end or page[p] > level_max:
                return -1
            out[i : i + count] = page[p]
            p += 1
        i += count
    return end


@kernel
def read_plain_bytes(
    page: UInt8Array,
    p: int,
    present: UInt8Array,
    level: int,
    skip: int,
    take: int,
    at: int,
    offsets: Int64Array,
    valid: BoolArray,
    data: UInt8Array,
) -> bool:
    """PLAIN byte arrays of entries [skip, skip + take) of a page, appended to a column.

    Entry i has a value where present[i] == level. `offsets[at]` is where the data of the entries so far ends; entries
    `at` to `at + take` of `valid` and the offsets after them are filled.

    Caller's promise: skip + take <= len(present), at + take <= len(valid) = len(offsets) - 1.
    """
    end = len(page)
    written = offsets[at]
    for i in range(skip + take):
        size = i64(0)
        if present[i] == level:
            if end - p < 4:
                return False
            size = read_u32(page, p)
            p += 4
            if size > end - p:
                return False
        if i >= skip:
            if size > len(data) - written:
                return False
            copy(data, written, page, p, size)
            written += size
            offsets[at + 1] = written
            valid[at] = present[i] == level
            at += 1
        p += size
    return True


@kernel
def _unpack_bits(page: UInt8Array, p: int, bit: int, width: int) -> int:
    """The unsigned number of `width` bits that begins `bit` bits after p, as int64 bits."""
    value = u64(0)
    got = 0
    at = p + (bit >> 3)
    shift = bit & 7
    while got < width:
        taken = min(8 - shift, width - got)
        piece = (u64(page[at]) >> u64(shift)) & u64((1 << taken) - 1)
        value |= piece << u64(got)
        got += taken
        shift = 0
        at += 1
    return i64(value)


@kernel
def read_delta_packed(page: UInt8Array, p: int, out: Int64Array) -> bool:
    """DELTA_BINARY_PACKED int64 values into all of `out`; additions wrap, as the format wants."""
    end = len(page)
    block, p = read_varint(page, p, end)
    if p < 0 or block <= 0 or block > 1 << 20 or block % 128:
        return False
    minis, p = read_varint(page, p, end)
    if p < 0 or minis <= 0 or block % minis:
        return False
    per_mini = block // minis
    total, p = read_varint(page, p, end)
    if per_mini % 32 or p < 0 or total != len(out):
        return False
    raw, p = read_varint(page, p, end)
    if p < 0:
        return False
    if total == 0:
        return True
    value = zigzag(raw)
    out[0] = value
    i = 1
    while i < total:
        raw, p = read_varint(page, p, end)
        if p < 0 or minis > end - p:
            return False
        delta_min = zigzag(raw)
        widths = p
        p += minis
        for m in range(minis):
            if i >= total:
                break
            width = i64(page[widths + m])
            if width > 64 or per_mini * width // 8 > end - p:
                return False
            count = min(per_mini, total - i)
            for k in range(count):
                value += delta_min + (_unpack_bits(page, p, k * width, width) if width else 0)
                out[i + k] = value
            i += count
            p += per_mini * width // 8
    return True


@kernel
def count_entries(
    repetition: UInt8Array, definition: UInt8Array, skip_rows: int, rows: int, counts: Int64Array
) -> tuple[int, int]:
    """How a page of a list column falls into rows.

    Fills counts[r] with the entries of row skip_rows + r. Returns (entries before those rows, entries of those rows),
    or (-1, 0) when the page does not begin with a row, holds a null entry, or has too few rows.
    Caller's promise: len(repetition) == len(definition), len(counts) == rows.
    """
    row = -1
    before = 0
    inside = 0
    counts[:] = 0
    for i in range(len(repetition)):
        if repetition[i] == 0:
            row += 1
            if row == skip_rows + rows:
                break
        elif row < 0 or definition[i] < HEADER_ENTRY:
            return -1, 0
        if definition[i] == HEADER_ENTRY - 1:
            return -1, 0
        if definition[i] >= HEADER_ENTRY:
            if row < skip_rows:
                before += 1
            else:
                counts[row - skip_rows] += 1
                inside += 1
    if row + 1 < skip_rows + rows:
        return -1, 0
    return before, inside


@kernel
def merge_bytes(
    first_offsets: Int64Array,
    first_data: UInt8Array,
    first_valid: BoolArray,
    second_offsets: Int64Array,
    second_data: UInt8Array,
    offsets: Int64Array,
    data: UInt8Array,
) -> None:
    """Value i of the first column where that is valid, else of the second.

    Caller's promise: all offsets ascend within their data, and offsets[i + 1] - offsets[i] is the sum of both sizes.
    """
    for i in range(len(first_valid)):
        size = offsets[i + 1] - offsets[i]
        if first_valid[i]:
            copy(data, offsets[i], first_data, first_offsets[i], size)
        else:
            copy(data, offsets[i], second_data, second_offsets[i], size)
