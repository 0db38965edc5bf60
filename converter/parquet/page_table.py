"""From a data file's footer and offset indexes to its page table.

The writer keeps the last bytes of the file it wrote, from the end of the last page on: column indexes, offset indexes
and footer. Only leaves that a fetch reads get into the table. The same function serves `verify`, over a stored file.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from converter.errors import SegmentError
from converter.limits import PAGE_VALUES_MAX
from converter.parquet.columns import (
    HEADER_KEY_LEAF,
    HEADER_VALUE_LEAF,
    KEY,
    LEAF_COLUMNS,
    OFFSET,
    RAW_VALUE,
    TIMESTAMP,
    VALUE,
    VALUE_LEAVES,
    VALUE_SIZE,
)
from converter.parquet.page_header import read_page_locations
from converter.parquet.thrift import ThriftStruct, read_struct
from converter.types import Int64Array, PageTable, ValueFormat

#: What a fetch reads; VALUE, the first one, under the string rule only.
READ_LEAVES = (VALUE, OFFSET, TIMESTAMP, KEY, HEADER_KEY_LEAF, HEADER_VALUE_LEAF, RAW_VALUE)

_PARQUET_MAGIC = b"PAR1"
# parquet.thrift: FileMetaData.row_groups, RowGroup.columns, RowGroup.num_rows, ColumnChunk.meta_data,
# ColumnMetaData.path_in_schema and num_values, ColumnChunk.offset_index_offset and _length.
_ROW_GROUPS, _COLUMNS, _NUM_ROWS, _META_DATA, _PATH, _VALUES = 4, 1, 3, 3, 3, 5
_INDEX_OFFSET, _INDEX_LENGTH = 4, 5

#: By a leaf's number, for each of its column chunks: page locations, the chunk's first row in the file, and its rows.
LeafPages = dict[int, list[tuple[Int64Array, int, int]]]


class UnreadablePagesError(Exception):
    """A data file has a page that is not read again: it must not be named by an index."""


def check_entries(leaf: str, entries: int) -> None:
    """Whether pages.py reads any page of a column chunk with so many entries.

    Raises:
        UnreadablePagesError: one of its pages may have more than PAGE_VALUES_MAX.
    """
    if entries > PAGE_VALUES_MAX:
        raise UnreadablePagesError(f"{leaf} has {entries} entries in a row group, more than {PAGE_VALUES_MAX}")


def footer_of(tail: bytes) -> bytes:
    """The footer (FileMetaData, Thrift) from the last bytes of a Parquet file.

    Raises:
        SegmentError: `corrupt_object` when `tail` does not end a Parquet file or does not reach back to its footer.
    """
    size = int.from_bytes(tail[-8:-4], "little")
    if len(tail) < 8 or tail[-4:] != _PARQUET_MAGIC or size > len(tail) - 8:
        raise SegmentError("corrupt_object", "no Parquet footer")
    return tail[-8 - size : -8]


def footer_metadata(footer: bytes) -> pq.FileMetaData:
    """PyArrow's view of a footer, as if the data file had been opened.

    Raises:
        SegmentError: `corrupt_object`.
    """
    file = _PARQUET_MAGIC + footer + len(footer).to_bytes(4, "little") + _PARQUET_MAGIC
    try:
        return pq.read_metadata(io.BytesIO(file))
    except (OSError, ValueError) as error:
        raise SegmentError("corrupt_object", f"Parquet footer does not parse: {error}") from error


def page_table(tail: bytes, tail_start: int, value_format: ValueFormat, value_leaves: Sequence[str] = ()) -> PageTable:
    """The page table of a data file.

    Args:
        tail: the last bytes of the file, from before the first offset index on.
        tail_start: where in the file they begin.
        value_format: under `raw` a column `value` is not Kafka's.
        value_leaves: Parquet paths of the leaves of typed columns that values are rebuilt from, in file order; with
            them the sizes of values get into the table, too.

    Raises:
        SegmentError: `corrupt_object` when footer or offset indexes do not parse or contradict each other.
        UnreadablePagesError: see check_entries().
    """
    footer, _ = read_struct(footer_of(tail))
    columns: LeafPages = {}
    wanted = wanted_leaves(value_format, value_leaves)
    row_start = 0
    try:
        for group in footer[_ROW_GROUPS]:
            for chunk in group[_COLUMNS]:
                leaf = b".".join(chunk[_META_DATA][_PATH]).decode()
                if leaf in wanted:
                    check_entries(leaf, chunk[_META_DATA][_VALUES])
                    pages = _locations(chunk, tail, tail_start)
                    columns.setdefault(wanted[leaf], []).append((pages, row_start, group[_NUM_ROWS]))
            row_start += group[_NUM_ROWS]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SegmentError("corrupt_object", f"Parquet footer lacks what the page table needs: {error!r}") from error
    return joined_pages(columns)


def wanted_leaves(value_format: ValueFormat, value_leaves: Sequence[str] = ()) -> dict[str, int]:
    """The number in a page table of each leaf that gets into it, by its Parquet path; see :func:`page_table`."""
    wanted = {leaf: LEAF_COLUMNS.index(leaf) for leaf in READ_LEAVES if leaf != VALUE or value_format == "string"}
    if value_leaves:
        wanted |= {leaf: VALUE_LEAVES + number for number, leaf in enumerate(value_leaves)}
        wanted[VALUE_SIZE] = LEAF_COLUMNS.index(VALUE_SIZE)
    return wanted


def _locations(chunk: ThriftStruct, tail: bytes, tail_start: int) -> Int64Array:
    """Page locations of a column chunk: rows of (offset, length, first row in the row group)."""
    return locations(tail, chunk[_INDEX_OFFSET] - tail_start, chunk[_INDEX_LENGTH])


def locations(tail: bytes, start: int, size: int) -> Int64Array:
    """Page locations of the offset index of `size` bytes that begins at `start`: see _locations.

    Raises:
        SegmentError: `corrupt_object`.
    """
    if not 0 <= start <= start + size <= len(tail):
        raise SegmentError("corrupt_object", "an offset index lies outside the file's tail", position=start)
    index = np.frombuffer(tail, dtype=np.uint8)[start : start + size]
    # A location has at least seven bytes.
    out = np.empty((size // 7 + 1, 3), dtype=np.int64)
    count = read_page_locations(index, out)
    if count < 0:
        raise SegmentError("corrupt_object", "offset index does not parse", position=start)
    return out[:count]


def joined_pages(columns: LeafPages) -> PageTable:
    """The page table of a file's leaves."""
    numbers: list[Int64Array] = []
    first_rows: list[Int64Array] = []
    counts: list[Int64Array] = []
    offsets: list[Int64Array] = []
    lengths: list[Int64Array] = []
    for number in sorted(columns):
        for pages, row_start, rows in columns[number]:
            numbers.append(np.full(len(pages), number, dtype=np.int64))
            first_rows.append(pages[:, 2] + row_start)
            counts.append(np.diff(pages[:, 2], append=np.int64(rows)))
            offsets.append(pages[:, 0])
            lengths.append(pages[:, 1])

    def joined(parts: list[Int64Array]) -> Int64Array:
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    return PageTable(
        column=joined(numbers).astype(np.int16),
        first_row=joined(first_rows),
        row_count=joined(counts).astype(np.int32),
        offset=joined(offsets),
        length=joined(lengths).astype(np.int32),
    )


