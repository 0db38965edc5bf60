"""Reads every topic of the store for one report, several at once, within a deadline.

A topic that hangs, or that the store denies, hides no other one. Where time runs out, what was read by then is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from iceberg_catalog.commit.head import Head
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import STATUS_FAILURES_MAX, STATUS_FETCH_SECONDS, STATUS_TOPICS
from rsm_bridge.metrics.progress.facts import Facts, Problem, StoredTopic, problem_of
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.store.facts import stored_topic
from rsm_bridge.status.store.topic import read_topic, readers
from rsm_bridge.status.within import within
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store, store_missing
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.topic_segments import indexed_topic_ids

FindHead = Callable[[KnownSegment], Head | None]


def with_stored(facts: Facts, settings: Settings, find: FindHead | None, deadline: float) -> Facts:
    """The facts with what the store has of the topic that is wanted, or of all.

    Args:
        facts: say which topic is wanted.
        settings: of store and topics.
        find: finds the head of a segment's table; None: the catalog is away.
        deadline: seconds for the indexes; tables, and what is under way by then, may take as long again.
    """
    so_far = _ReadSoFar(settings=settings, find=find, wanted=facts.wanted, ends_at=time.monotonic() + deadline)
    try:
        within(2 * deadline, "store", so_far.read)
    except TimeoutError as error:
        so_far.over.set()
        return _out_of_time(so_far, deadline, facts, error)
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        unread = so_far.unread(so_far.found) if so_far.found else frozenset()
        return replace(facts, stored=so_far.found, store_problem=problem_of(error), topics_unread=unread)
    # The topic that was asked for is there: what others lack is not asked.
    failed = {} if facts.wanted is not None and so_far.found else so_far.failed
    return replace(
        facts,
        stored=so_far.found,
        store_failed=failed,
        topics_unread=frozenset(failed),
        store_free_bytes=so_far.free_bytes,
    )


def _out_of_time(so_far: _ReadSoFar, deadline: float, facts: Facts, error: TimeoutError) -> Facts:
    """What was read, while threads may read on."""
    topics, failed, there = dict(so_far.found), dict(so_far.failed), len(so_far.ids)
    seconds = 2 * deadline
    if not topics:
        said = f"none of {there:,} topics could be read, with its table, in {seconds:g} s"
        return replace(facts, store_problem=Problem(CauseCode.STORE_SLOW, said) if there else problem_of(error))
    said = f"{len(topics):,} of {there:,} topics were read, with their tables, in {seconds:g} s"
    missing = sorted(so_far.unread(topics) - failed.keys())
    lacks = f", not that with id {missing[0]}{' for example' if len(missing) > 1 else ''}" if missing else ""
    quiet = time.monotonic() - so_far.moved
    return replace(
        facts,
        stored=topics,
        store_free_bytes=so_far.free_bytes,
        topics_unread=frozenset() if facts.wanted is not None else so_far.unread(topics),
        store_unread=said + lacks,
        store_stalled=f"{said}, none in the last {quiet:.0f} s{lacks}" if quiet > deadline else None,
        store_failed=failed,
    )


def patient(settings: Settings) -> Settings:
    """The settings with time-outs for a person who waits, not for a broker."""
    if settings.store is None:
        return settings
    times = {"fetch_timeout": STATUS_FETCH_SECONDS, "upload_timeout": STATUS_FETCH_SECONDS}
    return settings.model_copy(update={"store": settings.store.model_copy(update=times)})


def existing_store(settings: Settings) -> ObjectStore:
    """The store, without making a folder for one that is not there.

    Raises:
        StoreError: it is not there.
    """
    if (missing := store_missing(settings)) is not None:
        raise StoreError(missing)
    return open_store(patient(settings))


@dataclass(slots=True, kw_only=True)
class _ReadSoFar:
    """What threads have read of the store, which may be left behind.

    Attributes:
        settings: of store and topics.
        find: finds the head of a segment's table; None: the catalog is away.
        wanted: name of a topic; None: all.
        ends_at: monotonic seconds; behind it one index is read of each topic.
        over: nobody waits any more: what has not begun does not begin.
        ids: of topics that have anything there, in the order in which they are begun.
        free_bytes: what the store still takes; None: it does not say.
        found: topics with their tables, by id.
        failed: why the store did not give what it has of others.
        moved: when a topic was done last, in monotonic seconds.
        _failures: of topics that failed one after the other.
    """

    settings: Settings
    find: FindHead | None
    wanted: str | None
    ends_at: float
    over: threading.Event = field(default_factory=threading.Event)
    ids: list[bytes] = field(default_factory=list)
    free_bytes: int | None = None
    found: dict[str, StoredTopic] = field(default_factory=dict)
    failed: dict[str, Problem] = field(default_factory=dict)
    moved: float = field(default_factory=time.monotonic)
    _failures: list[StoreError] = field(default_factory=list)
    _one_by_one: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> None:
        """Every topic with its table, and what the store still takes.

        Raises:
            StoreError: the store does not answer: for no topic, or for several that ended one after the other.
        """
        store = existing_store(self.settings)
        self.free_bytes = store.free_bytes()
        self.ids = list(indexed_topic_ids(store))
        with readers() as pool, ThreadPoolExecutor(STATUS_TOPICS, thread_name_prefix="status-topic") as topics:
            asked = [topics.submit(self._one, store, topic_id, pool) for topic_id in self.ids]
            done, _ = wait(asked, return_when=FIRST_EXCEPTION)
            topics.shutdown(wait=False, cancel_futures=True)
        for one in done:
            one.result()
        if self._failures and len(self.failed) == len(self.ids):
            raise self._failures[-1]

    def _one(self, store: ObjectStore, topic_id: bytes, pool: ThreadPoolExecutor) -> None:
        if self.over.is_set():
            return
        try:
            read = read_topic(store, topic_id, self.wanted, self.ends_at, pool)
            found = None if read is None else stored_topic(read, self.find, store, self.settings)
        except StoreError as error:
            with self._one_by_one:
                self.failed[topic_id.hex()] = problem_of(error)
                self._failures.append(error)
                if len(self._failures) >= STATUS_FAILURES_MAX:
                    raise
        else:
            with self._one_by_one:
                if found is not None:
                    self.found[topic_id.hex()] = found
                self.moved = time.monotonic()
                self._failures.clear()

    def unread(self, topics: Mapping[str, StoredTopic]) -> frozenset[str]:
        """Ids of the others: of `found`, or of a copy while threads may read on."""
        return frozenset(topic_id.hex() for topic_id in self.ids) - topics.keys()
