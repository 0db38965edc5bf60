"""From a position or an offset to served bytes: find the batches, plan the reads, rebuild.

Nothing here reads. A fetch is: :func:`find_block` in the directory; read and decode that block; :func:`find_batch` in
it; :func:`last_batch_within` for the size wanted; :func:`plan_read`; read the plan's ranges, in parallel;
:func:`replay`.

Batches have their number in the segment, from 0; a range of batches has both ends inclusive and lies in one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.batches.rebuild import rebuild
from converter.errors import SegmentError
from converter.index.model import Block, Directory
from converter.index.position import last_offsets
from converter.limits import READ_GAP_BYTES
from converter.parquet.page_columns import read_columns
from converter.parquet.page_table import page_slice
from converter.parquet.pages import Buffer, ByteRange, PageReader
from converter.types import BatchFlag, BatchTable, Int64Array, PageTable, RowBuffers, UInt8Array, VarBytes
from converter.values.proof.proven import ProvenValues, unpack_proven
from converter.values.proof.restore import restored
from converter.values.rows import bound_by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What to read for batches `[first_batch, last_batch]`; both tuples of ranges ascend and do not overlap.

    `[row_start, row_end)` are the rows to decode. `served_bytes` is what :func:`replay` will return. A range of `data`
    that begins at `Directory.data.size` or above lies in the tail, by so much further to the front; none crosses.
    `encoders` are those rows', as in Block; empty where the bytes of all values are stored.
    """

    first_batch: int
    last_batch: int
    row_start: int
    row_end: int
    data: tuple[ByteRange, ...]
    kept: tuple[ByteRange, ...]
    encoders: Int64Array
    served_bytes: int


def find_block(directory: Directory, position: int) -> int | None:
    """Number of the block a read from a served position starts in; None for a segment without batches.

    A position beyond the last batch belongs to the last block: a stream may start earlier than asked, never later.
    """
    if not len(directory.blocks):
        return None
    return max(int(np.searchsorted(directory.blocks["position"], position, side="right")) - 1, 0)


def find_batch(block: Block, position: int) -> int:
    """Number of the batch that lies at a served position: the last one of the block that does not start after it."""
    return block.first_batch + max(int(np.searchsorted(block.batches["position"], position, side="right")) - 1, 0)


def find_block_of_offset(directory: Directory, offset: int) -> int | None:
    """Number of the block whose batches hold `offset` or, where it was compacted away, the next one; None: beyond."""
    number = int(np.searchsorted(directory.blocks["last_offset"], offset, side="left"))
    return number if number < len(directory.blocks) else None


def find_batch_of_offset(block: Block, offset: int) -> int | None:
    """Number of the first batch whose last offset is at least `offset`, or None when the block ends before it."""
    number = int(np.searchsorted(last_offsets(block.batches), offset, side="left"))
    return block.first_batch + number if number < len(block.batches) else None


def last_batch_within(block: Block, first_batch: int, served_bytes_max: int) -> int:
    """Last batch of the longest run from `first_batch` on that is served in at most `served_bytes_max` bytes.

    The run stays in the block and has at least one batch, however large.
    """
    ends = np.cumsum(block.batches["served_size"][first_batch - block.first_batch :], dtype=np.int64)
    return first_batch + max(int(np.searchsorted(ends, served_bytes_max, side="right")), 1) - 1


def plan_read(directory: Directory, block: Block, first_batch: int, last_batch: int) -> ReadPlan:
    """The byte ranges of data file and kept bytes that batches `[first_batch, last_batch]` need.

    Raises:
        SegmentError: `corrupt_object` when the index contradicts itself.
        ValueError: the range is empty or not within the block.
    """
    batches = _batches(block, first_batch, last_batch)
    kept = batches[(batches["flags"] & BatchFlag.KEPT) != 0]
    row_start, row_end = _rows(batches)
    encoders = _encoders(directory, block, row_start, row_end)
    return ReadPlan(
        first_batch=first_batch,
        last_batch=last_batch,
        row_start=row_start,
        row_end=row_end,
        data=_page_ranges(directory, block.pages, row_start, row_end, values=len(encoders) > 0),
        kept=_kept_ranges(directory, kept),
        served_bytes=int(batches["served_size"].sum(dtype=np.int64)),
        encoders=encoders,
    )


