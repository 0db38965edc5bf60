"""Segment bytes in, proven steps out.

One pass: frame whole batches (framing.py), check CRCs, decide transactions, decompress, turn records into columns,
rebuild every batch from those columns and compare. A batch that does not come back, or has no rows to come back from,
is kept as the broker sent it. What one batch becomes:

    batch                                     flags                     cause
    comes back equal                          ROWS
    does not                                  ROWS KEPT                 NOT_CANONICAL
    too large to be served uncompressed       ROWS KEPT                 SERVED_SIZE
    control, aborted, empty                   KEPT (CONTROL, ABORTED)   NO_ROWS
    wrong CRC                                 KEPT QUARANTINED          BAD_CRC
    larger than the decompression limit       KEPT QUARANTINED          DECOMPRESSION_LIMIT
    cannot be decoded, unknown codec, magic   KEPT QUARANTINED          UNDECODABLE
    magic 0, 1                                KEPT QUARANTINED LEGACY   LEGACY_MAGIC, BAD_CRC
    any, in mode `verbatim` (classify.py)     KEPT                      VERBATIM, INTERNAL

`kept_start`, `row_start` count on for every batch, whether it has any or not; `timestamps_start` is -1 for batches
without exact deltas. `position` is the writer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext

import numpy as np

from converter import limits
from converter.batches.classify import classify, describe_verbatim, is_control
from converter.batches.codecs import NONE, LimitExceeded, PlainBuffer, Undecodable, decompress
from converter.batches.framing import CODEC_MASK, HEADER_BYTES, LENGTH_PREFIX_BYTES, Framer
from converter.batches.prove import prove
from converter.batches.rebuild import served_checksums
from converter.batches.records import (
    EXACT,
    EXTENT_DTYPE,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS,
    KEY_BYTES,
    MEASURES,
    VALUE_BYTES,
    Extents,
    control_types,
    fill,
    measure,
)
from converter.batches.row_arrays import row_arrays
from converter.batches.rows import StepRows
from converter.batches.transactions import MarkerCheck, Transactions
from converter.kernels.kernel import readonly
from converter.types import (
    BATCH_DTYPE,
    BatchFlag,
    BatchTable,
    BoolArray,
    Cause,
    ConvertOptions,
    Int64Array,
    LargeWork,
    ParsedStep,
    SegmentMetadata,
    UInt8Array,
)


class _LargeOnce:
    """Large work, from before more is allocated than a step usually takes until the last step of its batches was taken.

    Apart from the parser, whose buffer calls it: nothing here refers to itself, so memory goes with the parser.
    """

    def __init__(self, large: LargeWork) -> None:
        self._large = large
        self._entered = ExitStack()
        self._begun = False

    def begin(self) -> None:
        """Enters it, unless it has begun."""
        if not self._begun:
            self._begun = True
            self._entered.enter_context(self._large())

    def close(self) -> None:
        """Leaves it; nothing when it has not begun."""
        self._entered.close()
        self._begun = False


class SegmentParser:
    """Parses one segment. Memory: a few times limits.STEP_BYTES, or a few times the largest batch.

    Args:
        verbatim_cause: why the segment is stored as it is, where options.mode is `verbatim`: VERBATIM or INTERNAL.
        large: entered before the memory for a large batch is allocated (limits.STEP_ROWS_BYTES, SCRATCH_BYTES_MAX),
            left when the last step with it was taken or the parser is closed. It may wait for others' large work.

    Attributes:
        transaction_conflicts: after finish(), how often markers in the segment contradict the broker's transaction
            index or producer snapshot. A segment with conflicts must not be published.
    """

    def __init__(
        self,
        metadata: SegmentMetadata,
        options: ConvertOptions,
        transactions: Transactions,
        verbatim_cause: Cause = Cause.VERBATIM,
        large: LargeWork = nullcontext,
    ) -> None:
        self._verbatim_cause = verbatim_cause
        self._large = _LargeOnce(large)
        self._partition = metadata.partition
        self._options = options
        self._limit = min(options.decompressed_batch_bytes_max, limits.DECOMPRESSED_BATCH_BYTES_CEILING)
        self._framer = Framer(metadata)
        self._transactions = transactions
        self._markers = MarkerCheck(transactions)
        self._plain = PlainBuffer(self._large.begin)
        self._scratch: UInt8Array = np.empty(0, dtype=np.uint8)
        self._rows = 0
        self._kept_bytes = 0
        self._deltas = 0
        self._busy = False
        self.transaction_conflicts = 0

    def close(self) -> None:
        """Leaves the large work of steps that were not all taken. May be called at any time, more than once."""
        self._large.close()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[ParsedStep]:
        """Take more bytes of the segment, sliced anyhow; iterate the steps that are ready before feeding again.

        Steps are made while iterating, so that a highly compressed input does not unfold into memory at once.

        Raises:
            SegmentError: invalid_segment, here or while iterating.
            RuntimeError: the steps of the feed before were not all taken.
        """
        if self._busy:
            raise RuntimeError("take all steps of one feed() before the next")
        self._framer.append(data)
        return self._steps(last=False)

    def finish(self) -> Iterator[ParsedStep]:
        """The last steps; when they are all taken the totals have been checked against the metadata.

        Raises:
            SegmentError: invalid_segment, while iterating.
        """
        yield from self._steps(last=True)
        self._framer.close()
        self.transaction_conflicts = self._markers.finish()

    def _steps(self, last: bool) -> Iterator[ParsedStep]:
        while (taken := self._framer.take(last)) is not None:
            self._busy = True
            if self._options.mode == "verbatim":
                yield self._verbatim_step(*taken)
            else:
                yield from self._split(*taken)
            self._busy = False

    def _verbatim_step(self, batches: BatchTable, raw: UInt8Array) -> ParsedStep:
        describe_verbatim(batches, raw, self._kept_bytes, self._verbatim_cause)
        self._kept_bytes += len(raw)
        rows = StepRows.allocate(0, np.zeros(MEASURES, dtype=np.int64))
        return ParsedStep(batches, rows.record_batch(self._partition, self._options.value_format), [raw.tobytes()])

    def _split(self, batches: BatchTable, raw: UInt8Array) -> Iterator[ParsedStep]:
        """Decompress batch by batch; a step ends where its records reach limits.STEP_RECORDS_BYTES."""
        starts = batches["source_position"] - batches["source_position"][0]
        sizes = batches["length"].astype(np.int64) + LENGTH_PREFIX_BYTES
        wanted = classify(batches, raw, starts, starts + sizes, self._transactions)
        extents = np.zeros(len(batches), dtype=EXTENT_DTYPE)
        extents["start"] = np.minimum(starts + HEADER_BYTES, starts + sizes)
        extents["end"] = starts + sizes
        readable = wanted | is_control(batches)
        packed = np.flatnonzero(readable & ((batches["attributes"] & CODEC_MASK) != NONE))
        begin = 0
        view = raw.data
        for i in packed.tolist():
            self._decompress(batches[i : i + 1], extents[i : i + 1], wanted[i : i + 1], view)
            if self._plain.size >= limits.STEP_RECORDS_BYTES:
                yield from self._measured(batches[begin : i + 1], raw, extents[begin : i + 1], wanted[begin : i + 1])
                begin = i + 1
        if begin < len(batches):
            yield from self._measured(batches[begin:], raw, extents[begin:], wanted[begin:])

    def _decompress(self, batch: BatchTable, extent: Extents, wanted: BoolArray, raw: memoryview) -> None:
        """Replace the extent of one batch by its decompressed records, or quarantine it."""
        packed = raw[int(extent["start"][0]) : int(extent["end"][0])]
        start = self._plain.size
        try:
            if int(batch["count"][0]) > self._limit // limits.RECORD_BYTES:
                raise LimitExceeded
            decompress(int(batch["attributes"][0]) & CODEC_MASK, packed, self._plain, self._limit)
        except LimitExceeded:
            _quarantine(batch, wanted, Cause.DECOMPRESSION_LIMIT)
            wanted[:] = False
        except Undecodable:
            _quarantine(batch, wanted, Cause.UNDECODABLE)
            wanted[:] = False
        extent["source"] = 1
        extent["start"] = start
        extent["end"] = self._plain.size

    def _measured(
        self, batches: BatchTable, raw: UInt8Array, extents: Extents, wanted: BoolArray
    ) -> Iterator[ParsedStep]:
        """Some batches, all of whose records are at hand, in steps of at most limits.STEP_ROWS_BYTES or one batch.

        What their rows will take is counted before anything is allocated for them.
        """
        plain = readonly(self._plain.data[: self._plain.size], np.uint8)
        places = readonly(extents, EXTENT_DTYPE)
        control_types(raw, plain, batches, places, is_control(batches))
        sums = np.zeros((len(batches), MEASURES), dtype=np.int64)
        decodable = wanted.copy()
        measure(raw, plain, readonly(batches, BATCH_DTYPE), places, decodable, sums)
        failed = wanted & ~decodable
        if failed.any():
            _quarantine(batches, failed, Cause.UNDECODABLE)
        costs = _rows_bytes(batches, sums, decodable)
        over = decodable & (costs > max(self._limit, limits.STEP_ROWS_BYTES))
        if over.any():
            _quarantine(batches, over, Cause.DECOMPRESSION_LIMIT)
            decodable &= ~over
            sums[over] = 0
            costs[over] = 0
        for first, behind in _runs(costs, limits.STEP_ROWS_BYTES):
            if int(costs[first:behind].sum()) > limits.STEP_ROWS_BYTES:
                self._large.begin()
            mine = slice(first, behind)
            step = self._step(batches[mine], raw, plain, places[mine], decodable[mine], sums[mine])
            if behind == len(batches):
                # What is decompressed goes before the rows are written: of a large batch that is half of all memory.
                del plain
                self._plain.reset()
            yield step
            del step
        self._large.close()

    def _step(
        self,
        batches: BatchTable,
        raw: UInt8Array,
        plain: UInt8Array,
        extents: Extents,
        decodable: BoolArray,
        sums: Int64Array,
    ) -> ParsedStep:
        """Rows, proof and kept bytes of measured batches."""
        places = readonly(extents, EXTENT_DTYPE)
        sizes = batches["served_size"].astype(np.int64)
        plain_sizes = HEADER_BYTES + extents["end"] - extents["start"]
        servable = decodable & (plain_sizes <= np.maximum(sizes, limits.SERVED_BATCH_BYTES_MAX))
        row_base, delta_base = self._rows, self._deltas
        self._number_rows(batches, decodable, servable & (sums[:, EXACT] == 1))
        rows, deltas = self._fill(batches, raw, plain, places, sums)
        starts, scratch = self._scratch_for(np.where(servable, plain_sizes, 0), extents["source"] == 1)
        equal = prove(
            raw, plain, batches, places, servable, rows.buffers, deltas, scratch, starts, row_base, delta_base
        )
        _keep(batches, decodable & ~servable, Cause.SERVED_SIZE)
        _keep(batches, servable & ~equal, Cause.NOT_CANONICAL)
        _serve_uncompressed(batches, equal & (extents["source"] == 1), scratch, starts, plain_sizes)
        kept = self._collect_kept(batches, raw, sizes)
        self._markers.see(batches)
        record_batch = rows.record_batch(self._partition, self._options.value_format)
        return ParsedStep(batches, record_batch, kept, deltas)

    def _number_rows(self, batches: BatchTable, rows: BoolArray, exact: BoolArray) -> None:
        """Flags, row_start, row_count and timestamps_start."""
        batches["flags"] |= np.where(rows, np.uint16(BatchFlag.ROWS), np.uint16(0))
        batches["flags"] |= np.where(exact, np.uint16(BatchFlag.EXACT_TIMESTAMPS), np.uint16(0))
        counts = np.where(rows, batches["count"], 0).astype(np.int64)
        batches["row_count"] = counts
        batches["row_start"] = self._rows + np.cumsum(counts) - counts
        self._rows += int(counts.sum())
        delta_counts = np.where(exact, counts, 0)
        batches["timestamps_start"] = np.where(exact, self._deltas + np.cumsum(delta_counts) - delta_counts, -1)
        self._deltas += int(delta_counts.sum())

    def _fill(
        self, batches: BatchTable, raw: UInt8Array, plain: UInt8Array, extents: Extents, sums: Int64Array
    ) -> tuple[StepRows, Int64Array]:
        exact = (batches["flags"] & BatchFlag.EXACT_TIMESTAMPS) != 0
        deltas = np.empty(int(batches["row_count"][exact].sum()), dtype=np.int64)
        rows = StepRows.allocate(int(batches["row_count"].sum()), sums.sum(axis=0))
        table, arrays = readonly(batches, BATCH_DTYPE), row_arrays(rows.buffers, fill=True)
        fill(raw, plain, table, extents, arrays, rows.timestamp_types, deltas)
        rows.replace_bad_header_names()
        return rows, deltas

    def _scratch_for(self, sizes: Int64Array, lasting: BoolArray) -> tuple[Int64Array, UInt8Array]:
        """Where each rebuilt batch goes, and a buffer they fit in.

        Only `lasting` batches are looked at after the proof. The others share one place at the end, which the
        processor's cache then holds.
        """
        lengths = np.where(lasting, sizes, 0)
        ends = np.cumsum(lengths)
        kept = int(ends[-1])
        starts = np.where(lasting, ends - lengths, kept)
        total = kept + int(np.where(lasting, 0, sizes).max())
        if total > len(self._scratch):
            self._scratch = np.empty(total, dtype=np.uint8)
        scratch = self._scratch
        if len(scratch) > limits.SCRATCH_BYTES_MAX:
            self._scratch = np.empty(0, dtype=np.uint8)
        return starts, scratch

    def _collect_kept(self, batches: BatchTable, raw: UInt8Array, sizes: Int64Array) -> list[memoryview | bytes]:
        """Number and copy the kept bytes; consecutive kept batches are one piece."""
        mask = (batches["flags"] & BatchFlag.KEPT) != 0
        lengths = np.where(mask, sizes, 0)
        batches["kept_start"] = self._kept_bytes + np.cumsum(lengths) - lengths
        self._kept_bytes += int(lengths.sum())
        if not mask.any():
            return []
        base = self._framer.position - len(raw)
        starts = batches["source_position"] - base
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
        pieces: list[memoryview | bytes] = []
        for first, after in edges.reshape(-1, 2).tolist():
            pieces.append(raw[starts[first] : starts[after - 1] + sizes[after - 1]].tobytes())
        return pieces


def _rows_bytes(batches: BatchTable, sums: Int64Array, wanted: BoolArray) -> Int64Array:
    """What the rows of each wanted batch take, as limits.STEP_ROWS_BYTES counts it."""
    content = sums[:, KEY_BYTES] + sums[:, VALUE_BYTES] + sums[:, HEADER_KEY_BYTES] + sums[:, HEADER_VALUE_BYTES]
    things = np.where(wanted, batches["count"], 0).astype(np.int64) + sums[:, HEADERS]
    return content + things * limits.RECORD_BYTES


def _runs(costs: Int64Array, most: int) -> list[tuple[int, int]]:
    """Runs `[first, behind)` of all items, each of at most `most` in sum, or of one item."""
    ends = np.cumsum(costs)
    runs, first = [], 0
    while first < len(costs):
        before = int(ends[first]) - int(costs[first])
        behind = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        runs.append((first, behind))
        first = behind
    return runs


def _keep(batches: BatchTable, mask: BoolArray, cause: Cause) -> None:
    batches["flags"] |= np.where(mask, np.uint16(BatchFlag.KEPT), np.uint16(0))
    batches["cause"] = np.where(mask, np.uint8(cause), batches["cause"])


def _quarantine(batches: BatchTable, mask: BoolArray, cause: Cause) -> None:
    """Withhold the rows of the masked batches."""
    _keep(batches, mask, cause)
    batches["flags"] |= np.where(mask, np.uint16(BatchFlag.QUARANTINED), np.uint16(0))
    decided = 0xFFFF & ~int(BatchFlag.UNDECIDED | BatchFlag.PEEKED)
    batches["flags"] &= np.where(mask, np.uint16(decided), np.uint16(0xFFFF))


def _serve_uncompressed(
    batches: BatchTable, mask: BoolArray, scratch: UInt8Array, starts: Int64Array, sizes: Int64Array
) -> None:
    """Served size and CRC of batches that came compressed and leave as they lie in scratch."""
    if not mask.any():
        return
    picked = np.flatnonzero(mask)
    batches["served_size"][picked] = sizes[picked]
    at = starts[picked]
    batches["served_crc"][picked] = served_checksums(
        batches[picked], readonly(scratch, np.uint8), at, at + sizes[picked]
    )
