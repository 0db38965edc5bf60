"""Avro values that are damaged or hostile: refused one by one, quickly, and never to the cost of their neighbours."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from converter.values.avro.decoder import avro_decoder
from tests.support.avro_values import rows_of, zigzag

NODE = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}
NULLS = {"type": "array", "items": "null"}
INTS = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
MAPS = {"type": "array", "items": MAP}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
EDGE = {"type": "long", "logicalType": "timestamp-millis"}


def schema_of(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


def pair(*keys: str) -> bytes:
    """A map's block of these keys, each with 1."""
    return zigzag(len(keys)) + b"".join(zigzag(len(key.encode())) + key.encode() + b"\2" for key in keys) + b"\0"


def chain(length: int) -> bytes:
    return b"\2" * length + b"\0"


DAMAGE = [
    ("double", b"\0" * 7, "undecodable: the value ends too early, at a"),
    ("string", zigzag(4) + b"abc", "undecodable: the value ends too early, at a"),
    ("string", zigzag(2**62), "undecodable: the value ends too early, at a"),
    ("bytes", zigzag(2**63 - 1) + b"abc", "undecodable: the value ends too early, at a"),
    ("string", zigzag(-1), "undecodable: a negative length, at a"),
    ("bytes", zigzag(-(2**63)), "undecodable: a negative length, at a"),
    ("long", b"", "undecodable: a number does not end, at a"),
    ("long", b"\xff" * 10 + b"\1", "undecodable: a number does not end, at a"),
    ("int", zigzag(2**31), "undecodable: an int of more than 32 bits, at a"),
    ("int", zigzag(-(2**31) - 1), "undecodable: an int of more than 32 bits, at a"),
    ("boolean", b"\2", "undecodable: a boolean that is neither 0 nor 1, at a"),
    ("string", zigzag(2) + b"\xc3\x28", "undecodable: a string that is not UTF-8, at a"),
    ("string", zigzag(3) + b"\xed\xa0\x80", "undecodable: a string that is not UTF-8, at a"),
    (MAP, b"\2\2\xff\2\0", "undecodable: a string that is not UTF-8, at a"),
    (ENUM, zigzag(2), "undecodable: a symbol the enum does not have, at a"),
    (ENUM, zigzag(-1), "undecodable: a symbol the enum does not have, at a"),
    (["null", "int"], zigzag(2), "undecodable: a branch the union does not have, at a"),
    (["null", "int"], zigzag(-1), "undecodable: a branch the union does not have, at a"),
    (["int", "long", "null"], zigzag(3), "undecodable: a branch the union does not have, at a"),
    (["int", "long", "null"], zigzag(-1), "undecodable: a branch the union does not have, at a"),
    (INTS, zigzag(2**60) + b"\0\0", "undecodable: the value ends too early, at a"),
    (INTS, zigzag(-(2**63)) + b"\0\0", "undecodable: an impossible count or size of a block, at a"),
    (INTS, zigzag(-1) + zigzag(-1) + b"\0\0", "undecodable: an impossible count or size of a block, at a"),
    (INTS, b"\2\0", "undecodable: a number does not end, at a"),
    ("int", b"\0\0", "undecodable: bytes after the value's end"),
    ("null", b"\0", "undecodable: bytes after the value's end"),
    (MAP, pair("k", "l", "k"), "undecodable: a map with a key twice"),
    (MAP, pair(*(f"k{i}" for i in range(100)), "k7"), "undecodable: a map with a key twice"),
    (MAP, b"\2\2k\2\2\2k\2\0", "undecodable: a map with a key twice"),
    (
        MAPS,
        zigzag(2) + pair("k") + pair("k", "k") + b"\0",
        "undecodable: a map with a key twice",
    ),
    (NULLS, zigzag(2**60) + b"\0", "out_of_range: more items that take no bytes than the value has bytes, at a"),
    (NULLS, zigzag(28) + b"\0", "out_of_range: more items that take no bytes than the value has bytes, at a"),
    (NULLS, b"\x16" * 40 + b"\0", "out_of_range: more items that take no bytes than the value has bytes, at a"),
    (EDGE, zigzag(2**62), "out_of_range: a timestamp beyond 64 bits of microseconds, at a"),
]


@pytest.mark.parametrize(("kind", "value", "text"), DAMAGE, ids=lambda one: str(one)[:40])
def test_damage_is_named_and_stays_in_its_row(kind: Any, value: bytes, text: str) -> None:
    if kind in ("null", ENUM, ["null", "int"], ["int", "long", "null"]):
        good = b"" if kind == "null" else b"\0" + b"\0" * (kind == ["int", "long", "null"])
    else:
        good = {"double": b"\0" * 8}.get(kind, b"\0") if isinstance(kind, str) else b"\0"
    decoder = avro_decoder(schema_of(kind))
    decoded = decoder.decode(pa.array([good, value, good], pa.binary()))
    decoded.columns.validate(full=True)
    assert decoded.errors.to_pylist() == [None, text, None]
    [expected] = rows_of(decoder.decode(pa.array([good], pa.binary())).columns)
    assert rows_of(decoded.columns) == [expected, None, expected]


