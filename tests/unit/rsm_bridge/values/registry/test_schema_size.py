"""Schemas whose text is small and whose parts, used again and again, would take gigabytes or hours."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.model import Decoder, SchemaTextError
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.schema_size import PLACE_CHARS_MAX, SCHEMA_SIZE_MAX, SchemaSize, place_within
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema

MIB = 1024 * 1024
_LONG = "k" * 100_000
_NAME = "k" * 1_000


def _referred(definition: Any, count: int) -> str:
    """A JSON schema of `count` properties that are all this."""
    uses = {f"p{i}": {"$ref": "#/$defs/A"} for i in range(count)}
    return json.dumps({"$defs": {"A": definition}, "type": "object", "properties": uses})


def _record(name: str, fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"a{i}", "type": t} for i, t in enumerate(fields)]}


def _protobuf(text: str) -> Decoder:
    return protobuf_decoder(protobuf_schema(text), (0,))


_SYMBOLS = [f"S{i}" for i in range(20_000)]
_DOCUMENTED = {**_record("D", ["int"]), "fields": [{"name": "a", "type": "int", "doc": _LONG}]}
#: By what is used again: a decoder's maker and a text over the limit.
TOO_LARGE: dict[str, tuple[Callable[[str], Decoder], str]] = {
    "json descriptions": (json_decoder, _referred({"type": "string", "description": _LONG}, 200)),
    "json references": (
        json_decoder,
        json.dumps(
            {
                "$defs": {_LONG: {"type": "string"}, "A": {"$ref": f"#/$defs/{_LONG}"}},
                "properties": {f"p{i}": {"$ref": "#/$defs/A"} for i in range(200)},
            }
        ),
    ),
    "avro namespace": (
        avro_decoder,
        json.dumps(_record(f"{_NAME}.R", [{"type": "fixed", "name": f"f{i}", "size": 1} for i in range(20_000)])),
    ),
    "avro symbols": (
        avro_decoder,
        json.dumps(_record("R", [{"type": "enum", "name": "E", "symbols": _SYMBOLS}, *["E"] * 200])),
    ),
    "avro documentation": (avro_decoder, json.dumps(_record("R", [_DOCUMENTED, *["D"] * 200]))),
    "avro branches": (
        avro_decoder,
        json.dumps(
            _record("R", [_record("D", [["null", {"type": "fixed", "name": _NAME, "size": 1}]]), *["D"] * 20_000])
        ),
    ),
    "protobuf enum": (
        _protobuf,
        'syntax = "proto3"; enum E { '
        + "".join(f"{name} = {i};" for i, name in enumerate(_SYMBOLS))
        + " } message M { "
        + "".join(f"E e{i} = {i + 1};" for i in range(200))
        + " }",
    ),
}
#: The same where the text is used in messages alone: nothing is wrong with these schemas.
LONG_PLACES: dict[str, tuple[Callable[[str], Decoder], str]] = {
    "json place": (
        json_decoder,
        json.dumps({"$defs": {_LONG: {"anyOf": [{"type": "string"}] * 5000}}, "$ref": f"#/$defs/{_LONG}"}),
    ),
    "avro place": (
        avro_decoder,
        json.dumps({**_record("R", []), "fields": [{"name": _NAME, "type": _record("S", ["int"] * 2000)}]}),
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_what_is_used_again_counts_again(case: str) -> None:
    make, text = TOO_LARGE[case]
    with pytest.raises(SchemaTextError, match="counted where used") as raised:
        make(text)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "definition",
    [
        {"anyOf": [1] * 20_000},
        {"enum": ["a"] * 20_000},
        {"patternProperties": {f"{i}": True for i in range(20_000)}},
    ],
    ids=["alternatives", "constants", "patterns"],
)
def test_what_is_referred_to_is_looked_through_once(definition: Any) -> None:
    started = time.process_time()
    assert json_decoder(_referred(definition, 2000)).type.num_fields >= 2000
    assert time.process_time() - started < 5.0  # looked through for each use it takes half a minute


@pytest.mark.parametrize("case", LONG_PLACES)
def test_a_long_place_is_kept_short(case: str) -> None:
    make, text = LONG_PLACES[case]
    tracemalloc.start()
    try:
        make(text)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


def test_the_limit_is_the_last_size_that_is_taken() -> None:
    size = SchemaSize()
    size.add(SCHEMA_SIZE_MAX, "here")
    with pytest.raises(SchemaTextError, match=r"^here: "):
        size.add(1, "here")


def test_a_place_ends_with_its_last_part() -> None:
    assert place_within("#", "/properties/a") == "#/properties/a"
    assert place_within("x" * 1000 + "y", ".z").endswith("y.z")
    assert len(place_within(_LONG, _LONG)) == 2 * PLACE_CHARS_MAX


def test_usual_schemas_are_far_below() -> None:
    enum = {"type": "enum", "name": "E", "symbols": [f"SYMBOL_{i}" for i in range(300)]}
    assert avro_decoder(json.dumps(_record("com.example.R", [enum, *["E"] * 500]))).type.num_fields == 501
    described = {"type": "string", "description": "d" * 2000}
    assert json_decoder(_referred(described, 2000)).type.num_fields >= 2000


def _nested_arrays(depth: int) -> str:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return json.dumps(_record("R", [kind]))


def _nested_messages(depth: int) -> str:
    text = "".join(f"message M{i} {{ repeated M{i + 1} a = 1; }} " for i in range(depth))
    return f'syntax = "proto3"; {text} message M{depth} {{ int32 a = 1; }}'


def _nested_properties(depth: int) -> str:
    kind: Any = {"type": "integer"}
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return json.dumps({"type": "object", "properties": {"a": kind}})


@pytest.mark.parametrize(
    ("maker", "text", "most"),
    [(avro_decoder, _nested_arrays, 60), (_protobuf, _nested_messages, 39), (json_decoder, _nested_properties, 40)],
    ids=["avro", "protobuf", "json"],
)
def test_whatever_has_a_decoder_makes_files_that_can_be_read(
    maker: Callable[[str], Decoder], text: Callable[[int], str], most: int, tmp_path: Path
) -> None:
    """60 arrays within each other stopped their topic for ever: the file was written, and nobody could open it."""
    refused = 0
    for depth in range(1, most + 1):
        try:
            columns = maker(text(depth)).type
        except SchemaTextError:
            refused += 1
            continue
        pq.write_table(pa.table([pa.nulls(1, columns)], names=["in_a_struct"]), tmp_path / "file.parquet")
        assert pq.read_table(tmp_path / "file.parquet").num_rows == 1
    assert refused or maker is json_decoder
