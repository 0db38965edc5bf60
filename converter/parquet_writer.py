"""Rows into one Parquet file, shaped so that single pages can be read back.

Byte-string columns are PLAIN without dictionary, offset and timestamp DELTA_BINARY_PACKED, pages about 256 KiB. Arrow's
writer looks at a page's size only after a fixed number of rows, which would make pages of 1 MB values a gigabyte
large; but it also looks at the end of every chunk of a column, so columns are handed over in chunks of about a page.

Where values are kept as columns alone, a fetch reads those, too, however many they are: they have no dictionaries, and
the pages of all columns end at the same rows, or, where Arrow sees nothing but nulls, later.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from converter.columns import (
    ERROR,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE_SIZE,
    leaf_columns,
    leaf_paths,
    value_fields,
)
from converter.epochs import footer_entry
from converter.limits import PAGE_BYTES, PROVEN_PAGE_BYTES, ROW_GROUP_BYTES, ROW_GROUP_ROWS, ZSTD_LEVEL_DATA
from converter.pagetable import footer_of, page_table
from converter.parquet_sink import CountingSink
from converter.types import Int64Array, LeaderEpoch, PageTable, ValueFormat


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
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self.rows = 0
        self.row_groups = 0
        self._leaves = 0
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

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows; closes the row group when it is full."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._pending_rows += rows.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self.flush()

    def close(self, runs: Sequence[LeaderEpoch]) -> PageTable | None:
        """Complete the file; returns its page table, or None when there were no rows and hence no file.

        runs: leader-epoch runs of the rows, for the footer; more than that does no harm.
        """
        self.flush()
        if self._writer is None:
            return None
        self._writer.add_key_value_metadata(footer_entry(runs))
        self._sink.keep_tail()
        self._writer.close()
        tail = bytes(self._sink.tail)
        self.footer = footer_of(tail)
        fields = value_fields(self._schema) if self._proven and self._schema is not None else ()
        leaves = [leaf for field in fields for leaf in leaf_paths(field)]
        return page_table(tail, self._sink.tail_start, self._format, leaves)

    def abort(self) -> None:
        """Write nothing more. What is already written is no complete Parquet file."""
        self._pending.clear()
        self._sink.discard()
        if self._writer is not None:
            self._writer.close()

    def flush(self) -> None:
        """Close the row group."""
        if not self._pending_rows:
            return
        schema = self._schema = self._pending[0].schema if self._schema is None else self._schema
        if self._writer is None:
            self._writer = _open(schema, self._sink, self._format, proven=self._proven)
            self._leaves = sum(len(leaf_paths(field)) for field in schema)
        chunks = [part for batch in self._pending for part in (_even_chunks(batch) if self._proven else [batch])]
        columns = [
            pa.chunked_array(
                [
                    part
                    for batch in chunks
                    for part in ([batch.column(i)] if self._proven else _chunks(field.name, batch.column(i)))
                ],
                type=field.type,
            )
            for i, field in enumerate(schema)
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=self._pending_rows)
        self.rows += self._pending_rows
        self.row_groups += 1
        self._pending.clear()
        self._pending_bytes = self._pending_rows = 0


def _open(schema: pa.Schema, sink: CountingSink, value_format: ValueFormat, *, proven: bool) -> pq.ParquetWriter:
    own = {leaf.partition(".")[0] for leaf in leaf_columns(value_format)} | {ERROR}
    values = [leaf for field in schema if field.name not in own for leaf in leaf_paths(field)]
    writer = pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=ZSTD_LEVEL_DATA,
        use_dictionary=[PARTITION, TIMESTAMP_TYPE, ERROR, *([] if proven else values)],
        column_encoding=dict.fromkeys((OFFSET, TIMESTAMP, VALUE_SIZE), "DELTA_BINARY_PACKED"),
        write_statistics=[PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, VALUE_SIZE, ERROR, *values],
        # Where all columns are to end their pages alike, at the end of each chunk.
        data_page_size=1 if proven else PAGE_BYTES,
        write_batch_size=ROW_GROUP_ROWS if proven else None,
        write_page_index=True,
        store_schema=False,
    )
    if schema.metadata:
        writer.add_key_value_metadata(schema.metadata)
    return writer


def _chunks(name: str, column: pa.Array) -> list[pa.Array]:
    """Nothing that a fetch reads lies in other nested columns than the headers."""
    return [column] if pa.types.is_nested(column.type) and name != HEADERS else page_chunks(column)


def _even_chunks(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Slices of rows, each with about PROVEN_PAGE_BYTES of values, keys and headers, or a single row."""
    sizes = rows.column(VALUE_SIZE).fill_null(0).to_numpy().astype(np.int64)
    total = np.cumsum(sizes)
    for name in (KEY, HEADERS):
        ends = _row_ends(rows.column(name))
        total = total if ends is None else total + ends
    return [rows.slice(start, end - start) for start, end in pairwise(_edges(total, PROVEN_PAGE_BYTES))]


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


def _row_ends(column: pa.Array) -> Int64Array | None:
    """Bytes of values up to the end of each row, or None for a column of fixed width."""
    if pa.types.is_list(column.type):
        entries = column.values
        offsets = _value_offsets(column)  # not to_numpy(), which imports pandas: seconds, and 60 MB
        total = np.zeros(len(offsets), dtype=np.int64)
        for i in range(entries.type.num_fields):
            total += _value_offsets(entries.field(i))[offsets]
    elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        total = _value_offsets(column)
    else:
        return None
    ends: Int64Array = total[1:] - total[0]
    return ends


def _value_offsets(column: pa.Array) -> Int64Array:
    """The n + 1 value offsets of a binary, string or list array."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets.astype(np.int64)
