"""Writes one number, text or the like in Avro's encoding. Parts of encode_kernel.py.

Each function writes at p, never at or beyond `end`, and returns the position after it, or NO where the value does not
fit the room or the schema.
"""

from __future__ import annotations

from converter.kernels import memory
from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import Int64Array, UInt8Array
from converter.values.avro.decimal import within
from converter.values.avro.encode_ops import ALWAYS, DATA, GIVEN, SHIFT, STATE, Flat, Writing
from converter.values.avro.program import (
    BOOL,
    DECIMAL,
    DECIMAL_BYTES,
    DOUBLE,
    DURATION,
    FIXED,
    FLOAT,
    LONG,
    SCALED_INT,
    SCALED_LONG,
    UUID,
)

NO = -1
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
_UINT_MAX = 2**32 - 1
_UUID_CHARS = 36

copy = borrowing(memory.copy)


@borrowing
def state(flat: Flat, number: int, index: int) -> int:
    """MISSING, GIVEN or BAD."""
    base = flat.inputs[number, STATE]
    return GIVEN if base == ALWAYS else i64(flat.flags[base + index])


@borrowing
def put_long(out: UInt8Array, p: int, end: int, value: int) -> int:
    """A zigzag varint of the fewest bytes."""
    raw = u64((i64(value) << 1) ^ (i64(value) >> 63))
    while raw >= u64(0x80):
        if end - p < 1:
            return NO
        out[p] = u8(raw & u64(0x7F)) | u8(0x80)
        raw >>= u64(7)
        p += 1
    if end - p < 1:
        return NO
    out[p] = u8(raw)
    return p + 1


@borrowing
def _put_low(out: UInt8Array, p: int, end: int, value: int, size: int) -> int:
    """The lowest `size` bytes of a number, at most eight, little-endian."""
    if size > end - p:
        return NO
    word = u64(value)
    for k in range(size):
        out[p + k] = u8(word & u64(0xFF))
        word >>= u64(8)
    return p + size


@borrowing
def _put_scaled(out: UInt8Array, p: int, end: int, value: int, factor: int, narrow: bool) -> int:
    whole = value // factor
    if whole * factor != value or (narrow and (whole < INT_MIN or whole > INT_MAX)):
        return NO
    return put_long(out, p, end, whole)


@borrowing
def put_number(code: Int64Array, pc: int, index: int, flat: Flat, out: UInt8Array, p: int, end: int) -> int:
    """BOOL to ENUM, of a value that is given."""
    op, number = code[pc, 0], code[pc, 1]
    at = flat.inputs[number, DATA] + index
    if op == LONG:
        return put_long(out, p, end, flat.longs[at])
    if op == DOUBLE:
        return _put_low(out, p, end, flat.longs[at], 8)
    if op == FLOAT:
        return _put_low(out, p, end, i64(flat.ints[at]), 4)
    if op == BOOL:
        return _put_low(out, p, end, i64(flat.flags[at]), 1)
    if op in (SCALED_LONG, SCALED_INT):
        return _put_scaled(out, p, end, flat.longs[at], code[pc, 2], op == SCALED_INT)
    return put_long(out, p, end, i64(flat.ints[at]))


@borrowing
def _put_uuid(texts: UInt8Array, start: int, size: int, out: UInt8Array, p: int, end: int) -> int:
    """16 bytes of `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, hexadecimal digits in lower case."""
    if size != _UUID_CHARS or end - p < 16:
        return NO
    at = start
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            if texts[at] != 0x2D:
                return NO
            at += 1
        byte = i64(0)
        for _ in range(2):
            char = i64(texts[at])
            if 0x30 <= char <= 0x39:
                byte = byte << 4 | (char - 0x30)
            elif 0x61 <= char <= 0x66:
                byte = byte << 4 | (char - 0x57)
            else:
                return NO
            at += 1
        out[p + k] = byte
    return p + 16


