"""Which columns a Protobuf message becomes: a tree of nodes, made once per writer schema.

Every node has two types. `lowered` is how both decoders read it, from a schema of our own that is wire-compatible with
the writer's but says less (schema.py); `type` is the column's. lift.py turns the one into the other.

A message that occurs within itself would have endless columns: there its bytes become a binary column.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from converter.values.model import BARE_VALUE, SchemaTextError
from converter.values.schema_size import SchemaSize

#: Metadata of a column: the number of its field in the schema, ASCII.
NUMBER: Final = b"tierberg.number"
#: Leaf columns of one schema, and messages within each other.
COLUMNS_MAX: Final = 5_000
DEPTH_MAX: Final = 40

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
#: Follows the name of a timestamp's column: what is left of its nanoseconds below the microsecond.
NANOS_SUFFIX: Final = "__nanos"
#: A timestamp within a list or a map, which has no second column beside it.
TIMESTAMP_PAIR: Final = pa.struct([("timestamp", TIMESTAMP_TYPE), ("nanos", pa.int32())])


class ProtobufKind(Enum):
    """How a lowered value becomes a column's."""

    PLAIN = auto()  # the same values, perhaps in a wider type
    TEXT = auto()  # binary that must be UTF-8
    ENUM = auto()  # int32 to name
    STRUCT = auto()
    EMPTY = auto()  # a message without fields: true
    TIMESTAMP = auto()
    DURATION = auto()
    WRAPPER = auto()  # a message with one field `value`, of which the column has just that
    FIELD_MASK = auto()
    JSON = auto()  # the bytes of a Struct, Value or ListValue to JSON text


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ProtobufNode:
    """One value: a field's, a list's element, a map's key or value.

    Attributes:
        kind: how it is lifted.
        wire: its type in the lowered schema, FieldDescriptor.TYPE_*.
        lowered: its Arrow type as decoded.
        type: its Arrow type as a column or element.
        fields: of messages that are lowered as messages; () for all else.
        names: ENUM: number to name; the first name where several share a number.
        message: JSON: the full name of its message type.
        opaque: a message of which the quick decoder sees just the bytes.
    """

    kind: ProtobufKind
    wire: int
    lowered: pa.DataType
    type: pa.DataType
    fields: tuple[Field, ...] = ()
    names: tuple[tuple[int, str], ...] = ()
    message: str = ""
    opaque: bool = False

    @property
    def name_cells(self) -> int:
        """ENUM: cells of its longest name, beyond the one that every value takes."""
        return max((len(name) for _, name in self.names), default=0) // 8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    """One field of a message.

    Attributes:
        name: its column's name.
        number: as on the wire.
        node: its value; of a list, an element; of a map, a value.
        key: of a map, its key; None for all else.
        repeated: a list or a map.
        default: what an absent value stands for, in the lowered type; None: null. Of a map: an absent entry value.
        oneof: number of its oneof within the message; None: in none, or alone in it.
        group: encoded between two tags (proto2 group), not behind a length.
    """

    name: str
    number: int
    node: ProtobufNode
    key: ProtobufNode | None = None
    repeated: bool = False
    default: Any = None
    oneof: int | None = None
    group: bool = False

    @property
    def lowered_name(self) -> str:
        """Name in the lowered schema."""
        return f"f{self.number}"

    @property
    def lowered(self) -> pa.DataType:
        """Arrow type of the field as decoded."""
        if self.key is not None:
            return pa.list_(pa.struct([("f1", self.key.lowered), ("f2", self.node.lowered)]))
        return pa.list_(self.node.lowered) if self.repeated else self.node.lowered

    @property
    def has_pair(self) -> bool:
        """True for a timestamp that has a second column beside it."""
        return self.node.kind is ProtobufKind.TIMESTAMP and not self.repeated


_F = FieldDescriptor
_SCALARS: Final[dict[int, tuple[ProtobufKind, int, pa.DataType, pa.DataType]]] = {
    _F.TYPE_FLOAT: (ProtobufKind.PLAIN, _F.TYPE_FLOAT, pa.float32(), pa.float64()),
    _F.TYPE_DOUBLE: (ProtobufKind.PLAIN, _F.TYPE_DOUBLE, pa.float64(), pa.float64()),
    _F.TYPE_BOOL: (ProtobufKind.PLAIN, _F.TYPE_BOOL, pa.bool_(), pa.bool_()),
    # Read as bytes: a decoder that meets malformed UTF-8 gives up more than the row.
    _F.TYPE_STRING: (ProtobufKind.TEXT, _F.TYPE_BYTES, pa.binary(), pa.string()),
    _F.TYPE_BYTES: (ProtobufKind.PLAIN, _F.TYPE_BYTES, pa.binary(), pa.binary()),
} | {
    wire: (ProtobufKind.PLAIN, wire, lowered, column)
    for wires, lowered, column in (
        ((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), pa.int32(), pa.int32()),
        ((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), pa.int64(), pa.int64()),
        ((_F.TYPE_UINT32, _F.TYPE_FIXED32), pa.uint32(), pa.int64()),
        ((_F.TYPE_UINT64, _F.TYPE_FIXED64), pa.uint64(), pa.decimal128(20, 0)),
    )
    for wire in wires
}
_WKT = "google.protobuf."
_JSON = {_WKT + name for name in ("Struct", "Value", "ListValue")}
_WRAPPERS = {
    f"{_WKT}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def make_plan(message: Descriptor) -> tuple[ProtobufNode, pa.StructType]:
    """The root of a message's tree, and the type of its columns.

    The root is a STRUCT, whatever message it is: well-known types mean something special as fields only.

    Raises:
        SchemaTextError: more than COLUMNS_MAX columns or DEPTH_MAX messages within each other, or a recursive group.
    """
    fields = _Builder().fields(message, ())
    columns = columns_of(fields) or [pa.field(BARE_VALUE, pa.bool_())]
    return _message(ProtobufKind.STRUCT, pa.struct(columns), fields), pa.struct(columns)


def columns_of(fields: tuple[Field, ...]) -> list[pa.Field]:
    """The columns of a message's fields, in the schema's order; a timestamp has two."""
    taken = {field.name for field in fields}
    columns = []
    for field in fields:
        metadata = {NUMBER: str(field.number).encode()}
        columns.append(pa.field(field.name, _column_type(field), metadata=metadata))
        if field.has_pair:
            name = field.name + NANOS_SUFFIX
            while name in taken:
                name += "_"
            taken.add(name)
            columns.append(pa.field(name, pa.int32()))
    return columns


def _column_type(field: Field) -> pa.DataType:
    if field.key is not None:
        return pa.map_(field.key.type, field.node.type)
    if field.repeated:
        return pa.list_(pa.field("element", field.node.type))
    return TIMESTAMP_TYPE if field.has_pair else field.node.type


def _message(kind: ProtobufKind, column: pa.DataType, fields: tuple[Field, ...]) -> ProtobufNode:
    lowered = pa.struct([(field.lowered_name, field.lowered) for field in fields])
    return ProtobufNode(kind=kind, wire=_F.TYPE_MESSAGE, lowered=lowered, type=column, fields=fields)


class _Builder:
    def __init__(self) -> None:
        self._columns = 0
        self._size = SchemaSize()
        self._names: dict[str, tuple[tuple[int, str], ...]] = {}

    def fields(self, message: Descriptor, ancestors: tuple[str, ...]) -> tuple[Field, ...]:
        if len(ancestors) >= DEPTH_MAX:
            raise SchemaTextError(f"{message.full_name}: more than {DEPTH_MAX} messages within each other")
        return tuple(self._field(field, (*ancestors, message.full_name)) for field in message.fields)

    def _field(self, field: FieldDescriptor, ancestors: tuple[str, ...]) -> Field:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            first, value = (entry.fields_by_number.get(number) for number in (1, 2))
            if first is None or value is None:
                raise SchemaTextError(f"{field.full_name}: a map without key or value")
            node = self._node(value, ancestors)
            key = self._key(first, ancestors)
            return Field(
                name=field.name, number=field.number, node=node, key=key, repeated=True, default=_default(value, node)
            )
        node = self._node(field, ancestors)
        oneof = field.containing_oneof
        return Field(
            name=field.name,
            number=field.number,
            node=node,
            repeated=field.is_repeated,
            default=None if field.is_repeated or field.has_presence else _default(field, node),
            oneof=oneof.index if oneof is not None and len(oneof.fields) > 1 else None,
            group=field.type == _F.TYPE_GROUP,
        )

    def _key(self, field: FieldDescriptor, ancestors: tuple[str, ...]) -> ProtobufNode:
        node = self._node(field, ancestors)
        # Catalogs and engines take no decimal as a key.
        column = pa.string() if pa.types.is_decimal(node.type) else node.type
        return ProtobufNode(kind=node.kind, wire=node.wire, lowered=node.lowered, type=column)

    def _node(self, field: FieldDescriptor, ancestors: tuple[str, ...]) -> ProtobufNode:
        if field.message_type is not None:
            return self._message_node(field, field.message_type, ancestors)
        self._count(field.full_name)
        if field.enum_type is not None:
            return ProtobufNode(
                kind=ProtobufKind.ENUM,
                wire=_F.TYPE_INT32,
                lowered=pa.int32(),
                type=pa.string(),
                names=self._names_of(field.enum_type),
            )
        kind, wire, lowered, column = _SCALARS[field.type]
        return ProtobufNode(kind=kind, wire=wire, lowered=lowered, type=column)

    def _names_of(self, enum: EnumDescriptor) -> tuple[tuple[int, str], ...]:
        """Of an enum, which many fields may have."""
        if enum.full_name not in self._names:
            self._names[enum.full_name] = _names(enum)
        names = self._names[enum.full_name]
        self._size.add(sum(len(name) + 1 for _, name in names), enum.full_name)
        return names

    def _message_node(self, field: FieldDescriptor, message: Descriptor, ancestors: tuple[str, ...]) -> ProtobufNode:
        name = message.full_name
        if name in _JSON:
            self._count(field.full_name)
            return ProtobufNode(
                kind=ProtobufKind.JSON,
                wire=_F.TYPE_BYTES,
                lowered=pa.binary(),
                type=pa.string(),
                message=name,
                opaque=True,
            )
        if name in ancestors:
            if field.type == _F.TYPE_GROUP:
                raise SchemaTextError(f"{field.full_name}: groups that contain themselves have no columns")
            self._count(field.full_name)
            return ProtobufNode(
                kind=ProtobufKind.PLAIN, wire=_F.TYPE_BYTES, lowered=pa.binary(), type=pa.binary(), opaque=True
            )
        fields = self.fields(message, ancestors)
        kind = _special(name, fields)
        if kind is ProtobufKind.TIMESTAMP:
            return _message(kind, TIMESTAMP_PAIR, fields)
        if kind is ProtobufKind.DURATION:
            return _message(kind, pa.decimal128(28, 9), fields)
        if kind in {ProtobufKind.WRAPPER, ProtobufKind.FIELD_MASK}:
            return _message(kind, columns_of(fields)[0].type, fields)
        if not fields:
            self._count(field.full_name)
            return _message(ProtobufKind.EMPTY, pa.bool_(), fields)
        return _message(ProtobufKind.STRUCT, pa.struct(columns_of(fields)), fields)

    def _count(self, name: str) -> None:
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            raise SchemaTextError(f"{name}: the message has more than {COLUMNS_MAX} columns")


def _special(name: str, fields: tuple[Field, ...]) -> ProtobufKind:
    """STRUCT but for well-known types; one that has other fields than Google's is a message like any other."""
    shape = [(field.name, field.repeated, field.node.wire) for field in fields]
    pair = [("seconds", False, _F.TYPE_INT64), ("nanos", False, _F.TYPE_INT32)]
    if name == _WKT + "Timestamp" and shape == pair:
        return ProtobufKind.TIMESTAMP
    if name == _WKT + "Duration" and shape == pair:
        return ProtobufKind.DURATION
    if name == _WKT + "FieldMask" and shape == [("paths", True, _F.TYPE_BYTES)]:
        return ProtobufKind.FIELD_MASK
    if name in _WRAPPERS and len(fields) == 1 and fields[0].name == "value" and not fields[0].repeated:
        return ProtobufKind.WRAPPER
    return ProtobufKind.STRUCT


def _default(field: FieldDescriptor, node: ProtobufNode) -> Any:
    if field.type == _F.TYPE_ENUM:
        return node.names[0][0] if node.names else 0
    if node.fields or node.kind is ProtobufKind.EMPTY:
        return None
    return {pa.bool_(): False, pa.binary(): b"", pa.float32(): 0.0, pa.float64(): 0.0}.get(node.lowered, 0)


def _names(enum: EnumDescriptor) -> tuple[tuple[int, str], ...]:
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return tuple(names.items())
