"""The two layouts that rows can have: values as bytes, and values as text beside what is no text.

The topic's rule decides how a segment is stored, and what its table is made for. The table stays as it was made, so
after the rule was changed some segments are laid out unlike their table. Their rows come in derived files then.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from converter.batches.rows import binary_array, split_values, var_bytes
from converter.parquet.columns import ERROR, OFFSET, RAW_VALUE, VALUE, row_schema
from converter.types import ValueFormat
from converter.values.rows import FIELD_ID
from iceberg_catalog.tables.schema import expected_field_ids

_TEXT_OFFSET_ID = str(expected_field_ids("string")[OFFSET]).encode()


def plain_rows(value_format: ValueFormat) -> pa.Schema:
    """What rows have before their typed columns: Kafka's own, and `value` where values are text."""
    return row_schema(value_format, expected_field_ids(value_format))


def layout_of(schema: pa.Schema) -> ValueFormat:
    """The layout of rows with field ids. Value columns may be called anything: the id of the offset tells it."""
    field_id = (schema.field(OFFSET).metadata or {}).get(FIELD_ID)
    return "string" if field_id == _TEXT_OFFSET_ID else "raw"


def relaid(rows: pa.RecordBatch, value_format: ValueFormat) -> pa.RecordBatch:
    """Kafka's columns of rows of the other layout in this one; typed columns and their errors are left out.

    Args:
        rows: n rows; every value is in `value` or `_kafka_value`.
        value_format: what the result has, as :func:`plain_rows`.
    """
    taken = dict(zip(rows.schema.names, rows.columns, strict=True))
    if value_format == "string":
        text, other, error = split_values(var_bytes(taken[RAW_VALUE]))
        taken |= {VALUE: binary_array(pa.string(), text), RAW_VALUE: binary_array(pa.binary(), other), ERROR: error}
    else:
        taken[RAW_VALUE] = pc.coalesce(taken[VALUE].cast(pa.binary()), taken[RAW_VALUE])
    schema = plain_rows(value_format)
    arrays = [taken[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
