"""The program that a message type becomes for writing, and the arrays it writes from.

A message is written from its end to its beginning: when the length of a nested message is asked for, the message is
there. So a program has the fields by descending number and lists from their last element, and MESSAGE, where the walk
enters one, is at its end.

A *slot* is one column, or what one becomes on the way to the wire: flags that say what is there, and cells. An
instruction whose slot is ABSENT at the present index goes on at its JUMP. One with BAD ends the row: no value of the
message type has this column.

    operation   cells of its slot            what it writes
    END                                      the row is complete
    VARINT      the number                   tag and number; OMIT: nothing for 0
    FIXED32     the number                   the same
    FIXED64     the number                   the same
    BYTES       n + 1 places in the texts    tag, length and bytes; OMIT: nothing for none
    PACKED      n + 1 places of elements     tag, length and elements of slot ELEMENT, each as WIRE says; none: nothing
    LIST        n + 1 places of elements     nothing; goes on with the last element, or at JUMP where there is none
    NEXT                                     nothing; goes on at JUMP with the element before, while there is one
    MESSAGE                                  nothing; of a group (OMIT is 1) the tag of its end
    OPEN                                     the message's tag and length; of a group the tag alone
"""

from __future__ import annotations

from typing import Final, NamedTuple

from converter.types import Int64Array, UInt8Array

END, VARINT, FIXED32, FIXED64, BYTES, PACKED, LIST, NEXT, MESSAGE, OPEN = range(10)
#: What flags say.
ABSENT, PRESENT, BAD_CELL = 0, 1, 2
#: Columns of `ProtobufEncodeProgram.code`. TAG is the tag's bytes as a little-endian number.
OP, SLOT, TAG, TAG_BYTES, OMIT, JUMP, ELEMENT, WIRE = range(8)
#: Columns of `Inputs.slots`: first flag, -1: all PRESENT; first cell; of lists, how many elements there are.
FLAGS, CELLS, COUNT = range(3)
#: The slot of what has none: an entry of a map is always there.
NO_SLOT: Final = -1


class ProtobufEncodeProgram(NamedTuple):
    """What the kernel runs.

    Attributes:
        code: (n, 8), one row per instruction.
        depth: lists and messages that are open at once, at most.
    """

    code: Int64Array
    depth: int


class Inputs(NamedTuple):
    """Columns, flat.

    Attributes:
        slots: (n, 3), one row per slot.
        flags: ABSENT, PRESENT or BAD_CELL.
        cells: numbers, places in `texts` and places of elements.
        texts: bytes of all texts.
    """

    slots: Int64Array
    flags: UInt8Array
    cells: Int64Array
    texts: UInt8Array
