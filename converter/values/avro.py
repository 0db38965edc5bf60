"""Avro values to columns, for one writer schema. docs/types.md has the table of types.

The schema becomes a program (avro_program.py) that one compiled kernel runs over all values (avro_kernel.py): once to
check every row and count, once to fill arrays, which then become Arrow's (avro_columns.py). A row stands or falls by
itself. Why a kernel and no library: docs/decisions/avro-kernel.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from converter.kernel import readonly
from converter.types import UInt8Array
from converter.values.allowance import Allowance, refused_by
from converter.values.avro_columns import Assembly, arrays, counters
from converter.values.avro_encode import avro_encoding
from converter.values.avro_errors import errors
from converter.values.avro_json import Json
from converter.values.avro_kernel import run
from converter.values.avro_maps import rows_with_keys_twice
from converter.values.avro_ops import STACK_ROWS, Damage, Filled
from converter.values.avro_program import lay_out
from converter.values.avro_schema import read_schema
from converter.values.model import CELLS_UNLIMITED, CellsExceededError, Decoded, Decoder, Encoding
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
            NESTING_MAX, TEXT_CHARS_MAX (avro_schema.py), COLUMNS_MAX (avro_program.py), PARQUET_LEVELS_MAX.
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
