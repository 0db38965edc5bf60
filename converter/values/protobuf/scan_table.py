"""The lowered schema as numbers, for the kernels that walk values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from converter.kernels.kernel import i64, kernel, readonly, u64
from converter.types import Int64Array, UInt8Array
from converter.values.protobuf.nodes import DEPTH_MAX, Field, ProtobufNode
from converter.values.protobuf.schema import QUICK_NUMBER_MAX, entry_fields, quick_numbers

BAD = -1
#: Messages within each other that a walk meets at most: a map's entry is one, too.
LEVELS = 2 * DEPTH_MAX + 4
# Wire types, and the columns of the table.
VARINT, I64, LEN, BEGIN, END, I32 = range(6)
NUMBER, WIRE, BITS, REPEATED, SLOT, CHILD, WIDTH, GROUP = range(8)

_F = FieldDescriptor
_WIRES = {
    _F.TYPE_DOUBLE: (I64, 64),
    _F.TYPE_FIXED64: (I64, 64),
    _F.TYPE_SFIXED64: (I64, 64),
    _F.TYPE_FLOAT: (I32, 32),
    _F.TYPE_FIXED32: (I32, 32),
    _F.TYPE_SFIXED32: (I32, 32),
    _F.TYPE_BYTES: (LEN, 0),
    _F.TYPE_BOOL: (VARINT, 1),
    _F.TYPE_INT32: (VARINT, 32),
    _F.TYPE_SINT32: (VARINT, 32),
    _F.TYPE_UINT32: (VARINT, 32),
    _F.TYPE_INT64: (VARINT, 64),
    _F.TYPE_SINT64: (VARINT, 64),
    _F.TYPE_UINT64: (VARINT, 64),
}


@dataclass(frozen=True, slots=True)
class ScanTable:
    """The lowered schema for the kernel.

    Attributes:
        starts: fields of message m are rows [starts[m], starts[m + 1]) of `fields`, by number; message 0 is the root.
        fields: one row per field, and one per number that stands for a higher one in the quick schema: number, wire
            type, bits of its value, whether it repeats, slot (what may occur once has one, members of a oneof share
            theirs), message or -1, cells that one element takes, whether it is a group.
        slots: slots of the message that has most.
    """

    starts: Int64Array
    fields: Int64Array
    slots: int


def scan_table(root: ProtobufNode) -> ScanTable:
    """The table of a tree."""
    messages: list[list[list[int]]] = []
    slots_max = 1

    def add(fields: tuple[Field, ...]) -> int:
        nonlocal slots_max
        number = len(messages)
        rows: list[list[int]] = []
        messages.append(rows)
        slots: dict[object, int] = {}
        for field in sorted(fields, key=lambda field: field.number):
            slot = slots.setdefault(field.number if field.oneof is None else ("oneof", field.oneof), len(slots))
            nested = entry_fields(field) if field.key is not None else field.node.fields
            is_message = field.key is not None or field.node.wire == _F.TYPE_MESSAGE
            wire, bits = (LEN, 0) if is_message else _WIRES[field.node.wire]
            # A group never has the wire type of anything the quick decoder may see; nor has a number that is too high.
            wire = BAD if field.group or field.number > QUICK_NUMBER_MAX else wire
            row = [field.number, wire, bits, int(field.repeated), slot, -1, 1 + _width(nested), int(field.group)]
            rows.append(row)
            if is_message:
                row[CHILD] = add(nested)
            row[WIDTH] += field.node.name_cells
        # What the quick decoder would take for a field of a higher number is one that the schema does not know.
        rows += [[alias, BAD, 0, 0, 0, -1, 0, 0] for alias in quick_numbers(fields).values()]
        rows.sort()
        slots_max = max(slots_max, len(slots))
        return number

    add(root.fields)
    starts = np.cumsum([0, *(len(rows) for rows in messages)])
    flat = [row for rows in messages for row in rows]
    table = np.array(flat, dtype=np.int64).reshape(len(flat), 8)
    return ScanTable(readonly(starts, np.int64), readonly(table, np.int64), slots_max)


def _width(fields: tuple[Field, ...]) -> int:
    """Cells that a message takes however little of it is set."""
    return sum(1 if field.repeated else 1 + field.node.name_cells + _width(field.node.fields) for field in fields)


def row_cells(root: ProtobufNode) -> int:
    """Cells that a row takes, what its lists and maps hold left out."""
    return 1 + _width(root.fields)


@kernel
def varint(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """(64 bits, position after them). Beyond ten bytes or 64 bits, or without an end: BAD."""
    if p < end and data[p] < 0x80:
        return i64(data[p]), p + 1
    raw = u64(0)
    shift = 0
    while p < end:
        byte = i64(data[p])
        p += 1
        if shift == 63 and byte > 1:
            return 0, BAD
        raw |= u64(byte & 0x7F) << u64(shift)
        if byte < 0x80:
            return i64(raw), p
        shift += 7
    return 0, BAD


@kernel
def find(fields: Int64Array, start: int, end: int, number: int) -> int:
    """Row of a field within [start, end), -1 where there is none."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if fields[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < end and fields[low, NUMBER] == number else -1


@kernel
def read(data: UInt8Array, p: int, end: int, wire: int, bits: int) -> tuple[int, int]:
    """(value of one element, position after it); BAD where it does not end. Of bytes, the value is their size."""
    if wire == VARINT:
        value, p = varint(data, p, end)
        if bits == 1:
            value = i64(value != 0)
        elif bits == 32:
            value &= 0xFFFFFFFF
        return value, p
    if wire == LEN:
        value, p = varint(data, p, end)
        if p == BAD or value < 0 or value > end - p:
            return 0, BAD
        return value, p
    size = 8 if wire == I64 else 4
    if size > end - p:
        return 0, BAD
    value = 0
    for k in range(size):
        value |= i64(data[p + k]) << (8 * k)
    return value, p + size


@kernel
def skip(data: UInt8Array, p: int, end: int, wire: int) -> int:
    """Position after a field that the schema does not know; BAD for groups, and where it does not end."""
    if wire not in (VARINT, I64, LEN, I32):
        return BAD
    size, p = read(data, p, end, wire, 64)
    return p + size if wire == LEN and p != BAD else p