def appended(pages: PageTable, tail: PageTable, *, rows: int, size: int) -> PageTable:
    """The page table of two data files as if the second lay behind the first, which has `rows` and `size` bytes."""
    column = np.concatenate([pages.column, tail.column])
    first_row = np.concatenate([pages.first_row, tail.first_row + rows])
    order = np.lexsort((first_row, column))
    return PageTable(
        column=column[order],
        first_row=first_row[order],
        row_count=np.concatenate([pages.row_count, tail.row_count])[order],
        offset=np.concatenate([pages.offset, tail.offset + size])[order],
        length=np.concatenate([pages.length, tail.length])[order],
    )


def page_slice(pages: PageTable, row_start: int, row_end: int, *, values: bool = True) -> PageTable:
    """The pages that hold rows of `[row_start, row_end)`; `values`: those of typed columns, too."""
    hit = (pages.first_row < row_end) & (pages.first_row + pages.row_count > row_start)
    if not values:
        hit &= (pages.column < VALUE_LEAVES) & (pages.column != LEAF_COLUMNS.index(VALUE_SIZE))
    return PageTable(
        column=pages.column[hit],
        first_row=pages.first_row[hit],
        row_count=pages.row_count[hit],
        offset=pages.offset[hit],
        length=pages.length[hit],
    )
