"""Fixed, seeded records with typed fields, each in Avro, Protobuf and JSON.

`avro-16` is an order of 16 fields in 512 bytes of Avro, `avro-50` three of them with two more fields in 2,048 bytes;
`protobuf-N` and `json-N` are the same fields with shorter free text, so that they have those sizes, too. Sizes are
means: texts vary in length, some fields are often null. A nested record counts as one field.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, cast

import fastavro
import numpy as np
import orjson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from benchmarks.payloads import SEED, Records, records
from converter.values.protobuf.schema import SchemaFiles
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema

Form = Literal["avro", "protobuf", "json"]
Kind = Literal["long", "int", "double", "boolean", "enum", "record", "timestamp", "decimal", "word", "text"]
FORMS: tuple[Form, ...] = ("avro", "protobuf", "json")
TYPED_PAYLOADS = tuple(f"{form}-{count}" for form in FORMS for count in (16, 50))
#: Mean size of a value, by its number of fields.
VALUE_BYTES = {16: 512, 50: 2048}

_STATES = ("PLACED", "PAID", "PACKED", "SHIPPED", "DELIVERED", "RETURNED")
_STATE_SHARES = (0.1, 0.15, 0.1, 0.2, 0.4, 0.05)
_CITIES = ("Berlin", "Zürich", "Kraków", "Lisboa", "Ulm", "Gelsenkirchen", "New York", "São Paulo", "東京")
_NULL_SHARE = 0.4
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
#: Mean characters of the fields of kind `text`: what makes the values as large as VALUE_BYTES.
_TEXT_CHARACTERS = {
    "avro-16": 201,
    "avro-50": 283,
    "protobuf-16": 188,
    "protobuf-50": 265,
    "json-16": 53,
    "json-50": 115,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the records."""

    name: str
    kind: Kind
    nullable: bool = False


_ORDER = (
    Field("order_id", "long"),
    Field("customer_id", "int"),
    Field("status", "enum"),
    Field("created_at", "timestamp"),
    Field("total", "decimal"),
    Field("discount", "double", nullable=True),
    Field("quantity", "int"),
    Field("paid", "boolean"),
    Field("email", "word"),
    Field("product", "text"),
    Field("session_id", "long"),
    Field("coupon", "word", nullable=True),
    Field("shipping", "record"),
    Field("weight_kg", "double"),
    Field("approved_at", "timestamp", nullable=True),
    Field("note", "text"),
)
_MORE = (Field("attempt", "int"), Field("source", "word"))
FIELDS: dict[int, tuple[Field, ...]] = {
    16: _ORDER,
    50: (*(Field(f"{one.name}_{n}", one.kind, one.nullable) for n in (1, 2, 3) for one in _ORDER), *_MORE),
}

_ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [
        {"name": "street", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "postal_code", "type": "int"},
    ],
}
_AVRO: dict[Kind, object] = {
    "long": "long",
    "int": "int",
    "double": "double",
    "boolean": "boolean",
    "enum": {"type": "enum", "name": "State", "symbols": list(_STATES)},
    "record": _ADDRESS,
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "word": "string",
    "text": "string",
}
_AVRO_NAMES: dict[Kind, str] = {"enum": "State", "record": "Address"}
_PROTOBUF: dict[Kind, str] = {
    "long": "int64",
    "int": "int32",
    "double": "double",
    "boolean": "bool",
    "enum": "State",
    "record": "Address",
    "timestamp": "google.protobuf.Timestamp",
    "decimal": "string",
    "word": "string",
    "text": "string",
}
_JSON: dict[Kind, dict[str, object]] = {
    "long": {"type": "integer"},
    "int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "double": {"type": "number"},
    "boolean": {"type": "boolean"},
    "enum": {"type": "string", "enum": list(_STATES)},
    "record": {
        "type": "object",
        "properties": {
            "street": {"type": "string"},
            "city": {"type": "string"},
            "postal_code": {"type": "integer"},
        },
    },
    "timestamp": {"type": "string", "format": "date-time"},
    "decimal": {"type": "string"},
    "word": {"type": "string"},
    "text": {"type": "string"},
}


def split_name(payload: str) -> tuple[Form, int]:
    """("avro", 16) of `avro-16`.

    Raises:
        ValueError: `payload` is not one of TYPED_PAYLOADS.
    """
    if payload not in TYPED_PAYLOADS:
        raise ValueError(f"{payload!r} is none of {', '.join(TYPED_PAYLOADS)}")
    form, _, count = payload.partition("-")
    return cast("Form", form), int(count)


def schema_text(payload: str) -> str:
    """The writer's schema: of Avro, a .proto file, or a JSON Schema."""
    form, count = split_name(payload)
    makers = {"avro": _avro_schema, "protobuf": _protobuf_schema, "json": _json_schema}
    return makers[form](FIELDS[count])


@lru_cache(maxsize=1)
def typed_values(payload: str, count: int) -> list[bytes]:
    """`count` values, without wire-format header. The same for the same name and count on every machine."""
    form, _ = split_name(payload)
    rows = _rows(payload, count)
    if form == "avro":
        schema = fastavro.parse_schema(json.loads(schema_text(payload)))
        return [_avro(schema, row) for row in rows]
    if form == "json":
        return [orjson.dumps(row) for row in rows]
    message = message_class(payload)
    return [message(**row).SerializeToString() for row in rows]


@lru_cache(maxsize=2)
def message_class(payload: str) -> type[Message]:
    """The class that Google's library makes of a Protobuf payload's schema."""
    return GetMessageClass(SchemaFiles(protobuf_schema(schema_text(payload))).message("Order"))


