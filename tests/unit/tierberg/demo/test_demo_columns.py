"""The flights' columns: the same text in Python and in DuckDB's SQL, from JSON's types and from Avro's."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import islice
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest

from tierberg.demo import avro
from tierberg.demo.avro import AvroFlights, schema
from tierberg.demo.canonical import checksum_term
from tierberg.demo.columns import AVRO_TYPES, COLUMNS, DUCKDB_COLUMNS, JSON_TYPES, columns_text
from tierberg.demo.events import Flight, flights

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamptz": pa.timestamp("us", "UTC"),
}


@pytest.fixture(scope="module")
def sample() -> list[Flight]:
    """A thousand, with cancelled ones among them."""
    found = list(islice(flights(), 1000))
    assert any(flight.fields["dep_time"] is None for flight in found)
    return found


def duckdb_checksum(rows: list[dict[str, Any]], types: dict[str, str]) -> int:
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    with duckdb.connect() as connection:
        # Not UTC, so that a wrong time zone shows.
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.register("flights", pa.Table.from_pylist(rows, schema))
        return int(connection.sql(f"SELECT {DUCKDB_COLUMNS} FROM flights").fetchall()[0][0])


def truth(sample: list[Flight]) -> int:
    return sum(checksum_term(columns_text(flight)) for flight in sample)


def test_the_first_flight_as_text(sample: list[Flight]) -> None:
    assert columns_text(sample[0]) == (
        "2013|1|1|517|515|2.0|830|819|11.0|UA|1545|N14228|EWR|IAH|227|1400|5|15|1357034400000"
    )


def test_every_column_is_known(sample: list[Flight]) -> None:
    assert list(COLUMNS) == list(sample[0].fields)


def test_columns_of_json_give_the_same_checksum(sample: list[Flight]) -> None:
    rows = [json.loads(flight.json()) for flight in sample]
    assert duckdb_checksum(rows, JSON_TYPES) == truth(sample)


def test_columns_of_avro_give_the_same_checksum(sample: list[Flight]) -> None:
    rows = [{**flight.fields, "time_hour": flight.timestamp_ms * 1000} for flight in sample]
    assert duckdb_checksum(rows, AVRO_TYPES) == truth(sample)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_counts(sample: list[Flight], name: str) -> None:
    changed = replace(sample[0], fields={**sample[0].fields, name: None})
    assert columns_text(changed) != columns_text(sample[0])
    rows = [dict(changed.fields), *(dict(flight.fields) for flight in sample[1:])]
    assert duckdb_checksum(rows, JSON_TYPES) != truth(sample)


class FakeRegistry:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings


class FakeSerializer:
    """The wire format without a registry; the real one is used end to end."""

    def __init__(self, client: FakeRegistry, text: str) -> None:
        assert client.settings["url"] == "http://registry"
        self.schema = fastavro.parse_schema(json.loads(text))

    def __call__(self, value: dict[str, Any], context: Any) -> bytes:
        assert (context.topic, context.field) == ("flights_avro", "value")
        out = io.BytesIO(b"\0\0\0\0\7")
        out.seek(5)
        fastavro.schemaless_writer(out, self.schema, value)
        return out.getvalue()


def test_avro_has_every_field(sample: list[Flight], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "SchemaRegistryClient", FakeRegistry)
    monkeypatch.setattr(avro, "AvroSerializer", FakeSerializer)
    encoder = AvroFlights("http://registry", "flights_avro")
    parsed = fastavro.parse_schema(json.loads(schema()))
    for flight in sample:
        found = fastavro.schemaless_reader(io.BytesIO(encoder.encode(flight)[5:]), parsed, None)
        assert isinstance(found, dict)
        assert int(found["time_hour"].timestamp() * 1000) == flight.timestamp_ms
        assert {**found, "time_hour": flight.fields["time_hour"]} == flight.fields
