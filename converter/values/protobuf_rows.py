"""The slow path: one row after another, read by google.protobuf, into the arrays the quick decoder would have given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from converter.values.model import ValueProblem, error_text
from converter.values.protobuf_plan import Field, Node

MALFORMED = error_text(ValueProblem.UNDECODABLE, "the bytes do not follow the schema")


class _TooManyCellsError(Exception):
    pass


class RowReader:
    """Reads rows of one schema."""

    def __init__(self, root: Node, message: type[Message], cells_max: int) -> None:
        self._root = root
        self._message = message
        self._cells_max = cells_max

    def read(self, values: list[bytes]) -> tuple[pa.StructArray, list[str | None]]:
        """The rows in the root's lowered type, null where there is an error; and the errors, None where there is none.

        Maps have each key once, with its last value at the place of the first. Entries have key and value.
        """
        rows: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values:
            error = None
            row = None
            try:
                row = _Reading(self._cells_max).message(self._root.fields, self._message.FromString(value))
            except DecodeError:
                error = MALFORMED
            except _TooManyCellsError:
                error = error_text(ValueProblem.OUT_OF_RANGE, f"takes more than {self._cells_max} cells")
            rows.append(row)
            errors.append(error)
        return pa.array(rows, self._root.lowered), errors


class _Reading:
    """Reads one row; counts its cells, so that a few bytes cannot become gigabytes."""

    def __init__(self, cells_max: int) -> None:
        self._cells_left = cells_max

    def message(self, fields: tuple[Field, ...], message: Any) -> dict[str, Any]:
        return {field.lowered_name: self._field(field, message) for field in fields}

    def _field(self, field: Field, message: Any) -> Any:
        self._cells_left -= 1
        if self._cells_left < 0:
            raise _TooManyCellsError
        name = field.lowered_name
        if field.key is not None:
            return self._map(field, getattr(message, name))
        if field.repeated:
            items = getattr(message, name)
            self._cells_left -= len(items)
            return [self._value(field.node, item) for item in items]
        return self._value(field.node, getattr(message, name)) if message.HasField(name) else None

    def _map(self, field: Field, entries: Any) -> list[dict[str, Any]]:
        self._cells_left -= len(entries)
        items = {}
        for entry in entries:
            # An absent message stands for an empty one; a scalar's default is not always the lowered field's.
            value = field.default
            if value is None or entry.HasField("f2"):
                value = self._value(field.node, entry.f2)
            items[entry.f1] = value
        return [{"f1": key, "f2": value} for key, value in items.items()]

    def _value(self, node: Node, value: Any) -> Any:
        if node.opaque:
            return value.SerializeToString()
        return self.message(node.fields, value) if node.wire == FieldDescriptor.TYPE_MESSAGE else value
