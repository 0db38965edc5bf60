"""Columns back into JSON values, in the style of their writer: docs/types.md says which column is which value.

columns ─ flat_cells ─► flat arrays ─ write_rows ─► each value in its own bytes
schema, style ─ make_program ─► steps ──┘

All values a writer makes in one style come out byte for byte. Others (other white space, an order of members that
changes, a time in another zone than the rest) come out with another size, or with their size and other bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.kernels.kernel import readonly
from converter.types import BoolArray, Int64Array, UInt8Array, VarBytes
from converter.values.json import nodes
from converter.values.json.encode_cells import flat_cells
from converter.values.json.encode_compile import make_program
from converter.values.json.encode_kernel import FRAME_COLUMNS, write_rows
from converter.values.json.encode_scalars import DIGITS_MAX
from converter.values.json.nodes import Node, make_plan
from converter.values.json.schema.parse import parse_schema
from converter.values.json.style import Style, parse_style
from converter.values.model import BARE_VALUE, Encoder

KIND: Final = "json"
VERSION: Final = 1
#: Parameters of an encoding: the text of the JSON Schema, and of the style.
SCHEMA: Final = "schema"
STYLE: Final = "style"
#: Rows are worked on in pieces of about this size.
_PIECE_BYTES: Final = 4 * 1024 * 1024


def json_encoder(parameters: Mapping[str, str]) -> Encoder:
    """The encoder of an encoding of kind `json`, version 1.

    Raises:
        KeyError: a parameter is missing.
        SchemaTextError: the schema cannot be used.
        ValueError: the style is none, or one of another schema.
    """
    return _JsonEncoder(parse_schema(parameters[SCHEMA]), parse_style(parameters[STYLE]))


class _JsonEncoder:
    def __init__(self, root: Node, style: Style) -> None:
        self._root = root
        self._bare = root.kind != nodes.STRUCT
        bare = pa.struct([pa.field(BARE_VALUE, root.type, metadata=root.field().metadata)])
        self._type: pa.StructType = bare if self._bare else root.type
        self._program = make_program(root, make_plan(root).numbers, style)

    @property
    def type(self) -> pa.StructType:
        return self._type

    def encode(self, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
        """See :class:`converter.values.model.Encoder`."""
        offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
        out = np.empty(int(offsets[-1]), dtype=np.uint8)
        good = sizes >= 0
        if columns.null_count:
            good &= columns.is_valid().to_numpy(zero_copy_only=False)
        for first, behind in piece_bounds(offsets, _PIECE_BYTES):
            if good[first:behind].any():
                self._piece(columns[first:behind], out, offsets[first : behind + 1], good[first:behind])
        return VarBytes(offsets, out, good)

    def _piece(self, columns: pa.StructArray, out: UInt8Array, offsets: Int64Array, good: BoolArray) -> None:
        cells = flat_cells(self._root, columns.field(0) if self._bare else columns)
        write_rows(
            out,
            readonly(offsets, np.int64),
            good,
            self._program,
            cells,
            np.empty((self._program.depth, FRAME_COLUMNS), dtype=np.int64),
            np.empty(DIGITS_MAX, dtype=np.uint8),
        )


_ROWS_MAX: Final = 65_536


def piece_bounds(offsets: npt.NDArray[Any], size: int) -> list[tuple[int, int]]:
    """Runs `[first, end)` of the rows between n + 1 offsets, each of about `size` bytes and at most _ROWS_MAX rows."""
    runs = []
    first, count = 0, len(offsets) - 1
    while first < count:
        end = int(np.searchsorted(offsets, int(offsets[first]) + size, side="right")) - 1
        end = min(max(end, first + 1), first + _ROWS_MAX, count)
        runs.append((first, end))
        first = end
    return runs
