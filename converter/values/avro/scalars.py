"""Reads one number, text or the like of Avro's encoding, and puts it where it belongs. Parts of kernel.py."""

from __future__ import annotations

from converter.kernels import memory, utf8, varint
from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import Int64Array, UInt8Array
from converter.values.avro.decimal import within
from converter.values.avro.program import (
    BAD_BOOL,
    BAD_DECIMAL,
    BAD_ENUM,
    BAD_INT_RANGE,
    BAD_LENGTH,
    BAD_SHORT,
    BAD_TIMESTAMP,
    BAD_UTF8,
    BAD_VARINT,
    BASE,
    BOOL,
    DECIMAL,
    DECIMAL_BYTES,
    DOUBLE,
    DURATION,
    ENUM,
    FLOAT,
    LONG,
    SCALED_INT,
    SCALED_LONG,
    SEEN,
    TEXT,
    TEXT_BASE,
    TEXT_SIZE,
    UUID,
    Filled,
    Program,
)

INT_MIN, INT_MAX = -(2**31), 2**31 - 1

copy = borrowing(memory.copy)
read_long = borrowing(varint.read_long)
sequence_length = borrowing(utf8.sequence_length)


@borrowing
def _is_utf8(data: UInt8Array, p: int, end: int) -> bool:
    high = u8(0)
    for k in range(u64(p), u64(end)):  # numba vectorises loops over numbers without sign
        high |= data[k]
    if high < 0x80:
        return True
    while p < end:
        size = sequence_length(data, p, end)
        if size == 0:
            return False
        p += size
    return True


@borrowing
def _four(data: UInt8Array, p: int) -> int:
    """Four bytes as a little-endian number without sign."""
    low = u64(data[p]) | u64(data[p + 1]) << u64(8)
    return i64(low | u64(data[p + 2]) << u64(16) | u64(data[p + 3]) << u64(24))


@borrowing
def _raw_number(
    op: int,
    at: int,
    out: Filled,
    data: UInt8Array,
    p: int,
    end: int,
    fill: bool,
) -> int:
    """BOOL, FLOAT, DOUBLE at p; returns the position after it, or minus the damage."""
    size = 1 if op == BOOL else (4 if op == FLOAT else 8)
    if size > end - p:
        return BAD_SHORT
    if op == BOOL:
        if data[p] > 1:
            return BAD_BOOL
        if fill:
            out.flags[at] = data[p]
    elif fill and op == FLOAT:
        out.ints[at] = _four(data, p)
    elif fill:
        out.longs[at] = _four(data, p) | _four(data, p + 4) << 32
    return p + size


@borrowing
def _narrow(op: int, at: int, a: int, value: int, out: Filled, fill: bool) -> int:
    """INT, SCALED_INT, ENUM: 0, or minus the damage."""
    if value < INT_MIN or value > INT_MAX:
        return BAD_INT_RANGE
    if op == ENUM and (value < 0 or value >= a):
        return BAD_ENUM
    if fill and op == SCALED_INT:
        out.longs[at] = value * a
    elif fill:
        out.ints[at] = value
    return 0


@borrowing
def number(
    code: Int64Array,
    pc: int,
    index: int,
    out: Filled,
    data: UInt8Array,
    p: int,
    end: int,
    fill: bool,
) -> int:
    """BOOL to ENUM at p; returns the position after it, or minus the damage."""
    op, s = code[pc, 0], code[pc, 1]
    fill = fill and s >= 0
    at = i64(0)
    if fill:
        at = out.slots[s, BASE] + index
    elif s >= 0:
        out.slots[s, SEEN] = 1
    if op in (BOOL, FLOAT, DOUBLE):
        return _raw_number(op, at, out, data, p, end, fill)
    value, p = read_long(data, p, end)
    if p < 0:
        return BAD_VARINT
    if op == LONG:
        if fill:
            out.longs[at] = value
        return p
    if op == SCALED_LONG:
        if value > code[pc, 3] or value < -code[pc, 3]:
            return BAD_TIMESTAMP
        if fill:
            out.longs[at] = value * code[pc, 2]
        return p
    bad = _narrow(op, at, code[pc, 2], value, out, fill)
    return bad if bad < 0 else p


