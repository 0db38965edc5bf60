"""PLAIN values of a page as an Arrow array with a place for every entry, whether it has a value or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.pages import Page
from converter.pages_values import read_plain_bytes
from converter.types import BoolArray, UInt8Array

_DECIMAL_BYTES = 16


def plain_bytes(page: Page, at: int, present: BoolArray, first: int, end: int, kind: pa.DataType) -> pa.Array:
    """Strings or bytes of entries `[first, end)`; nothing where `present` is False.

    Args:
        page: decompressed.
        at: where in it values begin.
        present: one per entry of the page.
        first: number of the first entry wanted.
        end: number of the entry after the last.
        kind: string or binary.

    Raises:
        SegmentError: `corrupt_object`.
    """
    count = end - first
    offsets = np.zeros(count + 1, dtype=np.int64)
    data = np.empty(len(page.data), dtype=np.uint8)
    valid = np.zeros(count, dtype=np.bool_)
    if not read_plain_bytes(page.data, at, present.view(np.uint8), 1, first, count, 0, offsets, valid, data):
        raise page.broken("values")
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def plain_fixed(page: Page, at: int, present: BoolArray, first: int, end: int, kind: pa.DataType) -> pa.Array:
    """Values of fixed width of entries `[first, end)`; zeros where `present` is False.

    Args:
        page: decompressed.
        at: where in it values begin.
        present: one per entry of the page.
        first: number of the first entry wanted.
        end: number of the entry after the last.
        kind: bool, int32, int64, float64, date32, timestamp or decimal128.

    Raises:
        SegmentError: `corrupt_object`.
    """
    before = int(np.count_nonzero(present[:first]))
    mine = present[first:end]
    count = int(np.count_nonzero(mine))
    if pa.types.is_boolean(kind):
        return _flags(page, at, before, count, mine)
    width = _stored_width(kind)
    start = at + before * width
    if start + count * width > len(page.data):
        raise page.broken("values")
    stored = page.data[start : start + count * width]
    size = _DECIMAL_BYTES if pa.types.is_decimal128(kind) else width
    dense = _decimals(stored.reshape(count, width)) if pa.types.is_decimal128(kind) else stored.reshape(count, width)
    column: npt.NDArray[Any] = dense
    if count < len(mine):
        column = np.zeros((len(mine), size), dtype=np.uint8)
        column[mine] = dense
    return pa.Array.from_buffers(kind, len(mine), [None, pa.py_buffer(np.ascontiguousarray(column))])


def _stored_width(kind: pa.DataType) -> int:
    """Bytes of a value in a page; decimals are stored in as few as their precision needs."""
    if pa.types.is_decimal128(kind):
        return int((10**kind.precision - 1).bit_length() // 8 + 1)
    return int(kind.bit_width // 8)


def _decimals(stored: UInt8Array) -> UInt8Array:
    """Big-endian two's complement of any width as Arrow's 16 bytes, little-endian."""
    rows, width = stored.shape
    out = np.empty((rows, _DECIMAL_BYTES), dtype=np.uint8)
    out[:, :width] = stored[:, ::-1]
    out[:, width:] = np.where(stored[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    return out


def _flags(page: Page, at: int, before: int, count: int, mine: BoolArray) -> pa.Array:
    if before + count > 8 * (len(page.data) - at):
        raise page.broken("values")
    column = np.zeros(len(mine), dtype=np.bool_)
    column[mine] = np.unpackbits(page.data[at:], count=before + count, bitorder="little")[before:]
    return pa.Array.from_buffers(pa.bool_(), len(mine), [None, pa.py_buffer(np.packbits(column, bitorder="little"))])
