"""Avro values to columns, for one writer schema. docs/types.md has the table of types.

The schema becomes a program (compile.py) that one compiled kernel runs over all values (kernel.py): once to
check every row and count, once to fill arrays, which then become Arrow's (assemble.py). A row stands or falls by
itself. Why a kernel and no library: docs/decisions/avro-kernel.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.kernels.kernel import kernel, readonly
from converter.limits import VALUE_CELLS_MAX
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.allowance import Allowance, refused_by
from converter.values.avro.assemble import Assembly, arrays, counters
from converter.values.avro.columns import Column, Form
from converter.values.avro.compile import Layout, lay_out
from converter.values.avro.encoder import avro_encoding
from converter.values.avro.kernel import run
from converter.values.avro.program import BASE, STACK_ROWS, TEXT_BASE, Damage, Filled
from converter.values.avro.recursive_json import Json
from converter.values.avro.schema import read_schema
from converter.values.model import (
    CELLS_UNLIMITED,
    FILE_CELLS_TEXT,
    CellsExceededError,
    Decoded,
    Decoder,
    Encoding,
    ValueProblem,
    error_text,
)
from converter.values.schema_size import check_levels

_STACK_COLUMNS: Final = 5
#: Cells of rows that failed that may be allocated for nothing.
LOST_CELLS_MAX: Final = 64 * 1024
_NO_REFERENCES: Final[Mapping[str, str]] = MappingProxyType({})


def avro_decoder(schema: str, references: Mapping[str, str] = _NO_REFERENCES) -> Decoder:
    """The decoder of one writer schema.

    Args:
        schema: the schema's JSON text.
        references: texts of the named types it uses without defining them, by name, as a registry has them.

    Raises:
        SchemaTextError: a text is no JSON or no schema, a type is defined nowhere or twice, or a limit is exceeded:
            NESTING_MAX, TEXT_CHARS_MAX (schema.py), COLUMNS_MAX (compile.py), PARQUET_LEVELS_MAX.
    """
    return AvroDecoder(schema, references)


class AvroDecoder:
    """See avro_decoder(). Immutable; decode() may run in several threads at once and holds no lock while it reads."""

    def __init__(self, schema: str, references: Mapping[str, str]) -> None:
        root, names = read_schema(schema, references)
        self._layout = lay_out(root, names)
        self._json = Json(names)
        self._type: pa.StructType = self._layout.columns.settle()
        check_levels(self._type)
        self._encoding = avro_encoding(self._layout, schema, references)

    @property
    def type(self) -> pa.StructType:
        """The columns: the schema's fields, or the single field BARE_VALUE for a schema that is no record."""
        return self._type

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        """See :class:`converter.values.model.Decoder`.

        Memory is a small multiple of the input's size, except for what cells take beside their contents.
        """
        rows = len(values)
        data, offsets = _buffers(values)
        damage = np.zeros(rows, np.uint8)
        seen_at = np.zeros(rows, np.int64)
        stack = np.zeros((STACK_ROWS, _STACK_COLUMNS), np.int64)
        taken = np.zeros(rows, np.int64)
        counted = counters(self._layout, rows)
        run(self._layout.program, counted, stack, data, offsets, damage, seen_at, taken, False)
        sizes = offsets[1:].astype(np.int64) - offsets[:-1]
        damage[refused_by(allowance, np.where(damage == 0, taken, 0), sizes)] = Damage.NO_ROOM
        if int(taken[damage != 0].sum()) > LOST_CELLS_MAX:  # or what failed would be allocated, too
            counted = counters(self._layout, rows)
            run(self._layout.program, counted, stack, data, offsets, damage, seen_at, taken, False)
        cells = int(taken[damage == 0].sum()) + rows * self._layout.cells
        if cells > cells_max:
            raise CellsExceededError(cells)
        filled = self._fill(counted, data, offsets, damage, seen_at)
        twice = rows_with_keys_twice(self._layout, filled)
        if len(twice):
            damage[twice] = Damage.TWICE
            filled = self._fill(counted, data, offsets, damage, seen_at)
        columns = Assembly(self._layout, filled, (damage == 0).view(np.uint8), self._json).columns()
        return Decoded(columns, errors(damage, seen_at, self._layout.places), cells)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:  # noqa: ARG002
        """As the usual writers do, whatever the sample; None where a record lies within itself."""
        return self._encoding

    def _fill(
        self, counted: Filled, data: UInt8Array, offsets: np.ndarray, damage: UInt8Array, seen_at: np.ndarray
    ) -> Filled:
        filled = arrays(self._layout, counted)
        stack = np.zeros((STACK_ROWS, _STACK_COLUMNS), np.int64)
        run(self._layout.program, filled, stack, data, offsets, damage, seen_at, np.zeros(len(damage), np.int64), True)
        return filled


def _buffers(values: pa.BinaryArray) -> tuple[UInt8Array, np.ndarray]:
    """(bytes, offsets) of an array, which may be a slice."""
    _, offsets, data = values.buffers()
    size = len(values) + 1
    if offsets is None or offsets.size == 0:
        starts = np.zeros(size, np.int32)
    else:
        starts = np.frombuffer(offsets, np.int32, size, values.offset * 4)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return readonly(content, np.uint8), readonly(starts, np.int32)


