"""Which values need no bytes, and their way back: the functions that copies and fetches share."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
import zstandard

from converter.batches.rows import var_bytes
from converter.errors import SegmentError
from converter.parquet.columns import RAW_VALUE, row_schema, value_fields
from converter.types import Int64Array
from converter.values.avro.decoder import avro_decoder
from converter.values.by_writer import Parted, Route, Writer, columns_of, parted_by_id
from converter.values.model import Encoding
from converter.values.proof import prover as prover_module
from converter.values.proof.proven import moved, pack_proven, stored_size, unpack_proven
from converter.values.proof.prover import ValueProver
from converter.values.proof.restore import restored
from converter.values.rows import by_name, typed_rows
from iceberg_catalog.evolve.evolve import bind, evolve
from iceberg_catalog.evolve.names import Sources
from iceberg_catalog.evolve.types import typed_row_schema, value_columns
from iceberg_catalog.tables.schema import table_schema

ORDER = {"id": "int", "who": ["null", "string"], "at": {"type": "record", "name": "At", "fields": [
    {"name": "n", "type": {"type": "array", "items": "int"}}]}}  # fmt: skip
WIDER = {"id": "long", "paid": "boolean"}


class Topic:
    """A table that has taken some Avro schemas, by the registry's id, and a prover for one copy into it."""

    def __init__(self, *schemas: dict[str, Any], incompatible: str = "new-column") -> None:
        self.schemas = [json.dumps({"type": "record", "name": "Order", "fields": [
            {"name": name, "type": kind} for name, kind in fields.items()]}) for fields in schemas]  # fmt: skip
        decoders = [avro_decoder(text) for text in self.schemas]
        table, sources = table_schema("raw"), Sources()
        for made in decoders:
            step = evolve(table, sources, made.type, last_field_id=table.highest_field_id, properties={},
                          incompatible="new-column" if incompatible == "new-column" else "dead-letter")  # fmt: skip
            table, sources = step.schema, step.sources
        self.rows_schema, self.types = typed_row_schema(table), value_columns(table)
        self.routes: dict[Writer, Route | str] = {}
        for number, made in enumerate(decoders, start=1):
            bound = bind(table, sources, made.type)
            self.routes[Writer(number)] = "incompatible_schema: no" if bound is None else Route(made, bound)
        self.prover = ValueProver()

    def value(self, number: int, fields: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(self.schemas[number - 1])), fields)
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()

    def proved(self, values: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Int64Array | None]:
        """The rows as they are written, and their encoders."""
        stored = pa.array(values, pa.binary())
        plain = row_schema("raw")
        filled: dict[str, pa.Array] = {
            "_kafka_partition": pa.array([0] * len(values), pa.int32()),
            "_kafka_offset": pa.array(range(len(values)), pa.int64()),
            RAW_VALUE: stored,
            "_kafka_value_size": pa.array([None if v is None else len(v) for v in values], pa.int32()),
        }
        arrays = [filled.get(field.name, pa.nulls(len(values), field.type)) for field in plain]
        rows = pa.RecordBatch.from_arrays(arrays, schema=plain)
        parted: Parted = parted_by_id(stored, lambda _: ())
        decoded = columns_of(parted, self.routes, self.types)
        return self.prover.prove(typed_rows(rows, self.rows_schema, by_name(decoded.columns), decoded.errors),
                                 parted, self.routes, self.types)  # fmt: skip

    def back(self, rows: pa.RecordBatch, encoders: Int64Array, packed: bytes | None = None) -> list[bytes | None]:
        proven = unpack_proven(self.prover.packed(self.rows_schema) if packed is None else packed)
        columns = rows.select(value_fields(rows.schema).names).to_struct_array()
        sizes = rows.column("_kafka_value_size").fill_null(0).to_numpy().astype(np.int64)
        found = restored(var_bytes(rows.column(RAW_VALUE)), encoders, sizes, columns, proven)
        return [bytes(found.data[found.offsets[i] : found.offsets[i + 1]]) if found.valid[i] else None
                for i in range(len(found))]  # fmt: skip


def order(topic: Topic, n: int) -> bytes:
    return topic.value(1, {"id": n, "who": None if n % 3 else "x" * n, "at": {"n": [n] * (n % 4)}})


