"""The slow path: one row after another, read by google.protobuf, into the arrays the quick decoder would have given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from converter.values.model import ValueProblem, error_text
from converter.values.protobuf.nodes import Field, ProtobufNode

MALFORMED = error_text(ValueProblem.UNDECODABLE, "the bytes do not follow the schema")


class RowReader:
    """Reads rows of one schema. What a row takes is what is set in it: of columns that are not, nothing is asked."""

    def __init__(self, root: ProtobufNode, message: type[Message]) -> None:
        self._root = root
        self._message = message
        self._fields: dict[int, dict[int, Field]] = {}
        self._learn(root)

    def read(self, values: list[bytes | None]) -> tuple[pa.StructArray, list[str | None]]:
        """The rows in the root's lowered type, null where there is an error; and the errors, None where there is none.

        None is a value that is not to be read: null, and no error. Lists and maps without an element are null.
        Maps have each key once, with its last value at the place of the first. Entries have key and value.
        """
        rows: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values:
            error = None
            row = None
            try:
                if value is not None:
                    row = self._read(self._root, self._message.FromString(value))
            except DecodeError:
                error = MALFORMED
            rows.append(row)
            errors.append(error)
        return pa.array(rows, self._root.lowered), errors

    def _learn(self, node: ProtobufNode) -> None:
        """Remembers the fields of all messages within each other by number."""
        self._fields[id(node)] = {field.number: field for field in node.fields}
        for field in node.fields:
            self._learn(field.node)

    def _read(self, node: ProtobufNode, message: Any) -> dict[str, Any]:
        fields = self._fields[id(node)]
        return {kind.name: self._field(fields[kind.number], value) for kind, value in message.ListFields()}

    def _field(self, field: Field, value: Any) -> Any:
        if field.key is not None:
            return self._map(field, value)
        if field.repeated:
            return [self._value(field.node, item) for item in value]
        return self._value(field.node, value)

    def _map(self, field: Field, entries: Any) -> list[dict[str, Any]]:
        items = {}
        for entry in entries:
            # An absent message stands for an empty one; a scalar's default is not always the lowered field's.
            value = field.default
            if value is None or entry.HasField("f2"):
                value = self._value(field.node, entry.f2)
            items[entry.f1] = value
        return [{"f1": key, "f2": value} for key, value in items.items()]

    def _value(self, node: ProtobufNode, value: Any) -> Any:
        if node.opaque:
            return value.SerializeToString()
        return self._read(node, value) if node.wire == FieldDescriptor.TYPE_MESSAGE else value
