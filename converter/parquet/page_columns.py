"""Pages of a typed value's columns to Arrow arrays, for exactly the rows that are wanted.

Files that keep values as columns alone have no dictionaries, so that a page needs nothing but itself: levels, then
PLAIN values. From the levels of a leaf, and those of the first leaf below a list, nulls and lengths follow (Dremel). As
in pages.py no byte is trusted: any bytes give some arrays, which are consistent, or raise :class:`SegmentError`.

Spec: apache/parquet-format README, nested encoding; LogicalTypes.md, lists and maps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.errors import SegmentError
from converter.parquet.columns import VALUE_LEAVES, leaf_paths
from converter.parquet.page_header import PLAIN
from converter.parquet.page_values import read_plain_bytes
from converter.parquet.pages import Page, PageReader
from converter.types import BoolArray, Int64Array, UInt8Array

_LEVELS_MAX = 255


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The entries of one leaf: one per value, null, or list without elements.

    Attributes:
        repetition, definition: levels of each.
        column: an array with a value, or anything, for each.
    """

    repetition: UInt8Array
    definition: UInt8Array
    column: pa.Array


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a field lies in its schema.

    Attributes:
        lists: how many lists are around it.
        there: definition level from which on there is an element of the innermost of them; 0 without one.
        level: definition level of what is directly around it when that is not null.
    """

    lists: int = 0
    there: int = 0
    level: int = 0

    def inside(self) -> _Place:
        """Of a field of the struct that lies here."""
        return _Place(self.lists, self.there, self.level + 1)

    def element(self) -> _Place:
        """Of an element of the list that lies here."""
        return _Place(self.lists + 1, self.level + 2, self.level + 2)

    def slots(self, leaf: _Leaf) -> BoolArray:
        """Which entries of a leaf begin what lies here."""
        found: BoolArray = (leaf.repetition <= self.lists) & (leaf.definition >= self.there)
        return found


def read_columns(
    reader: PageReader, schema: pa.Schema, wanted: Collection[str], row_start: int, row_end: int
) -> pa.StructArray:
    """Rows `[row_start, row_end)` of top-level columns.

    Args:
        reader: of the data file.
        schema: its value columns.
        wanted: names of those to be read.
        row_start: first row.
        row_end: the row after the last.

    Returns:
        A struct without nulls of the wanted columns, in the order and with the metadata of `schema`.

    Raises:
        SegmentError: `corrupt_object` for pages that are missing, damaged or not what the table says.
    """
    number, fields, arrays = VALUE_LEAVES, [], []
    for field in schema:
        paths = leaf_paths(field)
        if field.name in wanted:
            kinds = list(_leaves(field, _Place()))
            pairs = zip(paths, kinds, strict=True)
            leaves = iter(
                [_read_leaf(reader, number + i, path, kind, row_start, row_end) for i, (path, kind) in enumerate(pairs)]
            )
            fields.append(field)
            arrays.append(_array(field, _Place(), _Cursor(leaves)))
            if len(arrays[-1]) != row_end - row_start:
                raise _broken(field)
        number += len(paths)
    return pa.Array.from_buffers(pa.struct(fields), row_end - row_start, [None], children=arrays)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A leaf's type, how deep it lies, and its own definition level: one more unless it must be there."""

    type: pa.DataType
    place: _Place
    definition_max: int


def _leaves(field: pa.Field, place: _Place) -> Iterator[_Kind]:
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(child, place.inside())
    elif pa.types.is_map(kind):
        inner = place.element()
        yield _Kind(kind.key_type, inner, inner.level)
        yield from _leaves(kind.item_field, inner)
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_field, place.element())
    else:
        yield _Kind(kind, place, place.level + 1)


def _read_leaf(reader: PageReader, number: int, path: str, kind: _Kind, row_start: int, row_end: int) -> _Leaf:
    if kind.definition_max > _LEVELS_MAX:
        raise SegmentError("corrupt_object", f"{path} is nested too deeply")
    pages = reader.open(number, path, row_start, row_end, PLAIN, nested=kind.place.lists > 0)
    parts = [_entries(page, kind) for page in pages]
    if not parts:
        return _Leaf(np.empty(0, np.uint8), np.empty(0, np.uint8), pa.nulls(0, kind.type))
    return _Leaf(
        np.concatenate([part.repetition for part in parts]),
        np.concatenate([part.definition for part in parts]),
        parts[0].column if len(parts) == 1 else pa.concat_arrays([part.column for part in parts]),
    )


def _entries(page: Page, kind: _Kind) -> _Leaf:
    """The entries of a page's wanted rows."""
    repetition, at = page.levels(kind.place.lists)
    definition, at = page.levels(kind.definition_max, at)
    first, end = page.skip, page.skip + page.take
    if kind.place.lists:
        begins = np.flatnonzero(repetition == 0)
        if not len(begins) or begins[0] != 0 or len(begins) < end:
            raise page.broken("rows")
        first, end = int(begins[first]), int(begins[end]) if end < len(begins) else page.values
    present = definition == kind.definition_max
    read = plain_bytes if pa.types.is_string(kind.type) or pa.types.is_binary(kind.type) else plain_fixed
    return _Leaf(repetition[first:end], definition[first:end], read(page, at, present, first, end, kind.type))


@dataclass(slots=True)
class _Cursor:
    """The leaves of a field, in order; the next one can be looked at before it is taken."""

    rest: Iterator[_Leaf]
    ahead: _Leaf | None = None

    def peek(self) -> _Leaf:
        if self.ahead is None:
            self.ahead = next(self.rest)
        return self.ahead

    def take(self) -> _Leaf:
        found, self.ahead = self.peek(), None
        return found


