"""Prints of values: what a value says, whatever bytes it says it in.

A print is a hash over (path, position in its list, content) of every field that the schema knows. Rows with the same
print say the same, whatever the order of their fields, the packing of their lists, the padding of their numbers, or
fields that the schema does not know.
"""

from __future__ import annotations

import numpy as np

from converter.kernels.kernel import i64, kernel, u64
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.protobuf.scan_table import (
    BAD,
    BITS,
    CHILD,
    I64,
    LEN,
    LEVELS,
    SLOT,
    WIRE,
    ScanTable,
    find,
    read,
    skip,
    varint,
)


def prints(table: ScanTable, offsets: Int64Array, data: UInt8Array, rows: BoolArray) -> Int64Array:
    """The prints of chosen rows, 0 for all others. Only those of rows that the scan calls QUICK mean anything.

    Args:
        table: the lowered schema.
        offsets: of n rows, n + 1 of them, inside `data`.
        data: the rows.
        rows: n of them, True for those that are asked for.
    """
    out = np.zeros(len(rows), dtype=np.int64)
    _prints(table.starts, table.fields, table.slots, offsets, data, rows, out)
    return out


@kernel
def _mix(a: int, b: int) -> int:
    """Sebastiano Vigna's splitmix64 over both."""
    z = u64(a) * u64(0x9E3779B97F4A7C15) + u64(b) + u64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return i64(z ^ (z >> u64(31)))


@kernel
def _hash_bytes(data: UInt8Array, p: int, size: int) -> int:
    out = i64(size)
    end = p + size
    while end - p >= 8:
        word, p = read(data, p, end, I64, 64)
        out = _mix(out, word)
    while p < end:
        out = _mix(out, i64(data[p]))
        p += 1
    return out


@kernel
def _element(
    fields: Int64Array, row: int, data: UInt8Array, p: int, end: int, path: int, number: int
) -> tuple[int, int]:
    """(print of one element that is no message, position after it or BAD)."""
    wire = fields[row, WIRE]
    value, p = read(data, p, end, wire, fields[row, BITS])
    if p == BAD:
        return 0, BAD
    after = p + value if wire == LEN else p
    return _mix(_mix(path, number), _hash_bytes(data, p, value) if wire == LEN else value), after


@kernel
def _packed(
    fields: Int64Array, row: int, data: UInt8Array, p: int, end: int, path: int, number: int
) -> tuple[int, int, int]:
    """(prints of the elements of a packed list, number of the last one, position after it or BAD)."""
    size, p = read(data, p, end, LEN, 0)
    total = 0
    if p != BAD:
        stop = p + size
        while p != BAD and p < stop:
            number += 1
            one, p = _element(fields, row, data, p, stop, path, number)
            total += one
    return total, number, p


@kernel
def _prints(
    starts: Int64Array,
    fields: Int64Array,
    slots: int,
    offsets: Int64Array,
    data: UInt8Array,
    rows: BoolArray,
    out: Int64Array,
) -> None:
    # How many elements of each slot a message has had, per level. A stamp says which message the count is about.
    stamps = np.zeros((LEVELS, slots), dtype=np.int64)
    counts = np.zeros((LEVELS, slots), dtype=np.int64)
    outer = np.zeros((LEVELS, 5), dtype=np.int64)
    messages = 0
    for i in range(len(rows)):
        if not rows[i]:
            continue
        p, end, level, total = offsets[i], offsets[i + 1], 0, 0
        messages += 1
        first, last, path, stamp = starts[0], starts[1], 1, messages
        while p != BAD and p <= end:
            if p == end:
                if level == 0:
                    break
                level -= 1
                first, last, path = outer[level, 0], outer[level, 1], outer[level, 2]
                stamp, end = outer[level, 3], outer[level, 4]
                continue
            tag, p = varint(data, p, end)
            if p == BAD:
                break
            row = find(fields, first, last, tag >> 3)
            if row < 0:
                p = skip(data, p, end, tag & 7)
                continue
            slot = fields[row, SLOT]
            if stamps[level, slot] != stamp:
                stamps[level, slot] = stamp
                counts[level, slot] = 0
            here = _mix(path, tag >> 3)
            if tag & 7 != fields[row, WIRE]:
                added, counts[level, slot], p = _packed(fields, row, data, p, end, here, counts[level, slot])
                total += added
                continue
            counts[level, slot] += 1
            child = fields[row, CHILD]
            if child < 0:
                added, p = _element(fields, row, data, p, end, here, counts[level, slot])
                total += added
                continue
            size, p = read(data, p, end, LEN, 0)
            if p != BAD:
                outer[level, 0], outer[level, 1], outer[level, 2] = first, last, path
                outer[level, 3], outer[level, 4] = stamp, end
                messages += 1
                path = _mix(here, counts[level, slot])
                first, last, stamp, end = starts[child], starts[child + 1], messages, p + size
                total += path
                level += 1
        out[i] = total if p == end else 0
