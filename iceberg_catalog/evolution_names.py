"""What a field of a value is called in the table.

Source names are compared exactly; column names must differ for every engine, some of which do not look at case. A name
that had to change is remembered by field id (`evolution_sources.py`), so it is chosen once, whatever comes later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from converter.columns import zone
from iceberg_catalog.limits import COLUMN_NAME_CHARS_MAX

#: Spark's and Trino's own columns of every Iceberg table: a table that has one of the name cannot be read, or hides it.
_ENGINES: Final = frozenset(
    (
        "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _change_type _change_ordinal "
        "_commit_snapshot_id $path $partition $file_modified_time"
    ).split()
)
#: Dots separate nested names; backquotes and quotes end a quoted name; nobody can type control characters.
_UNSAFE: Final = re.compile(r"[.`\"\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_EMPTY: Final = "x_empty"


def folded(column: str) -> str:
    """Equal for names that some engine takes for the same one."""
    return column.upper().casefold()


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
    if top and (zone(name) != "value" or name.lower() in _ENGINES):
        name = f"x{name}"
    if not variant and folded(name) not in taken:
        return name
    number, suffix = 2, "v" if variant else "case"
    while folded(candidate := f"{name}__{suffix}{number}") in taken:
        number += 1
    return candidate
