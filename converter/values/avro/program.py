"""The program that a schema becomes: its operations, what it works on, what it fills, and why a row may fail.

A row of `Program.code` is one instruction: operation, slot, three numbers whose meaning the operation gives, and the
cells that one item of a LIST takes, or what a CALL's value takes when it becomes JSON. A
*slot* is one array that is filled: validity bytes, numbers, or the lengths of texts and lists. It belongs to a *group*,
the things that are counted together: group 0 the rows, one group for each list's or map's items. Slot -1: the value is
checked and goes nowhere (inside of what becomes JSON).

    operation      slot                      a, b, c
    END                                      the row's end
    BOOL           flags
    INT            ints
    LONG           longs
    FLOAT          ints, the four bytes
    DOUBLE         longs, the eight bytes
    SCALED_INT     longs                     a: factor
    SCALED_LONG    longs                     a: factor, b: largest value before it
    ENUM           ints                      a: number of symbols
    BYTES          lengths and data
    TEXT           lengths and data          must be UTF-8
    FIXED          lengths and data          a: size
    UUID           lengths and data          a: 16; becomes 36 characters
    DECIMAL        longs, two a value        a: size or -1, b: its limits' start, c: their size
    DECIMAL_BYTES  lengths and data          the same
    DURATION       longs, this and the next two slots
    OPTION         validity                  a: number of null's branch, b: where to go on if it is null
    UNION                                    a: first of its branches in Program.targets, b: how many
    MARK           flags: set to 1
    JUMP                                     a: where to
    LIST           lengths                   a: its items' group, b: after the list, c: 1 where items may take no bytes
    NEXT                                     an item's end
    CALL           lengths and data          a: where to, b: how many types deeper; the value's bytes are kept
    RETURN
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from converter.types import Int64Array, UInt8Array

Int32Array = npt.NDArray[np.int32]


class Op(IntEnum):
    """Operations. Numbers, sized values and control: the order is used."""

    BOOL = 0
    INT = 1
    LONG = 2
    FLOAT = 3
    DOUBLE = 4
    SCALED_INT = 5
    SCALED_LONG = 6
    ENUM = 7
    BYTES = 8
    TEXT = 9
    FIXED = 10
    UUID = 11
    DECIMAL = 12
    DECIMAL_BYTES = 13
    DURATION = 14
    OPTION = 15
    MARK = 16
    JUMP = 17
    UNION = 18
    LIST = 19
    NEXT = 20
    CALL = 21
    RETURN = 22
    END = 23


class Damage(IntEnum):
    """Why a row failed. OK: it did not."""

    OK = 0
    SHORT = 1
    VARINT = 2
    INT_RANGE = 3
    BOOL = 4
    LENGTH = 5
    UTF8 = 6
    ENUM = 7
    BRANCH = 8
    COUNT = 9
    TRAILING = 10
    DEEP = 11
    TIMESTAMP = 12
    DECIMAL = 13
    EMPTY_ITEMS = 14
    TWICE = 15
    CELLS = 16
    NO_ROOM = 17


# Plain numbers: a kernel compiles them in.
BOOL, INT, LONG, FLOAT, DOUBLE, SCALED_INT, SCALED_LONG, ENUM = (int(op) for op in list(Op)[:8])
BYTES, TEXT, FIXED, UUID, DECIMAL, DECIMAL_BYTES, DURATION, OPTION = (int(op) for op in list(Op)[8:16])
MARK, JUMP, UNION, LIST, NEXT, CALL, RETURN, END = (int(op) for op in list(Op)[16:])
BAD_SHORT, BAD_VARINT, BAD_INT_RANGE, BAD_BOOL, BAD_LENGTH = -1, -2, -3, -4, -5
BAD_UTF8, BAD_ENUM, BAD_BRANCH, BAD_COUNT, BAD_TRAILING, BAD_DEEP = -6, -7, -8, -9, -10, -11
BAD_TIMESTAMP, BAD_DECIMAL, BAD_EMPTY_ITEMS, BAD_CELLS = -12, -13, -14, -16

#: Types within types of one value, where its schema is recursive: what is made of them recurses, too,
#: by two calls a type, and Python allows 1,000.
DEPTH_MAX: Final = 300
#: Lists, maps and recursive types that are open at once: at least DEPTH_MAX and the nesting of a schema.
STACK_ROWS: Final = 500
#: A value may have as many items that take no bytes as it has bytes, and these.
EMPTY_ITEMS_FREE: Final = 16


class Program(NamedTuple):
    """What the kernel runs: instructions (n, 6), branches' starts, decimals' limits."""

    code: Int64Array
    targets: Int64Array
    limits: UInt8Array


class Filled(NamedTuple):
    """What the kernel fills.

    Attributes:
        slots: (n, 4), one row per slot: where its values begin in their array; where its data begins in `texts`; bytes
            of data so far; 1 where it had a value at all.
        counts: items per group so far; rows for group 0.
    """

    flags: UInt8Array
    ints: Int32Array
    longs: Int64Array
    texts: UInt8Array
    slots: Int64Array
    counts: Int64Array


#: Columns of `Filled.slots`.
BASE, TEXT_BASE, TEXT_SIZE, SEEN = 0, 1, 2, 3
