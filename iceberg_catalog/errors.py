"""The one error of this room.

`kind` is stable: logs and metrics use the same word. A new kind is added only if the caller would act differently.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

from pyiceberg.exceptions import ResolveError, ValidationError

from converter.errors import TierbergError

CatalogErrorKind = Literal[
    "owner_mismatch",  # the table belongs to another cluster, topic or topic id: never write it
    "schema_mismatch",  # table or data file has other columns, field ids or partitioning than this release writes
    "table_unreadable",  # the catalog has an entry for the table, and its metadata is not there: a person must decide
    "corrupt_state",  # the recorded state does not parse or does not match its hash
    "state_missing",  # the table has rows but no recorded state: never treat that as an empty table
    "bad_settings",  # the catalog cannot be opened with what was given
    "older_generation",  # the table follows newer rules: leave its columns alone until this bridge has them too
    "unavailable",  # catalog or its storage did not answer: try again later
]


#: What reading metadata raises that is there and is not what was written: JSON, Avro, compressed, or of other fields.
#: The last three are what PyIceberg's Avro reader makes of lengths and types that nobody wrote.
DAMAGE: Final = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    zlib.error,
    ValidationError,
    ResolveError,
    SystemError,
    MemoryError,
)


def damage_of(error: BaseException) -> str:
    """One line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


class CatalogError(TierbergError):
    """Why a table could not be opened, read or written.

    Attributes:
        kind: stable word, see :data:`CatalogErrorKind`.
        table: full name of the table it is about, where that is known.
    """

    def __init__(self, kind: CatalogErrorKind, message: str, table: str | None = None) -> None:
        super().__init__(message)
        self.kind: CatalogErrorKind = kind
        self.table = table
