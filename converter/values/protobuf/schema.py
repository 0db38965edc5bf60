"""From a serialized FileDescriptorSet to the message a decoder is for.

The lowered schema: what both decoders read values with.

It is wire-compatible with the writer's schema and leaves to us what libraries see differently or give up on:

* every singular field is optional, with presence: what an absent value stands for is the plan's matter;
* strings are bytes, enums int32: malformed UTF-8 and unknown numbers concern one row, and no library's opinion;
* maps are repeated entries: duplicate keys stay visible, and the order is the writer's;
* messages within themselves, and those that become JSON, are bytes to the quick decoder and messages without fields to
  the slow one, which keeps what it does not know, byte for byte, and joins the parts of a message written twice;
* each other message is lowered once per place in the tree;
* fields beyond QUICK_NUMBER_MAX have other numbers in the quick schema, and rows that have such fields are never quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from converter.values.model import NoMessageError, SchemaTextError
from converter.values.protobuf.nodes import Field, ProtobufNode
from converter.values.schema_size import check_name


class SchemaFiles:
    """A schema, read once: values name any of its messages, also ones that it has not.

    Args:
        files: a serialized FileDescriptorSet, each file after those it imports, as `protoc --include_imports` writes
            it. The last one is the schema itself.

    Attributes:
        data: these files.

    Raises:
        SchemaTextError: the set cannot be read, or contradicts itself.
    """

    def __init__(self, files: bytes) -> None:
        self.data = files
        self._pool, self._last = _load(files)

    def message(self, message: str | tuple[int, ...]) -> Descriptor:
        """One of its messages.

        Args:
            message: full name, in any of the files; or the path of the wire format: number of the message in the
                schema's file, number of the one nested in it, and so on.

        Raises:
            SchemaTextError: there is none; NoMessageError for a path.
        """
        if not isinstance(message, str):
            return _by_path(self._last, message)
        try:
            return self._pool.FindMessageTypeByName(message)
        except KeyError:
            raise SchemaTextError(f"the schema has no message {message!r}") from None


def _load(files: bytes) -> tuple[descriptor_pool.DescriptorPool, FileDescriptor]:
    parsed = descriptor_pb2.FileDescriptorSet()
    try:
        parsed.ParseFromString(files)
    except DecodeError:
        raise SchemaTextError("the compiled schema is no FileDescriptorSet") from None
    if not parsed.file:
        raise SchemaTextError("the compiled schema has no file")
    pool = descriptor_pool.DescriptorPool()
    for file in parsed.file:
        _check_names(file.name, file.message_type, file.enum_type)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError) as error:
            raise SchemaTextError(f"{file.name}: {error}") from None
    name = parsed.file[-1].name
    try:
        return pool, pool.FindFileByName(name)
    except KeyError:
        raise SchemaTextError(f"the compiled schema cannot be found by its file's name {name!r}") from None


def _check_names(
    place: str, messages: Iterable[descriptor_pb2.DescriptorProto], enums: Iterable[descriptor_pb2.EnumDescriptorProto]
) -> None:
    """Of fields and of enums' values: columns and JSON texts have them for each row."""
    for enum in enums:
        check_name(enum.name, place)
        for value in enum.value:
            check_name(value.name, f"{place}: enum {enum.name}")
    for message in messages:
        check_name(message.name, place)
        for field in message.field:
            check_name(field.name, f"{place}: message {message.name}")
        _check_names(place, message.nested_type, message.enum_type)


def _by_path(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor:
    found: Descriptor | None = None
    # In the order of the file: message types by name are a dict, and keep it.
    messages = list(file.message_types_by_name.values())
    for index in path:
        if not 0 <= index < len(messages):
            raise NoMessageError(f"{file.name}: no message at index path {list(path)}")
        found = messages[index]
        # The compiler makes nested messages of maps. Confluent's Java client does not count them, and it is the model.
        messages = [nested for nested in found.nested_types if not nested.GetOptions().map_entry]
    if found is None:
        raise SchemaTextError("an index path has at least one index")
    return found


_PACKAGE = "lowered"
#: The quick decoder has tables with a place for every number up to the highest: 8 GiB for the last one of all.
#: These are the numbers whose tags have two bytes.
QUICK_NUMBER_MAX: Final = 2047


@dataclass(frozen=True, slots=True)
class Lowered:
    """Both decoders.

    Attributes:
        handler: ptars' codec, array_to_record_batch() and record_batch_to_array(); it knows no groups.
        message: the message class of google.protobuf.
    """

    handler: Any
    message: type[Message]


def lower(root: ProtobufNode) -> Lowered:
    """Both decoders for the lowered schema of a tree."""
    import ptars  # of the extra `typed`: whoever has no Protobuf does without

    quick = _descriptor(root, quick=True)
    handler = ptars.HandlerPool([quick.file]).get_for_message(quick)
    return Lowered(handler, message_factory.GetMessageClass(_descriptor(root, quick=False)))


def _descriptor(root: ProtobufNode, *, quick: bool) -> Descriptor:
    file = descriptor_pb2.FileDescriptorProto(name="lowered.proto", package=_PACKAGE, syntax="proto2")
    name = _add_message(file, root.fields, quick=quick)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")


def _add_message(file: descriptor_pb2.FileDescriptorProto, fields: tuple[Field, ...], *, quick: bool) -> str:
    message = file.message_type.add(name=f"M{len(file.message_type)}")
    oneofs: dict[int, int] = {}
    numbers = quick_numbers(fields) if quick else {}
    # Encoders write in the order of this list; writers in the order of numbers.
    for field in sorted(fields, key=lambda field: field.number):
        added = message.field.add(name=field.lowered_name, number=numbers.get(field.number, field.number))
        added.label = added.LABEL_REPEATED if field.repeated else added.LABEL_OPTIONAL
        if field.oneof is not None:
            if field.oneof not in oneofs:
                oneofs[field.oneof] = len(message.oneof_decl)
                message.oneof_decl.add(name=f"o{field.oneof}")
            added.oneof_index = oneofs[field.oneof]
        nested = entry_fields(field) if field.key is not None else field.node.fields
        opaque = field.node.opaque and not quick
        if field.key is not None or field.node.wire == FieldDescriptor.TYPE_MESSAGE or opaque:
            added.type = added.TYPE_GROUP if field.group and not quick else added.TYPE_MESSAGE
            added.type_name = f".{_PACKAGE}.{_add_message(file, nested, quick=quick)}"
        else:
            added.type = descriptor_pb2.FieldDescriptorProto.Type.ValueType(field.node.wire)
    return str(message.name)


def quick_numbers(fields: tuple[Field, ...]) -> dict[int, int]:
    """Numbers that fields beyond QUICK_NUMBER_MAX have in the quick schema instead: the lowest that are free."""
    taken = {field.number for field in fields}
    free = (number for number in count(1) if number not in taken)
    return {field.number: next(free) for field in fields if field.number > QUICK_NUMBER_MAX}


def entry_fields(field: Field) -> tuple[Field, ...]:
    """A map's entry as a message. Its fields have presence in the lowered schema, whatever the writer says."""
    if field.key is None:
        return ()
    return (
        Field(name="key", number=1, node=field.key),
        Field(name="value", number=2, node=field.node, default=field.default),
    )
