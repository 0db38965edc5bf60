"""What values take that the slow decoder reads, counted before it reads them: by the schema, as far as they follow it.

Lists and maps of the schema take what their elements become; every value and name, wherever it is, takes what parse()
makes of it. Nothing is checked here that parse() does not refuse: what comes behind such a place takes nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from converter.kernels.kernel import borrowing, i64
from converter.types import Int64Array, UInt8Array
from converter.values.json import nodes
from converter.values.json.exact_reader import BYTES_PER_CELL, TOKEN_CELLS
from converter.values.json.nodes import NodeArrays
from converter.values.json.scan import QUOTE, scan_string, unescape
from converter.values.json.split import find_member

#: Cells whose columns take as long as one value takes that Python reads: three to five microseconds.
_CELLS_PER_STEP: Final = 64
_STRUCT, _MAP, _LIST, _DEPTH_MAX = nodes.STRUCT, nodes.MAP, nodes.LIST, nodes.DEPTH_MAX


def most(data: UInt8Array, offsets: np.ndarray, rows: Int64Array, arrays: NodeArrays) -> tuple[Int64Array, Int64Array]:
    """Cells that each of some rows takes at most, and steps: values that Python reads, and what else takes as long.

    Caller's promise: offsets rise within [0, len(data)].
    """
    cells, steps = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    longest = int(np.max(offsets[rows + 1] - offsets[rows], initial=0))
    scratch = np.empty(longest, dtype=np.uint8)
    stack = np.empty((nodes.DEPTH_MAX, 2), dtype=np.int64)
    _most(data, offsets, rows, arrays, scratch, stack, cells, steps)
    return cells, steps


@borrowing
def _most(
    data: UInt8Array,
    offsets: Any,
    rows: Int64Array,
    arrays: NodeArrays,
    scratch: UInt8Array,
    stack: Int64Array,
    cells: Int64Array,
    steps: Int64Array,
) -> None:
    for k in range(len(rows)):
        first, behind = i64(offsets[rows[k]]), i64(offsets[rows[k] + 1])
        texts, values, items = _tokens(data, first, behind, arrays, scratch, stack)
        cells[k] = texts * TOKEN_CELLS + items + (behind - first) // BYTES_PER_CELL
        steps[k] = values + cells[k] // _CELLS_PER_STEP


@borrowing
def _tokens(  # noqa: C901  (one loop over one grammar)
    data: UInt8Array,
    p: int,
    end: int,
    arrays: NodeArrays,
    scratch: UInt8Array,
    stack: Int64Array,
) -> tuple[int, int, int]:
    """(values and names, values, cells of elements and entries) of the JSON text data[p:end]."""
    plan = arrays.nodes
    named, values, items, depth = 0, 0, 0, 0
    node = 0  # of the value that comes; -1: it is none of the schema's
    is_named = False
    while p < end:
        c = data[p]
        if c <= 0x20 or c == 0x2C or c == 0x3A:
            p += 1
            continue
        if c == 0x5D or c == 0x7D:
            if depth == 0:
                break
            depth -= 1
            is_named = False
            p += 1
            continue
        outer = stack[depth - 1, 0] if depth > 0 else -1
        if depth > 0 and stack[depth - 1, 1] == 0x7B and not is_named:
            if c != QUOTE:
                break
            start = p + 1
            p, escaped = scan_string(data, start, end)
            if p < 0:
                break
            named += 1
            is_named = True
            node = _member(data, start, p - 1, escaped, outer, arrays, scratch)
            items += plan[outer]["cells"] if outer >= 0 else 0
            continue
        if depth > 0 and stack[depth - 1, 1] == 0x5B:
            node = i64(plan[outer]["element"]) if outer >= 0 else -1
            items += plan[outer]["cells"] if outer >= 0 else 0
        values += 1
        is_named = False
        if c == 0x7B or c == 0x5B:
            if depth >= _DEPTH_MAX:
                break
            kind = plan[node]["kind"] if node >= 0 else -1
            fits = kind == _LIST if c == 0x5B else kind in (_STRUCT, _MAP)
            stack[depth, 0] = node if fits else -1
            stack[depth, 1] = c
            depth += 1
            p += 1
        elif c == QUOTE:
            p, _ = scan_string(data, p + 1, end)
            if p < 0:
                break
        else:
            p += 1
            while p < end and data[p] > 0x20 and data[p] != 0x2C and data[p] != 0x5D and data[p] != 0x7D:
                p += 1
    return named + values, values, items


@borrowing
def _member(
    data: UInt8Array,
    p: int,
    end: int,
    escaped: bool,
    outer: int,
    arrays: NodeArrays,
    scratch: UInt8Array,
) -> int:
    """Node of the value whose name is the string's bytes [p, end), in a container of the node `outer`; -1: none."""
    plan = arrays.nodes
    if outer < 0:
        return -1
    if plan[outer]["kind"] == _MAP:
        return i64(plan[outer]["value"])
    if escaped:
        found = find_member(plan[outer], arrays, -1, scratch, 0, unescape(data, p, end, scratch, 0))
    else:
        found = find_member(plan[outer], arrays, -1, data, p, end - p)
    return i64(arrays.members[plan[outer]["first"] + found]["node"]) if found >= 0 else -1
