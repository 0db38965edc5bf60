"""Arrow's Parquet writer as data files need it, behind a buffer.

Arrow writes each page, and each number of a footer, by itself; a write to an object of Python takes the interpreter's
lock. A wide file has a hundred thousand of them, and each can make a fetch beside it wait for the lock.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from converter.epochs import footer_entry
from converter.limits import PAGE_BYTES, ROW_GROUP_ROWS, ZSTD_LEVEL_DATA
from converter.parquet.columns import (
    ERROR,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE_SIZE,
    leaf_columns,
    leaf_paths,
)
from converter.parquet.page_table import footer_of
from converter.types import LeaderEpoch, ValueFormat


class ArrowWriter:
    """Writes row groups of one file.

    Args:
        schema: of the rows; its metadata gets into the footer.
        sink: receives all that was written so far when :meth:`write` or :meth:`close` returns.
        value_format: whether the column `value` holds the bytes that Kafka is served.
        proven: pages of all columns end at the end of each chunk of the rows.
        even_empty: also those of columns without encoded bytes.
    """

    def __init__(
        self,
        schema: pa.Schema,
        sink: io.IOBase,
        value_format: ValueFormat,
        *,
        proven: bool,
        even_empty: bool = False,
    ) -> None:
        own = {leaf.partition(".")[0] for leaf in leaf_columns(value_format)} | {ERROR}
        values = [leaf for field in schema if field.name not in own for leaf in leaf_paths(field)]
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), PAGE_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=ZSTD_LEVEL_DATA,
            use_dictionary=[PARTITION, TIMESTAMP_TYPE, ERROR, *([] if proven else values)],
            column_encoding=dict.fromkeys((OFFSET, TIMESTAMP, VALUE_SIZE), "DELTA_BINARY_PACKED"),
            write_statistics=[PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, VALUE_SIZE, ERROR, *values],
            data_page_size=1 if proven else PAGE_BYTES,
            write_batch_size=ROW_GROUP_ROWS if proven or even_empty else None,
            max_rows_per_page=1 if even_empty else None,
            write_page_index=True,
            store_schema=False,
        )
        if schema.metadata:
            self.note(schema.metadata)

    def write(self, rows: pa.Table) -> None:
        """One row group."""
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._buffer.flush()

    def note(self, metadata: Mapping[bytes, bytes]) -> None:
        """Key-value pairs for the footer."""
        self._writer.add_key_value_metadata(metadata)

    def abort(self) -> None:
        """Writes nothing more than what was begun. After an error of :meth:`write` this is the only way to end."""
        # Freed, Arrow's writer writes out what it has begun: a buffer that is gone by then is a segmentation fault, and
        # the traceback of an error keeps the writer alive.
        self._writer.is_open, self._writer.writer = False, None
        self._buffer.detach()

    def close(self) -> None:
        """Ends the file with page indexes and footer; the sink stays open."""
        self._writer.close()
        self._buffer.detach()  # flushes


def empty_footer(schema: pa.Schema, value_format: ValueFormat, runs: Sequence[LeaderEpoch]) -> bytes:
    """The footer that a file without row groups would have."""
    file = io.BytesIO()
    writer = ArrowWriter(schema, file, value_format, proven=False)
    writer.note(footer_entry(runs))
    writer.close()
    return footer_of(file.getvalue())
