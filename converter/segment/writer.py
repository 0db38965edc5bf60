"""Steps in; data file, tail, kept bytes and the segment index out.

The rows from the first one on whose transaction is open at the segment's end are a data file of their own, the tail:
what lies before them can be published as it is at once, and the tail as it is when its transactions were committed.

Everything streams: rows are buffered up to one row group, batches up to one block. Nothing is complete before
:meth:`SegmentWriter.finish`; after :meth:`SegmentWriter.abort` nothing ever is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from converter.batches.transactions import Transactions
from converter.index.block_writer import BlockWriter
from converter.index.codec import encode_index
from converter.index.model import Directory, OpenTransaction, StoredObject, StoredObjects, Summary
from converter.index.position import PositionAssigner
from converter.index.summary import SummaryBuilder
from converter.limits import COLUMN_CHUNKS_MAX, FOOTER_BYTES_MAX, ROW_GROUP_BYTES
from converter.parquet.page_table import appended
from converter.parquet.writer import RowFile
from converter.types import (
    BatchFlag,
    BatchTable,
    ConvertOptions,
    IndexType,
    Int64Array,
    LeaderEpoch,
    PageTable,
    ParsedStep,
    SegmentMetadata,
)

_ENDS: dict[int, bool | None] = {-1: None, 0: False, 1: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """What a copy has to store and to say.

    A segment without rows has no data file: `data_size` is 0, nothing was written to the sink and the index names no
    data object. The same holds for tail and kept bytes. `footer` is the data file's Parquet footer (also in the index),
    empty without a data file; `rows` is the number of rows of data file and tail.
    """

    index: bytes
    directory: Directory
    footer: bytes
    rows: int
    data_size: int
    data_crc32c: int
    kept_size: int
    kept_crc32c: int


class FooterTooLargeError(Exception):
    """A data file would have a footer that is not read again: the segment is to be stored as it is."""


@dataclass(frozen=True, slots=True)
class TypedPiece:
    """Rows as they are written, and where columns are all there is of a value: `encoders` as in index_model.Block."""

    rows: pa.RecordBatch
    encoders: Int64Array | None = None


class SegmentWriter:
    """Writes one segment.

    Args:
        metadata: the segment's metadata.
        options: the topic's rule.
        schema: columns.row_schema for the rule, with the field ids to write; None: that of what `columns` gives.
        data: where the Parquet file goes. It is written in order and never closed here.
        kept: where kept bytes go, likewise.
        tail: where the tail goes, likewise; None: it stays in the data file.
        columns: makes of rows, once in their order, those that are written: as many, in pieces. None: they are as they
            are.
        proven: values may be in their columns alone.
    """

    def __init__(
        self,
        metadata: SegmentMetadata,
        options: ConvertOptions,
        schema: pa.Schema | None,
        data: BinaryIO,
        kept: BinaryIO,
        tail: BinaryIO | None = None,
        columns: Callable[[pa.RecordBatch], Iterable[TypedPiece]] | None = None,
        *,
        proven: bool = False,
    ) -> None:
        self._metadata = metadata
        self._options = options
        self._file = RowFile(schema, data, options.value_format, proven=proven)
        self._tail = None if tail is None else RowFile(schema, tail, options.value_format, proven=proven)
        self._target = self._file
        self._columns = columns
        self._step: list[tuple[int, Int64Array | None]] = []  # rows and encoders of each piece; the rows themselves go
        self._data_pages: PageTable | None = None
        self._rows = 0
        self._kept = kept
        self._kept_size = 0
        self._kept_crc32c = 0
        self._positions = PositionAssigner(metadata.start_offset, metadata.segment_size_bytes)
        self._blocks = BlockWriter()
        self._summary = SummaryBuilder(metadata.leader_epochs)

    def add(self, step: ParsedStep) -> None:
        """Write the next step. Positions are assigned here, whatever the step says.

        Raises:
            SegmentError: `invalid_segment` when offsets or sizes contradict the metadata.
            ValueError: the step contradicts itself (rows, kept bytes or deltas missing).
            FooterTooLargeError: the rows so far are in too many row groups for their columns.
        """
        batches = step.batches.copy()
        kept_bytes = sum(len(part) for part in step.kept)
        is_kept = (batches["flags"] & BatchFlag.KEPT) != 0
        if int(batches["row_count"].sum(dtype=np.int64)) != step.rows.num_rows:
            raise ValueError("a step's rows are not those of its batches")
        if int(batches["served_size"][is_kept].sum(dtype=np.int64)) != kept_bytes:
            raise ValueError("a step's kept bytes are not those of its batches")
        if int(batches["count"][batches["timestamps_start"] >= 0].sum(dtype=np.int64)) != len(step.timestamp_deltas):
            raise ValueError("a step's timestamp deltas are not those of its batches")
        batches["position"] = self._positions.assign(batches)
        for part in step.kept:
            self._kept.write(part)
            self._kept_crc32c = crc32c(part, self._kept_crc32c)
        self._kept_size += kept_bytes
        self._summary.add(batches)
        if step.rows.num_rows:
            self._add_rows(batches, step.rows)
        self._blocks.add(batches, step.timestamp_deltas, self._encoders_of_step())

    def finish(
        self,
        files: Mapping[IndexType, bytes],
        transactions: Transactions,
        objects: StoredObjects,
        *,
        transaction_conflicts: int = 0,
        pending: str | None = None,
        proven: bytes = b"",
        left_out: Mapping[IndexType, int] | None = None,
    ) -> WrittenSegment:
        """Complete the data file and build the index.

        Args:
            files: Kafka's indexes byte for byte, without OFFSET, which is replaced by our own; TRANSACTION may be
                missing.
            transactions: what was made of the transaction index and producer snapshot.
            objects: the keys data and kept bytes are stored under.
            transaction_conflicts: SegmentParser.transaction_conflicts, once its last step was taken.
            pending: why the rows lack value columns that the table has or is to have.
            proven: of the directory.
            left_out: of the directory.

        Raises:
            FooterTooLargeError: see :meth:`add`.
        """
        tail = None if self._target is self._file else self._target
        runs = self._summary.leader_epochs
        pages = _closed(self._file, runs) if tail is None else self._data_pages
        if tail is not None and pages is not None and (tail_pages := _closed(tail, runs)) is not None:
            pages = appended(pages, tail_pages, rows=self._file.rows, size=self._file.size)
        table, blocks = self._blocks.finish(pages)
        directory = Directory(
            metadata=self._metadata,
            options=self._options,
            attempt_id=objects.attempt_id,
            data=None if pages is None else StoredObject(objects.data_key, self._file.size, self._file.crc32c),
            kept=StoredObject(objects.kept_key, self._kept_size, self._kept_crc32c) if self._kept_size else None,
            summary=self._summarize(transactions, transaction_conflicts, pending),
            files={},
            footer=None,
            footer_raw_size=0,
            blocks=table,
            directory_size=0,
            total_size=0,
            tail=None if tail is None else StoredObject(objects.tail_key, tail.size, tail.crc32c),
            proven=proven,
            left_out=left_out or {},
        )
        stored: dict[IndexType, bytes] = {kind: bytes(data) for kind, data in files.items() if kind != IndexType.OFFSET}
        stored[IndexType.OFFSET] = self._positions.offset_index()
        index, directory = encode_index(
            directory,
            stored,
            None if pages is None else self._file.footer,
            blocks,
            tail_footer=None if tail is None else tail.footer,
        )
        return WrittenSegment(
            index=index,
            directory=directory,
            footer=self._file.footer,
            rows=self._rows,
            data_size=self._file.size,
            data_crc32c=self._file.crc32c,
            kept_size=self._kept_size,
            kept_crc32c=self._kept_crc32c,
        )

    def abort(self) -> None:
        """Stop writing. The data written so far is no readable Parquet file; the caller aborts its uploads."""
        self._file.abort()
        if self._tail is not None:
            self._tail.abort()

    def _add_rows(self, batches: BatchTable, rows: pa.RecordBatch) -> None:
        """To the data file, or from the first undecided row on to the tail; the data file is complete then."""
        looking = self._tail is not None and self._target is self._file
        before = _rows_before_undecided(batches) if looking else rows.num_rows
        if before:
            self._put(rows.slice(0, before))
        if before < rows.num_rows:
            if self._tail is not None and self._rows + before > 0:
                self._data_pages = _closed(self._file, self._summary.leader_epochs)
                self._target = self._tail
            else:
                self._tail = None  # nothing lies before: the data file is the tail
            self._put(rows.slice(before))
        if rows.nbytes >= ROW_GROUP_BYTES:
            self._target.flush()  # what waits for a full row group would hold all of a large batch
        self._rows += rows.num_rows

    def _put(self, rows: pa.RecordBatch) -> None:
        for piece in (TypedPiece(rows),) if self._columns is None else self._columns(rows):
            self._target.add(piece.rows)
            if self._target.column_chunks > COLUMN_CHUNKS_MAX:
                raise FooterTooLargeError(f"a data file of more than {COLUMN_CHUNKS_MAX} column chunks")
            _check_footer(self._target.footer_bytes)
            self._step.append((piece.rows.num_rows, piece.encoders))

    def _encoders_of_step(self) -> Int64Array | None:
        """One per row of the step's pieces; None where the bytes of all their values are stored."""
        pieces, self._step = self._step, []
        if all(encoders is None for _, encoders in pieces):
            return None
        return np.concatenate([np.zeros(rows, np.int64) if encoders is None else encoders for rows, encoders in pieces])

    def _summarize(self, transactions: Transactions, conflicts: int, pending: str | None) -> Summary:
        opened = tuple(
            OpenTransaction(producer, first, _ENDS[peeked])
            for (producer, first), peeked in zip(
                transactions.opened.tolist(), transactions.ends().tolist(), strict=True
            )
        )
        verbatim = self._options.mode == "verbatim"
        waits = pending if self._rows else None
        return self._summary.build(opened if transactions.known else None, conflicts > 0, verbatim, waits)


def _closed(file: RowFile, runs: Sequence[LeaderEpoch]) -> PageTable | None:
    """Completes a file. Raises FooterTooLargeError."""
    pages = file.close(runs)
    _check_footer(len(file.footer))
    return pages


def _check_footer(size: int) -> None:
    if size > FOOTER_BYTES_MAX:
        raise FooterTooLargeError(f"a data file whose footer has more than {FOOTER_BYTES_MAX} bytes")


def _rows_before_undecided(batches: BatchTable) -> int:
    """Rows of the batches before the first undecided one."""
    undecided = (batches["flags"] & BatchFlag.UNDECIDED) != 0
    before = batches[: int(undecided.argmax())] if undecided.any() else batches
    return int(before["row_count"].sum(dtype=np.int64))
