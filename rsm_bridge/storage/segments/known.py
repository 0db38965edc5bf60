"""What the publisher knows of each segment of a topic: small, immutable, read once per version of the index object.

A live segment is read from its index, a deleted one from the index inside its tombstone; both become the plan's
:class:`~iceberg_catalog.plan.types.Segment`. Batches are read only when the plan asks for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from converter.batches.framing import TRANSACTIONAL
from converter.batches.transactions import aborted_entries
from converter.errors import SegmentError
from converter.index.codec import block_section, decode_block, footer_bytes, section_bytes
from converter.index.model import Directory, StoredObject, Summary
from converter.index.position import last_offsets
from converter.parquet.columns import OFFSET
from converter.parquet.page_table import footer_metadata
from converter.segment.add_rows import has_added_rows
from converter.types import (
    BATCH_DTYPE,
    BatchFlag,
    BatchTable,
    Cause,
    IndexType,
    Int64Array,
    LeaderEpoch,
    SegmentMetadata,
    ValueFormat,
)
from iceberg_catalog.plan.types import Batches, BatchKind, FileRef, Peeked, Runs, Segment, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import INDEX_HEAD_BYTES
from rsm_bridge.storage.clock import taken_ms
from rsm_bridge.storage.keys import DATA_ROOT, KEPT_ROOT, IndexKey, index_prefix, parse_index_key
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.index_at import directory_under, index_named
from rsm_bridge.storage.tombstone import MAGIC as TOMBSTONE_MAGIC
from rsm_bridge.storage.tombstone import Tombstone, is_tombstone, tombstone_at

ReadRange = Callable[[int, int], bytes | memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTombstone:
    """The tombstone at a segment's key. `had_index`: the copy had finished. reclaiming: its objects may be gone.

    forgotten: `tierberg topic forget` put it there, which a person asked for.
    """

    kind: SegmentState
    time_ms: int
    had_index: bool
    reclaiming: bool = False
    forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCounts:
    """What reports need of an index: newest record timestamp, log bytes at the broker, batches withheld by cause.

    left_out: its producer snapshot, where that was too large to be stored. copied_ms: when the copy began, by the
    broker's clock.
    """

    record_ms: int
    source_bytes: int
    quarantined: tuple[tuple[Cause, int], ...]
    left_out: tuple[IndexType, ...] = ()
    copied_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSegment:
    """One index key. `segment` is None for a tombstone that replaced no index: then nothing was ever stored.

    `data`, `tail`, `kept`: what the segment stored beside its index (converter.index.model.Directory).
    withheld: it is stored verbatim and has no rows, which `tierberg requeue` may change.
    requeued: it has done so, or has added rows of it that came late.
    pending: why its rows were stored without typed columns; they come into the table by a derived file that has them.
    proven: some of its values are columns alone.
    first_written_ms: see `written_ms`; None: the listed index is the first.
    """

    key: IndexKey
    listed: ListedObject
    owner: Owner
    value_format: ValueFormat
    segment: Segment | None
    data: StoredObject | None
    kept: StoredObject | None
    deletion: KnownTombstone | None
    counts: SegmentCounts | None = None
    tail: StoredObject | None = None
    withheld: bool = False
    requeued: bool = False
    pending: str | None = None
    proven: bool = False
    first_written_ms: int | None = None

    @property
    def written_ms(self) -> int:
        """When its first index was written, by the store's clock: merges and repairs write later ones."""
        return self.listed.modified_ms if self.first_written_ms is None else self.first_written_ms

    @property
    def live(self) -> bool:
        """No delete is known."""
        return self.deletion is None

    @property
    def forgotten(self) -> bool:
        """Whether it is deleted by `tierberg topic forget`, and not by Kafka."""
        return self.deletion is not None and self.deletion.forgotten

    @property
    def rows(self) -> int:
        """Rows of the segment in the data files its index names."""
        return 0 if self.segment is None else sum(file.rows for file in self.segment.files)

    @property
    def shares(self) -> bool:
        """Whether its data file was merged: other segments' indexes name it too."""
        return self.segment is not None and self.segment.main is not None and self.segment.main.shared

    def stored(self) -> list[StoredObject]:
        """The objects its index names."""
        return [stored for stored in (self.data, self.tail, self.kept) if stored is not None]

    def objects(self) -> list[str]:
        """Their keys."""
        return [stored.key for stored in self.stored()]

    def data_files(self) -> list[StoredObject]:
        """The data file and its tail, as far as there are any."""
        return [stored for stored in (self.data, self.tail) if stored is not None]

    def rows_between(self, first: int, last: int) -> list[tuple[StoredObject, int, int]]:
        """Which data files hold the rows of [first, last]: (file, first, last), both ends inclusive, ascending."""
        found: list[tuple[StoredObject, int, int]] = []
        border = self.segment.tail.first if self.segment is not None and self.segment.tail is not None else last + 1
        if self.data is not None and first < border:
            found.append((self.data, first, min(last, border - 1)))
        if self.tail is not None and last >= border:
            found.append((self.tail, max(first, border), last))
        return found

    def own_objects(self) -> list[StoredObject]:
        """Those of them that no other index names."""
        files = [] if self.shares else self.data_files()
        return [*files, *([] if self.kept is None else [self.kept])]


