"""What every value decoder offers, and how its columns become the table's.

A decoder belongs to one *writer schema*: the schema one record was written with. It turns many values at once into a
struct array whose children are the schema's fields by their own names, in the types below. It never fails because of a
value: a row that does not decode is a null struct with an error. An encoder goes the other way; what it is made of is
stored with the rows that need no bytes because of it.

Types that columns may have, each with its Iceberg twin: bool, int32, int64, float64, decimal128(p <= 38, s), date32,
timestamp[us] (without zone), timestamp[us, UTC], string, binary, list, map (keys: string, bool, int32, int64), struct.
Nothing else: no float32 (Trino fails on promoted floats), no time of day and no uuid (Spark reads no table with the
one, engines disagree on the other). Every field is nullable; a struct has at least one field, and a record without
fields is a bool: true where it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.limits import CELLS_PER_BYTE, EXCESS_CELLS_MAX, FILE_CELLS_MAX, SLOW_STEPS_MAX, VALUE_CELLS_MAX
from converter.types import Int64Array, VarBytes
from converter.values.allowance import Allowance

#: Name of the only field of a schema that is no record: a bare string, number, array, map, …
BARE_VALUE = "value"
#: Metadata of a field: former names in the writer's schema, as a JSON list of strings (Avro's aliases).
ALIASES = b"tierberg.aliases"
#: Metadata of a field: its description, UTF-8.
DOC = b"tierberg.doc"
#: Field metadata: the name that its column is found by, where it is not the field's.
SOURCE = b"tierberg.source"

ERROR_TEXT_MAX = 200


class ValueProblem(StrEnum):
    """Why a value has no columns. Stable: `_kafka_error` begins with it, then `: ` and a text for people."""

    NOT_WIRE_FORMAT = "not_wire_format"  # shorter than its header, or another magic byte
    UNKNOWN_SCHEMA = "unknown_schema"  # the registry has no schema of this id
    UNUSABLE_SCHEMA = "unusable_schema"  # it has one, which is of another kind or cannot be understood
    UNDECODABLE = "undecodable"  # the bytes do not follow the schema; trailing bytes, too
    TYPE_MISMATCH = "type_mismatch"  # JSON: a value of another type than the schema's
    OUT_OF_RANGE = "out_of_range"  # follows the schema, but its column's type cannot hold it exactly
    INCOMPATIBLE_SCHEMA = "incompatible_schema"  # the table's columns cannot take this schema, and the rule says so
    INVALID_UTF8 = "invalid_utf8"
    INTERNAL = "internal"  # an unexpected error of ours; replay the dead letters after an upgrade


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of n values.

    Attributes:
        columns: a pa.StructArray of length n and the decoder's type; null where the value did not decode.
        errors: a pa.StringArray of length n: null where it did, else `<ValueProblem>: <text>`, at most ERROR_TEXT_MAX
            characters, the same text for the same kind of damage where that is possible.
        cells: that the columns take, at least.
    """

    columns: pa.StructArray
    errors: pa.StringArray
    cells: int = 0


class CellsExceededError(Exception):
    """Values take more cells together than their caller can have now. Fewer of them at once may take less."""

    def __init__(self, cells: int) -> None:
        super().__init__(f"values take {cells} cells")
        self.cells = cells


#: As many cells as values take: for callers whose values are few, or known.
CELLS_UNLIMITED: Final = 2**62


