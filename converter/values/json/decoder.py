"""JSON values into columns, by a JSON Schema. docs/decisions/json-decoding.md says why it is done this way.

values ─ split ─► tape ─ gather ─► columns of text ─ casts ─► Arrow
│ odd                      │ proof: not what the value says
└──────────► json_rows ◄───┘  one by one, exact, with the reason
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from converter.kernels.kernel import readonly
from converter.kernels.utf8 import valid_utf8
from converter.limits import VALUE_CELLS_MAX
from converter.types import BoolArray, UInt8Array, VarBytes
from converter.values.allowance import Allowance, refused_by
from converter.values.json import nodes
from converter.values.json.count import most
from converter.values.json.encoder import KIND, SCHEMA, STYLE, VERSION, piece_bounds
from converter.values.json.exact_reader import BadValue
from converter.values.json.exact_rows import decode_row
from converter.values.json.gather import arrow_array, gather
from converter.values.json.nodes import Node, NodePlan, make_plan
from converter.values.json.proof import proved
from converter.values.json.schema.parse import parse_schema
from converter.values.json.split import split
from converter.values.json.style import style_text
from converter.values.json.style_sample import sample_style
from converter.values.model import (
    BARE_VALUE,
    CELLS_UNLIMITED,
    CellsExceededError,
    Decoded,
    Decoder,
    Encoding,
    error_text,
    no_room_in_file,
    too_many_cells,
)
from converter.values.schema_size import check_levels

#: Values are worked on in pieces of about this size, which a processor's cache holds with what becomes of them.
_PIECE_BYTES: Final = 1024 * 1024


def json_decoder(schema: str) -> Decoder:
    """A decoder of values that are JSON texts (RFC 8259, UTF-8) of this JSON Schema.

    Args:
        schema: text of the schema, draft 4 to 2020-12; docs/types.md says what is made of it. One that is no object
            with properties gives one column, `value`.

    Raises:
        SchemaTextError: the schema cannot be used; the message names the place in it.
    """
    return _JsonDecoder(parse_schema(schema), schema)


class _JsonDecoder:
    def __init__(self, root: Node, schema: str) -> None:
        self._root = root
        self._schema = schema
        self._plan: NodePlan = make_plan(root)
        self._cells = root.cells
        self._bare = root.kind != nodes.STRUCT
        bare = pa.struct([pa.field(BARE_VALUE, root.type, metadata=root.field().metadata)])
        self._type: pa.StructType = bare if self._bare else root.type
        check_levels(self._type)

    @property
    def type(self) -> pa.StructType:
        return self._type

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        cells = len(values) * self._cells
        if cells > cells_max:
            raise CellsExceededError(cells)
        if len(values) == 0:
            return Decoded(pa.array([], type=self._type), pa.array([], type=pa.string()))
        offsets, data = _buffers(values)
        pieces: list[Decoded] = []
        for first, behind in piece_bounds(offsets, _PIECE_BYTES):
            pieces.append(self._piece(data, offsets[first : behind + 1], cells_max - cells, allowance))
            cells += pieces[-1].cells
        columns = pa.concat_arrays([piece.columns for piece in pieces])
        return Decoded(columns, pa.concat_arrays([piece.errors for piece in pieces]), cells)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
        """See :class:`converter.values.model.Decoder`. Each schema's columns can be written."""
        style = style_text(sample_style(self._root, sample))
        return Encoding(KIND, VERSION, {SCHEMA: self._schema, STYLE: style})

    def _piece(self, data: UInt8Array, offsets: np.ndarray, cells_max: int, allowance: Allowance | None) -> Decoded:
        """`cells_max`, and what is counted of the result: without those of the row's own columns."""
        rows = len(offsets) - 1
        sizes = offsets[1:].astype(np.int64) - offsets[:-1]
        wanted = (sizes <= nodes.VALUE_BYTES_MAX) & _utf8(data, offsets)
        plan = self._plan
        tape, slots, good, taken = split(data, offsets, wanted, plan.arrays)
        over = taken > VALUE_CELLS_MAX
        refused = refused_by(allowance, np.where(good, taken, 0), sizes)
        cells = int(taken[good & ~refused].sum())
        if cells > cells_max:
            raise CellsExceededError(cells)
        if refused.any():
            tape, slots, good, _ = split(data, offsets, wanted & ~refused, plan.arrays)
        column = gather(data, tape, slots, plan, self._root, rows)
        good = proved(data, offsets, good, column)
        said = dict.fromkeys(np.flatnonzero(over).tolist(), too_many_cells())
        slow = np.flatnonzero(wanted & ~good & ~over & ~refused)
        taken[slow], steps = most(data, offsets, slow, plan.arrays)
        fits = taken[slow] <= VALUE_CELLS_MAX
        said |= dict.fromkeys(slow[~fits].tolist(), too_many_cells(slow=True))
        slow = slow[fits]
        refused[slow] = refused_by(allowance, taken[slow], sizes[slow], steps[fits])
        said |= dict.fromkeys(np.flatnonzero(refused).tolist(), no_room_in_file())
        cells += int(taken[slow[~refused[slow]]].sum())
        if cells > cells_max:
            raise CellsExceededError(cells)
        try:
            fast = arrow_array(column)
        except pa.ArrowInvalid:
            # Never seen; split() is to prevent it.
            good[:] = False
            fast = pa.nulls(rows, self._root.type)
        if self._bare:
            fast = pa.StructArray.from_arrays([fast], fields=list(self._type), mask=pa.array(~good))
        if good.all():
            return Decoded(fast, pa.nulls(rows, pa.string()), cells)
        columns, errors = self._with_slow_rows(data, offsets, fast, good, said)
        return Decoded(columns, errors, cells)

    def _with_slow_rows(
        self,
        data: UInt8Array,
        offsets: np.ndarray,
        fast: pa.StructArray,
        good: BoolArray,
        said: dict[int, str],
    ) -> tuple[pa.StructArray, pa.StringArray]:
        """The rows that are not good, decoded one by one and put in place; of some it is `said` that they have none."""
        slow: list[object] = []
        errors: list[str | None] = [None] * len(good)
        take = np.arange(len(good), dtype=np.int64)
        for row in np.flatnonzero(~good).tolist():
            take[row] = len(good) + len(slow)
            if row in said:
                errors[row] = said[row]
                slow.append(None)
                continue
            value = data[offsets[row] : offsets[row + 1]].tobytes()
            try:
                decoded = decode_row(value, self._root)
            except BadValue as bad:
                errors[row] = error_text(bad.problem, bad.text)
                slow.append(None)
            else:
                slow.append({BARE_VALUE: decoded} if self._bare else decoded)
        columns = pa.concat_arrays([fast, pa.array(slow, type=self._type)]).take(pa.array(take))
        return columns, pa.array(errors, type=pa.string())


def _buffers(values: pa.BinaryArray) -> tuple[np.ndarray, UInt8Array]:
    """Offsets, length n + 1, and bytes."""
    _, places, data = values.buffers()
    offsets = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return readonly(offsets, np.int32), readonly(content, np.uint8)


def _utf8(data: UInt8Array, offsets: np.ndarray) -> BoolArray:
    return valid_utf8(VarBytes(offsets.astype(np.int64), data, np.ones(len(offsets) - 1, dtype=np.bool_)))
