"""JSON values of every type in docs/types.md, read by the standard library."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tests.support.typed_case import Entries, Kind

BIG = 10**38 - 1
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "whole": {"type": "integer"},
        "big": {"type": "integer", "minimum": -BIG, "maximum": BIG},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "text": {"type": "string", "description": "any text"},
        "uuid": {"type": "string", "format": "uuid"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "maybe": {"type": ["null", "string"]},
        "inner": {"$ref": "#/$defs/inner"},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
        "nothing": {"type": "object", "additionalProperties": False},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
        "several": {"type": ["integer", "string"]},
        "any": {},
        "size": {"enum": ["S", "M"]},
    },
    "$defs": {
        "inner": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "times": {"type": "array", "items": {"type": "string", "format": "date-time"}},
            },
            "additionalProperties": False,
        }
    },
}
INNER = [{}, {"a": 1}, {"a": -1, "times": []}, {"a": None, "times": ["2024-02-29T23:59:59.999999+05:30", None]}]
VALUES: dict[str, list[Any]] = {
    "whole": [0, -1, 2**63 - 1, -(2**63)],
    "big": [0, BIG, -BIG, 2**64],
    "number": [0, -0.0, 0.1, 1e308, 5e-324, -17, 2**53],
    "flag": [True, False],
    "text": ["", "né", "漢字 🦆", 'quotes " and \\', "\0\n\u2028"],
    "uuid": ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "no uuid"],
    "at": [
        "1970-01-01T00:00:00Z",
        "2024-02-29T23:59:59.123456+05:30",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
    ],
    "day": ["1970-01-01", "2024-02-29", "0001-01-01", "9999-12-31"],
    "maybe": [None, "there"],
    "inner": INNER,
    "scores": [{}, {"": 1.5, "é": -2}, {"n": None}],
    "nothing": [{}],
    "lines": [[], INNER, [None, {"a": 5}]],
    "several": [1, "one", True, None],
    "any": [1.50, "text", [1, {"deep": None}], {"x": "é"}, False],
    "size": ["S", "M"],
    "unnamed": [[1, 2], "extra", None, {"of": "ours"}],
}


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def values(count: int) -> list[bytes]:
    """Every third row leaves each member out in turn; each value comes once `count` is 30 or more."""
    made = []
    for number in range(count):
        row = {name: found[number % len(found)] for name, found in VALUES.items()}
        if number % 3 == 2:
            del row[list(row)[number % len(row)]]
        made.append(text_of(row).encode())
    return made


def real(value: Any) -> Any:
    return None if value is None else float(value)


def inner(value: Any) -> Any:
    if value is None:
        return None
    times = value.get("times")
    return {"a": value.get("a"), "times": None if times is None else [moment(item) for item in times]}


def moment(value: Any) -> Any:
    return None if value is None else datetime.fromisoformat(value)


def text_or_null(row: dict[str, Any], name: str) -> Any:
    return text_of(row[name]) if row.get(name) is not None else None


def columns(value: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(value)
    given = row.get
    plain = {name: given(name) for name in ("whole", "flag", "text", "uuid", "maybe", "size")}
    day, scores, listed = given("day"), given("scores"), given("lines")
    extra = {name: found for name, found in row.items() if name not in SCHEMA["properties"]}
    return plain | {
        "big": None if given("big") is None else Decimal(row["big"]),
        "number": real(given("number")),
        "at": moment(given("at")),
        "day": None if day is None else date.fromisoformat(day),
        "inner": inner(given("inner")),
        "scores": None if scores is None else Entries((name, real(found)) for name, found in scores.items()),
        "nothing": None if given("nothing") is None else True,
        "lines": None if listed is None else [inner(item) for item in listed],
        "several": text_or_null(row, "several"),
        "any": text_or_null(row, "any"),
        "_additional": text_of(extra) if extra else None,
    }


JSON = Kind("json", json.dumps(SCHEMA), values(60), columns)

#: For inference: a text that looks like a date, and types that differ.
PLAIN: list[dict[str, Any]] = [
    {"n": 1, "price": 0.5, "ok": True, "at": "2024-01-01", "deep": {"x": "y", "n": [1]}, "mixed": 1, "tags": []},
    {"n": 2**63 - 1, "price": 2, "ok": None, "at": "", "deep": {"x": None, "n": []}, "mixed": "1", "tags": ["é"]},
    {"n": -1},
]


def inferred_columns(value: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(value)
    deep = row.get("deep")
    return {
        "n": row["n"],
        "price": real(row.get("price")),
        "ok": row.get("ok"),
        "at": row.get("at"),
        "deep": None if deep is None else {**deep, "_additional": None},
        "mixed": text_or_null(row, "mixed"),
        "tags": row.get("tags"),
        "_additional": None,
    }


INFERRED = Kind("json", "", [text_of(row).encode() for row in PLAIN * 10], inferred_columns)
