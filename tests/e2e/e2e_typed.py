"""Topics of typed values: filled, and their tables compared with what an independent decoder says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from pyiceberg.catalog import Catalog

from iceberg_catalog.tables.names import table_name
from tests.e2e.e2e_lake import count
from tests.e2e.e2e_support import PUBLISH_S, Rec
from tests.oracle.protobuf import agree
from tests.support.same_values import of_arrow, plain
from tests.support.typed_case import Kind
from tierberg.stack.waiting import wait_for

TOMBSTONE_EACH = 7
_ABSENT = object()


def register(client: SchemaRegistryClient, subject: str, kind: Kind) -> int:
    """The schema and what it imports; its id."""
    references = []
    for number, (path, text) in enumerate(kind.imports.items()):
        client.register_schema(f"{subject}-import-{number}", Schema(text, "PROTOBUF"))
        references.append(SchemaReference(path, f"{subject}-import-{number}", 1))
    return client.register_schema(subject, Schema(kind.schema, kind.format.upper(), references))


def records(values: Iterable[bytes]) -> list[Rec]:
    """With a tombstone before each seventh."""
    given: list[bytes | None] = list(values)
    for place in range(0, len(given), TOMBSTONE_EACH):
        given.insert(place, None)
    return [Rec(b"k%d" % place, value, (("n", b"%d" % place),)) for place, value in enumerate(given)]


def published(catalog: Catalog, topic: str, wanted: int) -> pa.Table:
    """The topic's rows by offset, once there are so many, as the data files have them; all of one partition.

    PyIceberg's own reader (0.12.0) shows null lists and maps of structs as empty ones.
    """
    wait_for(f"{wanted} rows of {topic}", lambda: count(catalog, topic) == wanted, PUBLISH_S, 0.5)
    loaded = catalog.load_table(f"kafka.{table_name(topic)}")
    parts = []
    for task in loaded.scan().plan_files():
        assert not task.delete_files
        with loaded.io.new_input(task.file.file_path).open() as opened:
            parts.append(pq.read_table(pa.BufferReader(opened.read())))
    return pa.concat_tables(parts, promote_options="default").sort_by("_kafka_offset")


def values_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in the form of tests/support/same_values.py."""
    columns = {name: of_arrow(table.column(name)) for name in table.column_names}
    return [{name: column[place] for name, column in columns.items()} for place in range(table.num_rows)]


def without_empty(value: Any) -> Any:
    """Nothing for each empty list or map."""
    if isinstance(value, dict):
        return {name: without_empty(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_empty(item) for item in value] or None
    return value


def columns_are(table: pa.Table, kind: Kind, sent: Mapping[int, Rec], header: int) -> None:
    """Every value decoded and has its columns. `header`: bytes of a value that are the wire format's."""
    names = [name for name in table.column_names if not name.startswith("_kafka_")]
    found = table.select(names).to_pylist() if kind.format == "protobuf" else values_of(table.select(names))
    for record, row in zip(sent.values(), found, strict=True):
        if record.value is None:
            given = [name for name, value in row.items() if value is not None]
            assert not given, f"a tombstone has {given}"
            continue
        wanted = kind.columns(record.value[header:])
        if kind.format == "protobuf":
            assert agree(wanted, row), f"found {row}, wanted {wanted}"
        else:
            expected = plain(wanted)
            pairs = {name: (row.get(name, _ABSENT), expected.get(name, _ABSENT)) for name in row | expected}
            differ = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            assert not differ, f"found and wanted: {differ}"
    if "_kafka_error" in table.column_names:
        assert set(table.column("_kafka_error").to_pylist()) == {None}
    if kind.format != "string":
        assert table.column("_kafka_value").to_pylist() == [record.value for record in sent.values()]
