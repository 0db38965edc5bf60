"""Rows with value columns: Kafka's columns as they are, the value's before them, in the table's order.

Data files of one table may have been written under different states of its schema; what belongs together has the same
field id, whatever it was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TypeVar

import pyarrow as pa

from converter.limits import PIECE_CELLS_MAX
from converter.parquet import columns
from converter.types import LargeWork
from converter.values.allowance import Allowance
from converter.values.model import CELLS_UNLIMITED, Bound, CellsExceededError
from converter.values.project import project

Made = TypeVar("Made")
FIELD_ID = b"PARQUET:field_id"
#: Metadata of a typed file's schema: the UUID of the table whose field ids its value columns have.
TABLE = b"tierberg.table"


def typed_rows(
    rows: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, pa.Array], errors: pa.StringArray | None
) -> pa.RecordBatch:
    """Kafka's columns of `rows` beside the columns of values and keys.

    Args:
        rows: n rows in the schema of columns.row_schema("raw").
        schema: what the result has: those columns, typed ones and `_kafka_error`, in any order.
        values: typed columns by name; those that are missing are null.
        errors: why rows have none; None: no row has an error.
    """
    taken = {**dict(zip(rows.schema.names, rows.columns, strict=True)), **values}
    if errors is not None:
        taken[columns.ERROR] = errors
    arrays = [taken[field.name] if field.name in taken else pa.nulls(rows.num_rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pieces(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in pieces of which none becomes larger than PIECE_CELLS_MAX cells of `schema`, lists and maps left out."""
    leaves = sum(len(columns.leaf_paths(field)) for field in schema)
    step = max(1, PIECE_CELLS_MAX // max(1, leaves))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def made_in_pieces(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    make: Callable[[pa.RecordBatch, int, Allowance], Made],
    allowance: Allowance,
    large: LargeWork = nullcontext,
) -> Iterator[Made]:
    """What `make` makes of all rows, in pieces that take no more memory than a piece may.

    Args:
        rows: of any size.
        schema: what they will have.
        make: given some rows and the cells their values may take; raises CellsExceededError where these are too few.
            The allowance is what it takes from.
        allowance: of the file all rows go to.
        large: entered while a single row is made that needs more, and until the next piece is asked for.
    """
    for piece in pieces(rows, schema):
        yield from _in_parts(piece, make, allowance, large)


def _in_parts(
    rows: pa.RecordBatch,
    make: Callable[[pa.RecordBatch, int, Allowance], Made],
    allowance: Allowance,
    large: LargeWork,
) -> Iterator[Made]:
    before = allowance.left
    try:
        made = make(rows, PIECE_CELLS_MAX, allowance)
    except CellsExceededError as error:
        allowance.back_to(before)
        parts = min(max(2, -(-error.cells // PIECE_CELLS_MAX)), rows.num_rows)
    else:
        yield made
        return
    if parts <= 1:
        with large():
            yield make(rows, CELLS_UNLIMITED, allowance)
        return
    step = -(-rows.num_rows // parts)
    for start in range(0, rows.num_rows, step):
        yield from _in_parts(rows.slice(start, step), make, allowance, large)


def by_name(struct: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of a struct array as arrays of their own, null where the struct is."""
    return dict(zip(struct.type.names, struct.flatten(), strict=True))


def as_written_now(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of an older data file in the table's present columns, matched by field id; null where the file has none.

    Raises:
        ValueError: a column's type cannot be cast without loss.
    """
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    target = pa.struct(list(schema))
    found = project(rows.to_struct_array(), bound_by_id(rows.schema, schema), target)
    return pa.RecordBatch.from_arrays(found.flatten(), schema=schema)


def bound_by_id(source: Iterable[pa.Field], target: Iterable[pa.Field]) -> tuple[Bound, ...]:
    """Bindings between fields that have the same field id."""
    places = {_id(field): (place, field.type) for place, field in enumerate(source)}
    return tuple(_bound(places.get(_id(field)), field.type) for field in target)


def _bound(found: tuple[int, pa.DataType] | None, target: pa.DataType) -> Bound:
    if found is None:
        return Bound(None)
    place, source = found
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return Bound(place, bound_by_id(source, target))
    if pa.types.is_map(target) and pa.types.is_map(source):
        return Bound(place, (_bound((0, source.item_type), target.item_type),))
    if pa.types.is_list(target) and pa.types.is_list(source):
        return Bound(place, (_bound((0, source.value_type), target.value_type),))
    return Bound(place)


def _id(field: pa.Field) -> bytes:
    """The field id; a field without one matches nothing but a field of the same name without one."""
    return bytes((field.metadata or {}).get(FIELD_ID, field.name.encode()))