_BAD = ValueProblem.UNDECODABLE
_RANGE = ValueProblem.OUT_OF_RANGE
_TEXTS: Final = {
    Damage.SHORT: (_BAD, "the value ends too early"),
    Damage.VARINT: (_BAD, "a number does not end"),
    Damage.INT_RANGE: (_BAD, "an int of more than 32 bits"),
    Damage.BOOL: (_BAD, "a boolean that is neither 0 nor 1"),
    Damage.LENGTH: (_BAD, "a negative length"),
    Damage.UTF8: (_BAD, "a string that is not UTF-8"),
    Damage.ENUM: (_BAD, "a symbol the enum does not have"),
    Damage.BRANCH: (_BAD, "a branch the union does not have"),
    Damage.COUNT: (_BAD, "an impossible count or size of a block"),
    Damage.TRAILING: (_BAD, "bytes after the value's end"),
    Damage.TWICE: (_BAD, "a map with a key twice"),
    Damage.DEEP: (_RANGE, "nested too deep"),
    Damage.TIMESTAMP: (_RANGE, "a timestamp beyond 64 bits of microseconds"),
    Damage.DECIMAL: (_RANGE, "a decimal with more digits than its type"),
    Damage.CELLS: (_RANGE, f"takes more than {VALUE_CELLS_MAX} cells"),
    Damage.NO_ROOM: (_RANGE, FILE_CELLS_TEXT),
    Damage.EMPTY_ITEMS: (_RANGE, "more items that take no bytes than the value has bytes"),
}

#: What is of the whole value, wherever it was noticed.
_WHOLE: Final = (Damage.TWICE, Damage.NO_ROOM)


def errors(damage: UInt8Array, seen_at: Int64Array, places: tuple[str, ...]) -> pa.StringArray:
    """A text per row, null where the row was read.

    Args:
        damage: per row, a Damage.
        seen_at: per row, the instruction it was seen at.
        places: of each instruction, the field it reads.
    """
    if not damage.any():
        return pa.nulls(len(damage), pa.string())
    kinds, which = np.unique(damage.astype(np.int64) * len(places) + seen_at, return_inverse=True)
    texts = [_text(Damage(kind // len(places)), places[kind % len(places)]) for kind in kinds.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(which, pa.int64()))


def _text(damage: Damage, place: str) -> str | None:
    if damage is Damage.OK:
        return None
    problem, text = _TEXTS[damage]
    at = f", at {place}" if place and damage not in _WHOLE else ""
    return error_text(problem, text + at)


#: Larger maps are compared by Python's sets: nobody can make those slow by choosing keys.
_PAIRWISE_MAX = 32


def rows_with_keys_twice(layout: Layout, filled: Filled) -> Int64Array:
    """Numbers of the rows in which a map has a key twice."""
    found: list[Int64Array] = []
    _search(layout.columns, filled, [], found)
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _search(column: Column, filled: Filled, owners: list[Column], found: list[Int64Array]) -> None:
    """Adds to `found`. `owners`: lists and maps this column lies in, the outermost first."""
    if column.slot >= 0 and filled.slots[column.slot, BASE] < 0:
        return
    if column.form is Form.MAP:
        twice = _maps_with_keys_twice(column, filled)
        for owner in reversed(owners):
            twice = np.searchsorted(_starts(owner, filled), twice, side="right") - 1
        if len(twice):
            found.append(twice)
    inner = [*owners, column] if column.form in (Form.LIST, Form.MAP) else owners
    for child in column.children:
        _search(child, filled, inner, found)


def _lengths(column: Column, filled: Filled) -> npt.NDArray[np.int32]:
    base = int(filled.slots[column.slot, BASE])
    return filled.ints[base : base + int(filled.counts[column.group])]


def _starts(column: Column, filled: Filled) -> Int64Array:
    """Number of the first item of each list."""
    lengths = _lengths(column, filled).astype(np.int64)
    return np.cumsum(lengths) - lengths


def _maps_with_keys_twice(column: Column, filled: Filled) -> Int64Array:
    """Numbers of a column's maps that have a key twice."""
    sizes = _lengths(column, filled)
    keys = column.children[0]
    if not len(sizes) or sizes.max() < 2:
        return np.empty(0, np.int64)
    key_sizes = _lengths(keys, filled).astype(np.int64)
    key_ends = filled.slots[keys.slot, TEXT_BASE] + np.cumsum(key_sizes)
    starts = _starts(column, filled)
    twice = np.zeros(len(sizes), np.bool_)
    _compare(filled.texts, key_ends - key_sizes, key_ends, starts, sizes, twice)
    for i in np.flatnonzero(sizes > _PAIRWISE_MAX).tolist():
        here = slice(int(starts[i]), int(starts[i]) + int(sizes[i]))
        begins, ends = (key_ends - key_sizes)[here].tolist(), key_ends[here].tolist()
        distinct = {filled.texts[b:e].tobytes() for b, e in zip(begins, ends, strict=True)}
        twice[i] = len(distinct) < int(sizes[i])
    return np.flatnonzero(twice)


@kernel
def _compare(
    data: UInt8Array,
    begins: Int64Array,
    ends: Int64Array,
    starts: Int64Array,
    sizes: npt.NDArray[np.int32],
    twice: BoolArray,
) -> None:
    """Sets `twice` for maps of at most _PAIRWISE_MAX keys."""
    for i in range(len(sizes)):
        if sizes[i] <= _PAIRWISE_MAX:
            for a in range(starts[i], starts[i] + sizes[i]):
                for b in range(starts[i], a):
                    size = ends[a] - begins[a]
                    if ends[b] - begins[b] == size:
                        k = 0
                        while k < size and data[begins[a] + k] == data[begins[b] + k]:
                            k += 1
                        if k == size:
                            twice[i] = True
