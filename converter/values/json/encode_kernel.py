"""Runs an encoder's program for each row: cells in, JSON out. Reads encode_compile.py and encode_cells.py."""

from __future__ import annotations

from typing import Any, Final

from converter.kernels.kernel import borrowing, i64, u8
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.json import nodes
from converter.values.json.encode_cells import Cells
from converter.values.json.encode_compile import CLOSE, END, KEY, NEXT, JsonEncodeProgram
from converter.values.json.encode_scalars import write_date, write_datetime, write_double, write_whole
from converter.values.json.encode_text import write_bytes, write_members, write_string
from converter.values.json.scan import BAD

_STRUCT, _FLAG, _MAP, _LIST = nodes.STRUCT, nodes.FLAG, nodes.MAP, nodes.LIST
_STRING, _DATETIME, _DATE, _INTEGER = nodes.STRING, nodes.DATETIME, nodes.DATE, nodes.INTEGER
_NUMBER, _BOOLEAN, _EXTRA = nodes.NUMBER, nodes.BOOLEAN, nodes.EXTRA
_NULL: Final = 0x6C6C756E
_TRUE: Final = 0x65757274
_FALS: Final = 0x736C6166
_EMPTY: Final = 0x7D7B
#: Columns of `frames`: the slot outside, the slot behind the last one inside.
_OUTSIDE: Final = 0
_BEHIND: Final = 1
FRAME_COLUMNS: Final = 2


@borrowing
def _word(out: UInt8Array, q: int, end: int, word: int, size: int) -> int:
    """The `size` low bytes of a word, at most four."""
    if end - q < size:
        return BAD
    for k in range(size):
        out[q + k] = u8((word >> (8 * k)) & 0xFF)
    return q + size


@borrowing
def _bool(out: UInt8Array, q: int, end: int, value: bool) -> int:
    if value:
        return _word(out, q, end, _TRUE, 4)
    q = _word(out, q, end, _FALS, 4)
    return _word(out, q, end, 0x65, 1) if q >= 0 else q


@borrowing
def _leaf(
    out: UInt8Array,
    q: int,
    end: int,
    step: Any,
    at: int,
    program: JsonEncodeProgram,
    cells: Cells,
    digits: UInt8Array,
) -> int:
    """The value of cell `at`, which is valid and no container."""
    op, content, texts, literals = step["op"], cells.content, cells.texts, program.literals
    if op == _INTEGER:
        return write_whole(out, q, end, content[at])
    if op == _BOOLEAN:
        return _bool(out, q, end, content[at] != 0)
    if op == _DATE:
        return write_date(out, q, end, content[at])
    if op == _DATETIME:
        return write_datetime(out, q, end, content[at], program.times[step["form"]], literals)
    if op == _FLAG:
        return _word(out, q, end, _EMPTY, 2) if content[at] != 0 else BAD
    p, stop = content[at], content[at + 1]
    if p < 0 or stop < p or stop > len(texts):
        return BAD
    if op in (_STRING, KEY):
        return write_string(out, q, end, texts, p, stop, program.table)
    if op == _NUMBER:
        return write_double(out, q, end, texts, p, stop, digits, program.numbers[step["form"]])
    if op == _EXTRA:
        return write_members(out, q, end, texts, p, stop, literals, i64(step["key"]), i64(step["size"]))
    return write_bytes(out, q, end, texts, p, stop)


@borrowing
def _key(out: UInt8Array, q: int, end: int, step: Any, literals: UInt8Array, first: bool, there: bool) -> int:
    """What stands before the step's value; where it is not there, the value, too."""
    key = i64(step["key"])
    q = write_bytes(out, q, end, literals, key + i64(step["comma"]) * i64(first), key + i64(step["size"]))
    if q < 0 or there:
        return q
    return BAD if step["op"] == KEY else _word(out, q, end, _NULL, 4)


@borrowing
def _row(
    out: UInt8Array,
    q: int,
    end: int,
    row: int,
    program: JsonEncodeProgram,
    cells: Cells,
    frames: Any,
    digits: UInt8Array,
) -> int:
    """One row into out[q:end]; the place behind it, or BAD."""
    steps, literals = program.steps, program.literals
    bases, counts, content, valid = cells.bases, cells.counts, cells.content, cells.valid
    slot, depth, pc = row, 0, 0
    first = True  # nothing is in the innermost open container yet
    while q >= 0:
        step = steps[pc]
        op = step["op"]
        if op == END:
            return q
        if op in (CLOSE, NEXT):
            if op == NEXT:
                slot += 1
                if slot < frames[depth - 1, _BEHIND]:
                    pc = i64(step["jump"])
                    continue
                depth -= 1
                slot = frames[depth, _OUTSIDE]
            q = _word(out, q, end, i64(step["closing"]), 1)
            first = False
            pc += 1
            continue
        at = bases[step["node"]] + slot
        there = valid[at]
        if not there and step["skip"]:
            pc = i64(step["jump"])
            continue
        q = _key(out, q, end, step, literals, first, there)
        if q < 0:
            return BAD
        first = False
        if not there:
            pc = i64(step["jump"])
        elif op == _STRUCT:
            q = _word(out, q, end, 0x7B, 1)
            first = True
            pc += 1
        elif op in (_LIST, _MAP):
            begin, behind = content[at], content[at + 1]
            if depth >= len(frames) or begin < 0 or behind < begin or behind > counts[step["node"] + 1]:
                return BAD
            q = _word(out, q, end, i64(step["closing"]) - 2, 1)
            frames[depth, _OUTSIDE] = slot
            frames[depth, _BEHIND] = behind
            depth += 1
            first = True
            # An empty one goes straight to its NEXT, which counts on from the slot before the first.
            slot = begin if begin < behind else begin - 1
            pc = pc + 1 if begin < behind else i64(step["jump"]) - 1
        else:
            q = _leaf(out, q, end, step, at, program, cells, digits)
            pc += 1
    return BAD


@borrowing
def write_rows(
    out: UInt8Array,
    offsets: Int64Array,
    good: BoolArray,
    program: JsonEncodeProgram,
    cells: Cells,
    frames: Any,
    digits: UInt8Array,
) -> None:
    """Each good row r into out[offsets[r]:offsets[r + 1]]; good no more where it does not end there.

    Caller's promise: the offsets rise and lie within `out`; program and cells are of one tree; each node has as many
    slots in `content` and `valid` as `counts` says, the root and its structs one for each row; `frames` has a row for
    each level of lists and maps, and FRAME_COLUMNS; `digits` has DIGITS_MAX places.
    """
    for row in range(len(good)):
        if good[row]:
            end = offsets[row + 1]
            good[row] = _row(out, offsets[row], end, row, program, cells, frames, digits) == end
