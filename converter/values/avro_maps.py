"""Maps with a key twice. Avro's readers keep the last one; engines fail on such a map's row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from converter.kernel import kernel
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.avro_column import Column, Form
from converter.values.avro_ops import BASE, TEXT_BASE, Filled
from converter.values.avro_program import Layout

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
