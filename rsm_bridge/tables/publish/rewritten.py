"""Derived data files: rows of segments' data files that are published in another cut.

Needed where a segment's own file cannot be used whole: some of its transactions were aborted later, another segment
holds part of its offsets, or an unclean election cut its end. The objects Kafka reads are never touched.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from converter.epochs import clipped, joined, runs_of_footer
from converter.limits import KIB, MIB, PACKED_ENTRIES_MAX, ROW_GROUP_BYTES
from converter.parquet.columns import OFFSET
from converter.parquet.page_table import footer_metadata
from converter.parquet.writer import RowFile
from converter.types import Int64Array, LargeWork, LeaderEpoch, PageTable, ValueFormat
from converter.values.allowance import Allowance
from converter.values.rows import TABLE, as_written_now, made_in_pieces
from iceberg_catalog import failpoints
from rsm_bridge.limits import LARGE_WAIT_SECONDS_MAX, REWRITE_WAIT_SECONDS
from rsm_bridge.storage.intact import named
from rsm_bridge.storage.keys import derived_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.tables.publish.restored_values import RestoredValues
from rsm_bridge.turns import Turns
from rsm_bridge.values.layout import layout_of, relaid

#: Of a process, since its memory is: a file that is written, or decoded, may take as much of it as a copy.
_TURNS = Turns()
_FEW_CELLS = 256 * KIB
_FEW_BYTES = 4 * MIB

#: Given rows, the cells their values may take at once, and what those of the file may take.
Decode = Callable[[pa.RecordBatch, int, Allowance], pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Rows with offsets in [first, last] (inclusive) of one data file.

    pending: its values are to be decoded; it has none of their columns, or not all.
    values: gives back the bytes of those that are in their columns alone; None: none of them is.
    first_row: number that `values` has for the file's first row.
    """

    data_key: str
    first: int
    last: int
    pending: bool = False
    values: RestoredValues | None = None
    first_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a new data file of a table looks like.

    Attributes:
        schema: of its rows, with field ids.
        value_format: whether the column `value` holds the bytes that Kafka is served.
        typed: gives rows of pending files the columns of `schema`, within so many cells (CellsExceededError).
        large: entered while a single row is made that needs more of them than others.
        revised: gives rows of `schema`, not pending ones, other contents: as many rows, in their order.
        proven: Kafka is served from the file, and values may be in their columns alone.
    """

    schema: pa.Schema
    value_format: ValueFormat
    typed: Decode | None = None
    revised: Decode | None = None
    proven: bool = False
    large: LargeWork = nullcontext


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A written file; `footer` is its Parquet metadata."""

    key: str
    size: int
    footer: pq.FileMetaData


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedRows:
    """A file written from others: its size in bytes, CRC32C, Parquet metadata and page table.

    left_out: rows of the others that lie in no cut.
    """

    size: int
    crc32c: int
    footer: pq.FileMetaData
    pages: PageTable
    left_out: int


class ObjectFile(io.RawIOBase):
    """An object as a seekable file, read by range."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key
        self._size = store.size(key)
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Position of the next read, bytes from the start."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves the position; nothing is read."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes from the position on; all that is left when negative."""
        rest = max(self._size - self._at, 0)
        length = rest if size < 0 else min(size, rest)
        data = bytes(self._store.get_range(self._key, self._at, length)) if length else b""
        self._at += length
        return data


def write_derived(
    store: ObjectStore,
    cuts: Sequence[Cut],
    shape: Shape,
    *,
    topic_id: bytes,
    partition: int,
    table_uuid: uuid.UUID,
    head_snapshot: int | None,
) -> DerivedFile | None:
    """Writes one file with the rows of all cuts, which ascend and do not overlap; None when there are no rows.

    Args:
        store: where sources are read and the file is written.
        cuts: offset ranges and the files that hold them.
        shape: of the table.
        topic_id: 16 bytes.
        partition: of the topic.
        table_uuid: of the table it is for; the key carries it, and
        head_snapshot: the head it is planned on (publish rule R13).
    """
    key = derived_key(topic_id, partition, cuts[0].first, cuts[-1].last, table_uuid, head_snapshot)
    written = copy_rows(store, key, cuts, shape, turn_seconds=REWRITE_WAIT_SECONDS)
    if written is None:
        return None
    failpoints.hit("derived-written", key)
    return DerivedFile(key, written.size, written.footer)


def copy_rows(
    store: ObjectStore,
    key: str,
    cuts: Sequence[Cut],
    shape: Shape,
    offsets: list[Int64Array] | None = None,
    *,
    turn_seconds: float = LARGE_WAIT_SECONDS_MAX,
) -> CopiedRows | None:
    """Writes the rows of all cuts, which ascend and do not overlap, into one file; None when there are none.

    The leader-epoch runs of its rows are those that the sources' footers tell.

    offsets: receives those of the rows, in their order. turn_seconds: what may be waited for the turn.

    Raises:
        TurnBusyError: it has not come by then.
        BridgeError: `corrupt_object` with the key of a source that is no Parquet file. What else the store raises, and
            `shape`, passes through.
    """
    if _are_few(store, cuts, shape):
        return _copied(store, key, cuts, shape, offsets)
    with _TURNS.held("writing rows of a table anew", turn_seconds):
        return _copied(store, key, cuts, shape, offsets)


