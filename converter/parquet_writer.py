"""Rows into one Parquet file, shaped so that single pages can be read back.

Byte-string columns are PLAIN without dictionary, offset and timestamp DELTA_BINARY_PACKED, pages about 256 KiB. Arrow's
writer looks at a page's size only after a fixed number of rows, which would make pages of 1 MB values a gigabyte
large; but it also looks at the end of every chunk of a column, so columns are handed over in chunks of about a page.
"""

from __future__ import annotations

from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from converter.columns import (
    ERROR,
    HEADERS,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE_SIZE,
    leaf_columns,
    leaf_paths,
)
from converter.limits import PAGE_BYTES, ROW_GROUP_BYTES, ROW_GROUP_ROWS, ZSTD_LEVEL_DATA
from converter.pagetable import footer_of, page_table
from converter.parquet_sink import CountingSink
from converter.types import Int64Array, PageTable, ValueFormat


class RowFile:
    """Writes record batches; at most one row group of rows is buffered.

    Args:
        schema: of columns.row_schema; its metadata and its fields' `PARQUET:field_id` are kept. None: that of the first
            rows.
        target: where the file goes. Nothing is written before the first row.
        value_format: whether the column `value` holds the bytes that Kafka is served.
    """

    def __init__(self, schema: pa.Schema | None, target: BinaryIO, value_format: ValueFormat) -> None:
        self._schema = schema
        self._format = value_format
        self._sink = CountingSink(target)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self.rows = 0
        self.footer = b""

    @property
    def size(self) -> int:
        """Bytes written; all of the file after :meth:`close`."""
        return self._sink.size

    @property
    def crc32c(self) -> int:
        """CRC32C of the bytes written."""
        return self._sink.crc32c

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows; closes the row group when it is full."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._pending_rows += rows.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> PageTable | None:
        """Complete the file; returns its page table, or None when there were no rows and hence no file."""
        self._flush()
        if self._writer is None:
            return None
        self._sink.keep_tail()
        self._writer.close()
        tail = bytes(self._sink.tail)
        self.footer = footer_of(tail)
        return page_table(tail, self._sink.tail_start, self._format)

    def abort(self) -> None:
        """Write nothing more. What is already written is no complete Parquet file."""
        self._pending.clear()
        self._sink.discard()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if not self._pending_rows:
            return
        schema = self._pending[0].schema if self._schema is None else self._schema
        if self._writer is None:
            self._writer = _open(schema, self._sink, self._format)
        columns = [
            pa.chunked_array(
                [part for batch in self._pending for part in _chunks(field.name, batch.column(i))], type=field.type
            )
            for i, field in enumerate(schema)
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=self._pending_rows)
        self.rows += self._pending_rows
        self._pending.clear()
        self._pending_bytes = self._pending_rows = 0


def _open(schema: pa.Schema, sink: CountingSink, value_format: ValueFormat) -> pq.ParquetWriter:
    own = {leaf.partition(".")[0] for leaf in leaf_columns(value_format)} | {ERROR}
    values = [leaf for field in schema if field.name not in own for leaf in leaf_paths(field)]
    writer = pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=ZSTD_LEVEL_DATA,
        use_dictionary=[PARTITION, TIMESTAMP_TYPE, ERROR, *values],
        column_encoding=dict.fromkeys((OFFSET, TIMESTAMP, VALUE_SIZE), "DELTA_BINARY_PACKED"),
        write_statistics=[PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, VALUE_SIZE, ERROR, *values],
        data_page_size=PAGE_BYTES,
        write_page_index=True,
        store_schema=False,
    )
    if schema.metadata:
        writer.add_key_value_metadata(schema.metadata)
    return writer


def _chunks(name: str, column: pa.Array) -> list[pa.Array]:
    """Nothing that a fetch reads lies in other nested columns than the headers."""
    return [column] if pa.types.is_nested(column.type) and name != HEADERS else page_chunks(column)


def page_chunks(column: pa.Array) -> list[pa.Array]:
    """Slices of a column, each about a page of bytes or a single row above that."""
    ends = _row_ends(column)
    if ends is None or not len(ends) or ends[-1] <= PAGE_BYTES:
        return [column]
    # A row that ends in another page-sized stretch than the row before begins a chunk.
    stretch = ends // PAGE_BYTES
    cuts = np.flatnonzero(np.diff(stretch)) + 1
    edges = [0, *cuts.tolist(), len(column)]
    return [column.slice(start, end - start) for start, end in pairwise(edges) if end > start]


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
