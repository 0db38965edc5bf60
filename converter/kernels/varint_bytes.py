"""Integers of variable length, seven bits a byte, the lowest first, as Avro, Protobuf and compact Thrift have them."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """An unsigned integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed integer of 64 bits at most."""
    return varint((value << 1) ^ (value >> 63))
