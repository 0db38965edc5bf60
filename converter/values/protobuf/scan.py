"""What a decoder would meet in a value, found without decoding it.

The quick decoder gives up on a whole call for one malformed row, panics for some, and accepts what it should not: two
members of a oneof, a singular field twice. The scan walks each row by the lowered schema and says which rows it may
see: those whose meaning does not depend on a decoder. All others are for the slow path, which judges them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from converter.kernels.kernel import i64, kernel
from converter.types import Int64Array, UInt8Array
from converter.values.protobuf.scan_table import (
    BAD,
    BEGIN,
    BITS,
    CHILD,
    END,
    GROUP,
    I32,
    I64,
    LEN,
    LEVELS,
    NUMBER,
    REPEATED,
    SLOT,
    VARINT,
    WIDTH,
    WIRE,
    ScanTable,
    find,
    skip,
    varint,
)

#: What the scan finds.
QUICK, SLOW, OVER = 0, 1, 2
_MALFORMED = 2**40
#: What a field of a row that google.protobuf reads takes beside its columns, in cells: Python's objects. Twice as much
#: for a message.
STEP_CELLS: Final = 8
#: Cells that take it as long as Python takes for one JSON value.
_CELLS_PER_STEP: Final = 96


def scan(table: ScanTable, offsets: Int64Array, data: UInt8Array, *, cells_max: int) -> tuple[UInt8Array, Int64Array]:
    """QUICK, SLOW or OVER per row, and the cells that the lists and maps of the quick ones take; 0 of all others.

    SLOW: malformed; a singular field, or members of one oneof, more than once; a field with another wire type than the
    schema's; a group; a number with more bits than parsers agree on. OVER: lists and maps of more than `cells_max`.

    Args:
        table: the lowered schema.
        offsets: of n rows, n + 1 of them, inside `data`.
        data: the rows.
        cells_max: see above, below 2**40; columns outside of lists and maps do not count.
    """
    statuses = np.empty(len(offsets) - 1, dtype=np.uint8)
    cells = np.zeros(len(offsets) - 1, dtype=np.int64)
    _scan(table.starts, table.fields, table.slots, offsets, data, cells_max, statuses, cells)
    return statuses, cells


def most_cells(
    table: ScanTable, offsets: Int64Array, data: UInt8Array, rows: Int64Array, *, cells_max: int
) -> tuple[Int64Array, Int64Array]:
    """Cells that some rows take at most while google.protobuf reads them, and steps: what Python does for them.

    Each occurrence of a field counts.

    Of malformed rows what comes before the damage, and beyond `cells_max` no further. What the schema does not know,
    groups too, takes none: its bytes are kept as they are.
    """
    cells = np.zeros(len(rows), dtype=np.int64)
    _most(table.starts, table.fields, offsets, data, rows, cells_max, cells)
    return cells, cells // _CELLS_PER_STEP


@kernel
def _most(
    starts: Int64Array,
    fields: Int64Array,
    offsets: Int64Array,
    data: UInt8Array,
    rows: Int64Array,
    cells_max: int,
    cells: Int64Array,
) -> None:
    outer = np.zeros((LEVELS, 4), dtype=np.int64)
    for k in range(len(rows)):
        cells[k] = _most_of_row(starts, fields, data, offsets[rows[k]], offsets[rows[k] + 1], outer, cells_max)


@kernel
def _most_of_row(  # noqa: C901  (one loop over one format)
    starts: Int64Array,
    fields: Int64Array,
    data: UInt8Array,
    p: int,
    end: int,
    outer: Int64Array,
    cells_max: int,
) -> int:
    level, cells, unknown = 0, i64(0), 0
    first, last, grouped = starts[0], starts[1], 0
    while cells <= cells_max:
        # A message ends with its bytes, a group with a tag.
        if p == end and (level == 0 or grouped or unknown):
            break
        tag, wire = i64(0), i64(END)
        if p < end:
            tag, p = varint(data, p, end)
            wire = tag & 7
            if p == BAD or tag < 8 or tag >= 2**32 or (wire == END and unknown == 0 and grouped == 0):
                break
        if wire == END and unknown == 0:
            level -= 1
            first, last, end, grouped = outer[level, 0], outer[level, 1], outer[level, 2], outer[level, 3]
            continue
        row = find(fields, first, last, tag >> 3) if unknown == 0 else -1
        child = fields[row, CHILD] if row >= 0 else -1
        # google.protobuf takes a group for no message, and a message for no group.
        known = child >= 0 and wire == (BEGIN if fields[row, GROUP] else LEN)
        if wire in (BEGIN, END) and not known:
            unknown += 1 if wire == BEGIN else -1
            continue
        size = i64(0)
        if wire == LEN:
            size, p = varint(data, p, end)
            if p == BAD or size < 0 or size > end - p:
                break
        if row >= 0:
            cells += fields[row, WIDTH] + (2 * STEP_CELLS if known else STEP_CELLS)
        if known and level < LEVELS:
            outer[level, 0], outer[level, 1], outer[level, 2], outer[level, 3] = first, last, end, grouped
            level += 1
            first, last, grouped = starts[child], starts[child + 1], fields[row, GROUP]
            end = p + size if wire == LEN else end
            continue
        if wire == LEN:
            if row >= 0 and fields[row, REPEATED] == 1 and fields[row, BITS] > 0:
                cells += _packed_most(data, p, p + size, fields[row, WIRE]) * (STEP_CELLS + fields[row, WIDTH])
            p += size
            continue
        p = skip(data, p, end, wire)
        if p == BAD or p > end:
            break
    return cells


@kernel
def _packed_most(data: UInt8Array, p: int, stop: int, wire: int) -> int:
    """Elements that a packed list may have, whatever follows its last one."""
    if wire != VARINT:
        return (stop - p) // (8 if wire == I64 else 4 if wire == I32 else 1)
    count = 0
    for k in range(p, stop):
        count += data[k] < 0x80
    return count


@kernel
def _packed_count(data: UInt8Array, p: int, stop: int, wire: int) -> int:
    """Elements of a packed list, more than anybody allows where the last one does not end with it."""
    if wire != VARINT:
        size = 8 if wire == I64 else 4
        return _MALFORMED if (stop - p) % size else (stop - p) // size
    count = 0
    while p < stop:
        _, p = varint(data, p, stop)
        if p == BAD:
            return _MALFORMED
        count += 1
    return count


@kernel
def _scan(
    starts: Int64Array,
    fields: Int64Array,
    slots: int,
    offsets: Int64Array,
    data: UInt8Array,
    cells_max: int,
    statuses: UInt8Array,
    taken: Int64Array,
) -> None:
    # In which message each slot was last seen, per level, and the messages around the one that is being read.
    stamps = np.zeros((LEVELS, slots), dtype=np.int64)
    outer = np.zeros((LEVELS, 5), dtype=np.int64)
    messages = 0
    for i in range(len(statuses)):
        cells, messages = _row(starts, fields, data, offsets[i], offsets[i + 1], stamps, outer, messages + 1)
        statuses[i] = SLOW if cells < 0 or cells >= _MALFORMED else QUICK if cells <= cells_max else OVER
        taken[i] = cells if statuses[i] == QUICK else 0


# One function per row, and what is frequent without calls: arrays are handed over by a dozen words each.
@kernel
def _row(  # noqa: C901  (one loop over one format)
    starts: Int64Array,
    fields: Int64Array,
    data: UInt8Array,
    p: int,
    end: int,
    stamps: Int64Array,
    outer: Int64Array,
    messages: int,
) -> tuple[int, int]:
    """(cells in lists and maps, too many or BAD where the row is malformed or unclear; messages met so far)."""
    level, cells = 0, 0
    first, last, guess, stamp = starts[0], starts[1], starts[0], messages
    while 0 <= p <= end:
        if p == end:
            if level == 0:
                return cells, messages
            level -= 1
            first, last, guess = outer[level, 0], outer[level, 1], outer[level, 2]
            stamp, end = outer[level, 3], outer[level, 4]
            continue
        tag = i64(data[p])
        p += 1
        if tag >= 0x80:
            tag, p = varint(data, p - 1, end)
        if p == BAD or tag < 8 or tag >= 2**32:
            break
        row = guess
        if guess >= last or fields[guess, NUMBER] != tag >> 3:
            row = find(fields, first, last, tag >> 3)
        if row < 0:
            p = skip(data, p, end, tag & 7)
            continue
        repeated, wire = fields[row, REPEATED], fields[row, WIRE]
        guess = row + 1 - repeated
        if repeated == 0:
            slot = fields[row, SLOT]
            if stamps[level, slot] == stamp:
                break
            stamps[level, slot] = stamp
        packed = tag & 7 != wire
        if packed and (repeated == 0 or wire == BAD or tag & 7 != LEN):
            break
        if not packed:
            cells += fields[row, WIDTH] * repeated
            if wire == VARINT:
                start = p
                while p < end and data[p] >= 0x80:
                    p += 1
                p += 1
                if p - start > 9 and (p > end or p - start > 10 or data[p - 1] > 1):
                    break
                continue
            if wire != LEN:
                p += 8 if wire == I64 else 4
                continue
        size, p = (i64(data[p]), p + 1) if p < end and data[p] < 0x80 else varint(data, p, end)
        if p == BAD or size < 0 or size > end - p:
            break
        child = fields[row, CHILD]
        if packed:
            cells += _packed_count(data, p, p + size, wire) * fields[row, WIDTH]
        if child < 0:
            p += size
            continue
        outer[level, 0], outer[level, 1], outer[level, 2] = first, last, guess
        outer[level, 3], outer[level, 4] = stamp, end
        level, messages = level + 1, messages + 1
        first, last, guess, stamp, end = starts[child], starts[child + 1], starts[child], messages, p + size
    return BAD, messages
