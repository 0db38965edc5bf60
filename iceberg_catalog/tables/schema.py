"""What a topic's table looks like: columns, partitioning, sort order, properties.

Field ids. `create_table` reassigns them: the top-level columns 1..n in order, then the parts of the header list. The
schema here already carries those numbers, so a data file can be written with final field ids before the table exists;
`tables.ensure_table` asserts that the catalog agreed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from converter.parquet import columns
from converter.types import ValueFormat
from iceberg_catalog.limits import METADATA_VERSIONS_KEPT_MAX
from iceberg_catalog.tables.names import Owner

#: Of Iceberg, that manifests are written in.
FORMAT_VERSION: Final = 2
CLUSTER = "tierberg.cluster"
TOPIC = "tierberg.topic"
TOPIC_ID = "tierberg.topic-id"
VALUE_FORMAT = "tierberg.value-format"
DATA_PATH = "tierberg.data-path"

_PARTITION_FIELD_ID = 1000

_DOCS: dict[str, str] = {
    columns.VALUE: "the record's value where it is valid UTF-8; otherwise null, the bytes are in _kafka_value",
    columns.PARTITION: "Kafka partition",
    columns.OFFSET: "Kafka offset, unique within the partition",
    columns.TIMESTAMP: "timestamp a consumer sees; null where Kafka has none or microseconds cannot hold it",
    columns.TIMESTAMP_TYPE: "0: set by the producer (CreateTime), 1: set by the broker (LogAppendTime)",
    columns.KEY: "the record's key, null where it has none",
    columns.HEADERS: "the record's headers in order; keys may repeat",
    columns.RAW_VALUE: "the record's value; null for a tombstone and where a value column holds it",
    columns.VALUE_SIZE: "size of the value in bytes; null means a tombstone",
    columns.ERROR: "why the value is not in its column, e.g. invalid_utf8; null when it is",
}


def _names(value_format: ValueFormat) -> list[str]:
    kafka = [
        columns.PARTITION,
        columns.OFFSET,
        columns.TIMESTAMP,
        columns.TIMESTAMP_TYPE,
        columns.KEY,
        columns.HEADERS,
        columns.RAW_VALUE,
        columns.VALUE_SIZE,
    ]
    return [columns.VALUE, *kafka, columns.ERROR] if value_format == "string" else kafka


def expected_field_ids(value_format: ValueFormat) -> Mapping[str, int]:
    """Field id by full column name, nested ones too (`_kafka_headers.element.key`), as `create_table` gives out."""
    names = _names(value_format)
    nested = [f"{columns.HEADERS}.element", f"{columns.HEADERS}.element.key", f"{columns.HEADERS}.element.value"]
    return {name: number for number, name in enumerate([*names, *nested], start=1)}


def table_schema(value_format: ValueFormat) -> Schema:
    """The Iceberg schema of `converter.parquet.columns.row_schema(value_format)`; a doc on every column."""
    ids = expected_field_ids(value_format)
    element = f"{columns.HEADERS}.element"
    headers = ListType(
        element_id=ids[element],
        element_type=StructType(
            NestedField(ids[f"{element}.key"], "key", StringType(), doc="header key"),
            NestedField(ids[f"{element}.value"], "value", BinaryType(), doc="header value"),
        ),
        element_required=False,
    )
    types: dict[str, IcebergType] = {
        columns.VALUE: StringType(),
        columns.PARTITION: IntegerType(),
        columns.OFFSET: LongType(),
        columns.TIMESTAMP: TimestamptzType(),
        columns.TIMESTAMP_TYPE: IntegerType(),
        columns.KEY: BinaryType(),
        columns.HEADERS: headers,
        columns.RAW_VALUE: BinaryType(),
        columns.VALUE_SIZE: IntegerType(),
        columns.ERROR: StringType(),
    }
    return Schema(
        *(
            NestedField(ids[name], name, types[name], required=name in columns.NEVER_NULL, doc=_DOCS[name])
            for name in _names(value_format)
        )
    )


def partition_spec(value_format: ValueFormat) -> PartitionSpec:
    """identity(_kafka_partition)."""
    source = expected_field_ids(value_format)[columns.PARTITION]
    return PartitionSpec(PartitionField(source, _PARTITION_FIELD_ID, IdentityTransform(), columns.PARTITION))


def sort_order(value_format: ValueFormat) -> SortOrder:
    """Rows of a file ascend by `_kafka_offset`."""
    source = expected_field_ids(value_format)[columns.OFFSET]
    return SortOrder(
        SortField(source, IdentityTransform(), direction=SortDirection.ASC, null_order=NullOrder.NULLS_FIRST)
    )


def owner_properties(owner: Owner) -> dict[str, str]:
    """The owner stamp."""
    return {CLUSTER: owner.cluster, TOPIC: owner.topic, TOPIC_ID: owner.topic_id.hex()}


def table_properties(owner: Owner, value_format: ValueFormat, data_path: str) -> dict[str, str]:
    """Properties of a new table. `data_path` is the root of its data files, outside the table's own location.

    It is there twice: `write.data.path` is for engines, which may change it, and by DATA_PATH we know our files.
    gc.enabled=false: Kafka owns the files, engines must not delete them. commit.retry.num-retries=0: PyIceberg's own
    retries land the same rows twice. Bounds are kept in full for the numbers, truncated for keys and value columns,
    and not kept for the bytes nobody filters by.
    """
    properties = {
        "format-version": str(FORMAT_VERSION),
        "comment": f"Records of Kafka topic {owner.topic} (cluster {owner.cluster}), tiered by Tierberg. Read-only.",
        "gc.enabled": "false",
        "write.data.path": data_path,
        DATA_PATH: data_path,
        "write.format.default": "parquet",
        "commit.retry.num-retries": "0",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(METADATA_VERSIONS_KEPT_MAX),
        "write.metadata.metrics.default": "truncate(16)",
        VALUE_FORMAT: value_format,
        **owner_properties(owner),
    }
    modes = {
        columns.PARTITION: "full",
        columns.OFFSET: "full",
        columns.TIMESTAMP: "full",
        columns.TIMESTAMP_TYPE: "full",
        columns.VALUE_SIZE: "full",
        columns.KEY: "truncate(16)",
        columns.RAW_VALUE: "counts",
        f"{columns.HEADERS}.element.key": "counts",
        f"{columns.HEADERS}.element.value": "none",
    }
    if value_format == "string":
        modes |= {columns.VALUE: "truncate(16)", columns.ERROR: "full"}
    return properties | {f"write.metadata.metrics.column.{name}": mode for name, mode in modes.items()}
