"""What one would write without us: a library's decoder for each record, dicts, and Arrow out of the dicts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import orjson
import pyarrow as pa

from benchmarks.typed_payloads import FIELDS, message_class, schema_text, split_name

#: One value as a dict.
Reader = Callable[[bytes], dict[str, Any]]


def reader(payload: str) -> Reader:
    """fastavro.schemaless_reader, ParseFromString and a read of every attribute, or orjson.loads."""
    form, _ = split_name(payload)
    return {"avro": _avro, "protobuf": _protobuf, "json": _json}[form](payload)


def per_record(values: Sequence[bytes], read: Reader) -> pa.Array:
    """All values as an array of structs of the types that Arrow infers."""
    return pa.array([read(value) for value in values])


def _avro(payload: str) -> Reader:
    schema = fastavro.parse_schema(json.loads(schema_text(payload)))
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, None)  # type: ignore[return-value]


def _json(_: str) -> Reader:
    return orjson.loads


def _protobuf(payload: str) -> Reader:
    kind = message_class(payload)
    fields = [(one.name, one.kind, one.nullable) for one in FIELDS[split_name(payload)[1]]]

    def read(value: bytes) -> dict[str, Any]:
        message: Any = kind()
        message.ParseFromString(value)
        found: dict[str, Any] = {}
        for name, what, nullable in fields:
            if nullable and not message.HasField(name):
                found[name] = None
                continue
            read = getattr(message, name)
            if what == "timestamp":
                read = read.ToDatetime()
            elif what == "record":
                read = {"street": read.street, "city": read.city, "postal_code": read.postal_code}
            found[name] = read
        return found

    return read
