"""Column chunks of a row group as their footer names them, and their offset indexes, moved within a file.

A wide file has tens of thousands of them, and each is a struct of a few dozen numbers (parquet.thrift, compact
protocol). In Python they took half the time that such a file takes, with the interpreter's lock.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from converter.kernels.kernel import i64, kernel, u8
from converter.kernels.varint import write
from converter.limits import STATISTICS_BYTES_MAX
from converter.parquet.page_header import read_page_locations, read_varint, zigzag
from converter.types import Int64Array, UInt8Array

#: What is told of each chunk: where the list that is its path begins and ends in the footer, how many entries it has,
#: and which of all page locations are its own.
PATH: Final = 0
PATH_END: Final = 1
VALUES: Final = 2
PAGES_START: Final = 3
PAGES_END: Final = 4
TOLD: Final = 5

#: What else a kernel gives: where the footer goes on, the bytes of the moved chunks and those of their page indexes.
FOOTER_AT: Final = 0
CHUNKS_SIZE: Final = 1
INDEX_SIZE: Final = 2
RESULTS: Final = 3

#: What a moved chunk has beyond its own bytes at most: two more heads, and ten bytes for each of six places.
CHUNK_GROWTH: Final = 80

_NUMBER, _NUMBER_END = 4, 7  # types of 16, 32 and 64 bits
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
# ColumnChunk: meta_data, offset_index_offset and _length, column_index_offset and _length.
_META, _OFFSET_INDEX, _OFFSET_SIZE, _COLUMN_INDEX, _COLUMN_SIZE = 3, 4, 5, 6, 7
# ColumnMetaData: path_in_schema, num_values, data_page_offset, dictionary_page_offset, statistics.
_PATH_FIELD, _VALUES_FIELD, _DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS = 3, 5, 9, 11, 12
_NULLS = 3  # of Statistics
# Heads of fields: how far the id is from the one before, and the type.
_I64, _I32, _I64_AFTER_ONE, _I64_AFTER_TWO = 0x16, 0x15, 0x26, 0x36
_DEPTH_MAX = 8


@kernel
def _skipped(data: UInt8Array, p: int, kind: int) -> int:  # noqa: C901  (one loop over one format)
    """Position after a value of type `kind` at p, or -1. A bool of a struct is in its field's head: no bytes."""
    end = len(data)
    depth = 0
    left = np.zeros(_DEPTH_MAX + 1, dtype=np.int64)  # elements of the list at that depth; -1: a struct
    kinds = np.zeros(_DEPTH_MAX + 1, dtype=np.int64)
    while True:
        if kind == _BYTE:
            p += 1
        elif kind >= _NUMBER and kind < _NUMBER_END:
            _, p = read_varint(data, p, end)
        elif kind == _DOUBLE:
            p += 8
        elif kind == _BINARY:
            size, p = read_varint(data, p, end)
            if p < 0 or size < 0 or size > end - p:
                return -1
            p += size
        elif kind in (_LIST, _SET, _STRUCT):
            if depth == _DEPTH_MAX:
                return -1
            depth += 1
            left[depth] = -1
            if kind != _STRUCT:
                size, kinds[depth], p = _list_head(data, p, end)
                if p < 0:
                    return -1
                left[depth] = size
        elif kind != _TRUE and kind != _FALSE:
            return -1
        if p < 0 or p > end:
            return -1
        kind = 0
        while depth > 0 and kind == 0:
            if left[depth] < 0:
                kind, p = _field_kind(data, p, end)
                if p < 0:
                    return -1
                if kind == 0:
                    depth -= 1
                elif kind in (_TRUE, _FALSE):
                    kind = 0
            elif left[depth] == 0:
                depth -= 1
            else:
                left[depth] -= 1
                kind = _BYTE if kinds[depth] <= _FALSE else kinds[depth]
        if depth == 0:
            return p


