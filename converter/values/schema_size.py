"""What a schema takes where its parts are used: a text of a few hundred KB can stand for gigabytes, and for hours.

A type, an enum's symbols or a namespace is written down once and used ten thousand times; what is made of each use, a
column with its texts, is made anew. So it is counted there, before it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from converter.values.model import SchemaTextError

#: Characters of names, documentation and symbols of one schema; each counts where it is used. 10,000 columns with 1,600
#: each.
SCHEMA_SIZE_MAX: Final = 16 * 1024 * 1024
PLACE_CHARS_MAX: Final = 200
#: Of Parquet's schema tree, below a column: a struct is one, a list or a map two. Readers stop at 98 (pyarrow's limit),
#: and what waits for a row group of many columns (packed_rows.py) at 63 of Arrow's, which are no more than these.
PARQUET_LEVELS_MAX: Final = 60
#: Characters of one name or symbol. A value of a byte may stand for one, so that each row has it again.
NAME_CHARS_MAX: Final = 1024


@dataclass(slots=True)
class SchemaSize:
    """Of one schema, while it is read and laid out."""

    used: int = 0

    def add(self, size: int, place: str) -> None:
        """Counts the characters that a use takes. Raises SchemaTextError when they are too many in all."""
        self.used += size
        if self.used > SCHEMA_SIZE_MAX:
            raise SchemaTextError(
                f"{place[-PLACE_CHARS_MAX:]}: the schema takes more than {SCHEMA_SIZE_MAX} characters, those of types, "
                "names and symbols counted where used"
            )


def check_levels(columns: pa.DataType) -> None:
    """Raises SchemaTextError when the columns nest so deep that no reader would open a file that has them."""
    levels = _levels(columns)
    if levels > PARQUET_LEVELS_MAX:
        raise SchemaTextError(
            f"schema: its columns would have {levels} levels, more than {PARQUET_LEVELS_MAX}; a struct is one, a list "
            "or a map two"
        )


def _levels(kind: pa.DataType) -> int:
    if pa.types.is_map(kind):
        return 2 + max(_levels(kind.key_type), _levels(kind.item_type))
    if pa.types.is_list(kind):
        return 2 + _levels(kind.value_type)
    if pa.types.is_struct(kind):
        return 1 + max((_levels(kind.field(number).type) for number in range(kind.num_fields)), default=0)
    return 0


def check_name(name: str, place: str) -> None:
    """Raises SchemaTextError when what values stand for, a name or a symbol, is longer than NAME_CHARS_MAX."""
    if len(name) > NAME_CHARS_MAX:
        raise SchemaTextError(
            f"{place[-PLACE_CHARS_MAX:]}: {name[:40]!r}... has {len(name)} characters; names and symbols "
            f"have {NAME_CHARS_MAX} at most"
        )


def place_within(place: str, part: str) -> str:
    """A place in a schema, for messages; short, however long both are."""
    return place[-PLACE_CHARS_MAX:] + part[:PLACE_CHARS_MAX]