def test_values_of_two_schemas_and_others_come_back() -> None:
    topic = Topic(ORDER, WIDER)
    wide = topic.value(2, {"id": -(2**40), "paid": True})
    values = [order(topic, 1), wide, None, b"bare", order(topic, 6), b"", wide, b"\0\0\0\0\x01"]
    rows, encoders = topic.proved(values)
    assert encoders is not None
    assert encoders.tolist() == [1, 2, 0, 0, 1, 0, 2, 0]
    assert rows.column(RAW_VALUE).to_pylist() == [None, None, None, b"bare", None, b"", None, b"\0\0\0\0\x01"]
    assert topic.back(rows, encoders) == values
    assert topic.prover.rows == 4


def test_only_the_exact_bytes_count() -> None:
    """Each of these decodes to the columns of an ordinary value of as many bytes, or fewer."""
    topic = Topic({"id": "int", "name": "string"})
    head = b"\0\0\0\0\x01"
    usual = topic.value(1, {"id": 64, "name": "ab"})
    assert usual == head + b"\x80\x01\x04ab"
    odd = [head + b"\x02\x84\x00ab", head + b"\x80\x81\x00\x04ab", usual + b"!"]
    rows, encoders = topic.proved([usual, *odd])
    assert encoders is not None
    assert encoders.tolist() == [1, 0, 0, 0]
    assert rows.column(RAW_VALUE).to_pylist() == [None, *odd]


def test_as_many_bytes_are_not_the_same_bytes() -> None:
    """A float that is no number loses its signalling bit on the way to a double and back."""
    topic = Topic({"x": "float"})
    head = b"\0\0\0\0\x01"
    quiet, signalling = head + b"\x01\x00\xc0\x7f", head + b"\x01\x00\x80\x7f"
    rows, encoders = topic.proved([quiet, signalling])
    assert encoders is not None
    assert encoders.tolist() == [1, 0]
    assert topic.back(rows, encoders) == [quiet, signalling]


def test_where_nothing_is_proven_nothing_is_said() -> None:
    topic = Topic(ORDER)
    rows, encoders = topic.proved([b"bare", None])
    assert encoders is None
    assert rows.column(RAW_VALUE).to_pylist() == [b"bare", None]
    assert topic.prover.packed(topic.rows_schema) == b""


def test_a_field_without_a_column_keeps_all_bytes() -> None:
    topic = Topic({"id": "int"}, {"id": "string"}, incompatible="dead-letter")
    texts = [topic.value(2, {"id": "a"}), topic.value(1, {"id": 1})]
    rows, encoders = topic.proved(texts)
    assert encoders is not None
    assert encoders.tolist() == [0, 1]
    assert rows.column(RAW_VALUE).to_pylist() == [texts[0], None]


def test_there_is_an_end_to_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover_module, "ENCODINGS_MAX", 1)
    topic = Topic(ORDER, WIDER)
    _, encoders = topic.proved([topic.value(2, {"id": 1, "paid": True}), order(topic, 1), order(topic, 2)])
    assert encoders is not None
    assert encoders.tolist() == [0, 1, 1]


