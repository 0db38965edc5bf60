"""Deletes of over half a table within ten minutes: perhaps a mistake, so their objects stay for `mass_delete_grace`.

Kafka makes the same calls for retention, for a deleted topic and for tiering that is switched off; nobody can tell them
apart from one call. What can be told is how much goes at once. The verdict follows from the tombstones and indexes in
the store alone, so every bridge comes to the same one and a restart changes nothing:

* For each deletion in turn, look at the ten minutes that begin with it. If the rows deleted in them are more than half
  of the rows the table had at their beginning, all deletions in them belong to one mass delete.
* The rows at the beginning are those of segments deleted in or after the window, and of live ones whose first index was
  written before it ended. What arrives later does not dilute a verdict, and what is merged later is no new row.
* All of one mass delete become due together, `mass_delete_grace` after its last deletion.

A withdrawal (the delete of a failed copy) is no deletion here: Kafka uploads those records again.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from iceberg_catalog.plan.types import SegmentState
from rsm_bridge.limits import MASS_DELETE_WINDOW_SECONDS
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.storage.segments.known import KnownSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class MassDelete:
    """One mass delete whose objects are still in the store. Times in milliseconds since the epoch.

    keys: index keys of its tombstones. rows: rows of their data files. due_ms: when it may be
    reclaimed.
    """

    keys: frozenset[str]
    rows: int
    first_ms: int
    last_ms: int
    due_ms: int


def mass_deletes(segments: Sequence[KnownSegment], grace: float, *, by_kafka: bool = False) -> tuple[MassDelete, ...]:
    """The mass deletes among the segments of one topic id, oldest first.

    Args:
        segments: all of the topic id, live and tombstoned.
        grace: `mass_delete_grace`, seconds.
        by_kafka: only what Kafka deleted counts as gone. What `tierberg topic forget` took was there until then, so it
            neither makes a mass delete of Kafka's nor hides one.
    """
    deleted = sorted(
        (known for known in segments if _is_deletion(known)), key=lambda known: (_time(known), known.listed.key)
    )
    live = _Live(sorted((known.written_ms, _rows(known)) for known in segments if known.live))
    times = [_time(known) for known in deleted]
    gone = [0, *accumulate(_rows(known) for known in deleted)]
    spared = frozenset(known.listed.key for known in deleted if by_kafka and known.forgotten)
    counted = [0, *accumulate(0 if known.listed.key in spared else _rows(known) for known in deleted)]
    groups: list[tuple[int, int]] = []
    for number, begin in enumerate(times):
        until = begin + int(MASS_DELETE_WINDOW_SECONDS * 1000)
        end = bisect_left(times, until)
        total = gone[-1] - gone[number] + live.rows_before(until)
        if 2 * (counted[end] - counted[number]) <= total:
            continue
        if groups and number < groups[-1][1]:
            groups[-1] = (groups[-1][0], end)
        else:
            groups.append((number, end))
    members = ([item for item in deleted[first:end] if item.listed.key not in spared] for first, end in groups)
    return tuple(_mass(group, grace) for group in members)


class _Live:
    """Rows of live segments by the time their first index was written."""

    def __init__(self, written: Sequence[tuple[int, int]]) -> None:
        self._times = [time for time, _ in written]
        self._rows = [0, *accumulate(rows for _, rows in written)]

    def rows_before(self, time_ms: int) -> int:
        """Rows of those written before `time_ms`."""
        return self._rows[bisect_left(self._times, time_ms)]


def _mass(members: Sequence[KnownSegment], grace: float) -> MassDelete:
    first, last = _time(members[0]), _time(members[-1])
    return MassDelete(
        keys=frozenset(known.listed.key for known in members),
        rows=sum(map(_rows, members)),
        first_ms=first,
        last_ms=last,
        due_ms=last + int(grace * 1000),
    )


def _is_deletion(known: KnownSegment) -> bool:
    return known.deletion is not None and known.deletion.kind is SegmentState.DELETED and known.segment is not None


def _time(known: KnownSegment) -> int:
    return 0 if known.deletion is None else known.deletion.time_ms


def _rows(known: KnownSegment) -> int:
    return 0 if known.segment is None else sum(file.rows for file in known.segment.files)


@dataclass(slots=True)
class DelayedDeletes:
    """What all topics of this bridge hold back, for the metrics. Any thread."""

    metrics: Metrics
    _delayed: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, topic_id: bytes, delayed: Sequence[MassDelete]) -> None:
        """Sets what one topic id holds back now."""
        with self._lock:
            self._delayed[topic_id] = (sum(len(item.keys) for item in delayed), sum(item.rows for item in delayed))
            self.metrics.held_segments.set(sum(segments for segments, _ in self._delayed.values()))
            self.metrics.held_rows.set(sum(rows for _, rows in self._delayed.values()))
