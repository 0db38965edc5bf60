"""Avro values of every type in docs/types.md, written and read by fastavro; what is logical about them is said here."""

from __future__ import annotations

import io
import json
import math
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

from tests.support.typed_case import Entries, Kind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: 0001-01-01 and the last microsecond of 9999: what every engine can show.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
MICROS = [0, 1, -1, 1_700_000_000_123_456, FIRST_US, LAST_US]
MILLIS = [value // 1000 for value in MICROS]
INTS = [0, 1, -1, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 1.5, 0.1, -1e308, 5e-324, math.inf, -math.inf, math.nan]
FLOATS = [0.0, -0.0, 1.5, 3.4028234663852886e38, 1.401298464324817e-45, math.inf, math.nan]
TEXTS = ["", "a", "né", "漢字", "🦆", "x" * 300, '"\\', "line\nbreak"]
BYTES = [b"", b"\0", b"\xff\xfe", bytes(range(256))]


@dataclass(frozen=True, slots=True)
class Column:
    """A field: its Avro type, values in Avro's own terms, and what the column has for what fastavro reads."""

    name: str
    type: Any
    values: Sequence[Any]
    column: Callable[[Any], Any] = lambda value: value


def logical(base: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(base if isinstance(base, dict) else {"type": base}), "logicalType": name, **more}


def fixed(name: str, size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def aware(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def naive(micros: int) -> datetime:
    return aware(micros).replace(tzinfo=None)


def from_millis(moment: Callable[[int], datetime]) -> Callable[[int], datetime]:
    return lambda millis: moment(millis * 1000)


def unscaled(value: int, size: int | None = None) -> bytes:
    return value.to_bytes(size or value.bit_length() // 8 + 1, "big", signed=True)


def scaled(scale: int) -> Callable[[bytes], Decimal]:
    return lambda value: Decimal((int(int.from_bytes(value, "big", signed=True) < 0), digits(value), -scale))


def digits(value: bytes) -> tuple[int, ...]:
    return tuple(map(int, str(abs(int.from_bytes(value, "big", signed=True)))))


def duration(value: bytes) -> dict[str, int]:
    return dict(zip(("months", "days", "millis"), struct.unpack("<III", value), strict=True))


def branches(value: Any) -> dict[str, Any] | None:
    """A union of int, string and array: one field per branch."""
    if value is None:
        return None
    branch = "int" if isinstance(value, int) else "string" if isinstance(value, str) else "array"
    return {"int": None, "string": None, "array": None, branch: value}


def chain(value: Any) -> dict[str, Any]:
    text = None if value["next"] is None else json.dumps(link(value["next"]), separators=(",", ":"))
    return {"v": value["v"], "next": text}


def link(value: Any) -> Any:
    """Avro's JSON encoding of a record within itself."""
    return {"v": value["v"], "next": None if value["next"] is None else {"Chain": link(value["next"])}}


def line(value: Any) -> dict[str, Any]:
    return {
        "at": aware(value["at"]),
        "local": naive(value["local"] * 1000),
        "price": scaled(2)(value["price"]),
        "tags": Entries((name, words) for name, words in value["tags"].items()),
        "raw": value["raw"],
        "note": value["note"],
    }


def lines(value: Any) -> list[dict[str, Any]]:
    return [line(item) for item in value]


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "local", "type": logical("long", "local-timestamp-millis")},
        {"name": "price", "type": logical("bytes", "decimal", precision=12, scale=2)},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Chain"]}],
}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
}
A_LINE = {"at": -1, "local": 86_400_001, "price": unscaled(-199), "tags": {"k": ["", "é"]}, "raw": b"\0", "note": None}
LISTS = [[], [A_LINE], [A_LINE, {**A_LINE, "tags": {}, "note": "n"}]]
CHAINED = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
#: The last two are 0001-01-01 and 9999-12-31.
DAYS = [0, -1, 19_000, -719_162, 2_932_896]
MICROS_OF_DAY = [0, 1, 86_399_999_999]
NANOS = [0, -1, 2**63 - 1, -(2**63)]

COLUMNS = [
    Column("nothing", "null", [None]),
    Column("flag", "boolean", [True, False]),
    Column("small", "int", INTS),
    Column("large", "long", LONGS),
    Column("single", "float", FLOATS),
    Column("double", "double", DOUBLES),
    Column("raw", "bytes", BYTES),
    Column("four", fixed("Four", 4), [b"abcd", bytes(4)]),
    Column("text", "string", TEXTS),
    Column("suit", {"type": "enum", "name": "Suit", "symbols": ["CLUBS", "HEARTS"]}, ["CLUBS", "HEARTS"]),
    Column("inner", INNER, [{"a": 1, "b": "x"}, {"a": -1, "b": None}]),
    Column("empty", {"type": "record", "name": "Empty", "fields": []}, [{}], lambda _: True),
    Column("numbers", {"type": "array", "items": "long"}, [[], [1], [2**63 - 1, 0]]),
    Column(
        "scores",
        {"type": "map", "values": ["null", "double"]},
        [{}, {"": 0.5}, {"é": None, "b": -0.0}],
        lambda value: Entries(value.items()),
    ),
    Column("maybe", ["null", "string"], [None, "", "there"]),
    Column("only", ["long"], [7]),
    Column("several", ["null", "int", "string", {"type": "array", "items": "int"}], [None, 5, "five", [5]], branches),
    Column("chain", CHAIN, [{"v": 1, "next": None}, CHAINED], chain),
    Column(
        "lines", {"type": "array", "items": LINE}, [[], [A_LINE], [A_LINE, {**A_LINE, "tags": {}, "note": "n"}]], lines
    ),
    Column(
        "day", logical("int", "date"), [0, -1, 19_000, -719_162, 2_932_896], lambda n: date(1970, 1, 1) + timedelta(n)
    ),
    Column("time_ms", logical("int", "time-millis"), [0, 1, 86_399_999], lambda value: value * 1000),
    Column("time_us", logical("long", "time-micros"), MICROS_OF_DAY),
    Column("at_ms", logical("long", "timestamp-millis"), MILLIS, from_millis(aware)),
    Column("at_us", logical("long", "timestamp-micros"), MICROS, aware),
    Column("local_ms", logical("long", "local-timestamp-millis"), MILLIS, from_millis(naive)),
    Column("local_us", logical("long", "local-timestamp-micros"), MICROS, naive),
    Column("at_ns", logical("long", "timestamp-nanos"), NANOS),
    Column("local_ns", logical("long", "local-timestamp-nanos"), NANOS),
    Column(
        "price",
        logical("bytes", "decimal", precision=9, scale=2),
        [b"", *map(unscaled, (0, 1, -1, 999_999_999, -999_999_999)), b"\0\0\0\0\0\x07"],
        scaled(2),
    ),
    Column(
        "exact",
        logical(fixed("Exact", 17), "decimal", precision=38, scale=10),
        [unscaled(value, 17) for value in (0, 10**38 - 1, 1 - 10**38, -1)],
        scaled(10),
    ),
    Column(
        "huge",
        logical("bytes", "decimal", precision=50, scale=5),
        [unscaled(value) for value in (0, 10**50 - 1, -1)],
        lambda value: f"{scaled(5)(value):f}",
    ),
    Column("uuid_text", logical("string", "uuid"), [str(uuid.UUID(int=5)), "no uuid at all"]),
    Column(
        "uuid_bytes",
        logical(fixed("Uuid", 16), "uuid"),
        [uuid.UUID(int=2**100 + 7).bytes],
        lambda value: str(uuid.UUID(bytes=value)),
    ),
    Column("period", logical(fixed("Period", 12), "duration"), [bytes(12), b"\xff" * 12], duration),
    Column("odd", logical("int", "colour"), [16_711_680]),
]


def bare(kind: Any) -> Any:
    """The same type without what is logical about it: what fastavro is to write and read."""
    if isinstance(kind, list):
        return [bare(item) for item in kind]
    if not isinstance(kind, dict):
        return kind
    found = {key: value for key, value in kind.items() if key not in {"logicalType", "precision", "scale"}}
    for key in ("items", "values", "type"):
        if key in found:
            found[key] = bare(found[key])
    if "fields" in found:
        found["fields"] = [{**item, "type": bare(item["type"])} for item in found["fields"]]
    return found


def everything(fields: Sequence[Column]) -> Kind:
    """Records of these fields. Each value of each field comes, in changing company."""
    schema = {
        "type": "record",
        "name": "Everything",
        "fields": [{"name": one.name, "type": one.type} for one in fields],
    }
    parsed = fastavro.parse_schema(bare(schema))

    def encoded(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    def columns(value: bytes) -> dict[str, Any]:
        read: Any = fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
        return {one.name: one.column(read[one.name]) for one in fields}

    values = [encoded({one.name: one.values[number % len(one.values)] for one in fields}) for number in range(45)]
    return Kind("avro", json.dumps(schema), values, columns)


AVRO = everything(COLUMNS)
#: Without the field whose record lies within itself: values that their columns give back.
AVRO_WRITTEN = everything([one for one in COLUMNS if one.name != "chain"])
