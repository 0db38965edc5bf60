"""A small reader of the Thrift compact protocol, for Parquet footers and offset indexes, and what writes parts of them.

It knows no schema: a struct becomes a dict of field id to value, a list a Python list, a binary `bytes`. Any bytes are
accepted or raise :class:`SegmentError` ("corrupt_object"); lengths are compared with what is left before anything is
allocated, and nesting is limited. Page headers, which a fetch meets by the thousand, are read by page_header.py.

Spec: apache/thrift doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from converter.errors import SegmentError
from converter.kernels.varint_bytes import varint
from converter.limits import THRIFT_DEPTH_MAX

ThriftStruct = dict[int, Any]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def read_struct(data: bytes | memoryview, position: int = 0) -> tuple[ThriftStruct, int]:
    """Read one struct that starts at `position`.

    Returns:
        The struct and the position of the first byte after it.

    Raises:
        SegmentError: `corrupt_object` when the bytes are no compact-protocol struct.
    """
    reader = _Reader(memoryview(data).cast("B"), position)
    value = reader.struct(0)
    return value, reader.position


@dataclass(frozen=True, slots=True)
class Span:
    """A field: where its value begins and ends, and what it is."""

    start: int
    end: int
    value: Any


def spans(
    data: bytes | memoryview, position: int = 0, *, before: int = 0, until: int = 0
) -> tuple[dict[int, Span], int]:
    """The fields of a struct by their ids, and the position of the first byte after what was read.

    Args:
        data: of the struct.
        position: where it begins, or the rest of it.
        before: id of the last field before that rest.
        until: the field whose value is not read any more; 0: all are.

    Raises:
        SegmentError: `corrupt_object` when the bytes are no compact-protocol struct.
    """
    reader = _Reader(memoryview(data).cast("B"), position)
    found: dict[int, Span] = {}
    field_id = before
    while (head := reader.take(1)[0]) != 0:
        delta, kind = head >> 4, head & 0x0F
        field_id = field_id + delta if delta else reader.zigzag()
        if until and field_id == until:
            break
        start = reader.position
        value = kind == _TRUE if kind in (_TRUE, _FALSE) else reader.value(kind, 1)
        found[field_id] = Span(start, reader.position, value)
    return found, reader.position


def list_at(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """How many elements the list has that begins there, and where the first one begins."""
    reader = _Reader(memoryview(data).cast("B"), position)
    head = reader.take(1)[0]
    return (head >> 4 if head < 0xF0 else reader.varint()), reader.position


def binary_at(data: bytes | memoryview, position: int) -> tuple[bytes, int]:
    """The binary that begins there, and the position after it."""
    reader = _Reader(memoryview(data).cast("B"), position)
    return bytes(reader.take(reader.varint())), reader.position


def structs_head(count: int) -> bytes:
    """What a list of structs begins with."""
    return bytes([count << 4 | _STRUCT]) if count < 15 else bytes([0xF0 | _STRUCT]) + varint(count)


class _Reader:
    __slots__ = ("data", "position")

    def __init__(self, data: memoryview, position: int) -> None:
        if not 0 <= position <= len(data):
            raise SegmentError("corrupt_object", "thrift starts outside the data", position=position)
        self.data = data
        self.position = position

    def fail(self, message: str) -> SegmentError:
        return SegmentError("corrupt_object", f"thrift: {message}", position=self.position)

    def take(self, length: int) -> memoryview:
        if length > len(self.data) - self.position:
            raise self.fail("value runs past the end")
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise self.fail("varint longer than ten bytes")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> ThriftStruct:
        if depth > THRIFT_DEPTH_MAX:
            raise self.fail("nested too deeply")
        fields: ThriftStruct = {}
        field_id = 0
        while True:
            head = self.take(1)[0]
            if head == 0:
                return fields
            delta, kind = head >> 4, head & 0x0F
            field_id = field_id + delta if delta else self.zigzag()
            # A bool has its value in the field head; elsewhere it is a byte of its own.
            fields[field_id] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind, depth + 1)

    def value(self, kind: int, depth: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self.zigzag()
        if kind == _BINARY:
            return bytes(self.take(self.varint()))
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in (_LIST, _SET):
            return self.list(depth)
        if kind in (_TRUE, _FALSE):
            return self.take(1)[0] == _TRUE
        if kind == _BYTE:
            return int.from_bytes(self.take(1), "little", signed=True)
        if kind == _DOUBLE:
            return struct.unpack("<d", self.take(8))[0]
        # Maps occur nowhere in Parquet's metadata.
        raise self.fail(f"unknown type {kind}")

    def list(self, depth: int) -> list[Any]:
        if depth > THRIFT_DEPTH_MAX:
            raise self.fail("nested too deeply")
        head = self.take(1)[0]
        size = head >> 4 if head < 0xF0 else self.varint()
        # Every element has at least one byte.
        if size > len(self.data) - self.position:
            raise self.fail("list longer than the data")
        return [self.value(head & 0x0F, depth + 1) for _ in range(size)]
