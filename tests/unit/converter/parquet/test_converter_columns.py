"""The row schema and its leaves."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from converter.parquet.columns import LEAF_COLUMNS, leaf_columns, row_schema
from converter.types import ValueFormat

NAMES = (
    "value _kafka_partition _kafka_offset _kafka_timestamp _kafka_timestamp_type _kafka_key _kafka_headers "
    "_kafka_headers.element _kafka_headers.element.key _kafka_headers.element.value _kafka_value _kafka_value_size "
    "_kafka_error"
).split()


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_leaves_are_those_of_the_parquet_file_in_order(value_format: ValueFormat) -> None:
    sink = io.BytesIO()
    pq.write_table(row_schema(value_format).empty_table(), sink)
    parquet = pq.ParquetFile(sink).schema
    paths = tuple(parquet.column(i).path for i in range(len(parquet)))
    assert paths == leaf_columns(value_format)


def test_raw_leaves_are_a_subset_in_the_same_order() -> None:
    raw = leaf_columns("raw")
    assert [leaf for leaf in LEAF_COLUMNS if leaf in raw] == list(raw)
    assert set(LEAF_COLUMNS) - set(raw) == {"value", "_kafka_error"}


def test_only_partition_and_offset_are_required() -> None:
    required = [field.name for field in row_schema("string") if not field.nullable]
    assert required == ["_kafka_partition", "_kafka_offset"]


def test_field_ids_reach_nested_fields() -> None:
    ids = {name: number + 1 for number, name in enumerate(NAMES)}
    schema = row_schema("string", ids)
    element = schema.field("_kafka_headers").type.value_field
    assert element.metadata == {b"PARQUET:field_id": b"8"}
    assert element.type.field("value").metadata == {b"PARQUET:field_id": b"10"}
    assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema} == {
        name: ids[name] for name in NAMES if "." not in name
    }


def test_missing_field_id_is_an_error() -> None:
    with pytest.raises(KeyError):
        row_schema("raw", {"_kafka_partition": 1})


def test_schema_without_ids_equals_schema_with_ids_but_for_metadata() -> None:
    ids = {name: number + 1 for number, name in enumerate(NAMES)}
    assert row_schema("raw").equals(row_schema("raw", ids), check_metadata=False)
    assert row_schema("raw").field("_kafka_timestamp").type == pa.timestamp("us", tz="UTC")
