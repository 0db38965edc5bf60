"""The slow path: one row after another, read by google.protobuf, into the arrays the quick decoder would have given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from converter.values.model import ValueProblem, error_text, too_many_cells
from converter.values.protobuf_plan import Field, Node

MALFORMED = error_text(ValueProblem.UNDECODABLE, "the bytes do not follow the schema")


class RowReader:
    """Reads rows of one schema."""

    def __init__(self, root: Node, message: type[Message]) -> None:
        self._root = root
        self._message = message

    def read(self, values: list[bytes | None]) -> tuple[pa.StructArray, list[str | None]]:
        """The rows in the root's lowered type, null where there is an error; and the errors, None where there is none.

        None is a value that takes too many cells.
        Maps have each key once, with its last value at the place of the first. Entries have key and value.
        """
        rows: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values:
            error = None
            row = None
            try:
                if value is None:
                    error = too_many_cells()
                else:
                    row = _message(self._root.fields, self._message.FromString(value))
            except DecodeError:
                error = MALFORMED
            rows.append(row)
            errors.append(error)
        return pa.array(rows, self._root.lowered), errors


def _message(fields: tuple[Field, ...], message: Any) -> dict[str, Any]:
    return {field.lowered_name: _field(field, message) for field in fields}


def _field(field: Field, message: Any) -> Any:
    name = field.lowered_name
    if field.key is not None:
        return _map(field, getattr(message, name))
    if field.repeated:
        return [_value(field.node, item) for item in getattr(message, name)]
    return _value(field.node, getattr(message, name)) if message.HasField(name) else None


def _map(field: Field, entries: Any) -> list[dict[str, Any]]:
    items = {}
    for entry in entries:
        # An absent message stands for an empty one; a scalar's default is not always the lowered field's.
        value = field.default
        if value is None or entry.HasField("f2"):
            value = _value(field.node, entry.f2)
        items[entry.f1] = value
    return [{"f1": key, "f2": value} for key, value in items.items()]


def _value(node: Node, value: Any) -> Any:
    if node.opaque:
        return value.SerializeToString()
    return _message(node.fields, value) if node.wire == FieldDescriptor.TYPE_MESSAGE else value
