"""A table's columns in memory, evolved as a catalog would, and what is asked of them after every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import DecimalType, IcebergType, IntegerType, ListType, LongType, MapType, NestedField, StructType

from converter.parquet.columns import zone
from converter.values.model import Bound
from converter.values.project import project
from iceberg_catalog.evolve.evolve import Evolution, bind, bind_key, evolve, key_writer
from iceberg_catalog.evolve.names import Sources, folded
from iceberg_catalog.evolve.types import key_columns, value_columns
from iceberg_catalog.evolve.walk import Incompatible
from iceberg_catalog.tables.schema import table_properties, table_schema
from tests.worlds.catalog_support import OWNER

#: Where each field of a writer goes: path of source names → field id of the column.
Places = dict[tuple[str, ...], int]


@dataclass
class Columns:
    """One table. `take` evolves it for a writer, and checks what has to hold of every step."""

    schema: Schema = field(default_factory=lambda: table_schema("raw"))
    sources: Sources = field(default_factory=Sources)
    last_field_id: int = 11
    properties: dict[str, str] = field(default_factory=lambda: table_properties(OWNER, "raw", "file:///data"))

    def evolution(
        self, writer: pa.StructType, incompatible: Incompatible = "new-column", key: pa.StructType | None = None
    ) -> Evolution:
        return evolve(
            self.schema,
            self.sources,
            writer,
            last_field_id=self.last_field_id,
            properties=self.properties,
            incompatible=incompatible,
            key=key,
        )

    def take(
        self, writer: pa.StructType, incompatible: Incompatible = "new-column", key: pa.StructType | None = None
    ) -> Evolution:
        step = self.evolution(writer, incompatible, key)
        if step.incompatible or not step.changes:
            assert (step.schema, step.sources, step.changes) == (self.schema, self.sources, ())
            return step
        check_step(self.schema, step.schema, self.last_field_id)
        # A property has no number of its own to compare: what it says may only change together with the columns.
        assert step.sources == self.sources or step.schema.fields != self.schema.fields
        self.schema, self.sources = step.schema, Sources.decode(step.sources.encode())
        assert self.sources == step.sources
        self.last_field_id = max(self.last_field_id, step.schema.highest_field_id)
        for name, value in step.properties.items():
            if value is None:
                del self.properties[name]
            else:
                self.properties[name] = value
        check_schema(self.schema)
        again = self.evolution(writer, incompatible, key)
        assert (again.changes, again.incompatible) == ((), ())
        return step

    def places(self, writer: pa.StructType) -> Places | None:
        bound = bind(self.schema, self.sources, writer)
        return None if bound is None else self._places(writer, bound, "value")

    def key_places(self, key: pa.StructType) -> Places | None:
        bound = bind_key(self.schema, self.sources, key)
        return None if bound is None else self._places(key_writer(key), bound, "key")

    def _places(self, writer: pa.StructType, bound: tuple[Bound, ...], part: str) -> Places:
        columns = [column for column in self.schema.fields if zone(column.name) == part]
        # Types that cannot be cast without loss raise, whatever the rows.
        target = value_columns(self.schema) if part == "value" else key_columns(self.schema)
        assert project(pa.nulls(2, writer), bound, target).type == target
        return dict(_struct_places(columns, bound, writer, ()))


def _struct_places(
    columns: Any, bound: tuple[Bound, ...], writer: pa.StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], int]]:
    assert len(columns) == len(bound)
    used = [item.source for item in bound if item.source is not None]
    assert sorted(used) == list(range(writer.num_fields)), "each field goes into one column"
    for column, item in zip(columns, bound, strict=True):
        if item.source is not None:
            written = writer.field(item.source)
            yield (*path, written.name), column.field_id
            yield from _inner_places(column.field_type, item.children, written.type, (*path, written.name))


def _inner_places(
    kind: IcebergType, children: tuple[Bound, ...], written: pa.DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(kind, StructType):
        yield from _struct_places(kind.fields, children, written, path)
    elif isinstance(kind, ListType):
        yield from _inner_places(kind.element_type, children[0].children, written.value_type, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from _inner_places(kind.value_type, children[0].children, written.item_type, (*path, "value"))


def check_step(before: Schema, after: Schema, last_field_id: int) -> None:
    """Nothing goes, narrows or changes its id; new ids were never used."""
    old, new = index_by_id(before), index_by_id(after)
    assert set(old) <= set(new)
    assert all(number > last_field_id for number in set(new) - set(old))
    parents = after._lazy_id_to_parent
    assert {number: parents.get(number) for number in old} == {n: before._lazy_id_to_parent.get(n) for n in old}
    for number, column in old.items():
        if column.field_type.is_primitive:
            assert is_same_or_wider(column.field_type, new[number].field_type)
        else:
            assert type(column.field_type) is type(new[number].field_type)


def is_same_or_wider(old: IcebergType, new: IcebergType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    return old == new or (old == IntegerType() and new == LongType())


def check_schema(schema: Schema) -> None:
    """Names engines can live with, the order of the parts, a doc on every column."""
    zones = [zone(column.name) for column in schema.fields]
    assert zones == sorted(zones, key=["value", "key", "kafka"].index)
    assert schema.fields[-1].name == "_kafka_error"
    ids = [column.field_id for column in _all(schema.fields)]
    assert len(ids) == len(set(ids))
    _check_struct(schema.fields)


def _check_struct(fields: tuple[NestedField, ...]) -> None:
    names = [folded(column.name) for column in fields]
    assert len(names) == len(set(names)), names
    for column in fields:
        assert column.name
        assert not set(column.name) & set('.`"\n\0')
        assert column.doc, column
    for column in _all(fields):
        if isinstance(column.field_type, StructType):
            _check_struct(column.field_type.fields)


def _all(fields: tuple[NestedField, ...]) -> Iterator[NestedField]:
    for column in fields:
        yield column
        kind = column.field_type
        if isinstance(kind, StructType):
            yield from _all(kind.fields)
        elif isinstance(kind, ListType):
            yield from _all((kind.element_field,))
        elif isinstance(kind, MapType):
            yield from _all((kind.key_field, kind.value_field))
