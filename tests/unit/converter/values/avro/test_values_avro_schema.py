"""Schemas of Avro that can be used, and the message about those that cannot."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from converter.values.avro.decoder import avro_decoder
from converter.values.model import SchemaTextError
from tests.support.avro_values import rows_of


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(kind: Any, name: str = "a") -> dict[str, Any]:
    return {"name": name, "type": kind}


def nested(depth: int) -> Any:
    return {"type": "array", "items": nested(depth - 1)} if depth else "int"


def doubled(levels: int) -> Any:
    """A record that holds a record twice, and so on: 2^levels columns."""
    kind: Any = "null"
    for i in range(levels):
        inner = record(field(kind, "x"), field(f"L{i - 1}" if i else kind, "y"))
        kind = {**inner, "name": f"L{i}"}
    return kind


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "nested deeper than 64"),
        ("3", "3 is no type"),
        ("null", "None is no type"),
        ("[]", "a union without branches"),
        ('{"type": 5}', "'type' must be a text, not 5"),
        ("{}", "'type' must be a text, not None"),
        ('"Unknown"', "the type 'Unknown' is defined nowhere"),
        ('["int", "int"]', "a union with one type twice"),
        ('["int", {"type": ["null"]}]', "a union directly in a union"),
        ({"type": "array"}, "array without 'items'"),
        ({"type": "map"}, "map without 'values'"),
        ({"type": "record", "fields": []}, "'name' must be a text"),
        ({"type": "record", "name": "R"}, "record 'R' needs 'fields'"),
        ({"type": "record", "name": "R", "fields": [1]}, "record 'R' needs 'fields'"),
        (record({"name": "a"}), "the field 'a' has no type"),
        (record({"type": "int"}), "'name' must be a text"),
        (record(field("int"), field("long")), "has the field 'a' twice"),
        (record(field("Nowhere")), "schema: record 'R'.a: the type 'Nowhere' is defined nowhere"),
        (record(field({"type": "enum", "name": "R", "symbols": []})), "the type 'R' is defined twice"),
        ({"type": "enum", "name": "E"}, "enum 'E' needs 'symbols'"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "enum 'E' has a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", "x" * 1025]}, "enum 'E': 'xxx"),
        ({"type": "fixed", "name": "F", "namespace": "x" * 1024, "size": 1}, "has 1026 characters"),
        (record(field("int", "x" * 1_000_000)), "has 1000000 characters"),
        ({"type": "fixed", "name": "F"}, "fixed 'F' needs a size"),
        ({"type": "fixed", "name": "F", "size": -1}, "fixed 'F' needs a size"),
        ({"type": "fixed", "name": "F", "size": True}, "fixed 'F' needs a size"),
        (nested(66), "nested deeper than 64"),
        (record(*(field("int", f"f{i}") for i in range(10_001))), "more than 10000 fields"),
        (doubled(40), "more than 10000 fields"),
    ],
    ids=lambda one: str(one)[:50],
)
def test_what_is_no_schema_is_said(schema: Any, message: str) -> None:
    with pytest.raises(SchemaTextError) as caught:
        avro_decoder(schema if isinstance(schema, str) else json.dumps(schema))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_names_follow_their_namespace() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["X"]}
    uses = [field(inner, "a"), field("E", "b"), field("n.E", "c"), field({"type": "E"}, "d")]
    decoder = avro_decoder(json.dumps(record(*uses, namespace="n")))
    decoded = decoder.decode(pa.array([b"\0\0\0\0"], pa.binary()))
    assert rows_of(decoded.columns) == [dict.fromkeys("abcd", "X")]


def test_references_are_found_by_name_in_any_order() -> None:
    references = {
        "n.A": json.dumps({**record(field("B"), namespace="n"), "name": "A"}),
        "n.B": json.dumps(record(field("m.C"), namespace="n") | {"name": "B"}),
        "other": json.dumps({"type": "fixed", "name": "C", "namespace": "m", "size": 1}),
    }
    decoder = avro_decoder(json.dumps(record(field("n.A"))), references)
    decoded = decoder.decode(pa.array([b"x"], pa.binary()))
    assert decoded.columns.to_pylist() == [{"a": {"a": {"a": b"x"}}}]


def test_a_bad_reference_is_named() -> None:
    with pytest.raises(SchemaTextError, match=r"reference n\.A: no JSON"):
        avro_decoder(json.dumps(record(field("n.A"))), {"n.A": "{"})


def test_the_nearest_enclosing_use_is_the_recursive_one() -> None:
    """B within A within B: each is laid out once from where it is used."""
    a = {**record(field(["null", {**record(field(["null", "A"])), "name": "B"}])), "name": "A"}
    decoder = avro_decoder(json.dumps(record(field(a, "first"), field("B", "second"))))
    decoded = decoder.decode(pa.array([b"\2\2\0" + b"\2\2\0"], pa.binary()))
    assert decoded.columns.to_pylist() == [{"first": {"a": {"a": '{"a":null}'}}, "second": {"a": {"a": '{"a":null}'}}}]


def test_a_field_may_have_any_name() -> None:
    decoder = avro_decoder(json.dumps(record(field("int", "é ü"), field("int", "_kafka_offset"))))
    assert decoder.type.names == ["é ü", "_kafka_offset"]


def test_ten_thousand_fields_are_read() -> None:
    decoder = avro_decoder(json.dumps(record(*(field("int", f"f{i}") for i in range(10_000)))))
    decoded = decoder.decode(pa.array([b"\2" * 10_000], pa.binary()))
    assert set(decoded.columns.to_pylist()[0].values()) == {1}
