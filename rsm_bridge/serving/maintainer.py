"""Maintenance in the background of a bridge: every table once per interval, one bridge at a time per table."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog
from pyiceberg.catalog import Catalog

from rsm_bridge.config.settings import Settings
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving.scheduling.fetch_priority import lower_priority
from rsm_bridge.serving.wire.statuses import explain
from rsm_bridge.storage.clock import StoreClock
from rsm_bridge.storage.keys import LEASE_ROOT, UNDELETE_ROOT
from rsm_bridge.storage.lease import Lease, holder_name, kept, lease_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.topic_segments import topic_ids
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain.maintain import TableMaintenance, open_maintenance
from rsm_bridge.values.typed.table import untyped
from rsm_bridge.values.typed.topics import TypedTopics

_TICK_SECONDS = 0.2


@dataclass(slots=True)
class _Topic:
    maintenance: TableMaintenance
    lease: Lease


@dataclass(slots=True, kw_only=True)
class Maintainer:
    """One thread that goes over all topic ids of the store.

    catalog: gives the open catalog, or raises while it is away. typed: topics whose values have columns.
    """

    settings: Settings
    store: ObjectStore
    catalog: Callable[[], Catalog]
    metrics: Metrics
    log: structlog.typing.FilteringBoundLogger
    typed: TypedTopics | None = None
    _topics: dict[bytes, _Topic] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _clock: StoreClock = field(init=False)

    def __post_init__(self) -> None:
        self._clock = StoreClock(self.store)

    def start(self) -> None:
        """Begins, with a first pass within one interval. Does nothing when the interval is 0."""
        if self.settings.maintain_interval > 0:
            self._thread = threading.Thread(target=self._loop, name="maintain", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends after the table that is being maintained."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        lower_priority()
        interval = self.settings.maintain_interval
        # Bridges that start together do not work at the same moment.
        due = time.monotonic() + interval * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, protects nothing
        while not self._stop.wait(_TICK_SECONDS):
            if time.monotonic() >= due:
                self.run_once()
                due = time.monotonic() + interval

    def run_once(self) -> None:
        """One pass over every topic id; a failure of one is logged and does not hold up the others."""
        try:
            found = topic_ids(self.store)
            forget_gone(self.store, found)
        except Exception as error:  # noqa: BLE001 - the store may be away; the next pass finds the same
            self.log.warning("maintenance found no store", error=explain(error)[1])
            return
        self._topics = {key: topic for key, topic in self._topics.items() if key in set(found)}
        for topic_id in found:
            if self._stop.is_set():
                return
            try:
                self._maintain(topic_id)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next pass starts afresh
                self._topics.pop(topic_id, None)
                self.log.warning("maintenance failed", topic_id=topic_id.hex(), error=explain(error)[1])

    def _maintain(self, topic_id: bytes) -> None:
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = self._open(topic_id)
        if not topic.lease.acquire():
            return
        tally = Tally()
        try:
            with kept(topic.lease):
                topic.maintenance.run(tally)
        finally:
            self.metrics.reclaimed(tally)
        done = {str(kind): count for kind, count in tally.objects.items()} | {
            "merged": tally.merged,
            "missing": tally.missing,
        }
        if tally.missing_stay:
            self.log.warning(
                "files of the table are not in the store", topic_id=topic_id.hex(), files=tally.missing_stay
            )
        if tally.lost:
            self.log.warning("data files are lost", topic_id=topic_id.hex(), files=len(tally.lost), first=tally.lost[0])
        if any(done.values()):
            self.log.info("maintained", topic_id=topic_id.hex(), **done)

    def _open(self, topic_id: bytes) -> _Topic:
        typed = untyped if self.typed is None else self.typed.table
        context = table_context(self.settings, self.store, clock_ms=self._clock.now_ms, typed=typed)
        maintenance = open_maintenance(
            self.settings, self.store, self.catalog(), topic_id, context, stopping=self._stop.is_set
        )
        return _Topic(maintenance, Lease(store=self.store, key=lease_key(topic_id.hex()), holder=holder_name()))


def forget_gone(store: ObjectStore, found: Collection[bytes]) -> None:
    """Removes leases and records of undeletes of topic ids that the store has nothing else of."""
    names = {topic_id.hex() for topic_id in found}
    gone = [
        listed.key
        for root in (LEASE_ROOT, UNDELETE_ROOT)
        for listed in store.list_after(root)
        if listed.key.removeprefix(root).removesuffix(".json") not in names
    ]
    store.delete_many(gone)
