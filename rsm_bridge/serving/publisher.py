"""Publishes finished segments: which table runs when, retries, and what follows a run.

A topic id becomes due by a notice (a copy or delete in this process), at start, and once a minute (what other bridges
did). Runs of one table follow one another, at most one per interval, each with all that was noticed until then; a table
that was idle for an interval runs at once. How much of the store a run lists is storage/segments/listing.py's and
tables/publish/planning.py's;
here is decided when the whole listing is due: at start, after a failure, WHOLE_LISTING_SECONDS after the one before,
and when something may be reclaimed, for that is judged by all segments.

A failed run is retried with back-off and jitter, on workers of its own: a table whose catalog or storage hangs holds a
worker for whole time-outs, which delays others that fail, but none that works. Nothing here is reached from a call but
:meth:`Publisher.notify`, which only sets a time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
from pyiceberg.catalog import Catalog

from converter.errors import TierbergError
from iceberg_catalog.commit.foreign import foreign_commits
from iceberg_catalog.commit.head import Head
from iceberg_catalog.commit.sound import KeptSnapshotError
from iceberg_catalog.connect.open import open_catalog
from rsm_bridge.config.retention import policy_at
from rsm_bridge.config.settings import Settings
from rsm_bridge.limits import (
    HELD_SECONDS,
    INDEX_READERS,
    PUBLISH_BACKOFF_SECONDS_MAX,
    PUBLISH_BACKOFF_SECONDS_MIN,
    PUBLISH_QUEUE_MAX,
    PUBLISH_RETRY_WORKERS,
    PUBLISH_WORKERS,
    RELIST_SECONDS,
    REWRITE_LOOK_UP_SECONDS,
    WHOLE_LISTING_SECONDS,
    WHOLE_LISTING_SHARE,
)
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.metrics.progress.stored import stored_partitions, table_facts, withheld
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving.outages import Outages
from rsm_bridge.serving.scheduling.fetch_priority import lower_priority
from rsm_bridge.serving.wire.statuses import explain
from rsm_bridge.storage.backend import catalog_properties
from rsm_bridge.storage.clock import StoreClock
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ObjectStore, first_line
from rsm_bridge.storage.segments.listing import Notices
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.segments.topic_segments import indexed_topic_ids
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.publish.table_run import RetryRunError, RunResult, TableRun
from rsm_bridge.tables.reclaim.mass_delete import DelayedDeletes
from rsm_bridge.tables.reclaim.reclaimer import Graces, Reclaimer
from rsm_bridge.values.typed.table import untyped
from rsm_bridge.values.typed.topics import TypedTopics

#: Notices of one moment, as of segments that roll together, make one run.
_GATHER_SECONDS = 0.01
_TICK_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class _Topic:
    """When a topic id is due; seconds of the monotonic clock.

    waiting_since: its oldest unserved notice. began: the latest run. whole_due: the next whole listing. keys, look:
    what was noticed since. unreadable: the older snapshot for whose sake nothing is reclaimed.
    """

    due: float
    waiting_since: float
    began: float = float("-inf")
    whole_due: float = float("-inf")
    keys: set[IndexKey] = field(default_factory=set)
    look: bool = False
    running: bool = False
    failures: int = 0
    run: TableRun | None = None
    reclaimer: Reclaimer | None = None
    unreadable: int | None = None

    @property
    def noticed(self) -> bool:
        """Whether something may wait for a commit."""
        return bool(self.keys) or self.look


@dataclass(slots=True, kw_only=True)
class Publisher:
    """All tables of one bridge.

    `yield_to_fetches` is called before each run; it waits while fetches do. `typed`: topics whose values have columns.
    """

    settings: Settings
    store: ObjectStore
    metrics: Metrics
    log: structlog.typing.FilteringBoundLogger
    copies: RunningCopies
    yield_to_fetches: Callable[[], float]
    typed: TypedTopics | None = None
    _topics: dict[bytes, _Topic] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _noticed: threading.Event = field(default_factory=threading.Event)
    _scheduler: threading.Thread | None = None
    _pool: ThreadPoolExecutor | None = None
    _retries: ThreadPoolExecutor | None = None
    _readers: ThreadPoolExecutor | None = None
    _catalog: Catalog | None = None
    _outages: Outages = field(default_factory=Outages)
    _others: dict[bytes, tuple[int, int | None]] = field(default_factory=dict)
    _delayed: DelayedDeletes = field(init=False)
    _clock: StoreClock = field(init=False)

    def __post_init__(self) -> None:
        self._delayed = DelayedDeletes(self.metrics)
        self._clock = StoreClock(self.store)

    def start(self) -> None:
        """Begins to work, with a listing of everything."""
        if self.settings.catalog.layout == "inside":
            self.log.warning("data files lie inside of table locations: an engine's orphan removal deletes history")
        self._pool = ThreadPoolExecutor(PUBLISH_WORKERS, thread_name_prefix="publish", initializer=lower_priority)
        self._retries = ThreadPoolExecutor(
            PUBLISH_RETRY_WORKERS, thread_name_prefix="publish-again", initializer=lower_priority
        )
        self._readers = ThreadPoolExecutor(INDEX_READERS, thread_name_prefix="publish-read", initializer=lower_priority)
        self._scheduler = threading.Thread(target=self._schedule, name="publish-scheduler", daemon=True)
        self._scheduler.start()

    def stop(self) -> None:
        """Lets running commits end and starts no more."""
        self._stop.set()
        self._noticed.set()
        if self._scheduler is not None:
            self._scheduler.join()
        pools = [pool for pool in (self._pool, self._retries) if pool is not None]
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            pool.shutdown(wait=True)
        if self._readers is not None:
            self._readers.shutdown(wait=True, cancel_futures=True)

    def notify(self, topic_id: bytes, key: IndexKey | None = None, later: float = 0.0) -> None:
        """Something about the topic changed in the store. Any thread; never waits for a run.

        Args:
            topic_id: of the topic.
            key: of the index or tombstone that was put; None: nobody knows what changed, if anything.
            later: seconds the run may wait; an earlier notice does not wait with it.
        """
        since = time.monotonic() + later
        with self._lock:
            topic = self._topics.setdefault(topic_id, _Topic(due=float("inf"), waiting_since=since))
            topic.waiting_since = min(since, topic.waiting_since) if topic.noticed else since
            if key is None:
                topic.look = True
            elif len(topic.keys) < PUBLISH_QUEUE_MAX:
                topic.keys.add(key)
            else:
                topic.whole_due = float("-inf")
            topic.due = min(topic.due, max(since, topic.began + self.settings.publish_interval))
        self._noticed.set()

    def _schedule(self) -> None:
        """Rounds until the stop. All tables hang on this one thread, so that nothing that goes wrong may end it."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._rounds()
            except Exception as error:
                failures += 1
                pause = _backoff(failures)
                self.log.error("scheduling failed", retry_s=round(pause, 1), exc_info=error)
                self._stop.wait(pause)

    def _rounds(self) -> None:
        next_listing = 0.0
        wait = 0.0
        while not self._stop.is_set():
            self._noticed.wait(wait)
            if self._stop.wait(_GATHER_SECONDS):
                return
            self._noticed.clear()
            now = time.monotonic()
            if now >= next_listing:
                next_listing = now + RELIST_SECONDS
                self._discover()
            wait = min(self._start_due(now), next_listing) - time.monotonic()
            wait = min(max(wait, 0.0), _TICK_SECONDS)

    def _start_due(self, now: float) -> float:
        """Starts what is due; returns when the next one is."""
        with self._lock:
            due = [(key, topic) for key, topic in self._topics.items() if topic.due <= now and not topic.running]
            for _, topic in due:
                topic.running, topic.due, topic.began = True, float("inf"), now
                if not topic.noticed:
                    topic.waiting_since = now
            waiting = [t.waiting_since for t in self._topics.values() if t.running or t.noticed]
            coming = min((t.due for t in self._topics.values() if not t.running), default=float("inf"))
        self.metrics.publish_lag.set(max(0.0, now - min(waiting, default=now)))
        for key, topic in due:
            pool = self._retries if topic.failures else self._pool
            if pool is not None:
                pool.submit(self._run, key, topic)
        return coming

    def _discover(self) -> None:
        """Makes every topic id of the store due."""
        try:
            found = indexed_topic_ids(self.store)
        except Exception as error:  # noqa: BLE001 - the store may be away; the next listing finds the same
            self.log.warning("listing failed", error=explain(error)[1])
            return
        for topic_id in found:
            self.notify(topic_id)

    def _take(self, topic: _Topic) -> Notices:
        with self._lock:
            taken = Notices(frozenset(topic.keys), topic.look, time.monotonic() >= topic.whole_due)
            topic.keys.clear()
            topic.look = False
        return taken

    def _run(self, topic_id: bytes, topic: _Topic) -> None:
        self.yield_to_fetches()
        started = time.monotonic()
        retry_after: float | None = None
        notices = self._take(topic)
        try:
            if topic.run is None:
                topic.run = self._table_run(topic_id)
            result = topic.run.run(notices)
            self._record(topic_id, result, time.monotonic() - started)
            self._show(topic_id, result)
            retry_after = self._again(topic, result, self._follow_up(topic_id, topic, result))
            topic.failures = 0
        except Exception as error:  # noqa: BLE001 - any failure is retried from the head
            # The run stays: what it keeps is immutable, and to read it again would load a store that may be the cause.
            topic.failures += 1
            retry_after = _backoff(topic.failures)
            lost = isinstance(error, RetryRunError) and error.conflict
            self.metrics.publishes.labels("raced" if lost else "failed").inc()
            self._put_back(topic, notices, error)
            self._report(topic_id, error, retry_after)
        finally:
            with self._lock:
                topic.running = False
                if retry_after is not None:
                    topic.due = min(topic.due, time.monotonic() + retry_after)
            self._noticed.set()

    def _again(self, topic: _Topic, result: RunResult, due: float | None) -> float | None:
        """Seconds until the next run: sooner where pending segments are left, or may have their columns then."""
        if not result.more and not result.no_columns_yet:
            return due
        with self._lock:
            topic.look = True
        wait = self.settings.publish_interval if result.more else HELD_SECONDS
        return wait if due is None else min(wait, due)

    def _put_back(self, topic: _Topic, notices: Notices, error: Exception) -> None:
        """A swap that another bridge won leaves what was noticed to the next run; after anything else all is listed."""
        with self._lock:
            topic.keys |= notices.keys
            topic.look |= notices.look
            if not (isinstance(error, RetryRunError) and error.conflict):
                topic.whole_due = float("-inf")

    def _follow_up(self, topic_id: bytes, topic: _Topic, result: RunResult) -> float | None:
        """Reclaims after a whole listing, and says when the next one is due; returns seconds until the next run."""
        now = time.monotonic()
        spaced = max(self.settings.publish_interval, result.listing_seconds / WHOLE_LISTING_SHARE)
        if not result.complete:
            deleted = any(known.deletion is not None for known in result.segments)
            if deleted:
                topic.whole_due = min(topic.whole_due, now + max(self.settings.reclaim_grace, spaced))
            due = max(topic.whole_due - now, self.settings.publish_interval)
            return due if deleted or topic.whole_due <= now else None
        if topic.reclaimer is None:
            topic.reclaimer = self._reclaimer(topic_id)
        waits = self._reclaim(topic_id, topic, topic.reclaimer, result)
        # Tombstones come due one by one while a topic is removed: each run takes what came due since the last.
        again = None if waits is None else max(waits, spaced)
        topic.whole_due = now + min(WHOLE_LISTING_SECONDS, again or WHOLE_LISTING_SECONDS)
        return again

    def _reclaimer(self, topic_id: bytes) -> Reclaimer:
        graces = Graces(self.settings.reclaim_grace, self.settings.mass_delete_grace)
        delayed = partial(self._delayed.note, topic_id)
        return Reclaimer(
            store=self.store,
            catalog=self.open_catalog(),
            graces=graces,
            copies=self.copies,
            policy=lambda topic, now_ms: policy_at(self.settings.rule(topic).table_retention, now_ms),
            delayed=delayed,
            clock_ms=self._clock.now_ms,
        )

    def _reclaim(self, topic_id: bytes, topic: _Topic, reclaimer: Reclaimer, result: RunResult) -> float | None:
        tally = Tally()
        try:
            waits = reclaimer.reclaim(result, tally)
        except KeptSnapshotError as error:  # the next whole listing looks again
            if topic.unreadable != error.snapshot_id:
                self.log.warning("nothing is reclaimed", topic_id=topic_id.hex(), error=first_line(error))
            topic.unreadable = error.snapshot_id
            return None
        else:
            topic.unreadable = None
            return waits
        finally:
            self.metrics.reclaimed(tally)

    def _table_run(self, topic_id: bytes) -> TableRun:
        # One for each topic id, for one thread at a time: tables run beside one another.
        context = table_context(
            self.settings,
            self.store,
            clock_ms=self._clock.now_ms,
            typed=untyped if self.typed is None else self.typed.table,
            log=self.log,
        )
        context = replace(context, look_up_seconds=REWRITE_LOOK_UP_SECONDS)  # other tables wait meanwhile
        return TableRun(
            store=self.store,
            catalog=self.open_catalog(),
            topic_id=topic_id,
            context=context,
            readers=self._readers,
        )

    def open_catalog(self) -> Catalog:
        """The catalog all tables are in, opened once. Raises CatalogError while it is away."""
        with self._opening:
            if self._catalog is None:
                self._catalog = open_catalog(catalog_properties(self.settings))
            return self._catalog

    def _record(self, topic_id: bytes, result: RunResult, seconds: float) -> None:
        if self._outages.works(topic_id):
            self.log.info("publishing works again", topic_id=topic_id.hex())
        changed = result.files_added or result.files_removed
        self.metrics.publishes.labels("committed" if changed else "unchanged").inc()
        self.metrics.published_files.labels("added").inc(result.files_added)
        self.metrics.published_files.labels("removed").inc(result.files_removed)
        self.metrics.published_files.labels("derived").inc(result.files_derived)
        self.metrics.rewinds.inc(result.rewinds)
        self.metrics.gaps.inc(result.gaps)
        self.metrics.lost_batches.inc(result.lost)
        if changed and result.head is not None:
            self.log.info(
                "published",
                table=".".join(result.head.table.name()),
                topic_id=topic_id.hex(),
                added=result.files_added,
                removed=result.files_removed,
                rewinds=result.rewinds,
                gaps=result.gaps,
                lost=result.lost,
                duration_ms=round(seconds * 1000, 1),
            )
        if result.head is not None:
            self._warn_of_others(topic_id, result.head)

    def _warn_of_others(self, topic_id: bytes, head: Head) -> None:
        """Logs what others did to the table once, not once per run."""
        found = foreign_commits(head.table)
        seen = len(head.foreign), None if found is None else found.since
        if seen == self._others.get(topic_id, (0, None)):
            return
        self._others[topic_id] = seen
        if seen != (0, None):
            self.log.warning(
                "others write to the table",
                table=".".join(head.table.name()),
                files=len(head.foreign),
                first=next(iter(head.foreign), None),
                commits=[] if found is None else list(found.operations),
                after_snapshot=seen[1],
            )

    def _show(self, topic_id: bytes, result: RunResult) -> None:
        """Brings the gauges up to date; what cannot be read for them is no reason to publish again."""
        if not result.segments:
            if result.complete:
                self.metrics.progress.forget(topic_id)
            return
        try:
            partitions = stored_partitions(result.segments, result.states, complete=False, planned=True)
        except Exception as error:  # noqa: BLE001 - batches of a waiting segment; the next run looks again
            self.log.info("no figures", topic_id=topic_id.hex(), error=explain(error)[1])
            return
        table = table_facts(result.head, result.states) if result.head is not None else None
        if not result.complete:
            self.metrics.progress.ran_ahead(topic_id, partitions, table)
            return
        missing = withheld(result.segments)
        waiting = sum(size for _, size in result.waiting.values())
        self.metrics.progress.ran(topic_id, result.segments[0].owner.topic, partitions, table, missing.batches, waiting)

    def _report(self, topic_id: bytes, error: Exception, retry_after: float) -> None:
        """Logs an outage once per cause, not once per retry."""
        said = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, RetryRunError) and error.conflict:
            self.log.info("planning again", topic_id=topic_id.hex(), reason=said)
        elif self._outages.failed(topic_id, said):
            known = isinstance(error, TierbergError)  # says what and where itself
            self.log.warning(
                "publishing failed",
                topic_id=topic_id.hex(),
                error=said,
                retry_s=round(retry_after, 1),
                exc_info=None if known else error,
            )


def _backoff(failures: int) -> float:
    """Seconds before the next try: doubling, bounded, half of it random."""
    longest = min(PUBLISH_BACKOFF_SECONDS_MIN * 2 ** min(failures, 16), PUBLISH_BACKOFF_SECONDS_MAX)
    return float(longest * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, protects nothing
