"""A tape into columns of text: for each node its slots' presence, sizes and bytes, escapes undone.

Leaves stay text here, numbers too. So they can be proved against the values (proof.py) before Arrow's casts turn
them into their types.

Columns of text into Arrow arrays of their types, by Arrow's own casts.

split() lets only texts through that cast without error or loss, some of them in two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.kernels.kernel import borrowing, i64, u8
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.json import nodes
from converter.values.json.nodes import Node, NodePlan
from converter.values.json.scan import unescape

_EXTRA = nodes.EXTRA
_LIST, _MAP, _STRUCT, _FLAG = nodes.LIST, nodes.MAP, nodes.STRUCT, nodes.FLAG


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """One node's column of n slots.

    Attributes:
        present: bool, length n; False where absent or null.
        offsets: length n + 1; of a leaf into `data`; of LIST and MAP: slots of the children; of STRUCT and FLAG: empty.
        data: a leaf's bytes.
    """

    node: Node
    present: BoolArray
    offsets: np.ndarray
    data: UInt8Array
    children: tuple[TextColumn, ...] = ()


@borrowing
def _count(tape: Any, plan: Any, sizes: Int64Array) -> None:
    """Bytes each node's texts need at most."""
    for entry in tape:
        node = entry["node"]
        kind = plan[node]["kind"]
        if kind == _EXTRA:
            sizes[node] += entry["size"] + 2
        elif kind > _LIST:
            sizes[node] += entry["size"]


@borrowing
def _gather(
    data: UInt8Array,
    tape: Any,
    plan: Any,
    bases: Int64Array,
    present: BoolArray,
    sizes: Any,
    cursors: Int64Array,
    texts: UInt8Array,
) -> None:
    """Caller's promise: bases have room for every slot on the tape, cursors for the bytes _count() says."""
    for entry in tape:
        node = entry["node"]
        at = bases[node] + entry["slot"]
        kind = plan[node]["kind"]
        size = i64(entry["size"])
        start = i64(entry["start"])
        cursor = cursors[node]
        if kind <= _LIST:
            sizes[at] = size
        elif entry["escaped"]:
            behind = unescape(data, start, start + size, texts, cursor)
            sizes[at] = behind - cursor
            cursors[node] = behind
        elif kind == _EXTRA:
            # `{` before the first member, `,` in place of the `}` before every other.
            more = present[at]
            if more:
                cursor -= 1
            texts[cursor] = u8(0x2C) if more else u8(0x7B)
            for k in range(size):
                texts[cursor + 1 + k] = data[start + k]
            texts[cursor + 1 + size] = u8(0x7D)
            cursors[node] = cursor + size + 2
            sizes[at] += size + (1 if more else 2)
        else:
            for k in range(size):
                texts[cursor + k] = data[start + k]
            sizes[at] = size
            cursors[node] = cursor + size
        present[at] = True


def gather(data: UInt8Array, tape: Any, slots: Any, plan: NodePlan, root: Node, rows: int) -> TextColumn:
    """The columns of a tape that split() made from `data` for this many values."""
    counts = _slot_counts(root, plan, slots, rows)
    bases = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bases[1:])
    room = np.zeros(len(counts), dtype=np.int64)
    _count(tape, plan.arrays.nodes, room)
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(room, out=starts[1:])
    present = np.zeros(int(bases[-1]), dtype=np.bool_)
    sizes = np.zeros(int(bases[-1]), dtype=np.int32)
    texts = np.empty(int(starts[-1]), dtype=np.uint8)
    _gather(data, tape, plan.arrays.nodes, bases, present, sizes, starts[:-1].copy(), texts)

    def column(node: Node) -> TextColumn:
        number = plan.number(node)
        span = slice(int(bases[number]), int(bases[number + 1]))
        offsets = np.zeros(0, dtype=np.int32)
        if node.kind not in (_STRUCT, _FLAG):
            offsets = np.zeros(int(counts[number]) + 1, dtype=np.int32)
            np.cumsum(sizes[span], out=offsets[1:])
        text = texts[int(starts[number]) : int(starts[number + 1])]
        return TextColumn(
            node=node,
            present=present[span],
            offsets=offsets,
            data=text,
            children=tuple(column(child) for child in node.children),
        )

    return column(root)


def _slot_counts(root: Node, plan: NodePlan, slots: Any, rows: int) -> Int64Array:
    """Slots of each node: those of its struct; for elements, keys and values their number."""
    counts = np.zeros(len(plan.arrays.nodes), dtype=np.int64)

    def visit(node: Node, count: int) -> None:
        number = plan.number(node)
        counts[number] = count
        inner = int(slots[number]) if node.kind in (_LIST, _MAP) else count
        for child in node.children:
            visit(child, inner)

    visit(root, rows)
    return counts


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
