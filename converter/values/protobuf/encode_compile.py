"""From a message type's plan to the program that writes it, and to the sources of the program's slots.

The plan's tree says what the columns are, the descriptors beside it what the plan has no need of: which types the
fields had, and which lists are packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from converter.kernels.kernel import readonly
from converter.kernels.varint_bytes import varint
from converter.values.protobuf.encode_ops import (
    BYTES,
    END,
    FIXED32,
    FIXED64,
    JUMP,
    LIST,
    MESSAGE,
    NEXT,
    NO_SLOT,
    OPEN,
    PACKED,
    VARINT,
    ProtobufEncodeProgram,
)
from converter.values.protobuf.nodes import Field, ProtobufKind, ProtobufNode


class NoEncodingError(Exception):
    """Values of a message type cannot be written from its columns."""


class Read(Enum):
    """How a column's cells become numbers and places; encode_flat.py does it."""

    NUMBER = auto()  # bool, int32, int64
    ZIGZAG = auto()
    UNSIGNED32 = auto()  # from int64
    UNSIGNED64 = auto()  # from decimal, or in a map's key from its digits
    FLOAT = auto()  # from double
    DOUBLE = auto()
    ENUM = auto()
    BYTES = auto()
    JSON = auto()
    EMPTY = auto()  # flags only
    STRUCT = auto()
    LIST = auto()
    MAP = auto()
    TIME = auto()  # two columns; fills this slot and the next two: what is there, seconds, nanoseconds
    TIME_PAIR = auto()  # the same from a struct
    DURATION = auto()  # the same from a decimal


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SlotSource:
    """What a slot is filled from.

    Attributes:
        read: how.
        slot: which slot.
        column: number of its column, the first of two, within the struct around it; 0 for elements, keys and values.
        node: what the plan says about it; of a list or map, about its elements or values.
        required: true where a null has no meaning: an element, a key, a value of a map.
        children: of a struct its fields; of a list its element; of a map its key and its value.
    """

    read: Read
    slot: int
    column: int
    node: ProtobufNode
    required: bool
    children: tuple[SlotSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Habits:
    """In what writers of canonical values differ.

    Attributes:
        sparse_entries: a map's entry has no key and no scalar value where they are the default (C#, Rust);
            else both always (C++, Java, Python, Go).
        oneofs_first: a oneof's member is written where the one declared first has its place (Go); else each at its own.
    """

    sparse_entries: bool = False
    oneofs_first: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """A message type's program.

    Attributes:
        sources: of the message's fields, in the order of the columns.
        slots: how many slots the program has.
    """

    program: ProtobufEncodeProgram
    sources: tuple[SlotSource, ...]
    slots: int


_F = FieldDescriptor
_SCALARS: Final = {
    _F.TYPE_BOOL: (VARINT, Read.NUMBER),
    _F.TYPE_INT32: (VARINT, Read.NUMBER),
    _F.TYPE_INT64: (VARINT, Read.NUMBER),
    _F.TYPE_SINT32: (VARINT, Read.ZIGZAG),
    _F.TYPE_SINT64: (VARINT, Read.ZIGZAG),
    _F.TYPE_UINT32: (VARINT, Read.UNSIGNED32),
    _F.TYPE_UINT64: (VARINT, Read.UNSIGNED64),
    _F.TYPE_ENUM: (VARINT, Read.ENUM),
    _F.TYPE_FIXED32: (FIXED32, Read.UNSIGNED32),
    _F.TYPE_SFIXED32: (FIXED32, Read.NUMBER),
    _F.TYPE_FIXED64: (FIXED64, Read.UNSIGNED64),
    _F.TYPE_SFIXED64: (FIXED64, Read.NUMBER),
    _F.TYPE_FLOAT: (FIXED32, Read.FLOAT),
    _F.TYPE_DOUBLE: (FIXED64, Read.DOUBLE),
    _F.TYPE_STRING: (BYTES, Read.BYTES),
    _F.TYPE_BYTES: (BYTES, Read.BYTES),
}
_WIRE_TYPES: Final = {VARINT: 0, FIXED64: 1, BYTES: 2, FIXED32: 5}
_LEN, _GROUP_BEGINS, _GROUP_ENDS = 2, 3, 4
_SCALAR_KINDS: Final = {ProtobufKind.PLAIN, ProtobufKind.TEXT, ProtobufKind.ENUM}


def compile_message(root: ProtobufNode, message: Descriptor, habits: Habits) -> Compiled:
    """The program that writes a message type.

    Args:
        root: the plan's tree of `message`.
        message: the type.
        habits: of the writer.

    Raises:
        NoEncodingError: its columns do not say enough.
    """
    compiler = _Compiler(habits)
    sources = compiler.fields(root.fields, message)
    compiler.add(END)
    code = np.array(compiler.code, dtype=np.int64).reshape(-1, 8)
    return Compiled(ProtobufEncodeProgram(readonly(code, np.int64), compiler.depth_max), sources, compiler.slots)


class _Compiler:
    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        self._depth = 0
        self.depth_max = 1
        self.code: list[list[int]] = []
        self.slots = 0

    def add(
        self, op: int, slot: int = NO_SLOT, tag: tuple[int, int] = (0, 0), *, omit: bool = False, packed: int = 0
    ) -> int:
        """Adds an instruction and returns its number; `packed`: how the elements of the next slot are written."""
        number = len(self.code)
        place, wire_type = tag
        data = varint(place << 3 | wire_type) if place else b""
        value = int.from_bytes(data, "little")
        self.code.append([op, slot, value, len(data), int(omit), number + 1, slot + 1, packed])
        return number

    def fields(self, fields: tuple[Field, ...], message: Descriptor) -> tuple[SlotSource, ...]:
        """Writes the fields of a message by descending number."""
        columns, column = {}, 0
        for field in fields:
            columns[field.number] = column
            column += 2 if field.has_pair else 1
        made = {}
        for field in sorted(
            fields, key=lambda field: self._place(message.fields_by_number[field.number]), reverse=True
        ):
            made[field.number] = self._field(field, message.fields_by_number[field.number], columns[field.number])
        return tuple(made[field.number] for field in fields)

    def _place(self, field: FieldDescriptor) -> int:
        oneof = field.containing_oneof
        if self._habits.oneofs_first and oneof is not None:
            return int(oneof.fields[0].number)
        return int(field.number)

    def _slot(self, count: int = 1) -> int:
        self.slots += count
        return self.slots - count

    def _field(self, field: Field, wire: FieldDescriptor, column: int) -> SlotSource:
        if field.key is not None:
            return self._map(field, field.key, wire, column)
        if not field.repeated:
            return self._value(field.node, wire, column, omit=_omits(field))
        return self._list(field.node, wire, column, wire.is_packed)

    def _list(self, node: ProtobufNode, wire: FieldDescriptor, column: int, packed: bool) -> SlotSource:
        slot = self._slot()
        if packed:
            op, read = _SCALARS[wire.type]
            self.add(PACKED, slot, (wire.number, _LEN), packed=op)
            return SlotSource(
                read=Read.LIST,
                slot=slot,
                column=column,
                node=node,
                required=False,
                children=(SlotSource(read=read, slot=self._slot(), column=0, node=node, required=True),),
            )
        begin = self._begin(LIST, slot)
        element = self._value(node, wire, 0, required=True)
        self._end(begin, NEXT)
        return SlotSource(read=Read.LIST, slot=slot, column=column, node=node, required=False, children=(element,))

    def _map(self, field: Field, key: ProtobufNode, wire: FieldDescriptor, column: int) -> SlotSource:
        slot = self._slot()
        key_wire, value_wire = (_message_type(wire).fields_by_number[number] for number in (1, 2))
        begin = self._begin(LIST, slot)
        entry = self._begin(MESSAGE, NO_SLOT)
        sparse = self._habits.sparse_entries
        value = self._value(field.node, value_wire, 0, omit=sparse, required=True)
        name = self._value(key, key_wire, 0, omit=sparse, required=True)
        self._end(entry, OPEN, wire.number)
        self._end(begin, NEXT)
        return SlotSource(
            read=Read.MAP, slot=slot, column=column, node=field.node, required=False, children=(name, value)
        )

    def _begin(self, op: int, slot: int, group: int = 0) -> int:
        self._depth += 1
        self.depth_max = max(self.depth_max, self._depth)
        return self.add(op, slot, (group, _GROUP_ENDS), omit=group > 0)

    def _end(self, begin: int, op: int, number: int = 0, *, group: bool = False) -> None:
        """Closes a list, or a message that has this number; whatever is absent goes on behind it."""
        self._depth -= 1
        at = self.add(op, NO_SLOT, (number, _GROUP_BEGINS if group else _LEN), omit=group)
        self.code[begin][JUMP] = at + 1
        if op == NEXT:
            self.code[at][JUMP] = begin + 1

    def _value(
        self, node: ProtobufNode, wire: FieldDescriptor, column: int, *, omit: bool = False, required: bool = False
    ) -> SlotSource:
        """Writes one value; `omit`: nothing for a default."""
        group = wire.type == _F.TYPE_GROUP
        if node.kind in _SCALAR_KINDS or node.kind is ProtobufKind.JSON:
            if group:
                raise NoEncodingError(f"{wire.full_name}: a group of which the columns have just the content")
            op, read = _scalar(node, wire)
            slot = self._slot()
            self.add(op, slot, (wire.number, _WIRE_TYPES[op]), omit=omit)
            return SlotSource(read=read, slot=slot, column=column, node=node, required=required)
        if node.kind is ProtobufKind.WRAPPER:
            return self._wrapper(node, wire, column, group=group, required=required)
        if node.kind in {ProtobufKind.TIMESTAMP, ProtobufKind.DURATION}:
            return self._time(node, wire, column, group=group, required=required)
        # The column of a mask is its list: a slot for both.
        slot = self.slots if node.kind is ProtobufKind.FIELD_MASK else self._slot()
        begin = self._begin(MESSAGE, slot, wire.number if group else 0)
        children = self.fields(node.fields, _message_type(wire))
        self._end(begin, OPEN, wire.number, group=group)
        if node.kind is ProtobufKind.FIELD_MASK:
            (paths,) = children
            return SlotSource(
                read=Read.LIST, slot=slot, column=column, node=paths.node, required=required, children=paths.children
            )
        return SlotSource(
            read=Read.EMPTY if node.kind is ProtobufKind.EMPTY else Read.STRUCT,
            slot=slot,
            column=column,
            node=node,
            required=required,
            children=children,
        )

    def _wrapper(
        self, node: ProtobufNode, wire: FieldDescriptor, column: int, *, group: bool, required: bool
    ) -> SlotSource:
        (content,) = node.fields
        if content.node.kind not in _SCALAR_KINDS or content.default is None:
            raise NoEncodingError(f"{wire.full_name}: a wrapper unlike Google's")
        # The slot of the content is the next one, and says whether the wrapper is there.
        begin = self._begin(MESSAGE, self.slots, wire.number if group else 0)
        inner = _message_type(wire).fields_by_number[content.number]
        source = self._value(content.node, inner, column, omit=_omits(content), required=required)
        self._end(begin, OPEN, wire.number, group=group)
        return source

    def _time(
        self, node: ProtobufNode, wire: FieldDescriptor, column: int, *, group: bool, required: bool
    ) -> SlotSource:
        if any(field.default is None for field in node.fields):
            raise NoEncodingError(f"{wire.full_name}: a {node.kind.name.lower()} unlike Google's")
        slot = self._slot(3)
        begin = self._begin(MESSAGE, slot, wire.number if group else 0)
        seconds, nanos = (_message_type(wire).fields_by_name[name] for name in ("seconds", "nanos"))
        for part, number in sorted(((seconds, 1), (nanos, 2)), key=lambda pair: -pair[0].number):
            self.add(_SCALARS[part.type][0], slot + number, (part.number, 0), omit=True)
        self._end(begin, OPEN, wire.number, group=group)
        beside = not required and not wire.is_repeated
        timestamp = Read.TIME if beside else Read.TIME_PAIR
        read = Read.DURATION if node.kind is ProtobufKind.DURATION else timestamp
        return SlotSource(read=read, slot=slot, column=column, node=node, required=required)


def _message_type(field: FieldDescriptor) -> Descriptor:
    found: Descriptor | None = field.message_type
    if found is None:
        raise NoEncodingError(f"{field.full_name}: no message")
    return found


def _omits(field: Field) -> bool:
    """True where the default is not written.

    Raises:
        NoEncodingError: the default is not zero.
    """
    if field.default is not None and field.default:
        raise NoEncodingError(f"{field.name}: a default that is not zero")
    return field.default is not None


def _scalar(node: ProtobufNode, wire: FieldDescriptor) -> tuple[int, Read]:
    """Operation and reading of a value that is no message, or one of which the column has the content."""
    if node.opaque:
        return BYTES, Read.JSON if node.kind is ProtobufKind.JSON else Read.BYTES
    return _SCALARS[wire.type]
