"""Kafka's variable-length integers (zigzag, as in Protocol Buffers), read and written inside kernels.

Reading follows Kafka's ByteUtils to the bit: at most five bytes for an int, ten for a long, surplus high bits of the
last byte are dropped. Such encodings, and padded ones, decode but are not what the writer gives back.
"""

from __future__ import annotations

from converter.kernels.kernel import i64, kernel, u8, u64
from converter.types import UInt8Array

BAD = -1  # position after a varint that does not end


@kernel
def read_int(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """(value as int32, position after it); the position is BAD if the varint does not end before `end`."""
    if end - p < 1:
        return 0, BAD
    first = i64(data[p])
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), p + 1
    raw = u64(first & 0x7F)
    shift = 7
    p += 1
    while True:
        if end - p < 1 or shift > 28:
            return 0, BAD
        byte = u64(data[p])
        p += 1
        raw |= (byte & u64(0x7F)) << u64(shift)
        if byte < u64(0x80):
            break
        shift += 7
    low = i64(raw & u64(0xFFFFFFFF))
    return (low >> 1) ^ -(low & 1), p


@kernel
def read_long(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """(value as int64, position after it); the position is BAD if the varint does not end before `end`."""
    if end - p < 1:
        return 0, BAD
    first = i64(data[p])
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), p + 1
    raw = u64(first & 0x7F)
    shift = 7
    p += 1
    while True:
        if end - p < 1 or shift > 63:
            return 0, BAD
        byte = u64(data[p])
        p += 1
        raw |= (byte & u64(0x7F)) << u64(shift)
        if byte < u64(0x80):
            break
        shift += 7
    return i64(raw >> u64(1)) ^ -i64(raw & u64(1)), p


@kernel
def size_of(value: int) -> int:
    """Bytes write() needs for a value; ints and longs have the same encoding."""
    raw = u64((i64(value) << 1) ^ (i64(value) >> 63))
    size = 1
    while raw >= u64(0x80):
        raw >>= u64(7)
        size += 1
    return size


@kernel
def write(out: UInt8Array, p: int, value: int) -> int:
    """Write a varint at p and return the position after it. Caller's promise: size_of(value) bytes fit."""
    raw = u64((i64(value) << 1) ^ (i64(value) >> 63))
    while raw >= u64(0x80):
        out[p] = u8(raw & u64(0x7F)) | u8(0x80)
        raw >>= u64(7)
        p += 1
    out[p] = u8(raw)
    return p + 1
