"""What must happen to a table before a writer's columns can go into it, and how they go in then.

A typed table is a raw table plus columns. Columns come, widen and get other names; none goes, narrows or changes its
field id, so files written under any earlier schema stay right. `docs/types.md` has the rules ("Names and evolution"),
`match.py` those by which a field finds its column.

`bind` and `evolve` are the same walk over table and writer (`walk.py`): a binding exists when the walk has
nothing to change. So two bridges that meet schemas in another order, and one that comes again after a crash, all end
where nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from converter.parquet import columns
from converter.parquet.columns import KEY_COLUMN, zone
from converter.values.model import BARE_VALUE, Bound
from iceberg_catalog.evolve.names import Sources, metrics_changes
from iceberg_catalog.evolve.types import field_count
from iceberg_catalog.evolve.walk import EvolutionStep, Incompatible, Part, SchemaWalk, columns_of
from iceberg_catalog.limits import COLUMNS_MAX
from iceberg_catalog.tables.schema import table_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What has to be committed so that a writer can be bound.

    Attributes:
        schema: the table's schema afterwards, new field ids included; the given object when nothing changes.
        changes: empty when the table is as it should be, and when it cannot take the writer.
        sources: of the table afterwards.
        properties: table properties to set; None: to remove. Empty without changes.
        incompatible: `path: reason` of each field the table cannot take; the table stays as it is then.
    """

    schema: Schema
    changes: tuple[EvolutionStep, ...]
    sources: Sources
    properties: Mapping[str, str | None]
    incompatible: tuple[str, ...]


def key_writer(key: pa.StructType) -> pa.StructType:
    """The struct that is bound for a typed key: its only field is `_key`, a struct, or a bare schema's own type."""
    bare = key.num_fields == 1 and key.field(0).name == BARE_VALUE
    return pa.struct([pa.field(KEY_COLUMN, key.field(0).type if bare else key)])


def bind(schema: Schema, sources: Sources, writer: pa.StructType) -> tuple[Bound, ...] | None:
    """How `project` fills the table's value columns (`value_columns(schema)`, in that order) from a writer's.

    None: the table needs to change first, or cannot take the writer: `evolve` tells.
    """
    if columns.ERROR not in schema.column_names:
        return None
    return _bound(schema, sources, writer, "value")


def bind_key(schema: Schema, sources: Sources, key: pa.StructType) -> tuple[Bound, ...] | None:
    """The same for the key's columns (`key_columns(schema)`) from what `key_writer` makes of the key's type."""
    return _bound(schema, sources, key_writer(key), "key")


def _bound(schema: Schema, sources: Sources, writer: pa.StructType, part: Part) -> tuple[Bound, ...] | None:
    walk = SchemaWalk(names=dict(sources.names), last_field_id=schema.highest_field_id, incompatible="new-column")
    _, bound = walk.top(schema, writer, part)
    return None if walk.changes or walk.refused else tuple(bound)


def evolve(
    schema: Schema,
    sources: Sources,
    writer: pa.StructType,
    *,
    last_field_id: int,
    properties: Mapping[str, str],
    incompatible: Incompatible,
    key: pa.StructType | None = None,
) -> Evolution:
    """What the table needs for a writer.

    Args:
        schema: of the table, raw or typed.
        sources: from its property.
        writer: the decoder's type.
        last_field_id: the highest id the table has ever given out; new ones follow it.
        properties: of the table.
        incompatible: what becomes of a field whose column has a type that cannot take it: a column `name__v2` of its
            own, or nothing, and the writer's rows are dead letters.
        key: type of the typed key's decoder; None: keys are bytes.

    Raises:
        ValueError: a type that no typed column may have.
    """
    walk = SchemaWalk(names=dict(sources.names), last_field_id=last_field_id, incompatible=incompatible)
    values, _ = walk.top(schema, writer, "value")
    keys = walk.top(schema, key_writer(key), "key")[0] if key is not None else columns_of(schema, "key")
    if columns.ERROR not in schema.column_names:
        error = table_schema("string").find_field(columns.ERROR)
        walk.changes.append(EvolutionStep("add", error.name, str(error.field_type)))
        last = [NestedField(next(walk.ids), error.name, error.field_type, required=False, doc=error.doc)]
    else:
        last = []
    fields = _in_order(schema, values, keys, last)
    if walk.changes and (total := field_count(fields)) > COLUMNS_MAX:
        walk.refused.append(f"the table would have {total} columns, nested ones counted; at most {COLUMNS_MAX}")
    if walk.refused or not walk.changes:
        return Evolution(schema=schema, changes=(), sources=sources, properties={}, incompatible=tuple(walk.refused))
    after = Schema(*fields, identifier_field_ids=schema.identifier_field_ids)
    return Evolution(
        schema=after,
        changes=tuple(walk.changes),
        sources=Sources(walk.names),
        properties=metrics_changes(schema, after, properties),
        incompatible=(),
    )


def _in_order(
    schema: Schema, values: Sequence[NestedField], keys: Sequence[NestedField], last: Sequence[NestedField]
) -> list[NestedField]:
    """Known columns where they are, new ones behind the values, behind the keys, and at the end."""
    changed = {column.field_id: column for column in (*values, *keys)}
    fields = [changed.pop(column.field_id, column) for column in schema.fields]
    for new, before in ((keys, ("kafka",)), (values, ("key", "kafka"))):
        added = [column for column in new if column.field_id in changed]
        place = next((n for n, column in enumerate(fields) if zone(column.name) in before), len(fields))
        fields[place:place] = added
    return [*fields, *last]
