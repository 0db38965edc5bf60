"""Gauges of how far topics have come, computed when Prometheus asks, so that ages grow while nothing happens.

These are the only metrics with labels of topics and partitions. Each table has one line per gauge; partitions have
lines of their own up to METRICS_PARTITIONS_MAX in all, the ones furthest behind first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from converter.types import SegmentMetadata
from rsm_bridge.limits import METRICS_PARTITIONS_MAX
from rsm_bridge.metrics.progress.facts import StoredPartition, TableFacts

_TABLE = ("topic", "topic_id")
_PARTITION = (*_TABLE, "partition")


@dataclass(slots=True)
class _Row:
    """One partition; times in milliseconds, None: nothing waits. `frontier` is -1 before the first commit."""

    tiered_end: int
    frontier: int = -1
    unpublished_ms: int | None = None
    waiting_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class _Topic:
    name: str
    rows: dict[int, _Row] = field(default_factory=dict)
    foreign: int = 0
    spoiled: bool = False
    quarantined: int = 0
    held_bytes: int = 0


class ProgressBoard(Collector):
    """The latest figures of every topic id this bridge has published or copied. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[bytes, _Topic] = {}

    def copied(self, segment: SegmentMetadata) -> None:
        """A copy has finished; the next run of the publisher says the rest."""
        with self._lock:
            topic = self._topics.setdefault(segment.topic_id, _Topic(name=segment.topic))
            row = topic.rows.setdefault(segment.partition, _Row(0))
            row.tiered_end = max(row.tiered_end, segment.end_offset + 1)
            if row.unpublished_ms is None:
                row.unpublished_ms = int(time.time() * 1000)

    def ran(
        self,
        topic_id: bytes,
        topic: str,
        partitions: Mapping[int, StoredPartition],
        table: TableFacts | None,
        quarantined: Mapping[str, int],
        held_bytes: int = 0,
    ) -> None:
        """What a run of the publisher found and left behind; replaces what was known of the topic id."""
        found = _Topic(name=topic, quarantined=sum(quarantined.values()), held_bytes=held_bytes)
        found.foreign = len(table.foreign) if table is not None else 0
        found.spoiled = table is not None and table.foreign_commits is not None
        found.rows = _rows(partitions, table)
        with self._lock:
            self._topics[topic_id] = found

    def ran_ahead(self, topic_id: bytes, partitions: Mapping[int, StoredPartition], table: TableFacts | None) -> None:
        """The same of a run that looked at these partitions alone, from their frontiers on."""
        rows = _rows(partitions, table)
        with self._lock:
            topic = self._topics.get(topic_id)
            if topic is not None:
                topic.rows |= rows
                topic.foreign = len(table.foreign) if table is not None else 0
                topic.spoiled = table is not None and table.foreign_commits is not None

    def forget(self, topic_id: bytes) -> None:
        """Nothing of the topic id is in the store any more."""
        with self._lock:
            self._topics.pop(topic_id, None)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges of this moment."""
        now_ms = int(time.time() * 1000)
        with self._lock:
            topics = {key: _copy(topic) for key, topic in self._topics.items()}
        yield from _tables(topics, now_ms)
        yield from _partitions(topics, now_ms)


def _rows(partitions: Mapping[int, StoredPartition], table: TableFacts | None) -> dict[int, _Row]:
    rows: dict[int, _Row] = {}
    for number, stored in partitions.items():
        frontier = table.frontiers.get(number, -1) if table is not None else -1
        waiting = stored.open.since_ms if stored.open is not None else None
        rows[number] = _Row(stored.tiered_end, frontier, stored.unpublished_ms, waiting)
    return rows


def _copy(topic: _Topic) -> _Topic:
    rows = {
        number: _Row(row.tiered_end, row.frontier, row.unpublished_ms, row.waiting_ms)
        for number, row in topic.rows.items()
    }
    return _Topic(
        name=topic.name,
        rows=rows,
        foreign=topic.foreign,
        spoiled=topic.spoiled,
        quarantined=topic.quarantined,
        held_bytes=topic.held_bytes,
    )


def _seconds(since_ms: int | None, now_ms: int) -> float:
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def _tables(topics: Mapping[bytes, _Topic], now_ms: int) -> Iterable[GaugeMetricFamily]:
    def family(name: str, said: str) -> GaugeMetricFamily:
        """One gauge with a line for each topic id."""
        return GaugeMetricFamily(f"tierberg_table_{name}", said, labels=_TABLE)

    foreign = family("foreign_files", "Files in the table that Tierberg did not write")
    spoiled = family("foreign_commits", "1 while the table's head holds what others committed, else 0")
    quarantined = family("quarantined_batches", "Batches of live segments whose records are withheld from the table")
    held = family(
        "held_bytes", "Bytes of data files that stay for projections of the table though Kafka deleted their rows"
    )
    unpublished = family(
        "unpublished_seconds", "Age of the oldest tiered segment that is not published, worst partition"
    )
    waiting = family("waiting_seconds", "Age of the first row that waits for a transaction's marker, worst partition")
    for key, topic in topics.items():
        labels = (topic.name, key.hex())
        rows = topic.rows.values()
        foreign.add_metric(labels, topic.foreign)
        spoiled.add_metric(labels, int(topic.spoiled))
        quarantined.add_metric(labels, topic.quarantined)
        held.add_metric(labels, topic.held_bytes)
        unpublished.add_metric(labels, max((_seconds(row.unpublished_ms, now_ms) for row in rows), default=0.0))
        waiting.add_metric(labels, max((_seconds(row.waiting_ms, now_ms) for row in rows), default=0.0))
    return (foreign, spoiled, quarantined, held, unpublished, waiting)


def _partitions(topics: Mapping[bytes, _Topic], now_ms: int) -> Iterable[GaugeMetricFamily]:
    def family(name: str, said: str) -> GaugeMetricFamily:
        """One gauge with a line for each partition."""
        return GaugeMetricFamily(f"tierberg_partition_{name}", said, labels=_PARTITION)

    tiered = family("tiered_end_offset", "End of what is tiered, exclusive")
    frontier = family("frontier_offset", "First offset that is not published; -1 before the first commit")
    unpublished = family("unpublished_seconds", "Age of the oldest tiered segment that is not published; 0: none")
    waiting = family("waiting_seconds", "Age of the first row that waits for a transaction's marker; 0: none")
    rows = [
        ((topic.name, key.hex(), str(number)), row)
        for key, topic in topics.items()
        for number, row in topic.rows.items()
    ]
    rows.sort(key=lambda item: -_seconds(item[1].unpublished_ms, now_ms))
    for labels, row in rows[:METRICS_PARTITIONS_MAX]:
        tiered.add_metric(labels, row.tiered_end)
        frontier.add_metric(labels, row.frontier)
        unpublished.add_metric(labels, _seconds(row.unpublished_ms, now_ms))
        waiting.add_metric(labels, _seconds(row.waiting_ms, now_ms))
    return (tiered, frontier, unpublished, waiting)