def read_known(store: ObjectStore, key: IndexKey, listed: ListedObject) -> KnownSegment:
    """Reads what is at an index key.

    Raises:
        SegmentError, BridgeError: the object is damaged, gone, of a newer release, or the store is away.
    """
    head = store.head_bytes(listed.key, INDEX_HEAD_BYTES)
    try:
        return _known_by(head, store, key, listed)
    except SegmentError:
        # A large index takes several requests. A tombstone that took its place in between is no damage.
        now = store.head_bytes(listed.key, INDEX_HEAD_BYTES)
        if now == head:
            raise
        return _known_by(now, store, key, listed)


def _known_by(head: memoryview, store: ObjectStore, key: IndexKey, listed: ListedObject) -> KnownSegment:
    if bytes(head[: len(TOMBSTONE_MAGIC)]) == TOMBSTONE_MAGIC:
        # Tombstones that replaced no index are small and many: one for each copy of a removed topic that failed.
        whole = bytes(head) if len(head) < INDEX_HEAD_BYTES else store.read(listed.key).data
        stone = tombstone_at(listed.key, whole)
        with index_named(listed.key):
            return _from_tombstone(key, listed, stone)

    def read(start: int, length: int) -> bytes | memoryview:
        if start + length <= len(head):
            return head[start : start + length]
        return store.get_range(listed.key, start, length)

    with index_named(listed.key):
        return _from_index(key, listed, read, lambda start, length: store.get_range(listed.key, start, length))


def listed_sizes(store: ObjectStore, topic_id: bytes) -> dict[str, int]:
    """By key, the size in bytes of every data file and all kept bytes that the store lists of a topic id."""
    roots = (f"{root}{topic_id.hex()}/" for root in (DATA_ROOT, KEPT_ROOT))
    return {item.key: item.size for root in roots for item in store.list_after(root)}


def read_segments(store: ObjectStore, topic_id: bytes) -> list[KnownSegment]:
    """Every index and tombstone of a topic id.

    Raises:
        BridgeError, SegmentError: one is damaged, or listed and not there, or the store is away.
    """
    found: list[KnownSegment] = []
    missing: list[str] = []
    for listed in store.list_after(index_prefix(topic_id)):
        key = parse_index_key(listed.key)
        if key is None:
            continue
        try:
            found.append(read_known(store, key, listed))
        except ObjectNotFoundError:
            missing.append(listed.key)
    confirm_gone(store, missing)
    return found


def segments_by_partition(segments: Iterable[KnownSegment]) -> defaultdict[int, list[KnownSegment]]:
    """Segments by Kafka partition, in the order given; an empty list for a partition without any."""
    found: defaultdict[int, list[KnownSegment]] = defaultdict(list)
    for known in segments:
        found[known.key.partition].append(known)
    return found


def log_start_told(segments: Iterable[Segment]) -> int:
    """The highest log start that one of the copies came from, 0 if none tells: Kafka has nothing below it.

    A copy's leader epochs begin there, because Kafka cuts its checkpoint at the log start.
    """
    return max((segment.checkpoint[0][1] for segment in segments if segment.checkpoint), default=0)


def owner_of(segments: Sequence[KnownSegment]) -> Owner:
    """Whose table it is: a segment with an index says so best."""
    return max(segments, key=lambda known: (known.segment is not None, known.data is not None)).owner


