"""Parquet's encodings and Thrift's compact protocol, written plainly from their specifications, for tests to read."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

MASK = (1 << 64) - 1


def varint(value: int) -> bytes:
    """An unsigned LEB128 number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed 64-bit number as a varint."""
    return varint((value << 1 ^ value >> 63) & MASK)


def signed(value: int) -> int:
    """The 64-bit number with these bits."""
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def pack(values: Sequence[int], width: int) -> bytes:
    """Unsigned numbers of `width` bits, least significant bit first, padded to whole bytes."""
    bits = 0
    for place, value in enumerate(values):
        bits |= (value & ((1 << width) - 1)) << place * width
    return bits.to_bytes((len(values) * width + 7) // 8, "little")


def delta_packed(values: Sequence[int], *, block: int = 128, minis: int = 4, spare_bits: int = 0) -> bytes:
    """DELTA_BINARY_PACKED; `spare_bits` are added to every width that leaves room."""
    out = bytearray(varint(block) + varint(minis) + varint(len(values)) + zigzag(values[0] if values else 0))
    deltas = [signed(b - a) for a, b in itertools.pairwise(values)]
    per_mini = block // minis
    for start in range(0, len(deltas), block):
        part = deltas[start : start + block]
        least = min(part)
        rest = [(delta - least) & MASK for delta in part]
        groups = [rest[at : at + per_mini] for at in range(0, block, per_mini)]
        widths = [min(max((v.bit_length() for v in group), default=0) + spare_bits, 64) for group in groups]
        out += zigzag(least) + bytes(widths)
        for group, width in zip(groups, widths, strict=True):
            if group:
                out += pack(group + [0] * (per_mini - len(group)), width)
    return bytes(out)


def plain(values: Sequence[bytes | None]) -> bytes:
    """PLAIN byte arrays; nulls take no room."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values if value is not None)


def levels(values: Sequence[int], width: int, runs: Sequence[tuple[str, int]]) -> bytes:
    """Length-prefixed RLE/bit-packed hybrid: `runs` says how many values each run takes and how it is written.

    A packed run takes a multiple of eight; the last one is padded with zeros.
    """
    out, at = bytearray(), 0
    for kind, count in runs:
        part = list(values[at : at + count])
        at += count
        if kind == "rle":
            assert len(set(part)) <= 1
            out += varint(count << 1) + bytes([part[0] if part else 0])
        else:
            groups = (count + 7) // 8
            out += varint(groups << 1 | 1) + pack(part + [0] * (groups * 8 - len(part)), width)
    return struct.pack("<I", len(out)) + bytes(out)


def thrift(value: Any) -> tuple[int, bytes]:
    """Type and bytes of a value: bool (as an element), int, float, bytes, list, or dict by field id (a struct)."""
    if isinstance(value, bool):
        return 1, bytes([1 if value else 2])
    if isinstance(value, int):
        return 6, zigzag(value)
    if isinstance(value, float):
        return 7, struct.pack("<d", value)
    if isinstance(value, bytes):
        return 8, varint(len(value)) + value
    if isinstance(value, list):
        items = [thrift(item) for item in value]
        kind = items[0][0] if items else 6
        head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
        return 9, head + b"".join(data for _, data in items)
    out, last = bytearray(), 0
    for number, item in sorted(value.items()):
        kind, data = thrift(item)
        if isinstance(item, bool):
            kind, data = (1 if item else 2), b""
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step <= 15 else bytes([kind]) + zigzag(number)
        out += data
        last = number
    return 12, bytes(out) + b"\0"
