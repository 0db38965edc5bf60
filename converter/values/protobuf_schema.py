"""From a serialized FileDescriptorSet to the message a decoder is for."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from converter.values.model import NoMessageError, SchemaTextError
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