@borrowing
def _put_padded(texts: UInt8Array, start: int, size: int, width: int, out: UInt8Array, p: int, end: int) -> int:
    """A big-endian number of `size` bytes, at least one, in `width` bytes."""
    if size < 1 or size > width or width > end - p:
        return NO
    sign = u8(0xFF) if texts[start] >= 0x80 else u8(0)
    for k in range(width - size):
        out[p + k] = sign
    copy(out, p + width - size, texts, start, size)
    return p + width


@borrowing
def _bytes_of(low: int, high: int) -> int:
    """How many bytes a number of 128 bits needs, its sign among them: 1 to 16."""
    word, size = low, 1
    if high != low >> 63:
        word, size = high, 9
    sign = word >> 63
    bits = 7
    while bits < 63 and word >> bits != sign:
        bits += 8
        size += 1
    return size


@borrowing
def _put_decimal(low: int, high: int, width: int, out: UInt8Array, p: int, end: int) -> int:
    """A number of 128 bits, big-endian, in `width` bytes; -1: the fewest, behind their number."""
    size = _bytes_of(low, high)
    if width < 0:
        width = size
        p = put_long(out, p, end, size)
        if p < 0:
            return NO
    if size > width or width > end - p:
        return NO
    sign = u8(0xFF) if high < 0 else u8(0)
    for k in range(width - size):
        out[p + k] = sign
    for k in range(size):
        word = u64(low) if k < 8 else u64(high)
        out[p + width - 1 - k] = u8(word >> u64(8 * (k & 7)) & u64(0xFF))
    return p + width


@borrowing
def _put_text(op: int, fixed: int, texts: UInt8Array, start: int, size: int, out: UInt8Array, p: int, end: int) -> int:
    """BYTES, TEXT, FIXED, UUID, DECIMAL_BYTES."""
    if op == UUID:
        return _put_uuid(texts, start, size, out, p, end)
    if op == DECIMAL_BYTES and fixed >= 0:
        return _put_padded(texts, start, size, fixed, out, p, end)
    if op != FIXED:
        p = put_long(out, p, end, size)
        if p < 0:
            return NO
    elif size != fixed:
        return NO
    if size > end - p:
        return NO
    copy(out, p, texts, start, size)
    return p + size


@borrowing
def _put_duration(number: int, index: int, flat: Flat, out: UInt8Array, p: int, end: int) -> int:
    """Three numbers of the struct that is input `number`."""
    for k in range(1, 4):
        if state(flat, number + k, index) != GIVEN:
            return NO
        value = flat.longs[flat.inputs[number + k, DATA] + index]
        if value < 0 or value > _UINT_MAX:
            return NO
        p = _put_low(out, p, end, value, 4)
        if p < 0:
            return NO
    return p


@borrowing
def put_sized(program: Writing, pc: int, index: int, flat: Flat, out: UInt8Array, p: int, end: int) -> int:
    """BYTES to DURATION, of a value that is given."""
    code, ints, longs = program.code, flat.ints, flat.longs
    op, number, fixed = code[pc, 0], code[pc, 1], code[pc, 2]
    if op == DURATION:
        return _put_duration(number, index, flat, out, p, end)
    data = flat.inputs[number, DATA]
    if op == DECIMAL:
        low, high = longs[data + 2 * index], longs[data + 2 * index + 1]
        after = _put_decimal(low, high, fixed, out, p, end)
        size = fixed if fixed >= 0 else _bytes_of(low, high)
    else:
        start, stop = i64(ints[data + index]), i64(ints[data + index + 1])
        size = stop - start
        after = _put_text(op, fixed, flat.texts, start + flat.inputs[number, SHIFT], size, out, p, end)
        size = fixed if op == DECIMAL_BYTES and fixed >= 0 else size
    if after < 0:
        return NO
    if op >= DECIMAL and not within(out, after - size, size, program.limits, code[pc, 3], code[pc, 4]):
        return NO
    return after