def read_index(store: ObjectStore, known: KnownSegment) -> bytes:
    """A segment's whole index, out of its tombstone when it was deleted.

    Raises:
        ObjectNotFoundError: it is gone, or its tombstone has none any more: it was removed after it was listed.
        SegmentError: the tombstone is damaged.
    """
    found = store.read(known.listed.key).data
    if not is_tombstone(found):
        return bytes(found)
    index = tombstone_at(known.listed.key, found).index
    if not index:
        raise ObjectNotFoundError(known.listed.key)
    return index


def read_footer(store: ObjectStore, known: KnownSegment, *, tail: bool = False) -> pq.FileMetaData:
    """The footer of a segment's data file, or of its tail, out of its index, or of the one inside its tombstone.

    A table that keeps rows takes them from deleted segments too (R6).
    """
    index = read_index(store, known)
    directory = directory_under(known.listed.key, index)
    with index_named(known.listed.key):
        return _footer(directory, lambda start, length: index[start : start + length], tail=tail)


def _from_tombstone(key: IndexKey, listed: ListedObject, stone: Tombstone) -> KnownSegment:
    state = SegmentState.DELETED if stone.kind == "deleted" else SegmentState.WITHDRAWN
    # What is being removed has been judged; its mark has made the object a new one.
    time_ms = stone.time_ms if stone.reclaiming else taken_ms(stone.time_ms, listed.modified_ms)
    deletion = KnownTombstone(
        kind=state, time_ms=time_ms, had_index=bool(stone.index), reclaiming=stone.reclaiming, forgotten=stone.forgotten
    )
    if not stone.index:
        owner = Owner(stone.cluster_name, stone.topic, key.topic_id)
        return KnownSegment(
            key=key,
            listed=listed,
            owner=owner,
            value_format="raw",
            segment=None,
            data=None,
            kept=None,
            deletion=deletion,
        )

    def read(start: int, length: int) -> bytes:
        return stone.index[start : start + length]

    known = _from_index(key, listed, read, read)
    if known.segment is None:
        return replace(known, deletion=deletion)
    return replace(known, deletion=deletion, segment=replace(known.segment, state=state, leaving=stone.reclaiming))


def _from_index(key: IndexKey, listed: ListedObject, read: ReadRange, load: ReadRange) -> KnownSegment:
    head = read(0, 32)
    directory = directory_under(listed.key, read(0, int.from_bytes(head[8:12], "little")))
    metadata, summary = directory.metadata, directory.summary
    segment = Segment(
        id=listed.key,
        base=metadata.start_offset,
        last=metadata.end_offset,
        runs=_runs(summary.leader_epochs),
        checkpoint=_checkpoint(directory, metadata, read),
        open_end=_open_end(summary),
        conflict=summary.transaction_conflict,
        state=SegmentState.LIVE,
        main=None if directory.data is None else _file(directory, read, tail=False),
        tail=None if directory.tail is None else _file(directory, read, tail=True),
        peeked=_peeked(summary),
        load=partial(_load_batches, listed.key, load, directory.directory_size),  # a lambda would keep the directory
    )
    owner = Owner(metadata.cluster_name, metadata.topic, metadata.topic_id)
    counts = SegmentCounts(
        record_ms=metadata.max_timestamp_ms,
        source_bytes=metadata.segment_size_bytes,
        quarantined=tuple((count.cause, count.batches) for count in summary.quarantined),
        left_out=tuple(directory.left_out),
        copied_ms=metadata.event_timestamp_ms,
    )
    return KnownSegment(
        key=key,
        listed=listed,
        owner=owner,
        value_format=directory.options.value_format,
        segment=segment,
        data=directory.data,
        kept=directory.kept,
        deletion=None,
        counts=counts,
        tail=directory.tail,
        withheld=summary.verbatim and directory.data is None,
        requeued=has_added_rows(directory),
        pending=None if directory.merged else summary.pending,
        proven=bool(directory.proven),
        first_written_ms=directory.first_written_ms,
    )


def _file(directory: Directory, read: ReadRange, *, tail: bool) -> FileRef:
    if directory.merged:
        metadata = directory.metadata
        return FileRef(first=metadata.start_offset, last=metadata.end_offset, rows=directory.summary.rows, shared=True)
    footer = _footer(directory, read, tail=tail)
    first, last = _row_offsets(footer)
    return FileRef(first=first, last=last, rows=footer.num_rows, pending=directory.summary.pending is not None)


