"""Entries of lists and maps: what Parquet has levels for, whether or not there are bytes.

A page ends where enough bytes are encoded, and a row group where its rows take enough memory. A null takes none of the
one and two bits of the other, but its levels four bytes while a page is written, and four when it is read. So entries
are counted, leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from converter.limits import ENTRY_WITHOUT_VALUE
from converter.parquet.columns import zone
from converter.types import Int64Array

#: Rows of what :meth:`EntryCounter.count` gives: entries, and those without a value.
ALL, EMPTY = 0, 1

_Leaf = tuple[pa.Array, Int64Array, int]


class EntryCounter:
    """Counts the entries of record batches of one schema.

    Attributes:
        columns: for each leaf within a list or map, in file order, the number of its top-level column.
    """

    def __init__(self, schema: pa.Schema) -> None:
        leaves = [_list_leaves(field.type, inside=False) for field in schema]
        self._columns = [number for number, count in enumerate(leaves) if count]
        self._of_values = [number for number in self._columns if zone(schema.names[number]) == "value"]
        self.columns: Int64Array = np.repeat(np.arange(len(leaves), dtype=np.int64), leaves)

    def none(self) -> Int64Array:
        """Of no rows."""
        return np.zeros((2, len(self.columns)), dtype=np.int64)

    def count(self, rows: pa.RecordBatch) -> Int64Array:
        """Two numbers, ALL and EMPTY, for each leaf of `columns`."""
        found = [
            (len(leaf) + above, leaf.null_count + above)
            for number in self._columns
            for leaf, _, above in _leaves_of(rows.column(number))
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 2).T

    def most_per_row(self, rows: pa.RecordBatch) -> Int64Array:
        """Elements that each row has in the leaf of its value that has most."""
        most = np.zeros(rows.num_rows, dtype=np.int64)
        for number in self._of_values:
            for _, ends, _ in _leaves_of(rows.column(number)):
                np.maximum(most, np.diff(ends), out=most)
        return most


def weight(entries: Int64Array) -> int:
    """What the heaviest leaf counts against ROW_GROUP_ENTRIES."""
    return int((entries[ALL] + (ENTRY_WITHOUT_VALUE - 1) * entries[EMPTY]).max(initial=0))


def value_offsets(column: pa.Array) -> Int64Array:
    """The n + 1 value offsets of a binary, string, list or map array."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets.astype(np.int64)


def _list_leaves(kind: pa.DataType, *, inside: bool) -> int:
    """How many leaves a column has within lists and maps."""
    if pa.types.is_struct(kind):
        return sum(_list_leaves(field.type, inside=inside) for field in kind)
    if pa.types.is_map(kind):
        return 1 + _list_leaves(kind.item_type, inside=True)
    if pa.types.is_list(kind):
        return _list_leaves(kind.value_type, inside=True)
    return int(inside)


def _leaves_of(column: pa.Array) -> Iterator[_Leaf]:
    """See _leaves()."""
    return _leaves(column, np.arange(len(column) + 1, dtype=np.int64), 0, inside=False)


def _leaves(array: pa.Array, ends: Int64Array, above: int, *, inside: bool) -> Iterator[_Leaf]:
    """Leaves within lists and maps: their elements, where those of each row end, and how many lists have none.

    Args:
        array: what lies here.
        ends: where in it each row begins, and the last one ends.
        above: lists around it that are null or empty.
        inside: whether there is a list around it.
    """
    if pa.types.is_struct(array.type):
        for child in array.flatten():  # null where the struct is
            yield from _leaves(child, ends, above, inside=inside)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        offsets = value_offsets(array)
        first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        empty = above + int(np.count_nonzero(np.diff(offsets) == 0))
        held = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
        for child in held:
            yield from _leaves(child.slice(first, size), offsets[ends] - first, empty, inside=True)
    elif inside:
        yield array, ends, above
