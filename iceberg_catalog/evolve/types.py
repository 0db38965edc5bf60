"""Types of typed columns: from Arrow to Iceberg and back, and which may become which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from converter.parquet.columns import NEVER_NULL, zone

_ID: Final = b"PARQUET:field_id"
_PRIMITIVES: Final[tuple[tuple[pa.DataType, PrimitiveType], ...]] = (
    (pa.bool_(), BooleanType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float64(), DoubleType()),
    (pa.date32(), DateType()),
    (pa.timestamp("us"), TimestampType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
)
_TO_ICEBERG: Final[dict[pa.DataType, PrimitiveType]] = dict(_PRIMITIVES)
_TO_ARROW: Final[dict[IcebergType, pa.DataType]] = {kind: arrow for arrow, kind in _PRIMITIVES}


def primitive(kind: pa.DataType) -> PrimitiveType:
    """The Iceberg twin of a type that is no struct, list or map.

    Raises:
        ValueError: no column may have this type; `converter/values/model.py` lists those that may.
    """
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    found = _TO_ICEBERG.get(kind)
    if found is None:
        raise ValueError(f"typed columns cannot have type {kind}")
    return found


def takes(column: IcebergType, written: pa.DataType) -> bool:
    """Whether a column of this type can hold such values, as it is or after widening.

    Widening never changes the answer. A struct takes every struct: what differs inside becomes columns inside.
    """
    if isinstance(column, StructType):
        return bool(pa.types.is_struct(written))
    if isinstance(column, MapType):
        return bool(
            pa.types.is_map(written)
            and column.key_type == primitive(written.key_type)
            and takes(column.value_type, written.item_type)
        )
    if isinstance(column, ListType):
        return bool(pa.types.is_list(written)) and takes(column.element_type, written.value_type)
    if pa.types.is_nested(written):
        return False
    kind = primitive(written)
    if isinstance(column, DecimalType) and isinstance(kind, DecimalType):
        return column.scale == kind.scale
    whole = (IntegerType(), LongType())
    return column == kind or (column in whole and kind in whole) or (column == DoubleType() and kind == IntegerType())


def widened(column: IcebergType, written: pa.DataType) -> IcebergType:
    """The narrowest type that holds both; `column` is no struct, list or map and takes `written`."""
    kind = primitive(written)
    if isinstance(column, DecimalType) and isinstance(kind, DecimalType):
        return column if column.precision >= kind.precision else kind
    return kind if column == IntegerType() else column


def value_columns(schema: Schema) -> pa.StructType:
    """The table's value columns in its order, with Parquet field ids: the target of `project`, may be empty."""
    return arrow_struct(column for column in schema.fields if zone(column.name) == "value")


def key_columns(schema: Schema) -> pa.StructType:
    """The same of the typed key: `_key` and its variants; empty without one."""
    return arrow_struct(column for column in schema.fields if zone(column.name) == "key")


def typed_row_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a data file of the table: every column in the table's order, with Parquet field ids.

    Kafka's columns that are never null say so, and no others do, whatever an engine has made of the table's: pages are
    read by that, and rows without a value come as before.
    """
    fields = (_field(column) for column in schema.fields)
    return pa.schema([field.with_nullable(field.name not in NEVER_NULL) for field in fields])


def arrow_struct(columns: Iterable[NestedField]) -> pa.StructType:
    """These columns as an Arrow struct, with Parquet field ids at every level."""
    return pa.struct([_field(column) for column in columns])


def _field(column: NestedField) -> pa.Field:
    # May be null, whatever the table says: of a column that an engine has added, or made required, we may know nothing.
    return pa.field(column.name, _arrow(column.field_type), metadata={_ID: str(column.field_id).encode()})


def _arrow(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return arrow_struct(kind.fields)
    if isinstance(kind, ListType):
        return pa.list_(_field(kind.element_field))
    if isinstance(kind, MapType):
        return pa.map_(_field(kind.key_field).with_nullable(False), _field(kind.value_field))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    # A column that somebody else added: never written but with nulls.
    return _TO_ARROW[kind] if kind in _TO_ARROW else schema_to_pyarrow(kind)


def field_count(columns: Iterable[NestedField]) -> int:
    """Columns with all their nested parts, elements, keys and values of lists and maps counted: one per field id."""
    return sum(1 + _parts(column.field_type) for column in columns)


def _parts(kind: IcebergType) -> int:
    if isinstance(kind, ListType):
        return field_count((kind.element_field,))
    if isinstance(kind, MapType):
        return field_count((kind.key_field, kind.value_field))
    return field_count(kind.fields) if isinstance(kind, StructType) else 0
