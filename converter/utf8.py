"""Which byte strings of a column are valid UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF)."""

from __future__ import annotations

import numpy as np

from converter.kernel import i64, kernel, readonly, u8
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


def replace_invalid(column: VarBytes, ok: BoolArray) -> VarBytes:
    """The column with malformed sequences replaced by U+FFFD, as Java and Python do, where `ok` is False."""
    sizes = np.diff(column.offsets)
    fixed = {
        i: column.data[column.offsets[i] : column.offsets[i + 1]].tobytes().decode("utf-8", "replace").encode()
        for i in np.flatnonzero(~ok).tolist()
    }
    for i, value in fixed.items():
        sizes[i] = len(value)
    offsets = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    done = 0
    for i in [*fixed, len(column)]:
        run = column.data[column.offsets[done] : column.offsets[i]]
        data[offsets[done] : offsets[i]] = run
        if i < len(column):
            data[offsets[i] : offsets[i + 1]] = np.frombuffer(fixed[i], dtype=np.uint8)
        done = i + 1
    return VarBytes(offsets, data, column.valid)
