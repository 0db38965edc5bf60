"""Scenarios of a topic whose writers change their schema: what was written, and what the table makes of it.

A scenario is a list of versions, each with one value. What is expected of a value's row is the value itself where
nothing else is said; columns that are null are left out. Columns are given as text, in the table's order.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro

from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf import message_class

#: A row's columns that are not null, or the code in `_kafka_error`.
Row = Mapping[str, Any] | str


@dataclass(frozen=True)
class Version:
    """One version of a writer's schema, and one value it writes.

    Attributes:
        registered: body of the registry's answer.
        payload: the value, behind the schema id.
        row: what the table shows of it once all versions have come.
    """

    registered: Mapping[str, Any]
    payload: bytes
    row: Row

    def framed(self, schema_id: int) -> bytes:
        """The record's value in the wire format of registries."""
        return b"\0" + struct.pack(">I", schema_id) + self.payload


@dataclass(frozen=True)
class Scenario:
    """`name` begins with its topic rule's prefix; `columns` are the value's, as `name: type, …`."""

    name: str
    columns: str
    versions: tuple[Version, ...]


def scenario(name: str, columns: str, *versions: Version) -> Scenario:
    """See Scenario."""
    return Scenario(name, columns, versions)


def record(_name: str = "R", /, **fields: Any) -> dict[str, Any]:
    """An Avro record. A field is a type, or what `renamed` makes."""
    made = [{"name": name, **(kind if is_field(kind) else {"type": kind})} for name, kind in fields.items()]
    return {"type": "record", "name": _name, "fields": made}


def is_field(kind: Any) -> bool:
    """Whether this is a whole Avro field but for its name."""
    return isinstance(kind, dict) and "aliases" in kind


def renamed(kind: Any, *aliases: str) -> dict[str, Any]:
    """An Avro field that had these names."""
    return {"type": kind, "aliases": list(aliases)}


def opt(kind: Any) -> list[Any]:
    """null or the type."""
    return ["null", kind]


def array(kind: Any) -> dict[str, Any]:
    """An Avro array."""
    return {"type": "array", "items": kind}


def mapping(kind: Any) -> dict[str, Any]:
    """An Avro map."""
    return {"type": "map", "values": kind}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    """An Avro decimal."""
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def avro(schema: Any, value: Any, row: Row | None = None) -> Version:
    """A version in Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return Version({"schema": json.dumps(schema)}, out.getvalue(), value if row is None else row)


def proto(
    text: str, value: Mapping[str, Any], row: Row | None = None, *, message: str = "M", index: int = 0
) -> Version:
    """A version in Protobuf; `index`: of the message in the file."""
    text = f'syntax = "proto3"; {text}'
    path = b"\0" if index == 0 else bytes((2, 2 * index))
    payload = path + _messages(text)(message)(**value).SerializeToString()
    return Version({"schemaType": "PROTOBUF", "schema": text}, payload, value if row is None else row)


@cache
def _messages(text: str) -> Callable[[str], Any]:
    files = protobuf_schema(text)
    return lambda message: message_class(files, message)


def jsons(properties: Mapping[str, Any], value: Any, row: Row | None = None, **more: Any) -> Version:
    """A version in JSON, closed but for what `more` says."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    body = {"schemaType": "JSON", "schema": json.dumps(schema)}
    return Version(body, json.dumps(value).encode(), value if row is None else row)
