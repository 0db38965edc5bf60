"""A tape into columns of text: for each node its slots' presence, sizes and bytes, escapes undone.

Leaves stay text here, numbers too. So they can be proved against the values (json_proof.py) before Arrow's casts turn
them into their types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.kernel import i64, u8
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values import json_nodes as nodes
from converter.values.json_kernel import borrowing
from converter.values.json_nodes import Node
from converter.values.json_plan import Plan
from converter.values.json_scan import unescape

_EXTRA = nodes.EXTRA
_LIST, _MAP, _STRUCT, _FLAG = nodes.LIST, nodes.MAP, nodes.STRUCT, nodes.FLAG


@dataclass(frozen=True, slots=True)
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


def gather(data: UInt8Array, tape: Any, slots: Any, plan: Plan, root: Node, rows: int) -> TextColumn:
    """The columns of a tape that split() made from `data` for this many values."""
    counts = _slot_counts(root, plan, slots, rows)
    bases = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bases[1:])
    room = np.zeros(len(counts), dtype=np.int64)
    _count(tape, plan.nodes, room)
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(room, out=starts[1:])
    present = np.zeros(int(bases[-1]), dtype=np.bool_)
    sizes = np.zeros(int(bases[-1]), dtype=np.int32)
    texts = np.empty(int(starts[-1]), dtype=np.uint8)
    _gather(data, tape, plan.nodes, bases, present, sizes, starts[:-1].copy(), texts)

    def column(node: Node) -> TextColumn:
        number = plan.number(node)
        span = slice(int(bases[number]), int(bases[number + 1]))
        offsets = np.zeros(0, dtype=np.int32)
        if node.kind not in (_STRUCT, _FLAG):
            offsets = np.zeros(int(counts[number]) + 1, dtype=np.int32)
            np.cumsum(sizes[span], out=offsets[1:])
        text = texts[int(starts[number]) : int(starts[number + 1])]
        return TextColumn(node, present[span], offsets, text, tuple(column(child) for child in node.children))

    return column(root)


def _slot_counts(root: Node, plan: Plan, slots: Any, rows: int) -> Int64Array:
    """Slots of each node: those of its struct; for elements, keys and values their number."""
    counts = np.zeros(len(plan.nodes), dtype=np.int64)

    def visit(node: Node, count: int) -> None:
        number = plan.number(node)
        counts[number] = count
        inner = int(slots[number]) if node.kind in (_LIST, _MAP) else count
        for child in node.children:
            visit(child, inner)

    visit(root, rows)
    return counts