def _footer(directory: Directory, read: ReadRange, *, tail: bool) -> pq.FileMetaData:
    section = directory.tail_footer if tail else directory.footer
    if section is None:
        raise SegmentError("corrupt_object", "the index has a data file and no footer")
    return footer_metadata(footer_bytes(directory, read(section.offset, section.size), tail=tail))


def _row_offsets(footer: pq.FileMetaData) -> tuple[int, int]:
    """First and last offset of the rows, from the footer's statistics."""
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    column = names.index(OFFSET)
    groups = [footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups)]
    return min(int(group.min) for group in groups), max(int(group.max) for group in groups)


def _open_end(summary: Summary) -> tuple[tuple[int, int], ...] | None:
    if summary.open_transactions is None:
        return None
    return tuple((entry.producer_id, entry.first_offset) for entry in summary.open_transactions)


def _peeked(summary: Summary) -> tuple[Peeked, ...]:
    return tuple(
        (entry.producer_id, entry.first_offset, entry.committed)
        for entry in summary.open_transactions or ()
        if entry.committed is not None
    )


def _runs(epochs: tuple[LeaderEpoch, ...]) -> Runs:
    return tuple((entry.epoch, entry.start_offset) for entry in epochs)


def _checkpoint(directory: Directory, metadata: SegmentMetadata, read: ReadRange) -> Runs:
    """Kafka's leader-epoch checkpoint that came with the copy; the metadata's epochs when it cannot be read."""
    section = directory.files.get(IndexType.LEADER_EPOCH)
    if section is not None and section.size:
        text = section_bytes(section, read(section.offset, section.size))
        try:
            return parse_checkpoint(text)
        except ValueError:
            pass  # our own copy of the same history, cut to the segment, serves as well
    return _runs(metadata.leader_epochs)


def parse_checkpoint(data: bytes) -> Runs:
    """A leader-epoch checkpoint file: version 0, a count, then `epoch start_offset` lines.

    Raises:
        ValueError: it does not follow that form.
    """
    lines = data.decode("ascii").split("\n")
    if len(lines) < 2 or lines[0].strip() != "0":
        raise ValueError("not a leader-epoch checkpoint of version 0")
    count = int(lines[1])
    entries = tuple((int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2 : 2 + count]))
    if len(entries) != count:
        raise ValueError("the leader-epoch checkpoint is cut")
    return entries


def _load_batches(key: str, read: ReadRange, directory_size: int) -> Batches:
    directory = directory_under(key, read(0, directory_size))
    tables = [np.empty(0, dtype=BATCH_DTYPE)]  # the cleaner may have left no batch
    with index_named(key):
        for number in range(len(directory.blocks)):
            section = block_section(directory, number)
            tables.append(decode_block(directory, number, read(section.offset, section.size)).batches)
        return plan_batches(np.concatenate(tables), _aborts(directory, read))


def _aborts(directory: Directory, read: ReadRange) -> Int64Array | None:
    """The segment's transaction index; None where it could not be used when it was copied."""
    if directory.summary.open_transactions is None:
        return None
    section = directory.files.get(IndexType.TRANSACTION)
    data = b"" if section is None or not section.size else section_bytes(section, read(section.offset, section.size))
    entries = aborted_entries(data)
    return None if entries is None else entries[:, :3]


def plan_batches(table: BatchTable, aborts: Int64Array | None = None) -> Batches:
    """The batch table, and what the transaction index lists, as the plan wants them."""
    control = (table["flags"] & BatchFlag.CONTROL) != 0
    kind = np.full(len(table), BatchKind.PLAIN, dtype=np.uint8)
    kind[(table["attributes"] & TRANSACTIONAL) != 0] = BatchKind.TXN
    kind[control] = BatchKind.PLAIN
    kind[control & (table["control_type"] == 0)] = BatchKind.ABORT
    kind[control & (table["control_type"] == 1)] = BatchKind.COMMIT
    return Batches(
        base=table["base_offset"].astype(np.int64),
        last=last_offsets(table),
        epoch=table["leader_epoch"].astype(np.int32),
        producer_id=table["producer_id"].astype(np.int64),
        kind=kind,
        rows=(table["flags"] & BatchFlag.ROWS) != 0,
        max_timestamp_ms=table["max_timestamp"].astype(np.int64),
        aborts=aborts,
    )
