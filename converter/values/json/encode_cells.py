"""Arrow arrays of a schema's type as three flat arrays, which is what the encoder's kernel reads.

Slot s of node i is cell `bases[i] + s`. Its content is a number (of booleans 0 or 1), or where the node has texts or
elements, as in Arrow, the place of the first, which ends where the next slot's begins: each node has one cell more than
slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values import arrow_buffers as buffers
from converter.values.json import nodes
from converter.values.json.nodes import Node

#: Kinds whose shortest or exact text is made by Arrow, to be written in the style's form.
_CAST: Final = frozenset({nodes.NUMBER, nodes.DECIMAL})
_TEXTS: Final = frozenset({nodes.STRING, nodes.TEXT, nodes.EXTRA})
_WHOLE: Final = {nodes.INTEGER: np.int64, nodes.DATETIME: np.int64, nodes.DATE: np.int32}


class Cells(NamedTuple):
    """Rows of one tree.

    Attributes:
        bases: first cell of each node, by its number; length nodes + 1.
        counts: slots of each node.
        content: of LIST and MAP slots of the children, of texts places in `texts`.
        valid: whether a slot is not null.
        texts: bytes of all texts.
    """

    bases: Int64Array
    counts: Int64Array
    content: Int64Array
    valid: BoolArray
    texts: UInt8Array


@dataclass(slots=True)
class _Column:
    """One node's array: `fill` writes its cells, one more than slots, and gets where in `texts` its bytes begin."""

    array: pa.Array
    fill: Callable[[Int64Array, int], None] | None = None
    text: UInt8Array | None = None


def flat_cells(root: Node, column: pa.Array) -> Cells:
    """The cells of an array of the root's type, which may be a slice; nodes are numbered as they are walked."""
    columns: list[_Column] = []
    _collect(root, column, columns)
    counts = np.array([len(one.array) for one in columns], dtype=np.int64)
    bases = np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum(counts + 1, out=bases[1:])
    content = np.empty(int(bases[-1]), dtype=np.int64)
    valid = np.empty(int(bases[-1]), dtype=np.bool_)
    texts: list[UInt8Array] = []
    place = 0
    for one, first, count in zip(columns, bases[:-1].tolist(), counts.tolist(), strict=True):
        _fill_valid(one.array, valid[first : first + count + 1])
        if one.fill is not None:
            one.fill(content[first : first + count + 1], place)
        if one.text is not None:
            texts.append(one.text)
            place += len(one.text)
    joined = np.concatenate(texts) if texts else np.empty(0, dtype=np.uint8)
    return Cells(bases=bases, counts=counts, content=content, valid=valid, texts=joined)


def _collect(node: Node, array: pa.Array, columns: list[_Column]) -> None:
    """Adds the columns of a node and all below, parents first."""
    kind = node.kind
    if kind == nodes.STRUCT:
        columns.append(_Column(array))
        for i, child in enumerate(node.children):
            _collect(child, array.field(i), columns)
    elif kind in (nodes.LIST, nodes.MAP):
        places = buffers.offsets(array)
        first, behind = int(places[0]), int(places[-1])
        columns.append(_Column(array, _filler(places, -first)))
        below = [array.keys, array.items] if kind == nodes.MAP else [array.values]
        for child, child_array in zip(node.children, below, strict=True):
            _collect(child, child_array.slice(first, behind - first), columns)
    elif kind in _TEXTS or kind in _CAST:
        text = pc.cast(array, pa.string()) if kind in _CAST else array
        places = buffers.offsets(text)
        first, behind = int(places[0]), int(places[-1])
        columns.append(_Column(text, _filler(places, -first, texts=True), buffers.text_bytes(text, first, behind)))
    elif kind in _WHOLE:
        columns.append(_Column(array, _filler(buffers.numbers(array, _WHOLE[kind]), 0)))
    else:
        columns.append(_Column(array, _filler(buffers.bits(array), 0)))


def _filler(given: np.ndarray, add: int, *, texts: bool = False) -> Callable[[Int64Array, int], None]:
    def fill(cells: Int64Array, place: int) -> None:
        np.add(given, np.int64(add + (place if texts else 0)), out=cells[: len(given)], casting="unsafe")

    return fill


def _fill_valid(array: pa.Array, cells: BoolArray) -> None:
    if array.null_count == 0:
        cells[:] = True
    else:
        cells[:-1] = buffers.bits(array, 0).view(np.bool_)