def packed(values: Sequence[bytes]) -> Records:
    """Values side by side."""
    offsets = np.concatenate(([0], np.cumsum([len(value) for value in values]))).astype(np.int64)
    return Records(np.frombuffer(b"".join(values), dtype=np.uint8), offsets)


def _avro_schema(fields: Sequence[Field]) -> str:
    """A named type is defined where it comes first."""
    seen: set[Kind] = set()
    made: list[dict[str, object]] = []
    for one in fields:
        kind = _AVRO_NAMES[one.kind] if one.kind in seen and one.kind in _AVRO_NAMES else _AVRO[one.kind]
        seen.add(one.kind)
        made.append({"name": one.name, "type": ["null", kind] if one.nullable else kind})
    return json.dumps({"type": "record", "name": "Order", "fields": made})


def _protobuf_schema(fields: Sequence[Field]) -> str:
    states = " ".join(f"{name} = {number};" for number, name in enumerate(_STATES))
    body = "\n".join(
        f"  {'optional ' if one.nullable else ''}{_PROTOBUF[one.kind]} {one.name} = {number};"
        for number, one in enumerate(fields, start=1)
    )
    return f"""syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {{
{body}
}}
enum State {{ {states} }}
message Address {{ string street = 1; string city = 2; int32 postal_code = 3; }}
"""


def _json_schema(fields: Sequence[Field]) -> str:
    def of(one: Field) -> dict[str, object]:
        kind = _JSON[one.kind]
        return {**kind, "type": [kind["type"], "null"]} if one.nullable else kind

    return json.dumps({"type": "object", "properties": {one.name: of(one) for one in fields}})


def _avro(schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def _rows(payload: str, count: int) -> list[dict[str, Any]]:
    """Records as the format's library takes them."""
    form, fields = split_name(payload)
    made = _Generator(count, _TEXT_CHARACTERS[payload])
    columns = []
    for one in FIELDS[fields]:
        column = made.column(one)
        convert = _FOR_FORM.get((form, one.kind))
        columns.append(column if convert is None else [None if value is None else convert(value) for value in column])
    names = [one.name for one in FIELDS[fields]]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class _Generator:
    """Columns of `count` plain values: decimals as Decimal, timestamps as datetime."""

    def __init__(self, count: int, text_characters: int) -> None:
        self._count = count
        self._text_characters = text_characters
        self._random = np.random.default_rng(SEED)
        self._words = records("synthetic-100", 4_000_000).data.tobytes().decode("ascii")

    def column(self, one: Field) -> list[Any]:
        values: list[Any] = getattr(self, f"_{one.kind}")()
        if one.nullable:
            absent = (self._random.random(self._count) < _NULL_SHARE).tolist()
            values = [None if gone else value for value, gone in zip(values, absent, strict=True)]
        return values

    def _long(self) -> list[int]:
        return list(map(int, 10**12 + np.cumsum(self._random.integers(1, 10**6, self._count))))

    def _int(self) -> list[int]:
        return list(map(int, self._random.zipf(1.3, self._count).clip(0, 2**31 - 1)))

    def _double(self) -> list[float]:
        """Half with two decimals, as prices have, half with all the digits a measurement has."""
        drawn = self._random.lognormal(2.0, 1.0, self._count)
        return list(map(float, np.where(self._random.random(self._count) < 0.5, drawn.round(2), drawn)))

    def _boolean(self) -> list[bool]:
        return list(map(bool, self._random.random(self._count) < 0.8))

    def _enum(self) -> list[str]:
        return [_STATES[n] for n in self._random.choice(len(_STATES), self._count, p=_STATE_SHARES).tolist()]

    def _record(self) -> list[dict[str, Any]]:
        cities = self._random.integers(0, len(_CITIES), self._count).tolist()
        numbers = self._random.integers(1, 100_000, self._count).tolist()
        streets = self._texts(8, 24)
        return [
            {"street": street, "city": _CITIES[city], "postal_code": number}
            for street, city, number in zip(streets, cities, numbers, strict=True)
        ]

    def _timestamp(self) -> list[datetime]:
        micros = np.cumsum(self._random.integers(1, 500_000, self._count)).tolist()
        return [_BEGIN + timedelta(microseconds=value) for value in micros]

    def _decimal(self) -> list[Decimal]:
        cents = self._random.lognormal(9.0, 1.5, self._count).astype(np.int64).clip(0, 10**11)
        return [Decimal(value).scaleb(-2) for value in cents.tolist()]

    def _word(self) -> list[str]:
        return self._texts(6, 30)

    def _text(self) -> list[str]:
        return self._texts(self._text_characters // 4, self._text_characters * 7 // 4)

    def _texts(self, shortest: int, longest: int) -> list[str]:
        """Pieces of the synthetic text, from anywhere; both lengths inclusive."""
        starts = self._random.integers(0, len(self._words) - longest, self._count).tolist()
        lengths = self._random.integers(shortest, longest + 1, self._count).tolist()
        return [self._words[start : start + length] for start, length in zip(starts, lengths, strict=True)]


#: What a format's library takes for a kind where that is not the plain value.
_FOR_FORM: dict[tuple[Form, Kind], Callable[[Any], object]] = {
    ("protobuf", "decimal"): str,
    ("json", "decimal"): str,
    ("json", "timestamp"): lambda value: value.isoformat().replace("+00:00", "Z"),
}
