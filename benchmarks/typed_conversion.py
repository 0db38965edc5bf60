"""Typed copies as the bridge makes them, without servers: the table is a schema, and the registry one decoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.conversion import Columns
from benchmarks.payloads import Records
from benchmarks.segments import BATCH_BYTES, Segment, build_segment
from benchmarks.typed_payloads import Form, packed, schema_text, split_name
from converter.limits import STEP_BYTES
from converter.parquet.columns import RAW_VALUE
from converter.segment.writer import TypedPiece
from converter.values.allowance import Allowance
from converter.values.avro.decoder import avro_decoder
from converter.values.by_writer import Route, Writer, parted_by_id
from converter.values.json.decoder import json_decoder
from converter.values.model import Decoder
from converter.values.proof.prover import ValueProver
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.rows import made_in_pieces
from iceberg_catalog.evolve.evolve import bind, evolve
from iceberg_catalog.evolve.names import Sources
from iceberg_catalog.evolve.types import key_columns, typed_row_schema, value_columns
from iceberg_catalog.tables.schema import table_schema
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from rsm_bridge.values.typed.inferred import Part
from rsm_bridge.values.typed.table import Given, Routes, TableColumns

_SCHEMA_ID = 7
_PROTOBUF_PATH = (0,)
_HEADER = b"\0" + struct.pack(">I", _SCHEMA_ID)


def decoder(payload: str) -> Decoder:
    """The decoder of a typed payload's schema."""
    form, _ = split_name(payload)
    text = schema_text(payload)
    if form == "avro":
        return avro_decoder(text)
    if form == "json":
        return json_decoder(text)
    return protobuf_decoder(protobuf_schema(text), _PROTOBUF_PATH)


def steps(values: Sequence[bytes]) -> list[pa.BinaryArray]:
    """Values in arrays as large as the steps of a conversion: what a decoder gets in one call."""
    ends = np.cumsum([len(value) for value in values])
    bounds = np.searchsorted(ends, np.arange(STEP_BYTES, int(ends[-1]), STEP_BYTES)).tolist()
    starts = [0, *bounds]
    stops = [*bounds, len(values)]
    return [pa.array(values[first:last], pa.binary()) for first, last in zip(starts, stops, strict=True)]


def framed(values: Sequence[bytes], form: Form) -> Records:
    """Values with the header of a registry's wire format."""
    header = _HEADER + b"\0" if form == "protobuf" else _HEADER
    return packed([header + value for value in values])


def typed_segment(payload: str, values: Sequence[bytes], codec: str = "none", batch: str = "16k") -> Segment:
    """A segment of these values in wire format."""
    form, _ = split_name(payload)
    return build_segment(payload, framed(values, form), codec, BATCH_BYTES[batch])


@dataclass(slots=True)
class TypedColumns:
    """What a copy does with its rows: values by schema id, decoded, in the columns of the topic's table, and proven."""

    routes: Routes
    is_protobuf: bool
    prover: ValueProver | None
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def proven(self) -> bool:
        """See CopyColumns."""
        return self.prover is not None

    @property
    def encodings(self) -> bytes:
        """See CopyColumns."""
        return b"" if self.prover is None else self.prover.packed(self.routes.columns.rows)

    def rows(self, rows: pa.RecordBatch) -> Iterator[TypedPiece]:
        """See CopyColumns."""
        yield from made_in_pieces(rows, self.routes.columns.rows, self._piece, self.allowance)

    def _piece(self, rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> TypedPiece:
        values = parted_by_id(rows.column(RAW_VALUE), lambda ids: ids if self.is_protobuf else ())
        made = self.routes.rows(rows, Given({"value": values}), cells_max, allowance)
        if self.prover is None:
            return TypedPiece(made)
        routes = {writer: route for (_, writer), route in self.routes.of.items()}
        return TypedPiece(*self.prover.prove(made, values, routes, self.routes.columns.types["value"]))


def columns_for(payload: str, made: Decoder, *, proven: bool = False) -> Columns:
    """What gives a copy its columns; `proven`: values are in them alone where they give them back.

    Raises:
        ValueError: no table can have these columns.
    """
    table = _table(made)
    bound = bind(table.schema, table.sources, made.type)
    if bound is None:
        raise ValueError(f"{payload}: the table cannot take the schema")
    is_protobuf = split_name(payload)[0] == "protobuf"
    writer = Writer(_SCHEMA_ID, _PROTOBUF_PATH if is_protobuf else ())
    routes = Routes(table, {("value", writer): Route(made, bound)})
    return lambda: TypedColumns(routes, is_protobuf, ValueProver() if proven else None)


def _table(made: Decoder) -> TableColumns:
    """A raw table that has taken the decoder's columns."""
    raw = table_schema("raw")
    evolution = evolve(
        raw,
        Sources(),
        made.type,
        last_field_id=raw.highest_field_id,
        properties={},
        incompatible="new-column",
    )
    schema = evolution.schema
    types: dict[Part, pa.StructType] = {"value": value_columns(schema), "key": key_columns(schema)}
    return TableColumns(
        uuid=b"",
        schema=schema,
        sources=evolution.sources,
        rows=typed_row_schema(schema),
        types=types,
        value_format="raw",
    )
