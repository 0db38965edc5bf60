"""Which byte strings of a column are valid UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF)."""

from __future__ import annotations

import numpy as np

from converter.kernels.kernel import i64, kernel, readonly, u8
from converter.kernels.memory import copy
from converter.types import BoolArray, Int64Array, UInt8Array, VarBytes


@kernel
def sequence_length(data: UInt8Array, p: int, end: int) -> int:
    """Length of the well-formed sequence at p (Unicode 15, table 3-7), 0 where there is none."""
    first = i64(data[p])
    if first < 0x80:
        return 1
    low, high = 0x80, 0xBF  # of the second byte
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 0
    if size > end - p or data[p + 1] < low or data[p + 1] > high:
        return 0
    for k in range(2, size):
        if data[p + k] < 0x80 or data[p + k] > 0xBF:
            return 0
    return size


@kernel
def _validate(offsets: Int64Array, data: UInt8Array, out: BoolArray) -> None:
    for i in range(len(out)):
        p = offsets[i]
        end = offsets[i + 1]
        high = u8(0)
        for k in range(p, end):
            high |= data[k]
        ok = True
        if high >= 0x80:
            while p < end:
                # Without this line the loop takes 1 or 20 times as long, depending on what was compiled before it.
                if data[p] < 0x80:
                    p += 1
                    continue
                size = sequence_length(data, p, end)
                if size == 0:
                    ok = False
                    break
                p += size
        out[i] = ok


def valid_utf8(column: VarBytes) -> BoolArray:
    """True where a value is valid UTF-8; null and empty values are. Caller's promise: offsets are consistent."""
    out = np.ones(len(column), dtype=np.bool_)
    _validate(readonly(column.offsets, np.int64), readonly(column.data, np.uint8), out)
    return out


@kernel
def _malformed_length(data: UInt8Array, p: int, end: int) -> int:
    """Length of the malformed sequence at p: as much of it as a well-formed one could begin with (Unicode 15, 3.9)."""
    first = i64(data[p])
    if first < 0xC2 or first > 0xF4 or end - p < 2:
        return 1
    low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
    high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
    if data[p + 1] < low or data[p + 1] > high:
        return 1
    most = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    size = 2
    while size < most and size < end - p and 0x80 <= data[p + size] <= 0xBF:
        size += 1
    return size


@kernel
def _replace(
    offsets: Int64Array, data: UInt8Array, ok: BoolArray, ends: Int64Array, out: UInt8Array, fill: bool
) -> None:
    """Without `fill` sets the new ends, ends[0] being 0; with it writes the values there. Else as replace_invalid()."""
    for i in range(len(ok)):
        p, end, to = offsets[i], offsets[i + 1], ends[i]
        if ok[i]:
            if fill and end > p:
                copy(out, to, data, p, end - p)
            to += end - p
            p = end
        while p < end:
            size = sequence_length(data, p, end)
            if size > 0:
                if fill:
                    copy(out, to, data, p, size)
                p += size
                to += size
                continue
            if fill:
                out[to], out[to + 1], out[to + 2] = 0xEF, 0xBF, 0xBD
            p += _malformed_length(data, p, end)
            to += 3
        ends[i + 1] = to


def replace_invalid(column: VarBytes, ok: BoolArray) -> VarBytes:
    """The column with malformed sequences replaced by U+FFFD, as Java and Python do, where `ok` is False."""
    old, data = readonly(column.offsets, np.int64), readonly(column.data, np.uint8)
    offsets = np.zeros(len(column) + 1, dtype=np.int64)
    _replace(old, data, ok, offsets, np.empty(0, dtype=np.uint8), False)
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    _replace(old, data, ok, offsets, out, True)
    return VarBytes(offsets, out, column.valid)