def test_a_dead_row_is_null_in_every_column_beneath() -> None:
    decoded = avro_decoder(schema_of("long")).decode(pa.array([b"\2", b""], pa.binary()))
    assert decoded.columns.field("a").to_pylist() == [1, None]


def test_fields_of_a_null_record_are_null() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}
    decoded = avro_decoder(schema_of(["null", inner])).decode(pa.array([b"\2\2", b"\0"], pa.binary()))
    assert decoded.columns.field("a").field("x").to_pylist() == [1, None]


def test_what_is_legal_but_not_usual_is_read() -> None:
    padded = b"\x82\x80\x80\x80\x80\x80\x80\x80\x80\x00"
    decoded = avro_decoder(schema_of("int")).decode(pa.array([padded], pa.binary()))
    assert rows_of(decoded.columns) == [{"a": 1}]
    blocks = zigzag(-2) + zigzag(99) + b"\2\4" + b"\2\6" + b"\0"
    assert rows_of(avro_decoder(schema_of(INTS)).decode(pa.array([blocks], pa.binary())).columns) == [{"a": [1, 2, 3]}]
    items = zigzag(17) + b"\0"  # 16, and one for each of the two bytes
    decoded = avro_decoder(schema_of(NULLS)).decode(pa.array([items], pa.binary()))
    assert rows_of(decoded.columns) == [{"a": [None] * 17}]


def test_a_record_within_itself_is_json_until_it_is_too_deep() -> None:
    decoder = avro_decoder(json.dumps(NODE))
    decoded = decoder.decode(pa.array([b"\0", chain(1), chain(3), chain(100), chain(101), b"\2" * 1000], pa.binary()))
    values = rows_of(decoded.columns)
    assert values[:3] == [{"a": None}, {"a": '{"a":null}'}, {"a": '{"a":{"R":{"a":{"R":{"a":null}}}}}'}]
    assert values[3]["a"].count("{") == 199
    assert values[4:] == [None, None]
    assert [text and text.partition(",")[0] for text in decoded.errors.to_pylist()] == [
        *[None] * 4,
        *["out_of_range: nested too deep"] * 2,
    ]


def test_a_record_that_has_no_end_has_no_values() -> None:
    endless = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}, {"name": "b", "type": "R"}]}
    decoded = avro_decoder(json.dumps(endless)).decode(pa.array([b"", b"\0" * 50], pa.binary()))
    assert decoded.columns.null_count == 2


def test_hostile_values_take_no_time() -> None:
    values = [zigzag(2**60) + b"\0", zigzag(-(2**60)) + b"\0", b"\x16" * 1000, b"\2" * 1000, b"\xff" * 1000]
    schemas = [schema_of(NULLS), schema_of(INTS), json.dumps(NODE), schema_of("string")]
    decoders = [avro_decoder(schema) for schema in schemas]
    decoders[0].decode(pa.array([b"\0"], pa.binary()))  # compiled, or loaded
    start = time.monotonic()
    for decoder in decoders:
        decoder.decode(pa.array(values * 200, pa.binary()))
    assert time.monotonic() - start < 5


def test_slices_and_nothing_at_all() -> None:
    decoder = avro_decoder(schema_of("string"))
    values = pa.array([b"\2" + bytes([letter]) for letter in b"abcdef"], pa.binary())
    assert rows_of(decoder.decode(values.slice(2, 3)).columns) == [{"a": "c"}, {"a": "d"}, {"a": "e"}]
    for empty in (values.slice(6), pa.array([], pa.binary())):
        decoded = decoder.decode(empty)
        assert (len(decoded.columns), len(decoded.errors), decoded.columns.type) == (0, 0, decoder.type)
    nothing = avro_decoder(schema_of("null")).decode(pa.array([b"", b""], pa.binary()))
    assert rows_of(nothing.columns) == [{"a": None}] * 2


def test_one_decoder_in_many_threads() -> None:
    decoder = avro_decoder(schema_of(MAP))
    values = pa.array([pair(*(f"{i}-{k}" for k in range(i % 5))) for i in range(2000)], pa.binary())
    expected = decoder.decode(values).columns
    results: list[pa.StructArray] = []
    threads = [threading.Thread(target=lambda: results.append(decoder.decode(values).columns)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