class Decoder(Protocol):
    """Decodes values of one writer schema. Immutable after it was made; may be used by several threads."""

    @property
    def type(self) -> pa.StructType:
        """The columns: source names, types of the module's list, ALIASES and DOC as field metadata."""
        ...

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        """Decodes values, none of them null, without wire-format header. Never raises for what they contain.

        What the columns take is counted before they are allocated. A value of more than limits.VALUE_CELLS_MAX has an
        error, and one that `allowance` has no room for.

        Args:
            values: of this decoder's schema.
            cells_max: that may be allocated.
            allowance: of the file they go to; None: they take what they take.

        Raises:
            CellsExceededError: those without an error take more than `cells_max` together; `allowance` is then to be
                given back.
        """
        ...

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
        """How values like these, given as to decode(), are written; None: not at all. What it gives may fit none."""
        ...


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoder is made of. Stored in segment indexes: what a kind and version mean never changes.

    Attributes:
        kind: `avro`, `json` or `protobuf`.
        version: of the way values are written. Every version that was ever released stays readable.
        parameters: texts, the writer's schema among them.
    """

    kind: str
    version: int
    parameters: Mapping[str, str]


class Encoder(Protocol):
    """Writes values of one writer schema. Immutable after it was made; may be used by several threads."""

    @property
    def type(self) -> pa.StructType:
        """The columns it writes from: the type of the schema's decoder."""
        ...

    def encode(self, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
        """Values without wire-format header, at most so many as there are rows.

        Args:
            columns: n rows of `type`, any slice of an array. Whatever they hold, null where the schema knows no null
                included, nothing raises and nothing is written outside of a row's own bytes.
            sizes: how many bytes each row's value has; -1: the row is not wanted.

        Returns:
            n values; offsets follow from the sizes (0 bytes for -1). Valid where the row was wanted and what the
            encoder writes for it has exactly that many bytes; what others hold does not matter.
        """
        ...


class SchemaTextError(Exception):
    """A schema's text cannot be used. The message names the place in it and what is wrong."""


class NoMessageError(SchemaTextError):
    """The schema has no message at an index path. Values name such paths at will; to find it out costs nothing."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How one field of the table is filled from a writer's struct.

    Attributes:
        source: number of the field within the writer's struct; None: null in every row. Ignored for what stands for a
            list's element or a map's value.
        children: one per field of the table's struct, in its order; one for a list's element, one for a map's value;
            none for anything else.
    """

    source: int | None
    children: tuple[Bound, ...] = ()


def error_text(code: ValueProblem, text: str) -> str:
    """`code: text`, cut to ERROR_TEXT_MAX characters; what is no Unicode text in it is written as an escape."""
    return f"{code.value}: {text}".encode("utf-8", "backslashreplace").decode()[:ERROR_TEXT_MAX]


def is_unicode(text: str) -> bool:
    """Whether a text can be stored at all: JSON can write one half of a surrogate pair, and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def misfits(errors: pa.StringArray) -> Int64Array:
    """Rows, ascending, whose value is well-formed and does not fit the types of its columns: others might take it."""
    if errors.null_count == len(errors):
        return np.empty(0, dtype=np.int64)
    found = pc.match_substring_regex(errors, f"^({ValueProblem.TYPE_MISMATCH}|{ValueProblem.OUT_OF_RANGE}): ")
    return np.flatnonzero(np.asarray(pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)))


def too_many_cells(*, slow: bool = False) -> str:
    """The error of a value that takes more cells than one may; `slow`: while it is decoded, not as columns."""
    how = "has to be decoded slowly, which may take" if slow else "takes"
    return error_text(ValueProblem.OUT_OF_RANGE, f"{how} more than {VALUE_CELLS_MAX} cells")


#: What is said of a value that an Allowance refuses.
FILE_CELLS_TEXT: Final = (
    f"lists and maps of its file's values may take {EXCESS_CELLS_MAX} cells beyond {CELLS_PER_BYTE} for each byte, "
    f"{FILE_CELLS_MAX} in all, and {SLOW_STEPS_MAX} slow steps: no room for it"
)


def no_room_in_file() -> str:
    """The error of a value that an Allowance refuses."""
    return error_text(ValueProblem.OUT_OF_RANGE, FILE_CELLS_TEXT)


def error_codes(errors: pa.StringArray) -> Counter[str]:
    """How many rows have which code in `_kafka_error`, `key_…` for those of keys; rows without an error in none."""
    said = errors.drop_null()
    codes = pc.list_element(pc.split_pattern(said, ":", max_splits=1), 0)
    return Counter({item["values"]: item["counts"] for item in codes.value_counts().to_pylist()})
