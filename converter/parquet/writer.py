"""Rows into one Parquet file, shaped so that single pages can be read back.

Byte-string columns are PLAIN without dictionary, offset and timestamp DELTA_BINARY_PACKED, pages about 256 KiB. Arrow's
writer looks at a page's size only after a fixed number of rows, which would make pages of 1 MB values a gigabyte
large; but it also looks at the end of every chunk of a column, so columns are handed over in chunks of about a page.

Where values are kept as columns alone, a fetch reads those, too, however many they are: they have no dictionaries, and
the pages of all columns end at the same rows, or, where Arrow sees nothing but nulls, later.

A file of more than COLUMN_CHUNKS_USUAL column chunks goes on with larger row groups: its rows wait for them compressed,
and are written some columns at a time, see parts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from converter.epochs import footer_entry
from converter.limits import (
    COLUMN_CHUNKS_USUAL,
    EXTREMES_BYTES_USUAL,
    PAGE_BYTES,
    PROVEN_PAGE_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ENTRIES,
    ROW_GROUP_ROWS,
)
from converter.parquet.arrow_writer import ArrowWriter, empty_footer
from converter.parquet.columns import (
    HEADERS,
    KEY,
    VALUE_SIZE,
    leaf_paths,
    value_fields,
    zone,
)
from converter.parquet.entries import EntryCounter, value_offsets, weight
from converter.parquet.packed_rows import PackedRows
from converter.parquet.page_table import footer_of, page_table, wanted_leaves
from converter.parquet.parts import FilePart, PartedFile, PartSink, closed_part
from converter.parquet.sink import CountingSink
from converter.types import Int64Array, LeaderEpoch, PageTable, ValueFormat

#: Arrow leaves longer ones out.
_EXTREME_BYTES_MAX = 4096


class RowFile:
    """Writes record batches; at most one row group of rows is buffered.

    Args:
        schema: of columns.row_schema; its metadata and its fields' `PARQUET:field_id` are kept. None: that of the first
            rows.
        target: where the file goes. Nothing is written before the first row.
        value_format: whether the column `value` holds the bytes that Kafka is served.
        proven: values may be in their columns alone.
    """

    def __init__(
        self, schema: pa.Schema | None, target: BinaryIO, value_format: ValueFormat, *, proven: bool = False
    ) -> None:
        self._schema = schema
        self._format = value_format
        self._proven = proven
        self._sink = CountingSink(target)
        self._writer: ArrowWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._counter: EntryCounter | None = None
        self._pending_entries: Int64Array | None = None
        self.rows = 0
        self.row_groups = 0
        self._leaves = 0
        self._value_columns = 0
        self._extremes_bytes = 0
        self._packed: PackedRows | None = None
        self._parts: PartedFile | None = None
        self.footer = b""

    @property
    def size(self) -> int:
        """Bytes written; all of the file after :meth:`close`."""
        return self._sink.size

    @property
    def crc32c(self) -> int:
        """CRC32C of the bytes written."""
        return self._sink.crc32c

    @property
    def column_chunks(self) -> int:
        """Columns of all row groups written; each takes memory until :meth:`close`, and bytes of the footer."""
        return self.row_groups * self._leaves

    @property
    def footer_bytes(self) -> int:
        """Bytes of the footer that are held already."""
        return 0 if self._parts is None else self._parts.footer_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows; closes the row group when it is full.

        Raises:
            UnreadablePagesError: what was written so far would not be read again.
        """
        if self._counter is None:
            self._counter = EntryCounter(rows.schema)
        entries = self._counter.count(rows)
        if rows.num_rows > 1 and weight(entries) > 2 * ROW_GROUP_ENTRIES:
            half = rows.num_rows // 2
            self.add(rows.slice(0, half))
            self.add(rows.slice(half))
            return
        if self._packed is not None:
            self._packed.add(rows, entries)
            self._write_packed(whole=False)
            return
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._pending_rows += rows.num_rows
        self._pending_entries = entries if self._pending_entries is None else self._pending_entries + entries
        many = weight(self._pending_entries) >= ROW_GROUP_ENTRIES
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS or many:
            self._write_pending()

    def close(self, runs: Sequence[LeaderEpoch]) -> PageTable | None:
        """Complete the file; returns its page table, or None when there were no rows and hence no file.

        runs: leader-epoch runs of the rows, for the footer; more than that does no harm.

        Raises:
            UnreadablePagesError: what was written would not be read again.
        """
        self._write_packed(whole=True)
        self._write_pending()
        if self._packed is not None and self._parts is not None:
            self.footer, pages = self._parts.finish(empty_footer(self._packed.schema, self._format, runs))
            return pages
        if self._writer is None:
            return None
        self._writer.note(footer_entry(runs))
        self._sink.keep_tail()
        self._writer.close()
        self._writer = None  # what it knows of every column chunk
        tail = bytes(self._sink.tail)
        self.footer = footer_of(tail)
        return page_table(tail, self._sink.tail_start, self._format, self._value_leaves())

    def abort(self) -> None:
        """Write nothing more. What is already written is no complete Parquet file."""
        self._pending.clear()
        self._packed = None
        self._sink.discard()
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def flush(self) -> None:
        """Hold none of the rows as they came: close the row group, or compress what waits for one."""
        if self._packed is None:
            self._write_pending()
        else:
            self._packed.pack()
            self._write_packed(whole=False)

    def _value_leaves(self) -> list[str]:
        fields = value_fields(self._schema) if self._proven and self._schema is not None else ()
        return [leaf for field in fields for leaf in leaf_paths(field)]

    def _edges(self, rows: pa.RecordBatch) -> list[int]:
        """See _even_edges(); nothing where each column ends its pages by itself."""
        return _even_edges(rows, self._counter.most_per_row(rows)) if self._proven and self._counter is not None else []

    def _write_pending(self) -> None:
        if not self._pending_rows:
            return
        schema = self._schema = self._pending[0].schema if self._schema is None else self._schema
        if self._writer is None:
            self._writer = ArrowWriter(schema, self._sink, self._format, proven=self._proven)
            self._leaves = sum(len(leaf_paths(field)) for field in schema)
            self._value_columns = sum(zone(field.name) != "kafka" for field in schema)
        table = _table(schema, self._pending, [self._edges(one) for one in self._pending] if self._proven else None)
        self._writer.write(table)
        self.rows += self._pending_rows
        self.row_groups += 1
        self._pending.clear()
        self._pending_bytes = self._pending_rows = 0
        self._pending_entries = None
        self._extremes_bytes += sum(_extremes_bytes(column) for column in table.columns[: self._value_columns])
        del table
        if self.column_chunks > COLUMN_CHUNKS_USUAL or self._extremes_bytes > EXTREMES_BYTES_USUAL:
            self._begin_parts(self._writer, schema)

    def _begin_parts(self, writer: ArrowWriter, schema: pa.Schema) -> None:
        """What was written so far becomes the file's first part."""
        self._writer = None
        self._sink.hold_tail()
        writer.close()
        first = FilePart(bytes(self._sink.tail), self._sink.tail_start, 0)
        self._sink.drop_tail()
        self._parts = PartedFile(self._sink, wanted_leaves(self._format, self._value_leaves()))
        self._parts.add([first])
        self._packed = PackedRows(schema, self._edges)

    def _write_packed(self, *, whole: bool) -> None:
        """Makes a row group of what waits compressed, if it is full, or whatever it is where that is the `whole`."""
        packed, parts = self._packed, self._parts
        if packed is None or parts is None or not packed.rows or not (whole or packed.is_full):
            return
        rows = packed.rows
        packed.pack()
        edges = packed.edges if self._proven else None
        open_parts: list[tuple[ArrowWriter, PartSink]] = []
        for batches, empty in zip(packed.runs(), packed.mostly_empty(), strict=True):
            sink = PartSink(self._sink)  # behind the part before
            schema = batches[0].schema
            writer = ArrowWriter(schema, sink, self._format, proven=self._proven, even_empty=empty)
            writer.write(_table(schema, batches, edges))
            open_parts.append((writer, sink))
            del batches  # before the next ones are read
        parts.add([closed_part(writer, sink) for writer, sink in open_parts])
        packed.clear()
        self.rows += rows
        self.row_groups += 1


