"""Rows that wait for a row group, compressed: nulls and what repeats take next to nothing.

As Arrow has them, a null takes as much as a number. So a row group of many columns that ends by its Arrow bytes has few
rows: 2,000 where a table has 2,000 columns, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pyarrow as pa

from converter.limits import (
    PACKED_BYTES_MAX,
    PACKED_CELLS_MAX,
    PACKED_COLUMNS,
    PACKED_EMPTY_MAX,
    PACKED_ENTRIES_MAX,
    PACKED_RUN_BYTES_MAX,
    PACKED_STEP_BYTES,
    PACKED_STEP_ENTRIES,
    ROW_GROUP_ROWS,
    ZSTD_LEVEL_DATA,
)
from converter.parquet.columns import leaf_paths
from converter.parquet.entries import ALL, EMPTY, EntryCounter
from converter.types import Int64Array


class PackedRows:
    """Rows of one row group.

    They are compressed batch by batch, and of each batch PACKED_COLUMNS columns at a time: a *run*. What is read again
    is one run, with all batches.

    Args:
        schema: of the rows.
        edges: asked for each batch before it is compressed.

    Attributes:
        schema: of the rows.
        rows: how many there are.
        edges: what was answered for the batches of :meth:`runs`.
    """

    def __init__(self, schema: pa.Schema, edges: Callable[[pa.RecordBatch], list[int]]) -> None:
        self.schema = schema
        self._edges_of = edges
        self._counter = EntryCounter(schema)
        self._rows_max = min(
            ROW_GROUP_ROWS, max(1, PACKED_CELLS_MAX // sum(len(leaf_paths(field)) for field in schema))
        )
        self._runs = [
            range(start, end) for start, end in pairwise([*range(0, len(schema), PACKED_COLUMNS), len(schema)])
        ]
        self._codec = pa.Codec("zstd", compression_level=ZSTD_LEVEL_DATA)
        self.clear()

    def clear(self) -> None:
        """As if nothing had been added."""
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._packed: list[list[tuple[bytes, int]]] = [[] for _ in self._runs]  # with the size before
        self._packed_bytes = 0
        self._sizes = [0] * len(self._runs)
        self._entries = self._counter.none()
        self._waiting_entries = self._counter.none()
        self.edges: list[list[int]] = []

    @property
    def is_full(self) -> bool:
        """Whether a row group is to be made of them: by rows, compressed bytes, bytes of a run, or entries."""
        large = self._packed_bytes >= PACKED_BYTES_MAX or max(self._sizes) >= PACKED_RUN_BYTES_MAX
        many = self._entries[ALL].max(initial=0) >= PACKED_ENTRIES_MAX
        return large or bool(many) or self.rows >= self._rows_max

    def add(self, rows: pa.RecordBatch, entries: Int64Array) -> None:
        """Append rows; entries: of EntryCounter.count()."""
        size = rows.nbytes
        if size >= PACKED_STEP_BYTES:
            self.pack()  # what is joined is copied
        self._waiting.append(pa.RecordBatch.from_arrays(rows.columns, schema=self.schema))
        self._waiting_bytes += size
        self.rows += rows.num_rows
        self._waiting_entries += entries
        self._entries += entries
        many = self._waiting_entries[ALL].max(initial=0) >= PACKED_STEP_ENTRIES
        if self._waiting_bytes >= PACKED_STEP_BYTES or many or self.rows >= self._rows_max:
            self.pack()

    def pack(self) -> None:
        """Compress what is not yet: nothing that was added is held as it came."""
        if not self._waiting:
            return
        rows = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._waiting_entries = self._counter.none()
        self.edges.append(self._edges_of(rows))
        for number, run in enumerate(self._runs):
            plain = rows.select(run).serialize()
            packed = self._codec.compress(plain, asbytes=True)  # a buffer would keep what it was begun with
            self._packed[number].append((packed, plain.size))
            self._packed_bytes += len(packed)
            self._sizes[number] += plain.size

    def runs(self) -> Iterator[list[pa.RecordBatch]]:
        """The rows, a run of columns at a time: all columns in their order, each time in the same batches."""
        self.pack()
        for number in range(len(self._runs)):
            yield self._read(number)

    def mostly_empty(self) -> list[bool]:
        """Of each run whether some leaf of a list or map has more than PACKED_EMPTY_MAX entries without a value."""
        many = set(self._counter.columns[self._entries[EMPTY] > PACKED_EMPTY_MAX].tolist())
        return [not many.isdisjoint(run) for run in self._runs]

    def _read(self, number: int) -> list[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(column) for column in self._runs[number]])
        return [
            pa.ipc.read_record_batch(self._codec.decompress(packed, size), schema)
            for packed, size in self._packed[number]
        ]
