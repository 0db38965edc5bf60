"""Decimals: two's complement, big-endian, of any number of bytes, within so many digits."""

from __future__ import annotations

import numpy as np

from converter.kernels.kernel import borrowing
from converter.types import UInt8Array


def limits(precision: int) -> tuple[UInt8Array, int]:
    """What within() compares with: 10^precision and then its negative, as big-endian bytes, and the size of one."""
    limit = 10**precision
    width = limit.bit_length() // 8 + 1
    both = limit.to_bytes(width, "big") + (-limit).to_bytes(width, "big", signed=True)
    return np.frombuffer(both, dtype=np.uint8), width


@borrowing
def within(data: UInt8Array, p: int, size: int, table: UInt8Array, start: int, width: int) -> bool:
    """Whether the number in `size` bytes at p lies between the limits at `start`, both exclusive. No bytes: zero."""
    if size == 0:
        return True
    negative = bool(data[p] >= 0x80)
    fill = 0xFF if negative else 0
    while size > width:  # leading bytes must only repeat the sign
        if data[p] != fill:
            return False
        p += 1
        size -= 1
    if (data[p] >= 0x80) != negative:
        return False
    start += width if negative else 0
    for k in range(width):
        missing = width - size
        byte = fill if k < missing else data[p + k - missing]
        limit = table[start + k]
        if byte != limit:
            return bool(byte < limit) != negative
    return False
