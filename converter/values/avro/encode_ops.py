"""What the kernel that writes Avro works on. Its program has the operations of program.py, where they are explained.

An instruction's second number is not a slot but an *input*: the number of a column, the fields of a record, items of a
list, keys and values of a map each counted for themselves, parents first. So a LIST's fourth number is free, and these
operations differ or are new:

    operation      input                     a, b, c
    OPTION         the column                a: number of null's branch, b: where to go on if it is null
    UNION          the struct                a: first of its branches in Writing.branches, b: how many, c: its end
    MARK           of a record without fields: must be true
    LIST           the column                b: after the list, c: 1 where items may take no bytes
    RECORD         must not be null
    BRANCH                                   a: number of the branch that is written
    NOTHING        must be null
"""

from __future__ import annotations

from typing import Final, NamedTuple

from converter.types import Int64Array, UInt8Array
from converter.values.avro.program import Int32Array, Op

RECORD, BRANCH, NOTHING = (int(max(Op)) + k for k in (1, 2, 3))

#: A value of `Flat.flags` where it says whether a column has one. BAD: it has one that no value of the schema becomes.
MISSING, GIVEN, BAD = 0, 1, 2

#: Columns of `Flat.inputs`.
STATE, DATA, SHIFT = 0, 1, 2

#: STATE of an input that is given everywhere.
ALWAYS: Final = -1


class Writing(NamedTuple):
    """What the kernel runs.

    Attributes:
        code: (n, 5), one instruction a row.
        branches: (n, 2), of each branch of a union: the input of its column, -1 for null; where to go on.
        limits: of decimals, as for the kernel that reads.
    """

    code: Int64Array
    branches: Int64Array
    limits: UInt8Array


class Flat(NamedTuple):
    """The columns' values, those of all inputs one after the other.

    Attributes:
        flags: MISSING, GIVEN or BAD; values of bools.
        ints: of 32 bits; the bits of floats; numbers of symbols; offsets of texts and lists.
        longs: of 64 bits; the bits of doubles; two for each decimal, the low half first.
        texts: bytes of texts.
        inputs: (n, 3), of each input: where its states begin in `flags`, ALWAYS for none; where its values begin in
            their array; what is to be added to its offsets, so that they point into `texts` or at its items.
    """

    flags: UInt8Array
    ints: Int32Array
    longs: Int64Array
    texts: UInt8Array
    inputs: Int64Array
