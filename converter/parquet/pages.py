"""Pages of a data file to rows, for exactly the rows that are wanted.

A general Parquet reader decodes row groups; a fetch wants a megabyte. The page table says where each page lies and
which rows it holds, so only those pages are read and decoded here, by kernels that check every length. What the store
returned is not trusted: any bytes give rows or raise :class:`SegmentError`. Wrong rows are possible (a flipped bit in
an uncompressed literal); the CRC32C of each rebuilt batch finds them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import zstandard

from converter.errors import SegmentError
from converter.limits import PAGE_BYTES_MAX, PAGE_VALUES_MAX
from converter.parquet import page_header as header
from converter.parquet.columns import (
    HEADER_KEY_LEAF,
    HEADER_VALUE_LEAF,
    KEY,
    LEAF_COLUMNS,
    OFFSET,
    RAW_VALUE,
    TIMESTAMP,
    VALUE,
    VALUE_SIZE,
)
from converter.parquet.page_values import (
    HEADER_ENTRY,
    count_entries,
    merge_bytes,
    read_delta_packed,
    read_levels,
    read_plain_bytes,
)
from converter.types import BoolArray, Int64Array, PageTable, RowBuffers, UInt8Array, VarBytes

Buffer = bytes | bytearray | memoryview


class ByteRange(NamedTuple):
    """`length` bytes of an object from byte `start` on."""

    start: int
    length: int


class PageReader:
    """Decodes pages out of the byte ranges that were read.

    Args:
        pages: the page table, or the slice of it in a block.
        ranges: ascending ranges of the data file.
        data: what was read for each of them.

    Raises:
        SegmentError: `corrupt_object` when a range came back with another length.
    """

    def __init__(self, pages: PageTable, ranges: Sequence[ByteRange], data: Sequence[Buffer]) -> None:
        if [r.length for r in ranges] != [len(d) for d in data]:
            raise SegmentError("corrupt_object", "the store returned other ranges than were asked for")
        self._pages = pages
        self._starts = [r.start for r in ranges]
        self._data = [_bytes_array(d) for d in data]
        self._zstd = zstandard.ZstdDecompressor()

    def read(self, row_start: int, row_end: int) -> RowBuffers:
        """Rows `[row_start, row_end)` of the data file.

        Raises:
            SegmentError: `corrupt_object` for pages that are missing, damaged or not what the table says.
        """
        offsets, _ = self._integers(OFFSET, row_start, row_end, optional=False)
        timestamps, timestamps_valid = self._integers(TIMESTAMP, row_start, row_end, optional=True)
        counts, header_keys = self._header_leaf(HEADER_KEY_LEAF, row_start, row_end)
        value_counts, header_values = self._header_leaf(HEADER_VALUE_LEAF, row_start, row_end)
        if not np.array_equal(counts, value_counts):
            raise SegmentError("corrupt_object", "header keys and values are not of the same rows")
        header_offsets = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=header_offsets[1:])
        values = self._bytes(RAW_VALUE, row_start, row_end)
        if LEAF_COLUMNS.index(VALUE) in self._pages.column:
            values = _either(self._bytes(VALUE, row_start, row_end), values)
        return RowBuffers(
            offsets=offsets,
            timestamps_us=timestamps,
            timestamps_valid=timestamps_valid,
            keys=self._bytes(KEY, row_start, row_end),
            values=values,
            header_offsets=header_offsets,
            header_keys=header_keys,
            header_values=header_values,
        )

    def sizes(self, row_start: int, row_end: int) -> tuple[Int64Array, BoolArray]:
        """`_kafka_value_size` of rows `[row_start, row_end)`, and where it is not null. Raises as :meth:`read`."""
        return self._integers(VALUE_SIZE, row_start, row_end, optional=True)

    def _integers(self, leaf: str, row_start: int, row_end: int, *, optional: bool) -> tuple[Int64Array, BoolArray]:
        out = np.zeros(row_end - row_start, dtype=np.int64)
        valid = np.ones(len(out), dtype=np.bool_)
        for page in self._open(leaf, row_start, row_end, header.DELTA_BINARY_PACKED):
            present, at = page.levels(1) if optional else (np.ones(page.values, dtype=np.uint8), 0)
            there = present == 1
            packed = np.empty(int(there.sum()), dtype=np.int64)
            if not read_delta_packed(page.data, at, packed):
                raise page.broken("integers")
            column = np.zeros(page.values, dtype=np.int64)
            column[there] = packed
            out[page.at : page.at + page.take] = column[page.skip : page.skip + page.take]
            valid[page.at : page.at + page.take] = there[page.skip : page.skip + page.take]
        return out, valid

    def _bytes(self, leaf: str, row_start: int, row_end: int) -> VarBytes:
        pages = self._open(leaf, row_start, row_end, header.PLAIN)
        column = _empty_column(row_end - row_start, pages)
        for page in pages:
            present, at = page.levels(1)
            if not read_plain_bytes(
                page.data, at, present, 1, page.skip, page.take, page.at, column.offsets, column.valid, column.data
            ):
                raise page.broken("values")
        return column

    def _header_leaf(self, leaf: str, row_start: int, row_end: int) -> tuple[Int64Array, VarBytes]:
        """Entries per row, and the entries."""
        counts = np.zeros(row_end - row_start, dtype=np.int64)
        pages = self._open(leaf, row_start, row_end, header.PLAIN)
        found: list[tuple[Page, UInt8Array, int, int, int]] = []
        total = 0
        for page in pages:
            repetition, at = page.levels(1)
            definition, at = page.levels(HEADER_ENTRY + 1, at)
            before, inside = count_entries(
                repetition, definition, page.skip, page.take, counts[page.at : page.at + page.take]
            )
            if before < 0:
                raise page.broken("headers")
            found.append((page, definition[definition >= HEADER_ENTRY], at, before, inside))
            total += inside
        column = _empty_column(total, pages)
        done = 0
        for page, present, at, before, inside in found:
            if not read_plain_bytes(
                page.data, at, present, HEADER_ENTRY + 1, before, inside, done,
                column.offsets, column.valid, column.data,
            ):  # fmt: skip
                raise page.broken("headers")
            done += inside
        return counts, column

    def _open(self, leaf: str, row_start: int, row_end: int, encoding: int) -> list[Page]:
        nested = leaf in (HEADER_KEY_LEAF, HEADER_VALUE_LEAF)
        return self.open(LEAF_COLUMNS.index(leaf), leaf, row_start, row_end, encoding, nested=nested)

    def open(self, number: int, leaf: str, row_start: int, row_end: int, encoding: int, *, nested: bool) -> list[Page]:
        """The decompressed pages of leaf `number` of the page table that hold rows of the range, without a gap.

        leaf: its name, for errors. nested: it lies in a list, so that a row may have many values.

        Raises:
            SegmentError: `corrupt_object`.
        """
        if row_end <= row_start:
            return []
        pages = self._pages
        mine = np.flatnonzero(
            (pages.column == number) & (pages.first_row < row_end) & (pages.first_row + pages.row_count > row_start)
        )
        opened: list[Page] = []
        row = row_start
        for i in mine.tolist():
            first, count = int(pages.first_row[i]), int(pages.row_count[i])
            if first > row or first + count <= row:
                raise SegmentError("corrupt_object", f"page table has a gap in {leaf}")
            take = min(first + count, row_end) - row
            raw = self._raw(int(pages.offset[i]), int(pages.length[i]))
            place = (row - first, take, row - row_start)
            opened.append(self._decompress(raw, leaf, encoding, count, nested=nested, place=place))
            row += take
        if row != row_end:
            raise SegmentError("corrupt_object", f"page table lacks rows of {leaf}")
        return opened

    def _raw(self, offset: int, length: int) -> UInt8Array:
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or length <= 0 or offset + length - self._starts[number] > len(self._data[number]):
            raise SegmentError("corrupt_object", "a page lies outside what was read", position=offset)
        start = offset - self._starts[number]
        return self._data[number][start : start + length]

    def _decompress(
        self, raw: UInt8Array, leaf: str, encoding: int, rows: int, *, nested: bool, place: tuple[int, int, int]
    ) -> Page:
        """place: what `skip`, `take` and `at` of the page are to be."""
        fields = np.empty(header.FIELDS, dtype=np.int64)
        size = header.read_page_header(raw, fields)
        values = int(fields[header.NUM_VALUES])
        uncompressed = int(fields[header.UNCOMPRESSED_SIZE])
        if (
            size < 0
            or fields[header.TYPE] != header.DATA_PAGE
            or fields[header.COMPRESSED_SIZE] != len(raw) - size
            or not 0 <= uncompressed <= PAGE_BYTES_MAX
            or fields[header.ENCODING] != encoding
            or fields[header.DEFINITION_ENCODING] != header.RLE
            or fields[header.REPETITION_ENCODING] != header.RLE
            or not rows <= values <= (PAGE_VALUES_MAX if nested else rows)
        ):
            raise SegmentError("corrupt_object", f"page header of {leaf} is not what was written")
        frame = raw[size:].data
        try:
            # decompress() ignores its limit when the frame declares a size, so the declared size is checked first.
            if zstandard.frame_content_size(frame) != uncompressed:
                raise SegmentError("corrupt_object", f"a page of {leaf} declares another size")
            data = self._zstd.decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise SegmentError("corrupt_object", f"a page of {leaf} does not decompress: {error}") from error
        skip, take, at = place
        return Page(leaf=leaf, data=_bytes_array(data), values=values, skip=skip, take=take, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A decompressed page: of its rows, [skip, skip + take) go to place `at` of the result."""

    leaf: str
    data: UInt8Array
    values: int
    skip: int
    take: int
    at: int

    def levels(self, level_max: int, at: int = 0) -> tuple[UInt8Array, int]:
        """The levels that begin at byte `at`, one per value, and the position after them; none where all are 0."""
        if level_max == 0:
            return np.zeros(self.values, dtype=np.uint8), at
        out = np.empty(self.values, dtype=np.uint8)
        at = read_levels(self.data, at, level_max.bit_length(), level_max, out)
        if at < 0:
            raise self.broken("levels")
        return out, at

    def broken(self, what: str) -> SegmentError:
        """What is raised for a page that is not what was written."""
        return SegmentError("corrupt_object", f"{what} of a page of {self.leaf} run out of bounds")


def _bytes_array(data: Buffer) -> UInt8Array:
    """A read-only view, which kernels are compiled for."""
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


def _empty_column(values: int, pages: Sequence[Page]) -> VarBytes:
    return VarBytes(
        offsets=np.zeros(values + 1, dtype=np.int64),
        data=np.empty(sum(len(page.data) for page in pages), dtype=np.uint8),
        valid=np.zeros(values, dtype=np.bool_),
    )


def _either(first: VarBytes, second: VarBytes) -> VarBytes:
    """For each row the one of two columns that has a value; raises SegmentError where both have."""
    if not second.valid.any():
        return first
    if not first.valid.any():
        return second
    if (first.valid & second.valid).any():
        raise SegmentError("corrupt_object", "a row has its value twice")
    sizes = np.diff(first.offsets) + np.diff(second.offsets)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    merge_bytes(first.offsets, first.data, first.valid, second.offsets, second.data, offsets, data)
    return VarBytes(offsets=offsets, data=data, valid=first.valid | second.valid)
