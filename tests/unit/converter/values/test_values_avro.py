"""Avro's types, one by one: docs/types.md, section Avro."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from converter.values.avro.decoder import avro_decoder
from converter.values.avro.logical import logical_of
from converter.values.model import ALIASES, DOC, Decoded
from tests.support.avro_values import rows_of, zigzag


def record(kind: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]})


def decode(kind: Any, *values: bytes) -> Decoded:
    decoded = avro_decoder(record(kind)).decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert [one is None for one in decoded.errors.to_pylist()] == decoded.columns.is_valid().to_pylist()
    return decoded


def column(kind: Any, *values: bytes) -> list[Any]:
    """Column `a` of values that are all good."""
    decoded = decode(kind, *values)
    assert decoded.errors.null_count == len(values)
    return [row["a"] for row in rows_of(decoded.columns)]


def error(kind: Any, value: bytes) -> str:
    [text] = decode(kind, value).errors.to_pylist()
    assert text is not None
    return str(text)


def column_type(kind: Any) -> pa.DataType:
    return avro_decoder(record(kind)).type.field("a").type


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return zigzag(len(data)) + data


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
EMPTY = {"type": "record", "name": "Z", "fields": []}
POINT = {"type": "record", "name": "n.P", "fields": [{"name": "x", "type": "int"}]}


TYPES: list[tuple[Any, pa.DataType, bytes, Any]] = [
    ("null", pa.string(), b"", None),
    ("boolean", pa.bool_(), b"\1", True),
    ("int", pa.int32(), zigzag(-(2**31)), -(2**31)),
    ("long", pa.int64(), zigzag(2**63 - 1), 2**63 - 1),
    ("float", pa.float64(), b"\0\0\xc0\x3f", 1.5),
    ("double", pa.float64(), b"\0\0\0\0\0\0\xf8\x3f", 1.5),
    ("bytes", pa.binary(), text(b"\xff\0"), b"\xff\0"),
    ("string", pa.string(), text("é"), "é"),
    (ENUM, pa.string(), zigzag(1), "B"),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), b"abc", b"abc"),
    (EMPTY, pa.bool_(), b"", True),
    (logical("int", "date"), pa.date32(), zigzag(-719162), -719162),
    (logical("int", "time-millis"), pa.int64(), zigzag(86399999), 86399999000),
    (logical("long", "time-micros"), pa.int64(), zigzag(86399999999), 86399999999),
    (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), zigzag(-1), -1000),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), zigzag(-(2**63)), -(2**63)),
    (logical("long", "local-timestamp-millis"), pa.timestamp("us"), zigzag(5), 5000),
    (logical("long", "local-timestamp-micros"), pa.timestamp("us"), zigzag(5), 5),
    (logical("long", "timestamp-nanos"), pa.int64(), zigzag(5), 5),
    (logical("long", "local-timestamp-nanos"), pa.int64(), zigzag(5), 5),
    (logical("string", "uuid"), pa.string(), text("No uuid"), "No uuid"),
    (
        logical("fixed", "uuid", name="U", size=16),
        pa.string(),
        bytes(range(0xF0, 0x100)),
        "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff",
    ),
    (
        logical("fixed", "duration", name="D", size=12),
        pa.struct([("months", pa.int64()), ("days", pa.int64()), ("millis", pa.int64())]),
        b"\1\0\0\0" + b"\2\0\0\0" + b"\xff\xff\xff\xff",
        {"months": 1, "days": 2, "millis": 2**32 - 1},
    ),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\4\2\4\0", [1, 2]),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), b"\2\2k\4\0", [("k", 2)]),
    (POINT, pa.struct([("x", pa.int32())]), b"\6", {"x": 3}),
    (["null", "int"], pa.int32(), b"\2\6", 3),
    (["int", "null"], pa.int32(), b"\2", None),
    (["int"], pa.int32(), b"\0\6", 3),
    (["null"], pa.string(), b"\0", None),
]


@pytest.mark.parametrize(("kind", "expected", "encoded", "value"), TYPES, ids=str)
def test_every_type(kind: Any, expected: pa.DataType, encoded: bytes, value: Any) -> None:
    assert column_type(kind) == expected
    assert column(kind, encoded, encoded) == [value, value]


NOT_OPTIONAL = [one for one in TYPES if one[0] != "null" and not isinstance(one[0], list)]


@pytest.mark.parametrize(("kind", "expected", "encoded", "value"), NOT_OPTIONAL, ids=str)
def test_every_type_as_option_item_and_map_value(kind: Any, expected: pa.DataType, encoded: bytes, value: Any) -> None:
    assert column_type(["null", kind]) == expected
    assert column(["null", kind], b"\2" + encoded, b"\0", b"\2" + encoded) == [value, None, value]
    assert column([kind, "null"], b"\2", b"\0" + encoded) == [None, value]
    items = {"type": "array", "items": ["null", kind]}
    assert column(items, b"\0", b"\4\2" + encoded + b"\0\0") == [[], [value, None]]
    values = {"type": "map", "values": kind}
    assert column(values, b"\2\2k" + encoded + b"\0") == [[("k", value)]]


def decimal_of(precision: int, scale: int = 0) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


@pytest.mark.parametrize("precision", [1, 2, 18, 19, 38, 39, 60])
def test_decimals_are_exact_to_their_precision_and_refused_beyond(precision: int) -> None:
    scale = precision // 2
    largest = 10**precision - 1
    size = largest.bit_length() // 8 + 1
    fixed = {**decimal_of(precision, scale), "type": "fixed", "name": "F", "size": size + 2}
    for number in (0, 1, -1, largest, -largest):
        exact = Decimal(f"{number}e-{scale}")
        value = exact if precision <= 38 else f"{exact:f}"
        for width in (size, size + 1, size + 20):  # leading bytes only repeat the sign
            data = number.to_bytes(width, "big", signed=True)
            assert column(decimal_of(precision, scale), text(data)) == [value]
        assert column(fixed, number.to_bytes(size + 2, "big", signed=True)) == [value]
    for number in (largest + 1, -largest - 1, 256**size, -(256**size)):
        data = number.to_bytes(size + 2, "big", signed=True)
        for kind, encoded in ((decimal_of(precision, scale), text(data)), (fixed, data)):
            assert error(kind, encoded) == "out_of_range: a decimal with more digits than its type, at a"


@pytest.mark.parametrize("size", range(17))
def test_a_fixed_decimal_has_no_more_digits_than_its_bytes_hold(size: int) -> None:
    for precision in range(1, 42):
        named = logical_of(decimal_of(precision), "fixed", size)
        assert (named is not None) == (10**precision - 1 < 2 ** max(8 * size - 1, 0))


def test_a_fixed_decimal_of_gigabytes_takes_none() -> None:
    tracemalloc.start()
    try:
        avro_decoder(record({**decimal_of(5), "type": "fixed", "name": "F", "size": 2**31 - 1}))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_decimal_types_and_small_values() -> None:
    assert column_type(decimal_of(38, 10)) == pa.decimal128(38, 10)
    assert column_type(decimal_of(39, 10)) == pa.string()
    assert column(decimal_of(40, 10), text(b"\1")) == ["0.0000000001"]
    assert column(decimal_of(4, 2), text(b"")) == [Decimal("0.00")]


@pytest.mark.parametrize(
    "kind",
    [
        decimal_of(0),
        decimal_of(4, 5),
        decimal_of(4, -1),
        decimal_of(4001),
        logical("bytes", "decimal"),
        logical("bytes", "decimal", precision="4"),
        logical("bytes", "uuid"),
        logical("bytes", "big-decimal"),
    ],
    ids=str,
)
def test_a_logical_type_that_is_not_valid_is_ignored(kind: Any) -> None:
    assert column_type(kind) == pa.binary()


def test_a_logical_type_of_another_size_or_type_is_ignored() -> None:
    for name, size in (("uuid", 15), ("duration", 11), ("decimal", 1)):
        kind = logical("fixed", name, name="F", size=size, precision=3)
        assert column_type(kind) == pa.binary()
    assert column_type(logical("long", "date")) == pa.int64()
    assert column_type(logical("int", "timestamp-millis")) == pa.int32()


def test_timestamps_beyond_microseconds_are_out_of_range() -> None:
    edge = (2**63 - 1) // 1000
    kind = logical("long", "timestamp-millis")
    assert column(kind, zigzag(edge), zigzag(-edge)) == [edge * 1000, -edge * 1000]
    for value in (edge + 1, -edge - 1, 2**63 - 1, -(2**63)):
        assert error(kind, zigzag(value)).startswith("out_of_range: a timestamp beyond")


def test_unions_are_structs_of_optional_branches() -> None:
    kind = ["int", "null", "string", POINT, {"type": "array", "items": "long"}, "long"]
    assert column_type(kind).names == ["int", "string", "P", "array", "long"]
    nothing = dict.fromkeys(["int", "string", "P", "array", "long"])
    assert column(kind, b"\0\2", b"\2", b"\4" + text("s"), b"\6\4", b"\x08\2\2\0", b"\x0a\2") == [
        {**nothing, "int": 1},
        None,
        {**nothing, "string": "s"},
        {**nothing, "P": {"x": 2}},
        {**nothing, "array": [1]},
        {**nothing, "long": 1},
    ]


def test_union_branches_of_one_name_have_full_names() -> None:
    other = {**POINT, "name": "m.P"}
    assert column_type([POINT, other, ENUM]).names == ["n.P", "m.P", "E"]


def test_what_is_no_record_is_the_field_value() -> None:
    for schema, encoded, value in (
        ('"string"', text("x"), "x"),
        ('["null", "long"]', b"\0", None),
        (json.dumps(EMPTY), b"", True),
        (json.dumps(["null", POINT]), b"\2\2", {"x": 1}),
    ):
        decoded = avro_decoder(schema).decode(pa.array([encoded], pa.binary()))
        assert decoded.columns.to_pylist() == [{"value": value}]


def test_aliases_and_doc_are_metadata() -> None:
    field = avro_decoder(record("int", aliases=["old", "older"], doc="né")).type.field("a")
    assert field.metadata == {ALIASES: b'["old", "older"]', DOC: "né".encode()}
