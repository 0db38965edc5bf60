"""Avro's binary encoding, read by one kernel for every schema: it runs the small program that was made from it.

It runs twice. The first time nothing is filled: every row is checked and what it would take is counted, so the arrays
can be made; they are never too small, because the second run skips the rows that failed and reads the others the same
way. Nulls are not written: the arrays begin as zeros.

Caller's promises: `offsets` are consistent with `data`, the arrays of `Filled` have the sizes the first run counted.
"""

from __future__ import annotations

from typing import Final

from converter.kernels.kernel import borrowing, i64
from converter.limits import VALUE_CELLS_MAX
from converter.types import Int64Array, UInt8Array
from converter.values.avro.program import (
    BAD_BRANCH,
    BAD_CELLS,
    BAD_COUNT,
    BAD_DEEP,
    BAD_EMPTY_ITEMS,
    BAD_SHORT,
    BAD_TRAILING,
    BAD_VARINT,
    BASE,
    CALL,
    DEPTH_MAX,
    DURATION,
    EMPTY_ITEMS_FREE,
    END,
    ENUM,
    JUMP,
    MARK,
    NEXT,
    OPTION,
    RETURN,
    SEEN,
    UNION,
    Filled,
    Int32Array,
    Program,
)
from converter.values.avro.scalars import keep, mark, number, read_long, sized

#: (position, instruction, stack pointer, index) while a row is read.
Place = tuple[int, int, int, int]


