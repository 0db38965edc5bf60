"""The columns of a topic's table, in Parquet file order.

Value columns come first: none under `raw`, `value` under `string`. Then the `_kafka_*` columns, flat because some
catalogs cannot partition on nested fields. All are optional except partition and offset. `_kafka_timestamp` is what a
consumer sees; `_kafka_value_size` is null for a tombstone, so that a null `_kafka_value` is never ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import pyarrow as pa

from converter.types import ValueFormat

VALUE = "value"
PARTITION = "_kafka_partition"
OFFSET = "_kafka_offset"
TIMESTAMP = "_kafka_timestamp"
TIMESTAMP_TYPE = "_kafka_timestamp_type"
KEY = "_kafka_key"
HEADERS = "_kafka_headers"
RAW_VALUE = "_kafka_value"
VALUE_SIZE = "_kafka_value_size"
ERROR = "_kafka_error"
#: Those that no row lacks.
NEVER_NULL: Final = frozenset({PARTITION, OFFSET})
#: The column of a typed key.
KEY_COLUMN: Final = "_key"

Zone = Literal["value", "key", "kafka"]

HEADER_KEY_LEAF = f"{HEADERS}.list.element.key"
HEADER_VALUE_LEAF = f"{HEADERS}.list.element.value"

#: Every leaf column a data file can have, by its Parquet path, in file order. Page tables number leaves by their place
#: here, whatever subset a file has; new leaves are appended only with a new index version.
LEAF_COLUMNS: tuple[str, ...] = (
    VALUE,
    PARTITION,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    KEY,
    HEADER_KEY_LEAF,
    HEADER_VALUE_LEAF,
    RAW_VALUE,
    VALUE_SIZE,
    ERROR,
)

#: Page tables number the leaves of a typed value's columns from here on, in the order of the file's schema.
VALUE_LEAVES: Final = 100

#: Value of `_kafka_error` for a value that the string rule could not take.
ERROR_INVALID_UTF8 = "invalid_utf8"


def zone(column: str) -> Zone:
    """Where a top-level column belongs: the value's, the key's, or Kafka's own. They stand in this order."""
    small = column.lower()
    if small.startswith("_kafka_"):
        return "kafka"
    return "key" if small == KEY_COLUMN or small.startswith(f"{KEY_COLUMN}__") else "value"


def value_fields(fields: Iterable[pa.Field]) -> pa.Schema:
    """The columns of a typed value."""
    return pa.schema([field for field in fields if zone(field.name) == "value"])


def leaf_columns(value_format: ValueFormat) -> tuple[str, ...]:
    """The leaves of LEAF_COLUMNS that a file of this value format has, in file order."""
    if value_format == "string":
        return LEAF_COLUMNS
    return tuple(leaf for leaf in LEAF_COLUMNS if leaf not in (VALUE, ERROR))


def leaf_paths(field: pa.Field, prefix: str = "") -> list[str]:
    """Parquet paths of the leaf columns that a field has, in file order (`a`, `s.f`, `l.list.element`, …)."""
    path, kind = prefix + field.name, field.type
    if pa.types.is_struct(kind):
        return [leaf for child in kind.fields for leaf in leaf_paths(child, f"{path}.")]
    if pa.types.is_map(kind):
        return [f"{path}.key_value.key", *leaf_paths(kind.item_field.with_name("value"), f"{path}.key_value.")]
    if pa.types.is_list(kind):
        return leaf_paths(kind.value_field.with_name("element"), f"{path}.list.")
    return [path]


def row_schema(value_format: ValueFormat, field_ids: Mapping[str, int] | None = None) -> pa.Schema:
    """The Arrow schema of rows.

    Args:
        value_format: `raw` or `string`; `string` adds the columns `value` and `_kafka_error`.
        field_ids: Iceberg field id by full Iceberg name (`_kafka_key`, `_kafka_headers.element.key`, …). When given,
            every field, nested ones too, carries it as Parquet field id.

    Raises:
        KeyError: `field_ids` lacks a name.
    """

    def field(path: str, kind: pa.DataType) -> pa.Field:
        metadata = None if field_ids is None else {b"PARQUET:field_id": str(field_ids[path]).encode()}
        return pa.field(path.rpartition(".")[2], kind, nullable=path not in NEVER_NULL, metadata=metadata)

    header = pa.struct(
        [
            field(f"{HEADERS}.element.key", pa.string()),
            field(f"{HEADERS}.element.value", pa.binary()),
        ]
    )
    fields = [
        field(PARTITION, pa.int32()),
        field(OFFSET, pa.int64()),
        field(TIMESTAMP, pa.timestamp("us", tz="UTC")),
        field(TIMESTAMP_TYPE, pa.int32()),
        field(KEY, pa.binary()),
        field(HEADERS, pa.list_(field(f"{HEADERS}.element", header))),
        field(RAW_VALUE, pa.binary()),
        field(VALUE_SIZE, pa.int32()),
    ]
    if value_format == "string":
        fields = [field(VALUE, pa.string()), *fields, field(ERROR, pa.string())]
    return pa.schema(fields)
