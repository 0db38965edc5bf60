"""Avro's binary encoding, written by one kernel for every schema: it runs the small program that was made from it.

Caller's promises: the offsets within `Flat` are monotone and lie inside the arrays they point into; `offsets` are
monotone and lie inside `out`; `stack` has a row for each list that may be open at once, and one more.
"""

from __future__ import annotations

from converter.kernels.kernel import borrowing, i64
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.avro.encode_ops import BRANCH, DATA, GIVEN, MISSING, NOTHING, SHIFT, Flat, Writing
from converter.values.avro.encode_scalars import NO, put_long, put_number, put_sized, state
from converter.values.avro.program import (
    DURATION,
    EMPTY_ITEMS_FREE,
    END,
    ENUM,
    JUMP,
    LIST,
    MARK,
    NEXT,
    OPTION,
    UNION,
)

STACK_COLUMNS = 4
# A row of the stack: the program's place of the first item, the item that is next, the last one (exclusive), the index
# outside. Of row 0 the second alone: how many items were written that may take no bytes.
_PC, _NEXT_ITEM, _LAST, _INDEX = 0, 1, 2, 3

#: (position or NO, instruction, stack pointer, index) while a row is written.
Place = tuple[int, int, int, int]


@borrowing
def _option(code: Int64Array, pc: int, given: bool, out: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """OPTION: (position, where to go on)."""
    null = code[pc, 2]
    if given:
        return put_long(out, p, end, 1 - null), pc + 1
    return put_long(out, p, end, null), code[pc, 3]


@borrowing
def _union(
    program: Writing, pc: int, given: int, index: int, flat: Flat, out: UInt8Array, p: int, end: int
) -> tuple[int, int]:
    """UNION: (position, where to go on).

    NO unless either the struct is null, and null a branch, or exactly one of its fields is not null.
    """
    code, branches = program.code, program.branches
    first, chosen, found = code[pc, 2], i64(0), i64(0)
    for k in range(code[pc, 3]):
        number = branches[first + k, 0]
        wanted = MISSING if number < 0 else GIVEN
        if given == wanted and (number < 0 or state(flat, number, index) != MISSING):
            chosen = k
            found += 1
    if found != 1:
        return NO, pc
    return put_long(out, p, end, chosen), branches[first + chosen, 1]


@borrowing
def _begin(
    code: Int64Array,
    pc: int,
    index: int,
    flat: Flat,
    stack: Int64Array,
    sp: int,
    out: UInt8Array,
    row: tuple[int, int],
    p: int,
) -> Place:
    """LIST, of a value that is given: one block of all items, then none."""
    inputs, ints = flat.inputs, flat.ints
    start, end = row
    number = code[pc, 1]
    at = inputs[number, DATA] + index
    first, last = i64(ints[at]), i64(ints[at + 1])
    count = last - first
    if count == 0:
        return put_long(out, p, end, 0), code[pc, 3], sp, index
    if code[pc, 4] == 1:
        stack[0, _NEXT_ITEM] += count
        if stack[0, _NEXT_ITEM] > end - start + EMPTY_ITEMS_FREE:
            return NO, pc, sp, index
    elif count > end - p:
        return NO, pc, sp, index
    shift = inputs[number, SHIFT]
    sp += 1
    stack[sp, _PC] = pc + 1
    stack[sp, _NEXT_ITEM] = first + shift + 1
    stack[sp, _LAST] = last + shift
    stack[sp, _INDEX] = index
    return put_long(out, p, end, count), pc + 1, sp, first + shift


@borrowing
def _next(stack: Int64Array, sp: int, pc: int, out: UInt8Array, p: int, end: int) -> Place:
    """NEXT: the next item, or the end of the list."""
    item = stack[sp, _NEXT_ITEM]
    if item < stack[sp, _LAST]:
        stack[sp, _NEXT_ITEM] = item + 1
        return p, stack[sp, _PC], sp, item
    return put_long(out, p, end, 0), pc + 1, sp - 1, stack[sp, _INDEX]


@borrowing
def _leaf(program: Writing, pc: int, given: int, index: int, flat: Flat, out: UInt8Array, p: int, end: int) -> int:
    """BOOL to DURATION, MARK, RECORD, NOTHING: the position after it, or NO."""
    code = program.code
    op = code[pc, 0]
    if op == NOTHING:
        return p if given == MISSING else NO
    if given != GIVEN:
        return NO
    if op <= ENUM:
        return put_number(code, pc, index, flat, out, p, end)
    if op <= DURATION:
        return put_sized(program, pc, index, flat, out, p, end)
    if op == MARK:
        return p if flat.flags[flat.inputs[code[pc, 1], DATA] + index] == 1 else NO
    return p  # RECORD: it is given, and its fields follow


@borrowing
def _row(program: Writing, flat: Flat, stack: Int64Array, out: UInt8Array, index: int, row: tuple[int, int]) -> bool:
    """Whether one row could be written and fills its room."""
    code = program.code
    p, end = row
    pc = i64(0)
    sp = i64(0)
    stack[0, _NEXT_ITEM] = 0
    while p >= 0:
        op = code[pc, 0]
        at = pc
        pc += 1  # where most go on
        if op == NEXT:
            p, pc, sp, index = _next(stack, sp, at, out, p, end)
        elif op == JUMP:
            pc = code[at, 2]
        elif op == BRANCH:
            p = put_long(out, p, end, code[at, 2])
        elif op == END:
            return bool(p == end)
        else:
            given = state(flat, code[at, 1], index)
            if op == OPTION:
                p, pc = _option(code, at, given != MISSING, out, p, end)
            elif op == UNION:
                p, pc = _union(program, at, given, index, flat, out, p, end)
            elif op != LIST:
                p = _leaf(program, at, given, index, flat, out, p, end)
            elif given != GIVEN:
                return False
            else:
                p, pc, sp, index = _begin(code, at, index, flat, stack, sp, out, row, p)
    return False


@borrowing
def run(
    program: Writing,
    given: Flat,
    stack: Int64Array,
    out: UInt8Array,
    offsets: Int64Array,
    wanted: BoolArray,
    valid: BoolArray,
) -> None:
    """Writes row i of those wanted into out[offsets[i]:offsets[i + 1]]; `valid`: whether it fills it."""
    for i in range(len(wanted)):
        if wanted[i]:
            row = (offsets[i], offsets[i + 1])
            valid[i] = _row(program, given, stack, out, i, row)