@borrowing
def keep(s: int, index: int, out: Filled, data: UInt8Array, p: int, size: int, fill: bool) -> None:
    """Takes `size` bytes into slot s."""
    slots = out.slots
    if fill:
        out.ints[slots[s, BASE] + index] = size
        at = slots[s, TEXT_BASE] + slots[s, TEXT_SIZE]
        copy(out.texts, at, data, p, size)
    else:
        slots[s, SEEN] = 1
    slots[s, TEXT_SIZE] += size


@borrowing
def _keep_uuid(s: int, index: int, out: Filled, data: UInt8Array, p: int, fill: bool) -> None:
    slots, texts = out.slots, out.texts
    if fill:
        out.ints[slots[s, BASE] + index] = 36
        at = slots[s, TEXT_BASE] + slots[s, TEXT_SIZE]
        for k in range(16):
            if k == 4 or k == 6 or k == 8 or k == 10:
                texts[at] = 0x2D
                at += 1
            byte = i64(data[p + k])
            for half in (byte >> 4, byte & 15):
                texts[at] = half + (0x30 if half < 10 else 0x57)
                at += 1
    else:
        slots[s, SEEN] = 1
    slots[s, TEXT_SIZE] += 36


@borrowing
def _keep_words(op: int, s: int, index: int, out: Filled, data: UInt8Array, p: int, size: int, fill: bool) -> None:
    """DURATION: three numbers; DECIMAL: 128 bits, low half first, from big-endian bytes of any number."""
    slots, longs = out.slots, out.longs
    if not fill:
        slots[s, SEEN] = 1
        if op == DURATION:
            slots[s + 1, SEEN] = 1
            slots[s + 2, SEEN] = 1
    elif op == DURATION:
        for k in range(3):
            longs[slots[s + k, BASE] + index] = _four(data, p + 4 * k)
    else:
        sign = u64(0xFF) if size > 0 and data[p] >= 0x80 else u64(0)
        for half in range(2):
            word = u64(0)
            for k in range(8):
                from_end = 8 * half + k
                byte = u64(data[p + size - 1 - from_end]) if from_end < size else sign
                word |= byte << u64(8 * k)
            longs[slots[s, BASE] + 2 * index + half] = i64(word)


@borrowing
def sized(
    program: Program,
    pc: int,
    index: int,
    out: Filled,
    data: UInt8Array,
    p: int,
    end: int,
    fill: bool,
) -> int:
    """BYTES to DURATION at p; returns the position after it, or minus the damage."""
    code = program.code
    op, s = code[pc, 0], code[pc, 1]
    size = i64(code[pc, 2])
    if op <= TEXT or (op < DURATION and size < 0):
        size, p = read_long(data, p, end)
        if p < 0:
            return BAD_VARINT
        if size < 0:
            return BAD_LENGTH
    if size > end - p:
        return BAD_SHORT
    if op == TEXT and not fill and not _is_utf8(data, p, p + size):
        return BAD_UTF8
    if op in (DECIMAL, DECIMAL_BYTES) and not fill:
        start, width = code[pc, 3], code[pc, 4]
        if not within(data, p, size, program.limits, start, width):
            return BAD_DECIMAL
    if s >= 0:
        if op == UUID:
            _keep_uuid(s, index, out, data, p, fill)
        elif op in (DURATION, DECIMAL):
            _keep_words(op, s, index, out, data, p, size, fill)
        else:
            keep(s, index, out, data, p, size, fill)
    return p + size


@borrowing
def mark(s: int, index: int, out: Filled, fill: bool) -> None:
    """Sets a flag."""
    if s >= 0:
        if fill:
            out.flags[out.slots[s, BASE] + index] = 1
        else:
            out.slots[s, SEEN] = 1
