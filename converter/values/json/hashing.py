"""Hashes of bytes, for names of members and for the proof. Not for anything an adversary should not find."""

from __future__ import annotations

from typing import Final

from converter.kernels.kernel import borrowing, u64
from converter.types import UInt8Array
from converter.values.json.scan import word_at

_A: Final = 0x9E3779B97F4A7C15
_B: Final = 0xD6E8FEB86659FD93


@borrowing
def mix(a: int, b: int) -> int:
    """Two words into one; the order counts."""
    x = (a ^ (b * u64(_A))) * u64(_B)
    x ^= x >> u64(32)
    x *= u64(_A)
    return x ^ (x >> u64(29))


@borrowing
def hash_bytes(data: UInt8Array, p: int, end: int) -> int:
    """Of data[p:end]."""
    value = u64(end - p) * u64(_B)
    while end - p >= 8:
        value = (value ^ word_at(data, p)) * u64(_A)
        value ^= value >> u64(32)
        p += 8
    rest = u64(0)
    if end - p > 0:
        if len(data) - p >= 8:
            rest = word_at(data, p) & ((u64(1) << u64(8 * (end - p))) - u64(1))
        else:
            for k in range(end - p):
                rest |= u64(data[p + k]) << u64(8 * k)
    return mix(value, rest)
