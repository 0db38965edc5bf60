"""Writes rows in Protobuf's wire format, each into its own place, from its end to its beginning.

Caller's promises: the program is one of encode_compile.py, the inputs are what encode_flat.py made
for it, `stack` has the program's depth, `starts` ascend from 0 to len(out). Places in cells are not trusted.
"""

from __future__ import annotations

from typing import Final

from converter.kernels import memory
from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.protobuf.encode_ops import (
    BAD_CELL,
    BYTES,
    CELLS,
    COUNT,
    ELEMENT,
    END,
    FIXED32,
    FLAGS,
    JUMP,
    LIST,
    MESSAGE,
    NEXT,
    OMIT,
    OP,
    OPEN,
    PACKED,
    PRESENT,
    SLOT,
    TAG,
    TAG_BYTES,
    VARINT,
    WIRE,
    Inputs,
)

BAD: Final = -1

_copy = borrowing(memory.copy)


@borrowing
def _put_varint(out: UInt8Array, floor: int, p: int, value: int) -> int:
    """Writes a number that ends before p; returns its place, BAD where there is no room."""
    left = u64(value)
    if left < u64(0x80):
        if p <= floor:
            return BAD
        out[u64(p - 1)] = u8(left)
        return p - 1
    size = 1
    rest = left >> u64(7)
    while rest != u64(0):
        size += 1
        rest >>= u64(7)
    if size > p - floor:
        return BAD
    p -= size
    for k in range(size - 1):
        out[u64(p + k)] = u8(left & u64(0x7F) | u64(0x80))
        left >>= u64(7)
    out[u64(p + size - 1)] = u8(left)
    return p


@borrowing
def _put_raw(out: UInt8Array, floor: int, p: int, value: int, size: int) -> int:
    """Writes the low bytes of a number, the lowest first."""
    if size > p - floor:
        return BAD
    p -= size
    left = u64(value)
    if size == 8:
        for k in range(8):
            out[u64(p) + u64(k)] = u8(left >> u64(8 * k))
        return p
    for k in range(size):
        out[u64(p + k)] = u8(left)
        left >>= u64(8)
    return p


@borrowing
def _put_number(out: UInt8Array, floor: int, p: int, value: int, wire: int) -> int:
    if wire == VARINT:
        return _put_varint(out, floor, p, value)
    return _put_raw(out, floor, p, value, 4 if wire == FIXED32 else 8)


@borrowing
def _put_scalar(
    code: Int64Array, pc: int, at: int, cells: Int64Array, texts: UInt8Array, out: UInt8Array, floor: int, p: int
) -> int:
    """VARINT to BYTES from cell `at`; returns where the field begins, or BAD."""
    op = code[pc, OP]
    value = cells[at]
    if op != BYTES:
        if value == 0 and code[pc, OMIT] == 1:
            return p
        p = _put_number(out, floor, p, value, op)
    else:
        end = cells[at + 1]
        if value < 0 or value > end or end > len(texts):
            return BAD
        size = end - value
        if size == 0 and code[pc, OMIT] == 1:
            return p
        if size > p - floor:
            return BAD
        p -= size
        _copy(out, p, texts, value, size)
        p = _put_varint(out, floor, p, size)
    if p == BAD:
        return BAD
    return _put_raw(out, floor, p, code[pc, TAG], code[pc, TAG_BYTES])


@borrowing
def _put_packed(
    code: Int64Array, pc: int, first: int, behind: int, inputs: Inputs, out: UInt8Array, floor: int, p: int
) -> int:
    """Elements [first, behind), at least one; returns where the field begins, or BAD."""
    slots, flags, cells = inputs.slots, inputs.flags, inputs.cells
    end = p
    wire = code[pc, WIRE]
    element = code[pc, ELEMENT]
    flag, base = slots[element, FLAGS], slots[element, CELLS]
    k = behind
    while k > first:
        k -= 1
        if flag >= 0 and flags[flag + k] != PRESENT:
            return BAD
        p = _put_number(out, floor, p, cells[base + k], wire)
        if p == BAD:
            return BAD
    p = _put_varint(out, floor, p, end - p)
    if p == BAD:
        return BAD
    return _put_raw(out, floor, p, code[pc, TAG], code[pc, TAG_BYTES])


# A row of the stack: of a list, the index outside and its first element; of a message, where it ends.
_FIRST, _SECOND = 0, 1


@borrowing
def _row(  # noqa: C901  (one loop over one program)
    code: Int64Array, inputs: Inputs, index: int, out: UInt8Array, floor: int, p: int, stack: Int64Array
) -> int:
    """Writes one row into out[floor:p]; returns where it begins, or BAD."""
    slots, flags, cells, texts = inputs.slots, inputs.flags, inputs.cells, inputs.texts
    pc = i64(0)
    sp = i64(0)
    while p >= 0:
        op, slot = code[pc, OP], code[pc, SLOT]
        at = i64(0)
        if slot >= 0:
            flag = slots[slot, FLAGS]
            if flag >= 0 and flags[flag + index] != PRESENT:
                if flags[flag + index] == BAD_CELL:
                    return BAD
                pc = code[pc, JUMP]
                continue
            at = slots[slot, CELLS] + index
        if op == END:
            return p
        if op <= BYTES:
            p = _put_scalar(code, pc, at, cells, texts, out, floor, p)
        elif op in (LIST, PACKED):
            first, behind = cells[at], cells[at + 1]
            if first < 0 or first > behind or behind > slots[slot, COUNT]:
                return BAD
            if first == behind:
                pc = code[pc, JUMP]
                continue
            if op == PACKED:
                p = _put_packed(code, pc, first, behind, inputs, out, floor, p)
            else:
                stack[sp, _FIRST], stack[sp, _SECOND] = index, first
                sp += 1
                index = behind - 1
        elif op == NEXT:
            if index > stack[sp - 1, _SECOND]:
                index -= 1
                pc = code[pc, JUMP]
                continue
            sp -= 1
            index = stack[sp, _FIRST]
        elif op == MESSAGE:
            if code[pc, OMIT] == 1:
                p = _put_raw(out, floor, p, code[pc, TAG], code[pc, TAG_BYTES])
            stack[sp, _FIRST] = p
            sp += 1
        elif op == OPEN:
            sp -= 1
            if code[pc, OMIT] == 0:
                p = _put_varint(out, floor, p, stack[sp, _FIRST] - p)
            if p != BAD:
                p = _put_raw(out, floor, p, code[pc, TAG], code[pc, TAG_BYTES])
        pc += 1
    return BAD


@borrowing
def write(
    code: Int64Array, inputs: Inputs, starts: Int64Array, out: UInt8Array, stack: Int64Array, good: BoolArray
) -> None:
    """Writes each row that is `good` into out[starts[i]:starts[i + 1]]; good stays it if it fills that exactly."""
    for i in range(len(good)):
        if good[i]:
            floor = starts[i]
            good[i] = _row(code, inputs, i, out, floor, starts[i + 1], stack) == floor
