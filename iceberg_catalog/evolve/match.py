"""Which field of a writer's struct belongs to which column of the table's.

1. *By name.* The columns are asked in the order they were made. Each takes the field that has one of its source names
   and a type it can hold; of several the one that has its present name, so that a former name may be used again.
2. *By alias.* A field that no column knows by name, when exactly one column that takes it has one of its aliases as a
   source name, and no other field has claimed it: the column is renamed.
3. *None.* The others need a column of their own.

Once a field is bound to a column, it stays so: a column is renamed only while none has the new name, new columns are
asked last, source names are given only where no column of the same parent has them, and widening does not change what
a column takes. An alias that is also the name of a field beside it says nothing about that field's column and is not
looked at.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import NestedField

from converter.values.model import ALIASES, SOURCE
from iceberg_catalog.evolve.types import takes
from iceberg_catalog.limits import SOURCE_NAME_CHARS_MAX, SOURCE_NAMES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Where one field goes.

    Attributes:
        column: number of the column within the parent; None: it needs one of its own.
        rename: the column gets the field's name.
        known: some column of the parent is written under the field's name.
        misfits: one of those cannot hold the field's type.
        learn: names the column is not known under yet and shall be: the field's own after a rename, and its aliases.
    """

    column: int | None
    rename: bool
    known: bool
    misfits: bool
    learn: tuple[str, ...]


def matched(columns: Sequence[NestedField], names: Sequence[Sequence[str]], writer: pa.StructType) -> list[Match]:
    """One match per field of `writer`. `names`: source names of each column, the present one first."""
    fields = list(writer)
    family: dict[str, list[int]] = {}
    for place, item in enumerate(names):
        for name in item:
            family.setdefault(name, []).append(place)
    own = {source_of(field) for field in fields}
    aliases = [[alias for alias in _aliases(field) if alias not in own] for field in fields]
    column_of = _by_name(columns, names, fields)
    renamed = set()
    # Sorted, so that the order of fields in a schema does not matter.
    order = sorted(range(len(fields)), key=lambda number: source_of(fields[number]))
    for number in order:
        if number in column_of or source_of(fields[number]) in family:
            continue
        former = {place for alias in aliases[number] for place in family.get(alias, ())}
        fitting = [place for place in former if takes(columns[place].field_type, fields[number].type)]
        if len(fitting) == 1 and fitting[0] not in column_of.values() and len(names[fitting[0]]) < SOURCE_NAMES_MAX:
            column_of[number] = fitting[0]
            renamed.add(number)
    learn = _to_learn(order, column_of, renamed, names, fields, aliases)
    return [
        Match(
            column=column_of.get(number),
            rename=number in renamed,
            known=field.name in family or source_of(field) in family,
            misfits=not all(takes(columns[place].field_type, field.type) for place in family.get(source_of(field), ())),
            learn=learn[number],
        )
        for number, field in enumerate(fields)
    ]


def _by_name(
    columns: Sequence[NestedField], names: Sequence[Sequence[str]], fields: Sequence[pa.Field]
) -> dict[int, int]:
    """Column by field, both as numbers."""
    numbers: dict[str, list[int]] = {}
    for number, field in enumerate(fields):
        numbers.setdefault(source_of(field), []).append(number)
    column_of: dict[int, int] = {}
    for place in sorted(range(len(columns)), key=lambda item: columns[item].field_id):
        claims = (number for name in names[place] for number in numbers.get(name, ()))
        fitting = (n for n in claims if n not in column_of and takes(columns[place].field_type, fields[n].type))
        if (claim := next(fitting, None)) is not None:
            column_of[claim] = place
    return column_of


def _to_learn(
    order: Sequence[int],
    column_of: dict[int, int],
    renamed: set[int],
    names: Sequence[Sequence[str]],
    fields: Sequence[pa.Field],
    aliases: Sequence[Sequence[str]],
) -> list[tuple[str, ...]]:
    """Names each field's column is to remember beside those it has, without any that another column has."""
    taken = {name for item in names for name in item} | {source_of(field) for field in fields}
    learn: list[tuple[str, ...]] = [()] * len(fields)
    for number in order:
        place = column_of.get(number)
        found = [source_of(fields[number])] if number in renamed else []
        room = SOURCE_NAMES_MAX - (1 if place is None else len(names[place]))
        for alias in aliases[number]:
            if alias not in taken and len(found) < room:
                found.append(alias)
                taken.add(alias)
        learn[number] = tuple(found)
    return learn


def source_of(field: pa.Field) -> str:
    """The name that the field's column is found by."""
    given: bytes | None = (field.metadata or {}).get(SOURCE)
    return str(field.name) if given is None else given.decode()


def _aliases(field: pa.Field) -> list[str]:
    """Former names, without those no column could remember."""
    text = (field.metadata or {}).get(ALIASES)
    if text is None:
        return []
    read = json.loads(text)
    return [name for name in read if isinstance(name, str) and 0 < len(name) <= SOURCE_NAME_CHARS_MAX]
