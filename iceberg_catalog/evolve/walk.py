"""One walk over a table's columns and a writer's, side by side: what binds, and what has to change first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from converter.parquet.columns import zone
from converter.values.model import DOC, Bound
from iceberg_catalog.evolve.match import Match, matched, source_of
from iceberg_catalog.evolve.names import Sources, column_name, folded
from iceberg_catalog.evolve.types import primitive, widened
from iceberg_catalog.limits import COLUMN_DOC_CHARS_MAX, SOURCE_NAME_CHARS_MAX

Incompatible = Literal["new-column", "dead-letter"]
Part = Literal["value", "key"]


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """One step of an evolution, for people and logs.

    Attributes:
        kind: `add` a column, `widen` its type, `rename` it, or `learn` another source name for it.
        path: the column's full name; after a rename the new one.
        text: its type; for `rename` and `learn` the other name.
    """

    kind: Literal["add", "widen", "rename", "learn"]
    path: str
    text: str


def columns_of(schema: Schema, part: Part) -> list[NestedField]:
    """The top-level columns of the value or of the key."""
    return [column for column in schema.fields if zone(column.name) == part]


@dataclass(slots=True)
class _Place:
    """Where in the table a struct's columns are: their parent's path, and what part of a record they belong to."""

    path: tuple[str, ...]
    part: Part

    @property
    def is_value(self) -> bool:
        """Whether these are the table's own columns rather than fields of one, and the value's."""
        return not self.path and self.part == "value"

    def inside(self, name: str) -> _Place:
        """The place of a list's element or a map's value."""
        return _Place((*self.path, name), self.part)


@dataclass(slots=True, kw_only=True)
class SchemaWalk:
    """One walk over the table's columns and a writer's, side by side.

    names: source names by field id, as in `Sources`; grows on the way.
    """

    names: dict[int, tuple[str, ...]]
    last_field_id: int
    incompatible: Incompatible
    changes: list[EvolutionStep] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ids: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = count(self.last_field_id + 1)

    def top(self, schema: Schema, writer: pa.StructType, part: Part) -> tuple[list[NestedField], list[Bound]]:
        """The part's columns as they have to be, new ones at the end, and one binding for each."""
        return self.struct(columns_of(schema, part), writer, _Place((), part))

    def struct(
        self, columns: Sequence[NestedField], writer: pa.StructType, place: _Place
    ) -> tuple[list[NestedField], list[Bound]]:
        """The same for the fields of one struct."""
        result, bound = list(columns), [Bound(None)] * len(columns)
        taken = {folded(column.name) for column in columns}
        matches = matched(columns, [Sources(self.names).of(column) for column in columns], writer)
        for number, (written, match) in enumerate(zip(writer, matches, strict=True)):
            if match.column is None:
                if self._refuses(written, match, place):
                    continue
                column, children = self._new(written, match, place, taken)
                result.append(column)
                bound.append(Bound(number, children))
            else:
                column, children = self._known(result[match.column], written, match, place, taken)
                result[match.column] = column
                bound[match.column] = Bound(number, children)
            taken.add(folded(column.name))
        return result, bound

    def _refuses(self, written: pa.Field, match: Match, place: _Place) -> bool:
        path = ".".join((*place.path, written.name[:SOURCE_NAME_CHARS_MAX]))
        if len(written.name) > SOURCE_NAME_CHARS_MAX:
            self.refused.append(f"{path}: names of fields may have {SOURCE_NAME_CHARS_MAX} characters")
        elif match.misfits and self.incompatible == "dead-letter":
            self.refused.append(f"{path}: the column's type cannot take {written.type}")
        else:
            return False
        return True

    def _new(
        self, written: pa.Field, match: Match, place: _Place, taken: set[str]
    ) -> tuple[NestedField, tuple[Bound, ...]]:
        name = column_name(written.name, taken, variant=match.known, top=place.is_value)
        path = (*place.path, name)
        number = next(self.ids)
        kind, children = self._made(written.type, _Place(path, place.part))
        names = (source_of(written), *match.learn)
        if names != (name,):
            self.names[number] = names
        self.changes.append(EvolutionStep("add", ".".join(path), str(kind)))
        return NestedField(number, name, kind, required=False, doc=_doc(written, place)), children

    def _known(
        self, column: NestedField, written: pa.Field, match: Match, place: _Place, taken: set[str]
    ) -> tuple[NestedField, tuple[Bound, ...]]:
        name, doc = column.name, column.doc
        if match.rename:
            name = column_name(written.name, taken - {folded(name)}, variant=False, top=place.is_value)
        path = (*place.path, name)
        if match.learn:
            before = Sources(self.names).of(column)
            renamed, learned = (match.learn[:1], match.learn[1:]) if match.rename else ((), match.learn)
            self.names[column.field_id] = (*renamed, *before, *learned)
            # A change of the property alone could undo another bridge's: only a new schema has a number to compare.
            doc = f"{(doc or '').removesuffix(_written_as(before))}{_written_as(self.names[column.field_id])}"
            others = [other for other in match.learn if not (match.rename and other == written.name)]
            self.changes += [EvolutionStep("learn", ".".join(path), other) for other in others]
        if match.rename:
            self.changes.append(EvolutionStep("rename", ".".join(path), column.name))
        kind, children = self._merged(column.field_type, written.type, _Place(path, place.part))
        if (name, kind, doc) == (column.name, column.field_type, column.doc):
            return column, children
        return NestedField(column.field_id, name, kind, required=column.required, doc=doc), children

    def _merged(
        self, column: IcebergType, written: pa.DataType, place: _Place
    ) -> tuple[IcebergType, tuple[Bound, ...]]:
        """The column's type, widened and with what is new inside; `column` takes `written`."""
        if isinstance(column, StructType):
            fields, bound = self.struct(column.fields, written, place)
            return (StructType(*fields) if tuple(fields) != column.fields else column), tuple(bound)
        if isinstance(column, ListType):
            inner, children = self._merged(column.element_type, written.value_type, place.inside("element"))
            same = inner == column.element_type
            return column if same else ListType(column.element_id, inner, column.element_required), (
                Bound(0, children),
            )
        if isinstance(column, MapType):
            inner, children = self._merged(column.value_type, written.item_type, place.inside("value"))
            changed = MapType(column.key_id, column.key_type, column.value_id, inner, column.value_required)
            return column if inner == column.value_type else changed, (Bound(0, children),)
        kind = widened(column, written)
        if kind != column:
            self.changes.append(EvolutionStep("widen", ".".join(place.path), str(kind)))
        return kind, ()

    def _made(self, written: pa.DataType, place: _Place) -> tuple[IcebergType, tuple[Bound, ...]]:
        """A new column's type; changes inside are not told of."""
        told = len(self.changes)
        if pa.types.is_struct(written):
            fields, bound = self.struct((), written, place)
            kind: IcebergType = StructType(*fields)
            children = tuple(bound)
        elif pa.types.is_map(written):
            key_id, value_id = next(self.ids), next(self.ids)
            inner, held = self._made(written.item_type, place.inside("value"))
            kind = MapType(key_id, primitive(written.key_type), value_id, inner, value_required=False)
            children = (Bound(0, held),)
        elif pa.types.is_list(written):
            element_id = next(self.ids)
            inner, held = self._made(written.value_type, place.inside("element"))
            kind = ListType(element_id, inner, element_required=False)
            children = (Bound(0, held),)
        else:
            kind, children = primitive(written), ()
        del self.changes[told:]
        return kind, children


def _doc(written: pa.Field, place: _Place) -> str:
    given = (written.metadata or {}).get(DOC, b"").decode("utf-8", "replace").strip()
    if given:
        return str(given[:COLUMN_DOC_CHARS_MAX])
    if place.part == "key" and not place.path:
        return "the record's key, decoded"
    return f'field "{source_of(written)}" of the {place.part}'


def _written_as(names: Sequence[str]) -> str:
    return "; written as " + ", ".join(f'"{name}"' for name in names)