def replay(
    directory: Directory, block: Block, plan: ReadPlan, data: Sequence[Buffer], kept: Sequence[Buffer]
) -> UInt8Array:
    """The served bytes of the plan's batches.

    Args:
        directory: of the segment.
        block: the block the plan was made for.
        plan: from :func:`plan_read`.
        data: what was read for each range of `plan.data`.
        kept: what was read for each range of `plan.kept`.

    Raises:
        SegmentError: `corrupt_object` for anything but the bytes that were copied: each batch is compared with its
            CRC32C. `batch` is the number in the segment. No other exception is raised for bad bytes.
    """
    batches = _batches(block, plan.first_batch, plan.last_batch).copy()
    if [r.length for r in plan.kept] != [len(d) for d in kept]:
        raise SegmentError("corrupt_object", "the store returned other kept bytes than were asked for")
    reader = PageReader(block.pages, plan.data, data)
    rows = reader.read(plan.row_start, plan.row_end) if plan.row_end > plan.row_start else _no_rows()
    if len(plan.encoders):
        rows.values = _with_columns(directory, reader, plan, rows.values)
    # rebuild() takes rows and kept bytes from where the first batch says its own begin.
    batches["row_start"][0] = plan.row_start
    if plan.kept:
        batches["kept_start"][0] = plan.kept[0].start
    exact = batches["timestamps_start"][batches["timestamps_start"] >= 0]
    deltas_at = int(exact[0]) - block.deltas_start if len(exact) else 0
    if deltas_at < 0:
        raise SegmentError("corrupt_object", "timestamp deltas lie outside their block")
    kept_bytes = np.frombuffer(kept[0] if kept else b"", dtype=np.uint8)
    try:
        return rebuild(batches, rows, block.deltas[deltas_at:], kept_bytes)
    except SegmentError as error:
        if error.batch is None:
            raise
        number = plan.first_batch + error.batch
        where = f"{directory.metadata.topic}-{directory.metadata.partition}"
        raise SegmentError(error.kind, f"a stored batch of {where} does not come back", batch=number) from error


def _encoders(directory: Directory, block: Block, row_start: int, row_end: int) -> Int64Array:
    """Of rows `[row_start, row_end)`; empty where none of them is columns alone."""
    first = int(block.batches["row_start"][0])
    found = block.encoders[row_start - first : row_end - first]
    if not found.any():
        return found[:0]
    if len(found) != row_end - row_start or found.min() < 0 or not directory.proven:
        raise SegmentError("corrupt_object", "the index does not say how all values are encoded")
    return found


def _with_columns(directory: Directory, reader: PageReader, plan: ReadPlan, stored: VarBytes) -> VarBytes:
    """All values, those that are columns alone among them."""
    proven = unpack_proven(directory.proven)
    columns = read_columns(reader, proven.schema, _columns_of(proven, plan.encoders), plan.row_start, plan.row_end)
    sizes, _ = reader.sizes(plan.row_start, plan.row_end)
    return restored(stored, plan.encoders, sizes, columns, proven)


def _columns_of(proven: ProvenValues, encoders: Int64Array) -> set[str]:
    """Names of the columns that rows with these encoders are made from."""
    numbers = np.unique(encoders[encoders > 0]).tolist()
    fields = [field for number in numbers for field in proven.numbered(number)[0].columns]
    bound = bound_by_id(proven.schema, fields)
    return {proven.schema.names[item.source] for item in bound if item.source is not None}


def _batches(block: Block, first_batch: int, last_batch: int) -> BatchTable:
    first, end = first_batch - block.first_batch, last_batch + 1 - block.first_batch
    if not 0 <= first < end <= len(block.batches):
        raise ValueError(f"batches {first_batch} to {last_batch} are no range of block {block.number}")
    return block.batches[first:end]


def _rows(batches: BatchTable) -> tuple[int, int]:
    """Rows that rebuilt batches need: kept ones are rows of the table, too, but are not served from them."""
    rebuilt = batches[((batches["flags"] & BatchFlag.KEPT) == 0) & (batches["row_count"] > 0)]
    if not len(rebuilt):
        start = int(batches["row_start"][0])
        return start, start
    return int(rebuilt["row_start"][0]), int(rebuilt["row_start"][-1]) + int(rebuilt["row_count"][-1])


def _page_ranges(
    directory: Directory, pages: PageTable, row_start: int, row_end: int, *, values: bool
) -> tuple[ByteRange, ...]:
    if row_end == row_start:
        return ()
    if directory.data is None:
        raise SegmentError("corrupt_object", "segment index has rows but no data file")
    border = directory.data.size
    chosen = page_slice(pages, row_start, row_end, values=values)
    order = np.argsort(chosen.offset, kind="stable")
    starts = chosen.offset[order]
    ends = starts + chosen.length[order]
    crossing = (starts < border) & (ends > border)
    if not len(starts) or starts[0] < 0 or ends.max() > directory.data_size or (ends <= starts).any() or crossing.any():
        raise SegmentError("corrupt_object", "page table points outside the data file")
    merged = [[int(starts[0]), int(ends[0])]]
    for start, end in zip(starts[1:].tolist(), ends[1:].tolist(), strict=True):
        if start - merged[-1][1] <= READ_GAP_BYTES and not merged[-1][0] < border <= start:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    return tuple(ByteRange(start, end - start) for start, end in merged)


def _kept_ranges(directory: Directory, kept: BatchTable) -> tuple[ByteRange, ...]:
    if not len(kept):
        return ()
    start = int(kept["kept_start"][0])
    end = int(kept["kept_start"][-1]) + int(kept["served_size"][-1])
    if directory.kept is None or not 0 <= start < end <= directory.kept.size:
        raise SegmentError("corrupt_object", "segment index points outside the kept bytes")
    return (ByteRange(start, end - start),)


def _no_rows() -> RowBuffers:
    def empty() -> VarBytes:
        return VarBytes(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.bool_))

    nothing = np.empty(0, dtype=np.int64)
    return RowBuffers(
        offsets=nothing,
        timestamps_us=nothing,
        timestamps_valid=np.empty(0, dtype=np.bool_),
        keys=empty(),
        values=empty(),
        header_offsets=np.zeros(1, dtype=np.int64),
        header_keys=empty(),
        header_values=empty(),
    )