@borrowing
def _block(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """(number of items in the block that begins at p, position of the first), or (0, minus the damage)."""
    count, p = read_long(data, p, end)
    if p < 0:
        return 0, BAD_VARINT
    if count < 0:
        size, p = read_long(data, p, end)
        if p < 0:
            return 0, BAD_VARINT
        if size < 0 or count == -count:
            return 0, BAD_COUNT
        count = -count
    return count, p


# A row of the stack. Lists: the program's place of the first item, items left in the block, items so far. Recursive
# types: where to go on, where the value began. Both: the index outside, and how deep the recursive types are.
_PC, _LEFT, _SO_FAR, _INDEX, _DEPTH = 0, 1, 2, 3, 4
_CELLS: Final = 2  # in the first row, which is no list's: cells of the value's items


@borrowing
def _branch(
    program: Program, pc: int, index: int, out: Filled, data: UInt8Array, p: int, end: int, fill: bool
) -> tuple[int, int]:
    """OPTION, UNION at p: (position after the branch's number or minus the damage, where to go on)."""
    code = program.code
    branch, p = read_long(data, p, end)
    if p < 0:
        return BAD_VARINT, pc
    if code[pc, 0] == UNION:
        if branch < 0 or branch >= code[pc, 3]:
            return BAD_BRANCH, pc
        return p, program.targets[code[pc, 2] + branch]
    if branch < 0 or branch > 1:
        return BAD_BRANCH, pc
    if branch == code[pc, 2]:
        return p, code[pc, 3]
    mark(code[pc, 1], index, out, fill)
    return p, pc + 1


@borrowing
def _next_item(
    code: Int64Array,
    out: Filled,
    stack: Int64Array,
    sp: int,
    data: UInt8Array,
    p: int,
    row: tuple[int, int],
    fill: bool,
) -> Place:
    """(position or minus the damage, where to go on, stack pointer, index) after an item, or a list's beginning."""
    start, end = row
    pc = stack[sp, _PC] - 1
    s, group = code[pc, 1], code[pc, 2]
    if stack[sp, _LEFT] == 0:
        count, p = _block(data, p, end)
        if p < 0:
            return p, pc, sp, 0
        if count == 0:
            index = stack[sp, _INDEX]
            if s >= 0:
                if fill:
                    out.ints[out.slots[s, BASE] + index] = stack[sp, _SO_FAR]
                else:
                    out.slots[s, SEEN] = 1
            return p, code[pc, 3], sp - 1, index
        if code[pc, 4] == 1:
            stack[0, _LEFT] += count
            if count > end - start + EMPTY_ITEMS_FREE or stack[0, _LEFT] > end - start + EMPTY_ITEMS_FREE:
                return BAD_EMPTY_ITEMS, pc, sp, 0
        elif count > end - p:
            return BAD_SHORT, pc, sp, 0
        stack[sp, _LEFT] = count
    stack[0, _CELLS] += code[pc, 5]
    if stack[0, _CELLS] > VALUE_CELLS_MAX:
        return BAD_CELLS, pc, sp, 0
    stack[sp, _LEFT] -= 1
    stack[sp, _SO_FAR] += 1
    index = i64(0)
    if group >= 0:
        index = out.counts[group]
        out.counts[group] += 1
    return p, pc + 1, sp, index


@borrowing
def _enter(code: Int64Array, pc: int, stack: Int64Array, sp: int, p: int, index: int) -> int:
    """LIST, CALL: the stack's new pointer, or minus the damage."""
    call = code[pc, 0] == CALL
    depth = stack[sp, _DEPTH] + (code[pc, 3] if call else 0)
    if depth > DEPTH_MAX or sp + 1 >= len(stack):
        return BAD_DEEP
    if call:
        stack[0, _CELLS] += code[pc, 5]
        if stack[0, _CELLS] > VALUE_CELLS_MAX:
            return BAD_CELLS
    sp += 1
    stack[sp, _PC] = pc + 1
    stack[sp, _LEFT] = 0
    stack[sp, _SO_FAR] = p if call else 0
    stack[sp, _INDEX] = index
    stack[sp, _DEPTH] = depth
    return sp


@borrowing
def _leave(code: Int64Array, out: Filled, stack: Int64Array, sp: int, data: UInt8Array, p: int, fill: bool) -> None:
    """RETURN: keeps the bytes of the value that ends at p."""
    s, began = code[stack[sp, _PC] - 1, 1], stack[sp, _SO_FAR]
    if s >= 0:
        keep(s, stack[sp, _INDEX], out, data, began, p - began, fill)


@borrowing
def _nest(
    code: Int64Array,
    at: Place,
    out: Filled,
    stack: Int64Array,
    data: UInt8Array,
    row: tuple[int, int],
    fill: bool,
) -> Place:
    """LIST to RETURN: the place after it; its position is minus the damage where there is any."""
    p, pc, sp, index = at
    op = code[pc, 0]
    if op == RETURN:
        _leave(code, out, stack, sp, data, p, fill)
        return p, stack[sp, _PC], sp - 1, stack[sp, _INDEX]
    if op != NEXT:
        sp = _enter(code, pc, stack, sp, p, index)
        if sp < 0:
            return sp, pc, 0, index
        if op == CALL:
            return p, code[pc, 2], sp, index
    return _next_item(code, out, stack, sp, data, p, row, fill)


@borrowing
def _row(
    program: Program,
    out: Filled,
    stack: Int64Array,
    data: UInt8Array,
    index: int,
    row: tuple[int, int],
    fill: bool,
) -> tuple[int, int]:
    """Reads one row: (0 or the damage, the instruction it was seen at)."""
    code = program.code
    p, end = row
    pc = i64(0)
    sp = i64(0)
    stack[0, _LEFT] = 0
    stack[0, _DEPTH] = 0
    stack[0, _CELLS] = 0
    while True:
        op = code[pc, 0]
        at = pc
        pc += 1  # where most go on
        if op <= ENUM:
            p = number(code, at, index, out, data, p, end, fill)
        elif op <= DURATION:
            p = sized(program, at, index, out, data, p, end, fill)
        elif op in (OPTION, UNION):
            p, pc = _branch(program, at, index, out, data, p, end, fill)
        elif op == MARK:
            mark(code[at, 1], index, out, fill)
        elif op == JUMP:
            pc = code[at, 2]
        elif op == END:
            return (0, at) if p == end else (-BAD_TRAILING, at)
        else:
            p, pc, sp, index = _nest(code, (p, at, sp, index), out, stack, data, row, fill)
        if p < 0:
            return -p, at


@borrowing
def run(
    program: Program,
    out: Filled,
    stack: Int64Array,
    data: UInt8Array,
    offsets: Int32Array,
    damage: UInt8Array,
    seen_at: Int64Array,
    taken: Int64Array,
    fill: bool,
) -> None:
    """Reads every row whose `damage` is 0. Without `fill` it sets `damage`, and `seen_at`: at which instruction.

    TEXT_SIZE of the slots, and the groups' counts but the first, begin as zeros. `taken` gets the cells that the items
    of each of these rows take, of rows that fail, too: what was counted of these is counted until they are skipped.
    """
    for i in range(len(damage)):
        if damage[i] == 0:
            row = (i64(offsets[i]), i64(offsets[i + 1]))
            found, pc = _row(program, out, stack, data, i, row, fill)
            taken[i] = stack[0, _CELLS]
            if not fill:
                damage[i] = found
                seen_at[i] = pc
