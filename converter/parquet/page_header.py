"""Page headers and page locations (parquet.thrift, compact protocol), read by kernels: both come by the thousand.

A footer, of which there is one, is read by thrift.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from converter.kernels.kernel import i64, kernel, u64
from converter.types import Int64Array, UInt8Array

#: Places in the array that read_page_header() fills.
TYPE: Final = 0
UNCOMPRESSED_SIZE: Final = 1
COMPRESSED_SIZE: Final = 2
NUM_VALUES: Final = 4
ENCODING: Final = 5
DEFINITION_ENCODING: Final = 6
REPETITION_ENCODING: Final = 7
FIELDS: Final = 8

DATA_PAGE: Final = 0
PLAIN: Final = 0
RLE: Final = 3
DELTA_BINARY_PACKED: Final = 5

_DATA_PAGE_HEADER: Final = 5  # field of PageHeader
_DEPTH_MAX: Final = 4


@kernel
def read_varint(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """An unsigned varint at p: (value, position after it), or (0, -1) when it is cut or too long."""
    value = u64(0)
    shift = u64(0)
    while p < end:
        byte = u64(data[p])
        p += 1
        value |= (byte & u64(0x7F)) << shift
        if byte < u64(0x80):
            return i64(value), p
        shift += u64(7)
        if shift > u64(63):
            break
    return i64(0), -1


@kernel
def zigzag(value: int) -> int:
    """A signed number from its unsigned form."""
    unsigned = u64(value)
    return i64(unsigned >> u64(1)) ^ -i64(unsigned & u64(1))


@kernel
def read_page_header(data: UInt8Array, out: Int64Array) -> int:  # noqa: C901  (one loop over one format)
    """Fill `out` (FIELDS long, -1 where a field is missing) from the header at the start of `data`.

    Returns its length, or -1 when it is no page header. Nothing but `data` is read.
    """
    out[:] = -1
    end = len(data)
    p = 0
    depth = 0
    # Field ids of the structs around, and whether they lie inside data_page_header.
    fields = np.zeros(_DEPTH_MAX + 1, dtype=np.int64)
    while True:
        if p >= end:
            return -1
        head = data[p]
        p += 1
        if head == 0:
            if depth == 0:
                return p
            depth -= 1
            continue
        kind = head & 0x0F
        if head >> 4:
            fields[depth] += head >> 4
        else:
            raw, p = read_varint(data, p, end)
            if p < 0:
                return -1
            fields[depth] = zigzag(raw)
        if kind == 1 or kind == 2:
            continue
        if kind == 3:
            p += 1
        elif kind >= 4 and kind <= 6:
            raw, p = read_varint(data, p, end)
            if p < 0:
                return -1
            field = fields[depth]
            if depth == 0 and field >= 1 and field <= 4:
                out[field - 1] = zigzag(raw)
            elif depth == 1 and fields[0] == _DATA_PAGE_HEADER and field >= 1 and field <= 4:
                out[field + 3] = zigzag(raw)
        elif kind == 8:
            size, p = read_varint(data, p, end)
            if p < 0 or size < 0 or size > end - p:
                return -1
            p += size
        elif kind == 12:
            if depth == _DEPTH_MAX:
                return -1
            depth += 1
            fields[depth] = 0
        else:
            return -1


@kernel
def read_page_locations(data: UInt8Array, out: Int64Array) -> int:
    """Rows of (offset, compressed_page_size, first_row_index) from an `OffsetIndex`, whose first field they are.

    Returns their number, or -1 when it is no offset index as Arrow writes it, or `out` is too short. Only `data` is
    read; what follows the list is not looked at.
    """
    end = len(data)
    # A list, field 1; its head: size and element type struct.
    if end < 2 or data[0] != 0x19 or data[1] & 0x0F != 12:
        return -1
    p = 2
    size = i64(data[1] >> 4)
    if size == 15:
        size, p = read_varint(data, p, end)
    if p < 0 or size < 0 or size > len(out):
        return -1
    for i in range(size):
        for field in range(3):
            # Fields 1 to 3 in turn: i64, i32, i64.
            if p >= end or data[p] != (0x15 if field == 1 else 0x16):
                return -1
            raw, p = read_varint(data, p + 1, end)
            if p < 0:
                return -1
            out[i, field] = zigzag(raw)
        if p >= end or data[p] != 0:
            return -1
        p += 1
    return size
