"""Proves a table against the segments it was made from.

What the table must hold follows from the live segments alone: the plan is made once more, from an empty table with only
the recorded floor, and says which rows of which segments are committed. Offsets below the recorded frontier must then
be in the table, once, and no others within the live segments. A segment's own data file is the very object Kafka reads;
rows of derived files are compared with the committed rows of segments: in Kafka's own columns, since typed ones may
have come later than the segment, and are what schemas make of the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

from converter.errors import SegmentError
from converter.parquet.columns import ERROR, OFFSET, RAW_VALUE, VALUE, row_schema
from converter.types import Int64Array
from iceberg_catalog.commit.head import Head, LiveFiles, by_partition
from iceberg_catalog.commit.retained import RetainedFiles
from iceberg_catalog.commit.sound import KeptSnapshotError
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.file_epochs import FileEpochs, Look
from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import Follow, LiveFile, PartState, UseMain
from iceberg_catalog.tables.tables import check_layout
from rsm_bridge.errors import BridgeError
from rsm_bridge.metrics.progress.stored import _covered, rows_without_index
from rsm_bridge.storage.intact import require_intact
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.publish.rewritten import ObjectFile
from rsm_bridge.values.layout import layout_of, plain_rows, relaid

_Rows = tuple[KnownSegment, int, int]
"""A segment, and the first and last of its offsets that count."""


def check_table(store: ObjectStore, table: Table, segments: Sequence[KnownSegment]) -> tuple[int, list[str]]:
    """How many rows were compared, and one line per damage.

    segments: of the topic id, listed after the table was loaded: else what was published meanwhile looks like damage.

    Raises:
        CatalogError, BridgeError, SegmentError: head, state or an index cannot be read.
    """
    head: Head = LiveFiles().read(table)
    states = recorded_parts(store, head)
    files = by_partition(head.files)
    look = FileEpochs(table.io).of
    rows, damages = 0, [f"{path} was not written by Tierberg" for path in head.foreign]
    try:
        check_layout(table)
    except CatalogError as error:  # its rows are there all the same
        damages.append(str(error).removeprefix(f"table {'.'.join(table.name())}: "))
    for partition, state in sorted(states.items()):
        mine = [known for known in segments if known.key.partition == partition]
        checked, found = _check_partition(store, files[partition], mine, state, look)
        rows += checked
        damages.extend(f"partition {partition}: {damage}" for damage in found)
    try:
        RetainedFiles().read(head)
    except KeptSnapshotError as error:
        damages.append(str(error))
    return rows, damages


def _check_partition(
    store: ObjectStore, files: Sequence[LiveFile], known: Sequence[KnownSegment], state: PartState, look: Look
) -> tuple[int, list[str]]:
    live = [item for item in known if item.live]
    inputs = [item.segment for item in known if item.segment is not None]
    # A new leader's copy may be ahead of the table: what the next commit takes out is not judged, nor what follows.
    rewind = plan(inputs, files, state, Follow(), relisted=True, look=look).rewind
    end = state.frontier if rewind is None else rewind
    damages: list[str] = []
    present: list[Int64Array] = [np.empty(0, dtype=np.int64)]
    committed = _committed(live, state)
    own = {store.uri(stored.key) for known in live for stored in known.data_files()}
    # Of live segments each is looked at with its index; an archive's file has nobody else to tell what it was.
    buried = {store.uri(one.key): one for item in known if not item.live for one in item.data_files()}
    for file in files:
        key = store.key(file.path)
        try:
            if key is None:
                raise BridgeError("corrupt_object", "lies outside of the store")
            if file.path in buried:
                require_intact(store, buried[file.path])
            present.append(read_offsets(store, key))
            if file.path not in own and not _same_rows(store, key, committed, end):
                damages.append(f"{file.path} differs from the segments it was derived from")
        except (BridgeError, SegmentError, OSError, ValueError) as error:
            damages.append(f"{file.path}: {error}")
    offsets = np.sort(np.concatenate(present))
    if len(offsets) != len(np.unique(offsets)):
        damages.append("offsets are there twice")
    expected = _expected(store, committed, end)
    missing = np.setdiff1d(expected, offsets)
    if len(missing):
        damages.append(f"{len(missing)} published rows are missing, the first at offset {missing[0]}")
    inside = _within(offsets[offsets < end], live, state)
    extra = np.setdiff1d(inside, expected)
    if len(extra):
        damages.append(f"{len(extra)} rows should not be there, the first at offset {extra[0]}")
    alone = rows_without_index(offsets, state, known)
    if len(alone):
        said = f"{len(alone)} rows from offset {alone[0]} to {alone[-1]} are in the table"
        damages.append(f"{said}, and no index covers them: was one lost?")
    return len(offsets), damages


def _committed(live: Sequence[KnownSegment], state: PartState) -> list[_Rows]:
    """What a table made anew has of each segment: nothing of a branch that lost an election."""
    by_id = {known.listed.key: known for known in live}
    start = PartState(floor=state.floor, lineage=state.lineage, known_end=state.known_end)
    inputs = [known.segment for known in live if known.segment is not None]
    fresh = plan(inputs, [], start, Follow(), relisted=True)
    pieces = [_whole(by_id, piece) if isinstance(piece, UseMain) else piece.ranges for piece in fresh.add]
    return [(by_id[segment_id], first, last) for piece in pieces for segment_id, first, last in piece]


def _expected(store: ObjectStore, committed: Sequence[_Rows], end: int) -> Int64Array:
    """Offsets of committed rows from the floor to `end`, exclusive."""
    found: list[Int64Array] = [np.empty(0, dtype=np.int64)]
    for known, first, last in committed:
        for stored, low, high in known.rows_between(first, last):
            offsets = read_offsets(store, stored.key)
            found.append(offsets[(offsets >= low) & (offsets <= high)])
    offsets = np.unique(np.concatenate(found))
    return offsets[offsets < end]


def _whole(by_id: Mapping[str, KnownSegment], piece: UseMain) -> tuple[tuple[str, int, int], ...]:
    segment = by_id[piece.segment_id].segment
    file = None if segment is None else segment.tail if piece.tail else segment.main
    return () if file is None else ((piece.segment_id, file.first, file.last),)


def _within(offsets: Int64Array, live: Sequence[KnownSegment], state: PartState) -> Int64Array:
    """Offsets that lie in a live segment and at or above the floor: only of those we know what they should be."""
    return offsets[_covered(offsets, ((max(known.key.base, state.floor), known.key.last) for known in live))]


def _same_rows(store: ObjectStore, key: str, committed: Sequence[_Rows], end: int) -> bool:
    """Whether every row of a derived file below `end` that is committed in a live segment is equal in both."""
    derived = _read(store, key)
    layout = layout_of(derived.schema)
    low, high = derived.column(OFFSET)[0].as_py(), min(derived.column(OFFSET)[-1].as_py(), end - 1)
    for known, source, first, last in _sources(committed, low, high):
        # Not the errors: those of keys stand only where keys have got their column.
        rows = _read(store, source)
        names = [name for name in row_schema(layout).names if name != ERROR]
        if layout_of(rows.schema) != layout:
            rows = pa.Table.from_batches([relaid(batch, layout) for batch in rows.to_batches()], plain_rows(layout))
            # Bytes that are in columns alone are compared by those who read the segment.
            names = [name for name in names if not known.proven or name not in (VALUE, RAW_VALUE)]
        last = min(last, high)
        ours, theirs = derived.column(OFFSET).to_numpy(), rows.column(OFFSET).to_numpy()
        left = derived.select(names).filter(pa.array(np.isin(ours, theirs) & (ours >= first) & (ours <= last)))
        right = rows.select(names).filter(pa.array(np.isin(theirs, ours) & (theirs >= first) & (theirs <= last)))
        right = right.cast(left.schema)
        if known.proven and RAW_VALUE in names:
            # Bytes that one file has as columns alone may stand in the other.
            there = pc.and_(left.column(RAW_VALUE).is_valid(), right.column(RAW_VALUE).is_valid())
            if not left.column(RAW_VALUE).filter(there).equals(right.column(RAW_VALUE).filter(there)):
                return False
            left, right = left.drop_columns(RAW_VALUE), right.drop_columns(RAW_VALUE)
        if not left.equals(right):
            return False
    return True


def _sources(committed: Sequence[_Rows], low: int, high: int) -> Iterator[tuple[KnownSegment, str, int, int]]:
    for known, first, last in committed:
        if first <= high and last >= low:
            found = known.rows_between(max(first, low), min(last, high))
            yield from ((known, stored.key, start, end) for stored, start, end in found)


def _read(store: ObjectStore, key: str, columns: list[str] | None = None) -> pa.Table:
    """Raises BridgeError `corrupt_object` for what is no Parquet file of ours, and what the store raises."""
    try:
        # Without threads of Arrow's: one that still has the file when the process ends aborts it.
        file = pq.ParquetFile(ObjectFile(store, key), pre_buffer=False)
        return file.read(columns=columns, use_threads=False)
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise BridgeError("corrupt_object", f"{key} cannot be read as Parquet: {said}") from error


def read_offsets(store: ObjectStore, key: str) -> Int64Array:
    """Offsets of all rows of a data file, in file order."""
    column: Int64Array = _read(store, key, [OFFSET]).column(OFFSET).to_numpy()
    return column
