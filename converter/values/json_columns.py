"""Columns of text into Arrow arrays of their types, by Arrow's own casts.

split() lets only texts through that cast without error or loss, some of them in two steps.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.types import BoolArray, UInt8Array
from converter.values import json_nodes as nodes
from converter.values.json_gather import TextColumn

_TEXTS = frozenset({nodes.STRING, nodes.TEXT, nodes.EXTRA})
_TRUE = ord("t")
_NINE, _POINT = ord("9"), ord(".")


def arrow_array(column: TextColumn) -> pa.Array:
    """The column in its node's type.

    Raises:
        pa.ArrowInvalid: a text does not cast; split() should not have let it through.
    """
    kind = column.node.kind
    present = column.present
    if kind == nodes.STRUCT:
        children = [arrow_array(child) for child in column.children]
        return pa.StructArray.from_arrays(children, fields=list(column.node.type), mask=pa.array(~present))
    if kind == nodes.FLAG:
        return pa.array(present, mask=~present)
    if kind == nodes.BOOLEAN:
        firsts = np.zeros(len(present), dtype=np.bool_)
        firsts[present] = column.data[column.offsets[:-1][present]] == _TRUE
        return pa.array(firsts, mask=~present)
    validity = _validity(present)
    offsets = pa.py_buffer(column.offsets)
    nulls = len(present) - int(np.count_nonzero(present))
    if kind == nodes.LIST:
        child = arrow_array(column.children[0])
        return pa.Array.from_buffers(column.node.type, len(present), [validity, offsets], nulls, 0, [child])
    if kind == nodes.MAP:
        keys, items = (arrow_array(child) for child in column.children)
        fields = [column.node.type.key_field, column.node.type.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return pa.Array.from_buffers(column.node.type, len(present), [validity, offsets], nulls, 0, [entries])
    text = pa.Array.from_buffers(
        pa.string(), len(present), [validity, offsets, pa.py_buffer(column.data[: int(column.offsets[-1])])], nulls
    )
    if kind in _TEXTS:
        return text
    if kind == nodes.INTEGER:
        return _integers(text, column.data)
    try:
        return pc.cast(text, column.node.type)
    except pa.ArrowInvalid:
        if kind != nodes.DATETIME:
            raise
        plain = pc.replace_substring_regex(pc.ascii_upper(text), r"(\.[0-9]{6})0+", r"\1")
        return pc.cast(plain, column.node.type)


def _integers(text: pa.StringArray, data: UInt8Array) -> pa.Int64Array:
    """Whole numbers, some of them perhaps as 1.0 or 1e3, which Arrow reads of no integer."""
    # Looked for: a cast that fails takes longer than all the rest.
    if int(data.max(initial=0)) <= _NINE and not (data == _POINT).any():
        return pc.cast(text, pa.int64())
    doubles = pc.cast(text, pa.float64())
    # Below this, whole numbers are doubles; decimals hold all others, and take five times as long.
    small = (pc.max(pc.abs(doubles)).as_py() or 0) < nodes.WHOLE_DOUBLE_MAX
    return pc.cast(doubles if small else pc.cast(text, pa.decimal128(38, 0)), pa.int64())


def _validity(present: BoolArray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(present, bitorder="little"))