@kernel
def _list_head(data: UInt8Array, p: int, end: int) -> tuple[int, int, int]:
    """(elements, their type, position of the first); the position is -1 where there is no list of such a size."""
    if p >= end:
        return i64(0), i64(0), -1
    size, kind = i64(data[p] >> 4), i64(data[p] & 0x0F)
    p += 1
    if size == 15:
        size, p = read_varint(data, p, end)
    if p < 0 or size < 0 or size > end - p:
        return i64(0), i64(0), -1
    return size, kind, p


@kernel
def _field_kind(data: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """(type of the field that begins at p, position of its value); the type is 0 at the end of a struct."""
    if p >= end:
        return i64(0), -1
    head = i64(data[p])
    p += 1
    if head != 0 and head >> 4 == 0:
        _, p = read_varint(data, p, end)
    return head & 0x0F, p


@kernel
def _copied(data: UInt8Array, start: int, end: int, out: UInt8Array, o: int) -> int:
    for p in range(start, end):
        out[o] = data[p]
        o += 1
    return o


@kernel
def _number(out: UInt8Array, o: int, head: int, value: int) -> int:
    """A field that is a number; returns the position after it."""
    out[o] = u8(head)
    return write(out, o + 1, value)


@kernel
def _nulls(data: UInt8Array, p: int, end: int) -> int:
    """What Statistics at p say of nulls, or -1."""
    field = 0
    while p < end and data[p] != 0:
        head = i64(data[p])
        if head >> 4 == 0:
            return -1
        field += head >> 4
        kind = head & 0x0F
        if field == _NULLS and kind >= _NUMBER and kind < _NUMBER_END:
            raw, p = read_varint(data, p + 1, end)
            return zigzag(raw) if p >= 0 else -1
        p = _skipped(data, p + 1, kind)
        if p < 0:
            return -1
    return -1


@kernel
def _moved_metadata(
    footer: UInt8Array, p: int, shift: int, out: UInt8Array, o: int, told: Int64Array
) -> tuple[int, int]:
    """A ColumnMetaData at p, its places moved, its statistics without long values; positions after it, or -1.

    Long ones are left out, as Arrow leaves out those over 4 KiB.
    """
    end = len(footer)
    at = p  # from where on nothing is written yet
    field = 0
    while True:
        if p >= end:
            return -1, o
        head = i64(footer[p])
        p += 1
        if head == 0:
            return p, _copied(footer, at, p, out, o)
        if head >> 4 == 0:
            return -1, o
        field += head >> 4
        start = p
        p = _skipped(footer, p, head & 0x0F)
        if p < 0:
            return -1, o
        if field == _PATH_FIELD:
            told[PATH], told[PATH_END] = start, p
        elif field in (_VALUES_FIELD, _DATA_PAGE, _DICTIONARY_PAGE):
            raw, _ = read_varint(footer, start, end)
            if field == _VALUES_FIELD:
                told[VALUES] = zigzag(raw)
            else:
                o = write(out, _copied(footer, at, start, out, o), zigzag(raw) + shift)
                at = p
        elif field == _STATISTICS and p - start > STATISTICS_BYTES_MAX:
            o = _copied(footer, at, start, out, o)
            nulls = _nulls(footer, start, end)
            if nulls >= 0:
                o = _number(out, o, _I64_AFTER_TWO, nulls)
            out[o] = 0
            o += 1
            at = p


@kernel
def _moved_index(
    tail: UInt8Array, start: int, size: int, shift: int, index: UInt8Array, i: int, places: Int64Array
) -> tuple[int, int]:
    """An OffsetIndex with its places moved; what else it says stays. (Position after it, pages), or (-1, 0).

    places: receives the locations of its pages.
    """
    if start < 0 or size < 2 or size > len(tail) - start or 3 * size > len(index) - i:
        return -1, 0
    count = read_page_locations(tail[start : start + size], places)
    if count < 0:
        return -1, 0
    _, _, first = _list_head(tail, start + 1, start + size)
    rest = _skipped(tail, start + 1, _LIST)
    i = _copied(tail, start, first, index, i)
    for page in range(count):
        places[page, 0] += shift
        i = _number(index, i, _I64, places[page, 0])
        i = _number(index, i, _I32, places[page, 1])
        i = _number(index, i, _I64, places[page, 2])
        index[i] = 0
        i += 1
    return _copied(tail, rest, start + size, index, i), count


@kernel
def _moved_chunk(
    footer: UInt8Array, p: int, shift: int, out: UInt8Array, o: int, told: Int64Array, said: Int64Array
) -> tuple[int, int]:
    """A ColumnChunk at p up to its metadata, which is moved; positions after it, or -1. said: receives the rest."""
    end = len(footer)
    said[:] = -1
    o = _number(out, o, _I64_AFTER_ONE, 0)
    field = 0
    while p >= 0 and p < end:
        head = i64(footer[p])
        p += 1
        if head == 0:
            return p, o
        if head >> 4 == 0:
            return -1, o
        field += head >> 4
        kind = head & 0x0F
        if field == _META and kind == _STRUCT:
            out[o] = u8(1 << 4 | _STRUCT)
            p, o = _moved_metadata(footer, p, shift, out, o + 1, told)
        elif field > _META and field <= _COLUMN_SIZE:
            raw, p = read_varint(footer, p, end)
            said[field] = zigzag(raw)
        else:
            p = _skipped(footer, p, kind)
    return -1, o


@kernel
def move_chunks(
    footer: UInt8Array,
    tail: UInt8Array,
    tail_start: int,
    shift: int,
    index_start: int,
    out: UInt8Array,
    index: UInt8Array,
    places: Int64Array,
    told: Int64Array,
    results: Int64Array,
) -> bool:
    """Moves the column chunks of a row group; whether they are as Arrow writes them.

    Args:
        footer: of a writer that believes that it writes a whole file.
        tail: what it wrote last, with its page indexes.
        tail_start: where in its file that begins.
        shift: what is to be added to the places it knows.
        index_start: where in the file the first byte of `index` will be.
        out: receives the chunks; as long as the footer, and CHUNK_GROWTH more for each.
        index: receives the page indexes; three times as long as the tail.
        places: receives page locations of the file, rows of three; one for each seven bytes of the tail, which is what
            one takes at least.
        told: a row of TOLD numbers for each chunk.
        results: of RESULTS, from where on to read and write; where that ends afterwards.
    """
    p, o, i = results[FOOTER_AT], results[CHUNKS_SIZE], results[INDEX_SIZE]
    pages = i64(0)
    said = np.zeros(_COLUMN_SIZE + 1, dtype=np.int64)
    for chunk in range(len(told)):
        told[chunk] = 0
        p, o = _moved_chunk(footer, p, shift, out, o, told[chunk], said)
        if p < 0:
            return False
        start = i
        i, count = _moved_index(
            tail, said[_OFFSET_INDEX] - tail_start, said[_OFFSET_SIZE], shift, index, i, places[pages:]
        )
        if i < 0:
            return False
        told[chunk, PAGES_START], told[chunk, PAGES_END] = pages, pages + count
        pages += count
        o = _number(out, _number(out, o, _I64, index_start + start), _I32, i - start)
        if said[_COLUMN_INDEX] >= 0:  # columns without statistics have none
            at, size = said[_COLUMN_INDEX] - tail_start, said[_COLUMN_SIZE]
            if at < 0 or size < 0 or size > len(tail) - at or size > len(index) - i:
                return False
            o = _number(out, _number(out, o, _I64, index_start + i), _I32, size)
            i = _copied(tail, at, at + size, index, i)
        out[o] = 0
        o += 1
    results[FOOTER_AT], results[CHUNKS_SIZE], results[INDEX_SIZE] = p, o, i
    return True
