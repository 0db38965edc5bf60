"""Lays the buffers of a struct array flat for the kernel that writes Avro: vectorised, but for long decimals."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from converter.types import UInt8Array
from converter.values import arrow_buffers as buffers
from converter.values.avro.columns import Column, Form, Storage
from converter.values.avro.encode_ops import ALWAYS, BAD, GIVEN, MISSING, Flat
from converter.values.avro.logical import DECIMAL_DIGITS_MAX

#: Digits, a sign, a point, a zero before it.
_DECIMAL_CHARS_MAX: Final = DECIMAL_DIGITS_MAX + 3
_DTYPES: Final[dict[Storage, type[np.generic]]] = {Storage.INTS: np.int32, Storage.LONGS: np.int64}


def flat(column: Column, array: pa.StructArray, inputs: int, symbols: dict[Column, pa.Array]) -> Flat:
    """The values of an array and of all arrays in it.

    Args:
        column: the column that `array` is.
        array: n values, any slice of an array.
        inputs: how many columns it and those in it are.
        symbols: of the enums among them.
    """
    flattener = _Flattener(symbols)
    flattener.add(column, array)
    return Flat(
        flags=np.concatenate(flattener.flags.parts),
        ints=np.concatenate(flattener.ints.parts),
        longs=np.concatenate(flattener.longs.parts),
        texts=np.concatenate(flattener.texts.parts),
        inputs=np.array(flattener.inputs, np.int64).reshape(inputs, 3),
    )


class _Parts:
    """Arrays that become one."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self.parts: list[npt.NDArray[Any]] = [np.empty(0, dtype)]
        self._size = 0

    def add(self, part: npt.NDArray[Any]) -> int:
        """Where its first element will be."""
        at = self._size
        self.parts.append(part)
        self._size += len(part)
        return at


class _Flattener:
    def __init__(self, symbols: dict[Column, pa.Array]) -> None:
        self._symbols = symbols
        self.flags = _Parts(np.uint8)
        self.ints = _Parts(np.int32)
        self.longs = _Parts(np.int64)
        self.texts = _Parts(np.uint8)
        self.inputs: list[tuple[int, int, int]] = []

    def add(self, column: Column, array: pa.Array) -> None:
        """Adds the inputs of a column and of those in it, in this order."""
        state = buffers.bits(array, 0) if array.null_count else None  # GIVEN or MISSING; None: all are given
        data = shift = 0
        children: list[tuple[Column, pa.Array]] = []
        if column.form is Form.STRUCT:
            children = [(child, array.field(i)) for i, child in enumerate(column.children)]
        elif column.form in (Form.LIST, Form.MAP):
            data, shift, children = self._items(column, array)
        elif column.form is Form.FLOAT:
            bits, exact = _float_bits(buffers.numbers(array, np.int64))
            data, state = self.ints.add(bits), _without(state, exact)
        elif column.form is Form.SYMBOL:
            which = pc.index_in(array, value_set=self._symbols[column])
            data = self.ints.add(buffers.numbers(which, np.int32))
            state = _without(state, which.is_valid()) if which.null_count else state
        elif column.form is Form.DECIMAL_TEXT:
            decimals = _decimal_bytes(array, column)
            data, shift = self._texts(decimals)
            state = _without(state, decimals.is_valid())
        elif column.form in (Form.BYTES, Form.TEXT):
            data, shift = self._texts(array)
        elif column.form is not Form.NOTHING:
            data = self._plain(column, array)
        self.inputs.append((ALWAYS if state is None else self.flags.add(state), data, shift))
        for child, values in children:
            self.add(child, values)

    def _plain(self, column: Column, array: pa.Array) -> int:
        """Numbers and bools."""
        storage = column.form.storage
        if storage is Storage.FLAGS:
            return self.flags.add(buffers.bits(array))
        if storage is Storage.INTS:
            return self.ints.add(buffers.numbers(array, np.int32))
        return self.longs.add(buffers.numbers(array, np.int64, 2 if storage is Storage.PAIRS else 1))

    def _items(self, column: Column, array: pa.Array) -> tuple[int, int, list[tuple[Column, pa.Array]]]:
        places = buffers.offsets(array)
        first, last = int(places[0]), int(places[-1])
        items = array.values.slice(first, last - first)
        parts = [items] if column.form is Form.LIST else [items.field(0), items.field(1)]
        return self.ints.add(places), -first, list(zip(column.children, parts, strict=True))

    def _texts(self, array: pa.Array) -> tuple[int, int]:
        places = buffers.offsets(array)
        first, last = int(places[0]), int(places[-1])
        return self.ints.add(places), self.texts.add(buffers.text_bytes(array, first, last)) - first


def _without(state: UInt8Array | None, good: npt.NDArray[np.bool_] | pa.BooleanArray) -> UInt8Array | None:
    """The states, BAD where a value is given that is not good."""
    if isinstance(good, pa.BooleanArray):
        good = good.to_numpy(zero_copy_only=False)
    if good.all():
        return state
    given = np.where(good, GIVEN, BAD).astype(np.uint8)
    return given if state is None else np.where(state == GIVEN, given, MISSING).astype(np.uint8)


def _float_bits(doubles: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """(bits of the float, whether it is the very double) of doubles' bits. Signalling NaNs are no floats' doubles."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        narrow = doubles.view(np.float64).astype(np.float32)
        exact = narrow.astype(np.float64).view(np.int64) == doubles
    return narrow.view(np.int32), exact


def _decimal_bytes(texts: pa.StringArray, column: Column) -> pa.BinaryArray:
    """Two's complement, big-endian, of the fewest bytes; null where the decoder makes no such text."""
    fraction = rf"\.[0-9]{{{column.scale}}}" if column.scale else ""
    usual = re.compile(rf"(?!-[0.]*\Z)-?(?:0|[1-9][0-9]*){fraction}".encode())
    values = texts.cast(pa.binary()).to_pylist()
    return pa.array([None if value is None else _two_complement(value, usual) for value in values], pa.binary())


def _two_complement(text: bytes, usual: re.Pattern[bytes]) -> bytes | None:
    if len(text) > _DECIMAL_CHARS_MAX or not usual.fullmatch(text):
        return None
    number = int(text.replace(b".", b""))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
