"""What an Arrow array has in its buffers, whatever slice of one it is, for the encoders that lay columns flat.

Arrow need not have a buffer of what is null throughout: its numbers are zeros, its texts empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.types import BoolArray, UInt8Array


def valid(array: pa.Array) -> BoolArray:
    """Whether each element is not null."""
    if array.buffers()[0] is None:
        return np.ones(len(array), np.bool_)
    return bits(array, 0).view(np.bool_)


def bits(array: pa.Array, buffer: int = 1) -> UInt8Array:
    """0 or 1 for each element, from a buffer of bits: 0 is that of :func:`valid`, 1 that of bools."""
    size, start, held = len(array), array.offset, array.buffers()[buffer]
    if size == 0 or held is None:
        return np.zeros(size, np.uint8)
    first = start >> 3
    packed = np.frombuffer(held, np.uint8, ((start + size + 7) >> 3) - first, first)
    return np.unpackbits(packed, count=(start & 7) + size, bitorder="little")[start & 7 :]


def numbers(array: pa.Array, dtype: npt.DTypeLike, each: int = 1) -> npt.NDArray[Any]:
    """The numbers of an array, `each` per element; those of nulls are anything."""
    size, dtype, held = len(array) * each, np.dtype(dtype), array.buffers()[1]
    if size == 0 or held is None:
        return np.zeros(size, dtype)
    return np.frombuffer(held, dtype, size, array.offset * each * dtype.itemsize)


def offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where texts or elements begin, and where the last one ends: one more than the array has."""
    size, held = len(array), array.buffers()[1]
    if size == 0 or held is None:
        return np.zeros(size + 1, np.int32)
    return np.frombuffer(held, np.int32, size + 1, array.offset * 4)


def text_bytes(array: pa.Array, start: int, end: int) -> UInt8Array:
    """Bytes `[start, end)` of an array of texts."""
    return np.empty(0, np.uint8) if start >= end else np.frombuffer(array.buffers()[2], np.uint8, end - start, start)
