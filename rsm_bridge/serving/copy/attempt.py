"""One attempt to store a segment, on a worker thread: frames in, durable objects out, the index last.

Order of what becomes visible: data file and kept bytes (which nothing names yet), then the index by put-if-absent at
the segment's own key. Before the index nothing of the attempt is readable by anyone who starts from an index; a failure
before it aborts the uploads and deletes what was completed. A tombstone at the key makes the put fail: a delete that
arrives at any moment of a copy wins.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from converter.batches.later_indexes import LaterAborts
from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.codec import decode_directory
from converter.index.model import Directory, StoredObjects
from converter.index.same_segment import same_segment
from converter.parquet.columns import row_schema
from converter.segment.writer import SegmentWriter, TypedPiece, WrittenSegment
from converter.types import Cause, ConvertOptions, IndexType, LargeWork, SegmentMetadata
from iceberg_catalog import failpoints
from iceberg_catalog.tables.schema import expected_field_ids
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import INDEX_BYTES_MAX
from rsm_bridge.serving.copy.frame_feed import FrameFeed
from rsm_bridge.serving.scheduling.copy_memory import CopyShare
from rsm_bridge.storage.custom_metadata import CustomMetadata
from rsm_bridge.storage.keys import data_key, index_key, kept_key, new_attempt_id, tail_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.tombstone import decode_tombstone, is_tombstone
from rsm_bridge.storage.upload import Upload


class ValueColumns(Protocol):
    """What gives the rows of one copy the columns of their values. Used by one thread.

    Attributes:
        pending: why the rows so far lack columns, as it will stand in the index; None: they have them.
        failed: rows that did not decode, by code.
    """

    pending: str | None
    failed: Counter[str]

    @property
    def proven(self) -> bool:
        """Whether values may be in their columns alone."""
        ...

    @property
    def encodings(self) -> bytes:
        """Of the rows so far: Directory.proven."""
        ...

    def in_turn(self, large: LargeWork) -> None:
        """Tells, before the first rows, what to enter for what takes more memory than a piece of rows may."""
        ...

    def rows(self, rows: pa.RecordBatch) -> Iterable[TypedPiece]:
        """Rows of columns.row_schema("raw"), in pieces, with field ids and, unless `pending`, value columns.

        Never raises for them. Every piece of one copy has the same schema.
        """
        ...


@dataclass(slots=True, kw_only=True)
class CopyAttempt:
    """What one attempt works with. `stage` is written by the worker and read by heartbeats.

    Attributes:
        deadline: no index is put after it; seconds of the monotonic clock.
        yield_to_fetches: called at the start and before each step; waits while fetches do.
        later: what came with the copy of later segments' transaction indexes.
        verbatim_cause: why the segment is stored as it is, in mode `verbatim`.
        columns: gives rows the columns of their values; None: the topic is not typed.
        repeated: an earlier copy of the same id and content had finished; set by the worker. Nothing of this one stays.
        left_out: the producer snapshot, when it was too large to keep, with its size in bytes.
        allowed: asked before the index is put; raises BridgeError where the peer may not copy this any more.
        turn: for what takes more memory than a place has; None: the copy is the only one.
    """

    segment: SegmentMetadata
    options: ConvertOptions
    files: Mapping[IndexType, bytes]
    feed: FrameFeed
    deadline: float
    yield_to_fetches: Callable[[], float]
    later: LaterAborts = field(default_factory=LaterAborts)
    verbatim_cause: Cause = Cause.VERBATIM
    columns: ValueColumns | None = None
    turn: CopyShare | None = None
    left_out: Mapping[IndexType, int] = field(default_factory=dict)
    allowed: Callable[[], None] | None = None
    stage: str = "receiving"
    repeated: bool = False


def store_segment(store: ObjectStore, attempt: CopyAttempt) -> Directory:
    """Runs one attempt to its end; returns the directory of the index it or an earlier copy of it has put.

    Raises:
        SegmentError: the segment is not what it claims to be.
        BridgeError: `damaged_in_transit`, `invalid_segment`, `segment_deleted`, `cancelled`, `deadline`,
            `store_unavailable`.
        Exception: an error of ours; the caller stores the segment verbatim.
    """
    segment = attempt.segment
    failpoints.hit("copy-start", segment.topic_id.hex())
    attempt_id = new_attempt_id()
    objects = StoredObjects(
        attempt_id, data_key(segment, attempt_id), kept_key(segment, attempt_id), tail_key(segment, attempt_id)
    )
    completed: list[str] = []
    try:
        written = _write_objects(store, attempt, objects, completed)
        failpoints.hit("before-index", objects.data_key)
        attempt.stage = "indexing"
        if len(written.index) > INDEX_BYTES_MAX:
            raise BridgeError(
                "invalid_segment",
                f"the segment's index would have {len(written.index)} bytes, more than {INDEX_BYTES_MAX}: its batches "
                "are too small for its size; lower segment.bytes of the topic",
            )
        _check_sizes(store, written.directory)
        earlier = _put_index(store, attempt, written.index, completed)
    except BaseException:
        attempt.feed.close()
        # Objects that no index names; should this fail too, the reclaimer finds them.
        _delete_quietly(store, completed)
        raise
    if earlier is not None:
        attempt.repeated = True
        _delete_quietly(store, completed)
        return earlier
    failpoints.hit("after-index", objects.data_key)
    return written.directory


def custom_metadata(directory: Directory) -> bytes:
    """What Kafka is to keep for a finished copy."""
    return CustomMetadata(
        attempt=directory.attempt_id,
        index_size=directory.total_size,
        directory_size=directory.directory_size,
        data_size=directory.data_size,
        kept_size=0 if directory.kept is None else directory.kept.size,
        verbatim=directory.summary.verbatim,
    ).encode()


def _check(feed: FrameFeed, deadline: float, when: str) -> None:
    """Whether anybody still waits for the copy. `when`: ends the sentence.

    Raises:
        BridgeError: `cancelled`, `deadline`.
    """
    feed.check_cancelled()
    if time.monotonic() >= deadline:
        raise BridgeError("deadline", f"the copy's deadline passed {when}")


def _pieces(columns: ValueColumns, check: Callable[[], None], rows: pa.RecordBatch) -> Iterator[TypedPiece]:
    """Its rows. The pieces of costly values take minutes: nobody else waits for a worker whose client has gone.

    Raises:
        BridgeError: `cancelled`, and what else `check` raises.
    """
    check()
    for piece in columns.rows(rows):
        yield piece
        check()


def _write_objects(
    store: ObjectStore, attempt: CopyAttempt, objects: StoredObjects, completed: list[str]
) -> WrittenSegment:
    segment, options, feed = attempt.segment, attempt.options, attempt.feed
    columns = attempt.columns if options.mode == "table" else None
    schema = row_schema(options.value_format, expected_field_ids(options.value_format)) if columns is None else None
    told = Transactions.of_files(attempt.files)
    transactions = attempt.later.peek(told, segment.end_offset)
    with (
        store.open_upload(objects.data_key) as data,
        store.open_upload(objects.kept_key) as kept,
        store.open_upload(objects.tail_key) as tail,
    ):
        large: LargeWork = nullcontext
        if attempt.turn is not None:
            # Not a method of the attempt: `columns` keeps it, and the attempt its columns.
            large = partial(attempt.turn.held, partial(_check, feed, attempt.deadline, "while it waited for memory"))
        if columns is not None:
            columns.in_turn(large)
        parser = SegmentParser(segment, options, transactions, attempt.verbatim_cause, large)
        writer = SegmentWriter(
            segment,
            options,
            schema,
            cast(BinaryIO, data),
            cast(BinaryIO, kept),
            cast(BinaryIO, tail),
            None if columns is None else partial(_pieces, columns, feed.check_cancelled),
            proven=columns is not None and columns.proven,
        )
        try:
            attempt.yield_to_fetches()
            for frame in feed.frames(segment.segment_size_bytes):
                if options.mode == "table":
                    failpoints.hit("convert", objects.data_key)
                for step in parser.feed(frame):
                    attempt.yield_to_fetches()
                    writer.add(step)
            attempt.stage = "writing"
            for step in parser.finish():
                attempt.yield_to_fetches()
                writer.add(step)
            attempt.yield_to_fetches()
            written = writer.finish(
                attempt.files,
                transactions,
                objects,
                transaction_conflicts=parser.transaction_conflicts,
                pending=None if columns is None else columns.pending,
                proven=b"" if columns is None else columns.encodings,
                left_out=attempt.left_out,
            )
        except BaseException:
            writer.abort()
            raise
        finally:
            parser.close()
        feed.check_cancelled()
        failpoints.hit("data-complete", data.key)
        _complete(data, completed)
        failpoints.hit("tail-complete", tail.key)
        _complete(tail, completed)
        failpoints.hit("kept-complete", kept.key)
        _complete(kept, completed)
    return written


def _complete(upload: Upload, completed: list[str]) -> None:
    """Completes an upload that has bytes; an empty one is dropped: no object exists then."""
    if upload.size:
        completed.append(upload.key)
        upload.commit()


def _check_sizes(store: ObjectStore, directory: Directory) -> None:
    """Compares what the store says it has with what was written."""
    for stored in (*directory.data_files, directory.kept):
        if stored is not None and (size := store.size(stored.key)) != stored.size:
            raise StoreError(f"{stored.key} has {size} bytes in the store, {stored.size} were written")


def _put_index(store: ObjectStore, attempt: CopyAttempt, index: bytes, completed: list[str]) -> Directory | None:
    """Makes the segment readable; an earlier copy's directory where one of the same id and content has done so."""
    key = str(index_key(attempt.segment))
    _check(attempt.feed, attempt.deadline, "before its index was put")
    if attempt.allowed is not None:
        attempt.allowed()
    # From here on the request may land at any time, and be published: what the index names stays, unless what is found
    # at the key shows that another attempt's index lies there. What no index names in the end the reclaimer removes.
    named = list(completed)
    completed.clear()
    lost: StoreError | None = None
    try:
        if store.put_if_absent(key, index):
            return None
    except StoreError as error:
        lost = error
    try:
        found = store.read(key).data
    except ObjectNotFoundError as error:
        raise lost or StoreError(f"{key} was there, and is not") from error
    inside = decode_tombstone(found).index if is_tombstone(found) else found
    # Ours, even if a delete, a merge or a requeue has written it anew since: the first request was taken.
    ours = bool(inside) and decode_directory(inside).attempt_id == decode_directory(index).attempt_id
    if not ours:
        completed.extend(named)
    if is_tombstone(found):
        raise BridgeError("segment_deleted", "the segment was deleted while it was copied")
    if found == index:
        return None
    # RemoteStorageManager asks that a copy which is repeated succeeds.
    if not ours and not same_segment(found, index):
        raise BridgeError("invalid_segment", "another copy of this segment id has finished, with other content")
    return decode_directory(found)


def _delete_quietly(store: ObjectStore, keys: list[str]) -> None:
    try:
        store.delete_many(keys)
    except BridgeError:
        return