def _are_few(store: ObjectStore, cuts: Sequence[Cut], shape: Shape) -> bool:
    """Whether the rows take so little memory, and time, that they need no turn: of one small file, none decoded."""
    if len(cuts) > 1 or shape.typed is not None or shape.revised is not None:
        return False
    with named(cuts[0].data_key):
        file = pq.read_metadata(ObjectFile(store, cuts[0].data_key))
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    if file.num_rows * file.num_columns > _FEW_CELLS or sum(group.total_byte_size for group in groups) > _FEW_BYTES:
        return False
    entries: int = sum(group.column(leaf).num_values for group in groups for leaf in range(group.num_columns))
    return entries <= _FEW_CELLS


def _copied(
    store: ObjectStore,
    key: str,
    cuts: Sequence[Cut],
    shape: Shape,
    offsets: list[Int64Array] | None,
) -> CopiedRows | None:
    total = 0
    allowance = Allowance()
    runs: tuple[LeaderEpoch, ...] = ()
    with store.open_upload(key) as upload:
        file = RowFile(shape.schema, cast(BinaryIO, upload), shape.value_format, proven=shape.proven)
        try:
            for cut in cuts:
                with named(cut.data_key):
                    source = pq.ParquetFile(ObjectFile(store, cut.data_key))
                total += source.metadata.num_rows
                runs = joined(runs, clipped(runs_of_footer(source.metadata), cut.first, cut.last))
                pending = cut.pending or of_another(source.metadata, shape.schema)
                other = layout_of(source.schema_arrow) != shape.value_format
                for stored in _rows(source, cut, cut.values if pending else None):
                    batch = relaid(stored, shape.value_format) if other else stored
                    shaped = partial(_shaped, shape, pending)
                    for made in made_in_pieces(batch, shape.schema, shaped, allowance, shape.large):
                        file.add(made)
                    if offsets is not None:
                        offsets.append(batch.column(OFFSET).to_numpy())
            pages = file.close(runs)
        except BaseException:
            file.abort()
            raise
        if pages is None:
            return None
        failpoints.hit("derived-complete", key)
        upload.commit()
    return CopiedRows(
        size=file.size, crc32c=file.crc32c, footer=footer_metadata(file.footer), pages=pages, left_out=total - file.rows
    )


def of_another(file: pq.FileMetaData, schema: pa.Schema) -> bool:
    """Whether a file's value columns have the field ids of a table that is gone; `schema`: what the present one has."""
    table = (file.metadata or {}).get(TABLE)
    return table is not None and table != (schema.metadata or {}).get(TABLE)


def _shaped(shape: Shape, pending: bool, rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> pa.RecordBatch:
    if pending and shape.typed is not None:
        return shape.typed(rows, cells_max, allowance)
    made = as_written_now(rows, shape.schema)
    return made if shape.revised is None else shape.revised(made, cells_max, allowance)


def _rows(source: pq.ParquetFile, cut: Cut, values: RestoredValues | None) -> Iterator[pa.RecordBatch]:
    """The cut's rows, some of a row group in memory at a time; groups outside the offsets are not read."""
    first_row = cut.first_row
    with named(cut.data_key):
        column = [source.schema.column(leaf).path for leaf in range(source.metadata.num_columns)].index(OFFSET)
    for number in range(source.num_row_groups):
        group = source.metadata.row_group(number)
        start, first_row = first_row, first_row + group.num_rows
        statistics = group.column(column).statistics
        if statistics is not None and (statistics.max < cut.first or statistics.min > cut.last):
            continue
        for stored in rows_of_group(source, number, cut.data_key):
            offsets = stored.column(OFFSET)
            wanted = pc.and_(pc.greater_equal(offsets, cut.first), pc.less_equal(offsets, cut.last))
            rows = stored.filter(wanted)
            if values is None:
                yield rows
            elif rows.num_rows:
                yield values.of(rows, start + np.flatnonzero(wanted.to_numpy(zero_copy_only=False)))
            start += stored.num_rows


def rows_of_group(source: pq.ParquetFile, number: int, key: str) -> Iterator[pa.RecordBatch]:
    """The rows of a row group: of many columns it may have a hundred times the cells that one usually has.

    An older one may have any number of entries of lists, too.

    Raises:
        BridgeError: `corrupt_object` with the key.
    """
    group = source.metadata.row_group(number)
    entries = max(group.column(leaf).num_values for leaf in range(group.num_columns))
    cells = max(1, ROW_GROUP_BYTES // 8 // source.metadata.num_columns)
    rows_max = min(cells, max(1, group.num_rows * PACKED_ENTRIES_MAX // max(1, entries)))
    batches = source.iter_batches(rows_max, row_groups=[number])
    while True:
        with named(key):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