def _table(schema: pa.Schema, batches: Sequence[pa.RecordBatch], edges: Sequence[list[int]] | None) -> pa.Table:
    """Rows in chunks that become pages. edges: of all columns, in each batch; None: each column has its own."""

    def chunks(name: str, number: int) -> list[pa.Array]:
        found = [batch.column(number) for batch in batches]
        if edges is None:
            return [part for column in found for part in _chunks(name, column)]
        return [
            column.slice(start, end - start)
            for column, mine in zip(found, edges, strict=True)
            for start, end in pairwise(mine)
        ]

    columns = [pa.chunked_array(chunks(field.name, i), type=field.type) for i, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _chunks(name: str, column: pa.Array) -> list[pa.Array]:
    """Nothing that a fetch reads lies in other nested columns than the headers."""
    return [column] if pa.types.is_nested(column.type) and name != HEADERS else page_chunks(column)


def _even_edges(rows: pa.RecordBatch, entries: Int64Array) -> list[int]:
    """First rows of slices, each with about PROVEN_PAGE_BYTES of values, keys and headers, or a single row.

    entries: that each row's lists have; a value of fewer bytes counts as so many.
    """
    sizes = rows.column(VALUE_SIZE).fill_null(0).to_numpy().astype(np.int64)
    total = np.cumsum(np.maximum(sizes, entries))
    for name in (KEY, HEADERS):
        ends = _row_ends(rows.column(name))
        total = total if ends is None else total + ends
    return _edges(total, PROVEN_PAGE_BYTES)


def page_chunks(column: pa.Array) -> list[pa.Array]:
    """Slices of a column, each about a page of bytes or a single row above that."""
    ends = _row_ends(column)
    if ends is None or not len(ends) or ends[-1] <= PAGE_BYTES:
        return [column]
    return [column.slice(start, end - start) for start, end in pairwise(_edges(ends, PAGE_BYTES))]


def _edges(ends: Int64Array, size: int) -> list[int]:
    """First rows of chunks, and the number of rows. A row that ends in another stretch of `size` bytes begins one."""
    cuts = np.flatnonzero(np.diff(ends // size)) + 1
    return [0, *cuts.tolist(), len(ends)]


def _extremes_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """What the smallest and the largest value of a column chunk take at most, in all leaves of a column."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_extremes_bytes(part) for part in column.flatten())
    if pa.types.is_map(kind):
        return max((_extremes_bytes(chunk.keys) + _extremes_bytes(chunk.items) for chunk in chunks), default=0)
    if pa.types.is_list(kind):
        return max((_extremes_bytes(chunk.values) for chunk in chunks), default=0)
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        return 0
    longest = max((int(np.diff(value_offsets(chunk)).max(initial=0)) for chunk in chunks), default=0)
    return 2 * min(_EXTREME_BYTES_MAX, longest)


def _row_ends(column: pa.Array) -> Int64Array | None:
    """Bytes of values up to the end of each row, or None for a column of fixed width."""
    if pa.types.is_list(column.type):
        entries = column.values
        offsets = value_offsets(column)  # not to_numpy(), which imports pandas: seconds, and 60 MB
        total = np.zeros(len(offsets), dtype=np.int64)
        for i in range(entries.type.num_fields):
            total += value_offsets(entries.field(i))[offsets]
    elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        total = value_offsets(column)
    else:
        return None
    ends: Int64Array = total[1:] - total[0]
    return ends