def _array(field: pa.Field, place: _Place, leaves: _Cursor) -> pa.Array:
    kind = field.type
    if pa.types.is_struct(kind):
        first = leaves.peek()
        valid = first.definition[place.slots(first)] > place.level
        children = [_array(child, place.inside(), leaves) for child in kind]
        if any(len(child) != len(valid) for child in children):
            raise _broken(field)
        return pa.Array.from_buffers(kind, len(valid), [_bits(valid)], children=children)
    if not pa.types.is_nested(kind):
        return _leaf_array(leaves.take(), place, kind, place.level + 1)
    valid, offsets = _lists(leaves.peek(), place)
    inner = place.element()
    if pa.types.is_map(kind):
        keys = _leaf_array(leaves.take(), inner, kind.key_type, inner.level)
        items = _array(kind.item_field, inner, leaves)
        if len(keys) != offsets[-1] or len(items) != offsets[-1]:
            raise _broken(field)
        held = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    else:
        held = _array(kind.value_field, inner, leaves)
        if len(held) != offsets[-1]:
            raise _broken(field)
    buffers = [_bits(valid), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(valid), buffers, children=[held])


def _lists(leaf: _Leaf, place: _Place) -> tuple[BoolArray, Int64Array]:
    """Of the lists that lie at a place: which are not null, and the offsets of their elements."""
    slots = place.slots(leaf)
    inner = place.element()
    before = np.zeros(len(slots) + 1, dtype=np.int64)
    np.cumsum(inner.slots(leaf), out=before[1:])
    starts = before[:-1][slots]
    if len(starts) and starts[0] != 0:
        raise SegmentError("corrupt_object", "elements of a list lie before it")
    return leaf.definition[slots] > place.level, np.append(starts, before[-1])


def _leaf_array(leaf: _Leaf, place: _Place, kind: pa.DataType, definition_max: int) -> pa.Array:
    slots = place.slots(leaf)
    column = leaf.column if slots.all() else leaf.column.filter(pa.array(slots))
    valid = leaf.definition[slots] == definition_max
    if valid.all():
        return column
    return pa.Array.from_buffers(kind, len(column), [_bits(valid), *column.buffers()[1:]])


def _bits(valid: BoolArray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _broken(field: pa.Field) -> SegmentError:
    return SegmentError("corrupt_object", f"columns of {field.name} do not have the same rows")


_DECIMAL_BYTES = 16


def plain_bytes(page: Page, at: int, present: BoolArray, first: int, end: int, kind: pa.DataType) -> pa.Array:
    """Strings or bytes of entries `[first, end)`; nothing where `present` is False.

    Args:
        page: decompressed.
        at: where in it values begin.
        present: one per entry of the page.
        first: number of the first entry wanted.
        end: number of the entry after the last.
        kind: string or binary.

    Raises:
        SegmentError: `corrupt_object`.
    """
    count = end - first
    offsets = np.zeros(count + 1, dtype=np.int64)
    data = np.empty(len(page.data), dtype=np.uint8)
    valid = np.zeros(count, dtype=np.bool_)
    if not read_plain_bytes(page.data, at, present.view(np.uint8), 1, first, count, 0, offsets, valid, data):
        raise page.broken("values")
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def plain_fixed(page: Page, at: int, present: BoolArray, first: int, end: int, kind: pa.DataType) -> pa.Array:
    """Values of fixed width of entries `[first, end)`; zeros where `present` is False.

    Args:
        page: decompressed.
        at: where in it values begin.
        present: one per entry of the page.
        first: number of the first entry wanted.
        end: number of the entry after the last.
        kind: bool, int32, int64, float64, date32, timestamp or decimal128.

    Raises:
        SegmentError: `corrupt_object`.
    """
    before = int(np.count_nonzero(present[:first]))
    mine = present[first:end]
    count = int(np.count_nonzero(mine))
    if pa.types.is_boolean(kind):
        return _flags(page, at, before, count, mine)
    width = _stored_width(kind)
    start = at + before * width
    if start + count * width > len(page.data):
        raise page.broken("values")
    stored = page.data[start : start + count * width]
    size = _DECIMAL_BYTES if pa.types.is_decimal128(kind) else width
    dense = _decimals(stored.reshape(count, width)) if pa.types.is_decimal128(kind) else stored.reshape(count, width)
    column: npt.NDArray[Any] = dense
    if count < len(mine):
        column = np.zeros((len(mine), size), dtype=np.uint8)
        column[mine] = dense
    return pa.Array.from_buffers(kind, len(mine), [None, pa.py_buffer(np.ascontiguousarray(column))])


def _stored_width(kind: pa.DataType) -> int:
    """Bytes of a value in a page; decimals are stored in as few as their precision needs."""
    if pa.types.is_decimal128(kind):
        return int((10**kind.precision - 1).bit_length() // 8 + 1)
    return int(kind.bit_width // 8)


def _decimals(stored: UInt8Array) -> UInt8Array:
    """Big-endian two's complement of any width as Arrow's 16 bytes, little-endian."""
    rows, width = stored.shape
    out = np.empty((rows, _DECIMAL_BYTES), dtype=np.uint8)
    out[:, :width] = stored[:, ::-1]
    out[:, width:] = np.where(stored[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    return out


def _flags(page: Page, at: int, before: int, count: int, mine: BoolArray) -> pa.Array:
    if before + count > 8 * (len(page.data) - at):
        raise page.broken("values")
    column = np.zeros(len(mine), dtype=np.bool_)
    column[mine] = np.unpackbits(page.data[at:], count=before + count, bitorder="little")[before:]
    return pa.Array.from_buffers(pa.bool_(), len(mine), [None, pa.py_buffer(np.packbits(column, bitorder="little"))])
