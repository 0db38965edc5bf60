"""What columns a Protobuf message must have, from the message object of google.protobuf, in plain Python."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
F = FieldDescriptor
WKT = "google.protobuf."


class DeadError(Exception):
    """The row has no columns; the argument is the code."""


class UnsureError(Exception):
    """This oracle cannot tell: upb drops a map's entry that has a field it does not know; other parsers keep it."""


class Within:
    """Bytes of a message within itself: any that say the same."""

    def __init__(self, message: Message) -> None:
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and type(self.message).FromString(other) == self.message

    def __repr__(self) -> str:
        return f"Within({self.message!r})"

    def __hash__(self) -> int:
        raise TypeError("only compared")


def message_class(files: bytes, name: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def bytes_for_texts(files: bytes) -> bytes:
    """The same files, with bytes wherever there is a string; keys of maps cannot be bytes."""
    found = descriptor_pb2.FileDescriptorSet.FromString(files)

    def change(message: descriptor_pb2.DescriptorProto) -> None:
        for field in message.field:
            if field.type == F.TYPE_STRING and not (message.options.map_entry and field.number == 1):
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
        for nested in message.nested_type:
            change(nested)

    for file in found.file:
        if not file.name.startswith("google/protobuf/"):
            for message in file.message_type:
                change(message)
    return found.SerializeToString()


def expected(message: type[Message], value: bytes) -> dict[str, Any] | str:
    """Columns, or the code of the error.

    Raises:
        UnsureError: see there.
    """
    try:
        return columns(message.FromString(value), ())
    except DecodeError:
        return "undecodable"
    except DeadError as error:
        return str(error.args[0])


def expected_of_what_is_read(
    message: type[Message], without_texts: type[Message], value: bytes
) -> dict[str, Any] | str:
    """The same, of the value without texts that a later occurrence, or member of its oneof, takes away: docs/types.md.

    without_texts: the message as bytes_for_texts() leaves it.
    """
    try:
        left = without_texts.FromString(value).SerializePartialToString()
    except DecodeError:
        return "undecodable"
    return expected(message, left)


def columns(message: Any, ancestors: tuple[str, ...]) -> dict[str, Any]:
    ancestors = (*ancestors, message.DESCRIPTOR.full_name)
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        content = getattr(message, field.name)
        if field.enum_type is not None and field.enum_type.is_closed:
            unread: Any = UnknownFieldSet(message)
            if any(unknown.field_number == field.number for unknown in unread):
                raise UnsureError  # upb puts a number without a name aside; the column shows it
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            left: Any = UnknownFieldSet(message)
            if any(unknown.field_number == field.number for unknown in left):
                raise UnsureError
            key, value = field.message_type.fields
            out[field.name] = {
                one(key, k, ancestors, key=True): one(value, content[k], ancestors, nested=True) for k in content
            }
        elif field.is_repeated:
            out[field.name] = [one(field, item, ancestors, nested=True) for item in content]
        else:
            there = message.HasField(field.name) if field.has_presence else True
            out[field.name] = one(field, content, ancestors) if there else None
            if field.message_type is not None and field.message_type.full_name == WKT + "Timestamp":
                pair = out[field.name]
                out[field.name], out[field.name + "__nanos"] = (None, None) if pair is None else pair
    return out


def one(field: Any, value: Any, ancestors: tuple[str, ...], key: bool = False, nested: bool = False) -> Any:
    if field.type == F.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return str(value) if key else Decimal(value)
    if field.type == F.TYPE_STRING and isinstance(value, bytes):
        raise DeadError("undecodable")  # google.protobuf takes any bytes in a string of proto2, and gives them as such
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == WKT + "Timestamp":
        pair = timestamp(value)
        return {"timestamp": pair[0], "nanos": pair[1]} if nested else pair
    if name == WKT + "Duration":
        return Decimal(value.seconds) + Decimal(value.nanos).scaleb(-9)
    if name == WKT + "FieldMask":
        return list(value.paths)
    if name in {WKT + "Struct", WKT + "Value", WKT + "ListValue"}:
        return json_of(value)
    if name in {WKT + kind + "Value" for kind in ("Int32", "UInt64", "String", "Bool", "Double", "Bytes")}:
        return one(value.DESCRIPTOR.fields[0], value.value, ancestors)
    if name in ancestors:
        return Within(value)
    return columns(value, ancestors) if field.message_type.fields else True


def timestamp(value: Any) -> tuple[datetime, int]:
    if not -62135596800 <= value.seconds <= 253402300799 or not 0 <= value.nanos < 10**9:
        raise DeadError("out_of_range")
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000), value.nanos % 1000


def json_of(value: Any) -> str:
    def plain(item: Any) -> Any:
        if item.DESCRIPTOR.name == "Struct":
            return {k: plain(v) for k, v in item.fields.items()}
        if item.DESCRIPTOR.name == "ListValue":
            return [plain(v) for v in item.values]
        kind = item.WhichOneof("kind")
        if kind in (None, "null_value"):
            return None
        inner = getattr(item, kind)
        if kind == "number_value":
            if not math.isfinite(inner):
                raise DeadError("out_of_range")
            small = inner == math.floor(inner) and abs(inner) < 2**53 and str(inner) != "-0.0"
            return int(inner) if small else inner
        return plain(inner) if kind in ("struct_value", "list_value") else inner

    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def agree(wanted: Any, found: Any) -> bool:
    """Equal, down to the sign of a zero; NaN equals NaN; a map is its entries, in any order, each once."""
    if isinstance(wanted, float):
        return isinstance(found, float) and repr(wanted) == repr(found)
    if isinstance(wanted, dict) and isinstance(found, list):
        pairs = dict(found)
        return len(pairs) == len(found) and agree(wanted, pairs)
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and wanted.keys() == found.keys()
            and all(agree(wanted[k], found[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(agree, wanted, found))
    return type(wanted) in (type(found), Within) and wanted == found