def test_what_the_index_could_not_say_again_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy whose index nobody reads is a copy that nobody can fetch."""
    large: dict[str, Any] = {**ORDER, "at": {**ORDER["at"], "doc": "x" * 3000}}  # type: ignore[dict-item]
    topic = Topic(large, WIDER)
    monkeypatch.setattr(prover_module, "ENCODINGS_BYTES_MAX", 3000)
    values = [order(topic, 1), topic.value(2, {"id": 1, "paid": True})]
    rows, encoders = topic.proved(values)
    assert encoders is not None
    assert encoders.tolist() == [0, 1]
    assert topic.back(rows, encoders) == values


def test_a_schema_with_half_a_character_keeps_its_bytes() -> None:
    topic = Topic(ORDER)
    topic.proved([order(topic, 1)])
    (encoding,) = topic.prover._encodings
    assert stored_size(encoding) is not None
    parameters = {**encoding.encoding.parameters, "schema": '{"note": "\ud800"}'}
    assert stored_size(replace(encoding, encoding=replace(encoding.encoding, parameters=parameters))) is None


def test_an_index_that_would_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(ORDER)
    rows, _ = topic.proved([order(topic, 1)])
    monkeypatch.setattr("converter.values.proof.proven.PROVEN_BYTES_MAX", 100)
    unpack_proven.cache_clear()
    with pytest.raises(ValueError, match="the index would not say how values are encoded"):
        topic.prover.packed(rows.schema)


def test_a_writer_whose_values_never_come_back_is_tried_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover_module, "TRIED_VALUES", 10)
    topic = Topic({"id": "int"}, WIDER)
    padded, usual, other = b"\0\0\0\0\x01\x82\x00", topic.value(1, {"id": 1}), topic.value(2, {"id": 1, "paid": True})
    for values, wanted in (
        ([padded] * 8 + [usual], [0] * 8 + [1]),
        ([padded] * 9 + [other], [0] * 9 + [2]),
        ([usual, other], [0, 2]),
    ):
        _, encoders = topic.proved(values)
        assert encoders is not None
        assert encoders.tolist() == wanted


def test_a_file_with_other_columns_gives_the_same_values() -> None:
    """As after a merge: columns in another order, widened since, and others beside them."""
    topic = Topic(ORDER)
    values = [order(topic, n) for n in range(50)]
    rows, encoders = topic.proved(list(values))
    assert encoders is not None
    later = Topic(ORDER, WIDER).rows_schema
    taken = {field.name: rows.column(field.name) for field in rows.schema}
    arrays = [taken[f.name].cast(f.type) if f.name in taken else pa.nulls(50, f.type) for f in later]
    merged = pa.RecordBatch.from_arrays(arrays[::-1], schema=pa.schema(list(later)[::-1]))
    packed = moved(topic.prover.packed(topic.rows_schema), merged.schema)
    assert unpack_proven(packed).schema.names == value_fields(merged.schema).names
    assert topic.back(merged, encoders, packed) == values


def test_a_column_that_is_gone_gives_no_wrong_value() -> None:
    topic = Topic(ORDER)
    values = [order(topic, n) for n in range(9)]
    rows, encoders = topic.proved(list(values))
    assert encoders is not None
    less = rows.drop_columns(["who"])
    assert [value for value in topic.back(less, encoders) if value is not None] == [
        v for n, v in enumerate(values) if n % 3
    ]


def test_what_an_index_may_not_say() -> None:
    topic = Topic(ORDER)
    rows, encoders = topic.proved([order(topic, 1)] * 2)
    assert encoders is not None
    with pytest.raises(SegmentError, match="no encoding 3"):
        topic.back(rows, encoders + 2)
    with pytest.raises(SegmentError, match="not of the same rows"):
        topic.back(rows, encoders[:1])
    good = unpack_proven(topic.prover.packed(topic.rows_schema))
    (one,) = good.encodings
    for other, kind in ((Encoding("avro", 99, {}), "unsupported_version"), (Encoding("avro", 1, {}), "corrupt_object")):
        with pytest.raises(SegmentError) as raised:
            unpack_proven(pack_proven(topic.rows_schema, [replace(one, encoding=other)]))
        assert raised.value.kind == kind
    for packed in (b"", b"x" * 40, topic.prover.packed(topic.rows_schema)[:-3]):
        with pytest.raises(SegmentError, match="how values are encoded"):
            unpack_proven(packed)


def _with(text: dict[str, Any], **fields: object) -> bytes:
    return zstandard.compress(json.dumps({**text, **fields}).encode())


def test_each_damage_to_what_an_index_says_is_the_documented_error() -> None:
    schema = bytearray(pa.schema([("a", pa.int64())]).serialize().to_pybytes())
    columns = base64.b64encode(schema).decode("ascii")
    item = {"header": "", "kind": "avro", "version": 1, "parameters": {}, "columns": columns}
    text = {"schema": columns, "encodings": [item]}
    schema[8:40] = b"\xff" * 32  # an Arrow schema whose flatbuffer is not one
    damaged = [
        _with(text, schema=base64.b64encode(schema).decode("ascii")),
        _with(text, schema=5),
        _with(text, encodings={}),
        _with(text, encodings=[{**item, "version": 1e999}]),
        _with(text, encodings=[{**item, "version": True}]),
        _with(text, encodings=[{**item, "parameters": {"schema": 5}}]),
        _with(text, encodings=[{**item, "kind": "\ud800"}]),
        zstandard.compress(b"[" * 100_000),
    ]
    for packed in damaged:
        with pytest.raises(SegmentError, match="how values are encoded") as raised:
            unpack_proven(packed)
        assert raised.value.kind == "corrupt_object"


def test_damaged_sizes_are_an_error_or_no_value() -> None:
    topic = Topic(ORDER)
    rows, encoders = topic.proved([order(topic, n) for n in range(6)])
    assert encoders is not None
    place = rows.schema.get_field_index("_kafka_value_size")
    for size, wanted in ((-5, None), (2**31 - 1, None), (3, [None] * 6), (0, [None] * 6)):
        sizes = pa.array([size] * 6, pa.int32())
        damaged = rows.set_column(place, rows.schema.field(place), sizes)
        if wanted is None:
            with pytest.raises(SegmentError, match="not to be believed"):
                topic.back(damaged, encoders)
        else:
            assert topic.back(damaged, encoders) == wanted
