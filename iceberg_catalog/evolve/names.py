"""What a field of a value is called in the table.

Source names are compared exactly; column names must differ for every engine, some of which do not look at case. A name
that had to change is remembered by field id (the property below), so it is chosen once, whatever comes later.

Of which typed columns the files keep bounds.

Statistics of every column of every file lie in the manifests, so a table of 400 columns keeps them of some only:
Kafka's own (set when the table is created) and the first METRICS_COLUMNS_MAX top-level value columns that are no
structs, lists or maps. What is set once stays, whatever order columns have later.

Under which names a column's values were ever written: the table's property `tierberg.sources`.

A compact JSON object: field id → list of source names, the present one first. Only columns that are written under
anything but their own name are in it. Names are only ever added, and each name of a list leads writers to that column.
Ids of columns that are gone may stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, NestedField, StringType

from converter.parquet import columns
from converter.parquet.columns import zone
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import COLUMN_NAME_CHARS_MAX, METRICS_COLUMNS_MAX

#: Iceberg's own columns of every table in Spark, which cannot read or write a table that has one of the name.
METADATA_COLUMNS: Final = frozenset(
    (
        "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _change_type _change_ordinal "
        "_commit_snapshot_id"
    ).split()
)
#: With Trino's, which hide a table's column of the name; in lower case, and no column may have one in any.
ENGINES_COLUMNS: Final = METADATA_COLUMNS | {"$path", "$partition", "$file_modified_time"}
#: Dots separate nested names; backquotes and quotes end a quoted name; nobody can type control characters.
_UNSAFE: Final = re.compile(r"[.`\"\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_EMPTY: Final = "x_empty"


def folded(column: str) -> str:
    """Equal for names that some engine takes for the same one."""
    # Java takes i and the capital I with a dot for the same; Python makes two characters of it.
    return column.replace("\u0130", "i").upper().casefold()


def column_name(source: str, taken: Collection[str], *, variant: bool, top: bool) -> str:
    """A column's name for a field's.

    Args:
        source: the field's name in the writer's schema.
        taken: the folded names of all columns of the same parent.
        variant: a column for this source name is there, but its type does not fit: `name__v2`, `name__v3`, … are tried.
            Otherwise a name that is taken becomes `name__case2`, `name__case3`, ….
        top: a top-level column of the value; names of Kafka's columns, the key's and the engines' get an `x` in front.
    """
    name = _UNSAFE.sub("_", source)[:COLUMN_NAME_CHARS_MAX] or _EMPTY
    if top and (zone(name) != "value" or name.lower() in ENGINES_COLUMNS):
        name = f"x{name}"
    if not variant and folded(name) not in taken:
        return name
    number, suffix = 2, "v" if variant else "case"
    while folded(candidate := f"{name}__{suffix}{number}") in taken:
        number += 1
    return candidate


_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."


def metrics_changes(before: Schema, after: Schema, properties: Mapping[str, str]) -> dict[str, str | None]:
    """Properties to set on a typed table whose columns change; None: to remove, for a column that has another name now.

    Engines refuse to change a table with a metrics property for a column it has not.
    """
    changes: dict[str, str | None] = {} if properties.get(_DEFAULT) == "none" else {_DEFAULT: "none"}
    if (error := f"{_COLUMN}{columns.ERROR}") not in properties:
        changes[error] = "full"
    former = {column.field_id: column.name for column in before.fields}
    primitives = [column for column in after.fields if zone(column.name) == "value" and column.field_type.is_primitive]
    kept, new = [], []
    for column in primitives:
        old = former.get(column.field_id, column.name)
        if f"{_COLUMN}{old}" not in properties:
            new.append(column)
            continue
        kept.append(column)
        if old != column.name:
            changes[f"{_COLUMN}{old}"] = None
            changes[f"{_COLUMN}{column.name}"] = properties[f"{_COLUMN}{old}"]
    for column in new[: max(METRICS_COLUMNS_MAX - len(kept), 0)]:
        changes[f"{_COLUMN}{column.name}"] = _mode(column)
    return changes


def _mode(field: NestedField) -> str:
    return "truncate(16)" if isinstance(field.field_type, StringType | BinaryType) else "full"


SOURCES: Final = "tierberg.sources"


@dataclass(frozen=True, slots=True)
class Sources:
    """names: source names by field id, where they differ from the column's own name."""

    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def of(self, column: NestedField) -> tuple[str, ...]:
        """Every name the column is written under, the present name first."""
        return self.names.get(column.field_id, (column.name,))

    def encode(self) -> str:
        """The property's value; equal sources give equal texts."""
        return json.dumps({str(key): list(self.names[key]) for key in sorted(self.names)}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str | None) -> Sources:
        """The inverse. None: the table has no such property.

        Raises:
            CatalogError: `schema_mismatch` for a property that Tierberg has not written.
        """
        if text is None:
            return cls()
        try:
            read = {int(key): names for key, names in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise CatalogError("schema_mismatch", f"table property {SOURCES} cannot be read: {error}") from error
        lists = (
            names and isinstance(names, list) and all(isinstance(n, str) for n in names) for names in read.values()
        )
        if not all(lists):
            raise CatalogError("schema_mismatch", f"table property {SOURCES} must list names by field id: {text[:200]}")
        return cls({key: tuple(names) for key, names in read.items()})
