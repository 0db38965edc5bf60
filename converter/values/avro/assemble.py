"""What the kernel collected, as Arrow arrays. Vectorised, but for long decimals and JSON: one Python step per value."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.types import Int64Array, UInt8Array
from converter.values.avro.columns import Column, Form, Storage
from converter.values.avro.compile import NO_SLOT, Layout
from converter.values.avro.logical import DECIMAL_DIGITS_MAX
from converter.values.avro.program import BASE, SEEN, TEXT_BASE, TEXT_SIZE, Filled
from converter.values.avro.recursive_json import Json

#: No array gets a value of a slot that was never seen; such columns are null, which takes hardly any memory.
_UNSEEN: Final = -1
_EXACT: Final = Context(prec=2 * DECIMAL_DIGITS_MAX, Emin=-DECIMAL_DIGITS_MAX, Emax=DECIMAL_DIGITS_MAX)


def counters(layout: Layout, rows: int) -> Filled:
    """What the kernel's first run needs: nothing to fill, everything to count."""
    counts = np.zeros(layout.group_count, np.int64)
    counts[0] = rows
    return Filled(
        flags=np.empty(0, np.uint8),
        ints=np.empty(0, np.int32),
        longs=np.empty(0, np.int64),
        texts=np.empty(0, np.uint8),
        slots=np.zeros((len(layout.slots), 4), np.int64),
        counts=counts,
    )


def arrays(layout: Layout, counted: Filled) -> Filled:
    """Arrays for the second run, as large as the first has counted."""
    sizes = dict.fromkeys(Storage, 0)
    slots = np.zeros_like(counted.slots)
    slots[:, BASE] = _UNSEEN
    for slot in np.flatnonzero(counted.slots[:, SEEN]).tolist():
        storage = layout.slots[slot]
        size = int(counted.counts[layout.groups[slot]])
        kept = {Storage.DATA: Storage.INTS, Storage.PAIRS: Storage.LONGS}.get(storage, storage)
        slots[slot, BASE] = sizes[kept]
        sizes[kept] += 2 * size if storage is Storage.PAIRS else size
    text_ends = np.cumsum(counted.slots[:, TEXT_SIZE])
    slots[:, TEXT_BASE] = text_ends - counted.slots[:, TEXT_SIZE]
    counts = np.zeros_like(counted.counts)
    counts[0] = counted.counts[0]
    return Filled(
        flags=np.zeros(sizes[Storage.FLAGS], np.uint8),
        ints=np.zeros(sizes[Storage.INTS], np.int32),
        longs=np.zeros(sizes[Storage.LONGS], np.int64),
        texts=np.empty(int(text_ends[-1]) if len(text_ends) else 0, np.uint8),
        slots=slots,
        counts=counts,
    )


class Assembly:
    """Turns the filled arrays into columns.

    Args:
        alive: per row, 1 where it was read.
    """

    def __init__(self, layout: Layout, filled: Filled, alive: UInt8Array, json: Json) -> None:
        self._layout = layout
        self._filled = filled
        self._alive = alive
        self._json = json

    def columns(self) -> pa.StructArray:
        """The columns of all rows; null where a row was not read."""
        return self._column(self._layout.columns, _validity(self._alive))

    def _count(self, group: int) -> int:
        return int(self._filled.counts[group])

    def _of(self, slot: int, storage: Storage) -> npt.NDArray[Any]:
        """A slot's collected numbers."""
        size = self._count(self._layout.groups[slot])
        base = int(self._filled.slots[slot, BASE])
        if storage is Storage.FLAGS:
            return self._filled.flags[base : base + size]
        if storage in (Storage.INTS, Storage.DATA):
            return self._filled.ints[base : base + size]
        return self._filled.longs[base : base + (2 * size if storage is Storage.PAIRS else size)]

    def _unseen(self, slot: int) -> bool:
        return slot != NO_SLOT and self._filled.slots[slot, BASE] == _UNSEEN

    def _column(self, column: Column, outer: pa.Buffer | None) -> pa.Array:
        """A column; `outer`: validity of what it lies in, which is null in the same places at least."""
        size = self._count(column.group)
        if column.form is Form.NOTHING or self._unseen(column.valid) or self._unseen(column.slot):
            return pa.nulls(size, column.type)
        valid = outer
        if column.valid != NO_SLOT:
            valid = _validity(self._of(column.valid, Storage.FLAGS))
        if column.form is Form.STRUCT:
            children = [self._column(child, valid) for child in column.children]
            return pa.StructArray.from_buffers(column.type, size, [valid], children=children)
        values = self._of(column.slot, column.form.storage)
        if column.form is Form.LIST:
            item = self._column(column.children[0], None)
            return pa.ListArray.from_buffers(column.type, size, [valid, _buffer(_offsets(values))], children=[item])
        if column.form is Form.MAP:
            return self._map(column, valid, values)
        if column.form.storage is Storage.DATA:
            return self._data(column, valid, values)
        return _numbers(column, valid, values)

    def _map(self, column: Column, valid: pa.Buffer | None, lengths: npt.NDArray[np.int32]) -> pa.Array:
        keys, items = (self._column(child, None) for child in column.children)
        entries = pa.StructArray.from_buffers(
            pa.struct([column.type.key_field, column.type.item_field]), len(keys), [None], children=[keys, items]
        )
        buffers = [valid, _buffer(_offsets(lengths))]
        return pa.MapArray.from_buffers(column.type, len(lengths), buffers, children=[entries])

    def _data(self, column: Column, valid: pa.Buffer | None, lengths: npt.NDArray[np.int32]) -> pa.Array:
        begin = int(self._filled.slots[column.slot, TEXT_BASE])
        data = _buffer(self._filled.texts[begin : begin + int(self._filled.slots[column.slot, TEXT_SIZE])])
        collected = pa.binary() if column.form in (Form.JSON, Form.DECIMAL_TEXT) else column.type
        array = pa.Array.from_buffers(collected, len(lengths), [valid, _buffer(_offsets(lengths)), data])
        if column.form is Form.DECIMAL_TEXT:
            return _texts(array, lambda value: _decimal_text(value, column.scale))
        if column.recursive is not None:
            node = column.recursive
            return _texts(array, lambda value: self._json.text(node, value))
        return array


def _texts(values: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.string())


def _decimal_text(value: bytes, scale: int) -> str:
    number = Decimal(int.from_bytes(value, "big", signed=True))
    return f"{number.scaleb(-scale, _EXACT):f}"


def _numbers(column: Column, valid: pa.Buffer | None, values: npt.NDArray[Any]) -> pa.Array:
    size = len(values)
    if column.form is Form.BOOL:
        return pa.Array.from_buffers(column.type, size, [valid, _bits(values)])
    if column.form is Form.SYMBOL:
        indices = pa.Array.from_buffers(pa.int32(), size, [valid, _buffer(values)])
        return pa.array(column.symbols, pa.string()).take(indices)
    if column.form is Form.FLOAT:
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            values = values.view(np.float32).astype(np.float64)
    elif column.form is Form.DECIMAL:
        size //= 2
    return pa.Array.from_buffers(column.type, size, [valid, _buffer(values)])


def _offsets(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Lengths as Arrow's offsets. They fit: all lengths together are at most the input's bytes, below 2 GiB."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _validity(flags: UInt8Array) -> pa.Buffer | None:
    return None if flags.all() else _bits(flags)


def _bits(flags: UInt8Array) -> pa.Buffer:
    return _buffer(np.packbits(flags, bitorder="little"))


def _buffer(array: npt.NDArray[Any] | Int64Array) -> pa.Buffer:
    return pa.py_buffer(array)
