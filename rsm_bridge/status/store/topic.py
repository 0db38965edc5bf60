"""Reads every index and tombstone of a topic id for `tierberg status`. Blocking; every loop looks at the clock.

Topics are the folders under `index/`. Of a topic's indexes the newest are read first, so that what waits for
publishing is known even when time runs out before years of history are counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import STATUS_READERS
from rsm_bridge.metrics.progress.facts import Problem, problem_of
from rsm_bridge.storage.keys import IndexKey, index_prefix, parse_index_key
from rsm_bridge.storage.listed_keys import DeniedKeyError, confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, read_known
from rsm_bridge.storage.table_records import TableRecord, read_records

_Found = KnownSegment | Problem | Literal["unread"] | None


@dataclass(slots=True, kw_only=True)
class ReadTopic:
    """What was read of one topic id. `segments` may be fewer than `listed` when time ran out, or the store denied some.

    Attributes:
        damaged: what cannot be read, newest first.
        damaged_ms: when the newest of that was written.
        denied: keys that the store lists and denies.
        tables: every table that was recorded before the topic's one is loaded: one that is made meanwhile is then
            found, and not called lost.
    """

    topic_id: bytes
    topic: str
    listed: int
    segments: list[KnownSegment] = field(default_factory=list)
    damaged: list[tuple[str, Problem]] = field(default_factory=list)
    damaged_ms: int | None = None
    denied: list[str] = field(default_factory=list)
    tables: tuple[TableRecord, ...] = ()

    @property
    def looked_at(self) -> int:
        """How many indexes time has sufficed for."""
        return len(self.segments) + len(self.damaged) + len(self.denied)

    @property
    def complete(self) -> bool:
        """Whether time has sufficed for all."""
        return self.looked_at == self.listed

    @property
    def unread(self) -> list[IndexKey]:
        """Those that cannot be read."""
        names = (*(name for name, _ in self.damaged), *self.denied)
        return [key for key in map(parse_index_key, names) if key is not None]

    def note(self, item: ListedObject, result: _Found) -> None:
        """Takes what is at a key that was listed: nothing any more, damage, a segment, or what nobody knows."""
        if result is None:
            self.listed -= 1
        elif isinstance(result, Problem):
            self.damaged.append((item.key, result))
            self.damaged_ms = max(self.damaged_ms or 0, item.modified_ms)
        elif isinstance(result, KnownSegment):
            self.segments.append(result)
        else:
            self.denied.append(item.key)


def readers() -> ThreadPoolExecutor:
    """Threads that read objects, several at once; none of them waits for another."""
    return ThreadPoolExecutor(STATUS_READERS, thread_name_prefix="status")


def read_topic(
    store: ObjectStore, topic_id: bytes, wanted: str | None, ends_at: float, pool: ThreadPoolExecutor
) -> ReadTopic | None:
    """One topic; None where it has nothing any more, or another name.

    Args:
        store: to read.
        topic_id: of a topic that has anything there.
        wanted: name of a topic; None: any.
        ends_at: monotonic seconds; behind it one of its indexes is read.
        pool: of :func:`readers`; topics that are read at once may share it.

    Raises:
        StoreError: the store does not answer.
    """
    listed = listed_indexes(store, topic_id)
    found = ReadTopic(topic_id=topic_id, topic="", listed=len(listed))
    tables: Future[tuple[TableRecord, ...]] | None = None
    for known in _read_each(store, listed, ends_at, pool, found):
        if not found.topic:
            found.topic = known.owner.topic
            if wanted is not None and found.topic != wanted:
                return None
            tables = pool.submit(_tables, store, topic_id)
        found.segments.append(known)
    found.tables = () if tables is None else tables.result()
    found.topic = found.topic or topic_id.hex()
    # Objects that were reclaimed between listing and reading are no longer part of the topic.
    return found if found.listed else None


def listed_indexes(store: ObjectStore, topic_id: bytes) -> list[tuple[IndexKey, ListedObject]]:
    """Indexes of a topic, newest first; as they are listed, none is read."""
    rows = [
        (key, item)
        for item in store.list_after(index_prefix(topic_id))
        if (key := parse_index_key(item.key)) is not None
    ]
    return sorted(rows, key=lambda row: row[0].last, reverse=True)


def _tables(store: ObjectStore, topic_id: bytes) -> tuple[TableRecord, ...]:
    return tuple(read_records(store, topic_id))


def renew(store: ObjectStore, read: ReadTopic) -> None:
    """Reads anew what has changed since it was read; what time had not sufficed for stays unread."""
    read.tables = _tables(store, read.topic_id)
    rows = listed_indexes(store, read.topic_id)
    known = {item.listed.key: item for item in read.segments}
    newest = rows if read.complete else rows[: read.looked_at]
    read.listed, read.segments, read.damaged, read.damaged_ms, read.denied = len(rows), [], [], None, []
    for key, item in newest:
        had = known.get(item.key)
        if had is not None and had.listed.same(item):
            read.segments.append(had)
        else:
            read.note(item, _read_one(store, key, item))


def _read_each(
    store: ObjectStore,
    listed: Sequence[tuple[IndexKey, ListedObject]],
    ends_at: float,
    pool: ThreadPoolExecutor,
    found: ReadTopic,
) -> Iterable[KnownSegment]:
    """Reads in bunches; the first one is a single object, which says whose topic it is."""
    start, size = 0, 1
    while start < len(listed) and (start == 0 or time.monotonic() < ends_at):
        bunch = listed[start : start + size]
        for (_, item), result in zip(bunch, pool.map(lambda pair: _read_one(store, *pair), bunch), strict=True):
            if isinstance(result, KnownSegment):
                yield result
            else:
                found.note(item, result)
        start, size = start + size, 8 * STATUS_READERS


def _read_one(store: ObjectStore, key: IndexKey, listed: ListedObject) -> _Found:
    """What is at a key; None: nothing any more. Damage must be met twice in the same content.

    A tombstone or a merged index may take an index's place between two reads of it. A key that is not there must have
    left the listing too: what a store lists and denies is neither gone nor damaged, but unread.
    """
    failed: ListedObject | None = None
    while True:
        try:
            return read_known(store, key, listed)
        except StoreError:
            raise
        except ObjectNotFoundError:
            return _gone(store, listed.key)
        except (BridgeError, SegmentError) as error:
            problem = problem_of(error)
        try:
            listed = store.stat(listed.key)
        except ObjectNotFoundError:
            return _gone(store, listed.key)
        if failed is not None and listed.same(failed):
            return problem
        failed = listed


def _gone(store: ObjectStore, key: str) -> Literal["unread"] | None:
    try:
        confirm_gone(store, [key])
    except DeniedKeyError:
        return "unread"
    return None
