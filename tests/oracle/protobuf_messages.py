"""Random messages of any Protobuf type, and random things that writers, networks and vandals do to their bytes."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

F = FieldDescriptor
SIGNED32 = (F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32)
SIGNED64 = (F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64)
UNSIGNED32 = (F.TYPE_UINT32, F.TYPE_FIXED32)
FLOATS = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 3.0, -1.0, 2.0**60]
TEXTS = ["", "a", "é", "漢字", "😀", "\0", '"\\', "x" * 130]


def integer(rnd: Random, low: int, high: int) -> int:
    edges = [0, 1, low, high, max(low, -1), max(low, -128), 127, 128, 300]
    return rnd.choice(edges) if rnd.random() < 0.7 else rnd.randint(low, high)


def scalar(rnd: Random, field: Any) -> Any:
    if field.type in SIGNED32:
        return integer(rnd, -(2**31), 2**31 - 1)
    if field.type in SIGNED64:
        return integer(rnd, -(2**63), 2**63 - 1)
    if field.type in UNSIGNED32:
        return integer(rnd, 0, 2**32 - 1)
    if field.type == F.TYPE_BOOL:
        return rnd.random() < 0.5
    if field.type == F.TYPE_DOUBLE:
        return rnd.choice([*FLOATS, 1e-300, 0.1, rnd.gauss(0, 1e6)])
    if field.type == F.TYPE_FLOAT:
        return rnd.choice(FLOATS)
    if field.type == F.TYPE_STRING:
        return rnd.choice(TEXTS)
    if field.type == F.TYPE_BYTES:
        return rnd.randbytes(rnd.choice([0, 1, 3, 200]))
    if field.type == F.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        return rnd.choice(numbers if field.enum_type.is_closed else [*numbers, 77, -5])
    return integer(rnd, 0, 2**64 - 1)


def fill(rnd: Random, message: Any, depth: int = 3) -> Any:
    """Sets some fields, each with even chances, and of oneofs perhaps one after another."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp" and rnd.random() < 0.95:
        message.seconds = rnd.choice([0, -1, 1_700_000_000, -62135596800, 253402300799])
        message.nanos = rnd.choice([0, 1, 999, 1000, 123_456_789, 999_999_999])
        return message
    if name == "google.protobuf.Duration":
        message.seconds = rnd.choice([0, -1, 10**9, 315_576_000_000, 2**63 - 1, -(2**63)])
        message.nanos = rnd.choice([0, 1, -1, 500_000_000, -999_999_999, 2**31 - 1])
        return message
    for field in message.DESCRIPTOR.fields:
        if rnd.random() < 0.5:
            set_field(rnd, message, field, depth)
    return message


def set_field(rnd: Random, message: Any, field: Any, depth: int) -> None:
    nested = field.message_type
    if nested is None:
        if field.is_repeated:
            getattr(message, field.name).extend(scalar(rnd, field) for _ in range(rnd.choice([1, 2, 5, 20])))
        else:
            setattr(message, field.name, scalar(rnd, field))
        return
    if depth == 0:
        return
    content = getattr(message, field.name)
    if nested.GetOptions().map_entry:
        key, value = nested.fields
        for _ in range(rnd.choice([1, 2, 20])):
            if value.message_type is None:
                content[scalar(rnd, key)] = scalar(rnd, value)
            else:
                fill(rnd, content[scalar(rnd, key)], depth - 1)
    elif field.is_repeated:
        for _ in range(rnd.choice([1, 3])):
            fill(rnd, content.add(), depth - 1)
    else:
        content.SetInParent()
        fill(rnd, content, depth - 1)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_varint(data: bytes, p: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[p]
        value |= (byte & 0x7F) << shift
        p += 1
        if byte < 0x80:
            return value, p
        shift += 7


def records(data: bytes) -> list[bytes]:
    """The fields of a well-formed message without groups, each with its tag."""
    out, p = [], 0
    while p < len(data):
        start = p
        tag, p = read_varint(data, p)
        if tag & 7 == 0:
            _, p = read_varint(data, p)
        elif tag & 7 == 2:
            size, p = read_varint(data, p)
            p += size
        else:
            p += 8 if tag & 7 == 1 else 4
        out.append(data[start:p])
    return out


def unknown(rnd: Random) -> bytes:
    """A field that no test schema has."""
    number = rnd.choice([999, 5000, 2**29 - 1])
    kind = rnd.randrange(5)
    if kind == 0:
        return varint(number << 3) + varint(rnd.randrange(2**64))
    if kind == 1:
        return varint(number << 3 | 1) + struct.pack("<q", rnd.randrange(2**62))
    if kind == 2:
        return varint(number << 3 | 2) + varint(3) + b"abc"
    if kind == 3:
        return varint(number << 3 | 3) + b"\x08\x01" + varint(number << 3 | 4)
    return varint(number << 3 | 5) + b"abcd"


def rewrite(rnd: Random, data: bytes, other: bytes) -> bytes:
    """Another writer's bytes: mostly as they are; or shuffled, joined with another message, with unknown fields."""
    kind = rnd.randrange(8)
    if kind == 0:
        parts = records(data)
        rnd.shuffle(parts)
        return b"".join(parts)
    if kind == 1:
        return data + other
    if kind == 2:
        return data + unknown(rnd) if rnd.random() < 0.5 else unknown(rnd) + data
    return data


def damage(rnd: Random, data: bytes) -> bytes:
    """Cut, flipped, or with bytes put in."""
    where = rnd.randrange(len(data) + 1)
    kind = rnd.randrange(3)
    if kind == 0 or where == len(data):
        return data[:where]
    if kind == 1:
        return data[:where] + bytes([data[where] ^ 1 << rnd.randrange(8)]) + data[where + 1 :]
    return data[:where] + rnd.randbytes(rnd.choice([1, 2, 11])) + data[where:]
