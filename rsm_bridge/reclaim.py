"""Deletes from the store what nobody can need any more (publish rules R12 and R13).

A deleted segment's data file, kept bytes and tombstone go when its rows are in no current file of the table, the
recorded state has taken the delete in, and the grace time is over. The tombstone goes last: after a crash in between
the next run finds it and finishes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from iceberg_catalog.plan_types import PartState, SegmentState
from rsm_bridge.known_segments import KnownSegment
from rsm_bridge.limits import COPY_RECHECK_SECONDS, COPY_SECONDS_MAX, LATE_COPY_SECONDS, LATE_PUT_SECONDS
from rsm_bridge.metrics import Metrics
from rsm_bridge.publish_table import RunResult
from rsm_bridge.running_copies import RunningCopies
from rsm_bridge.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Reclaimer:
    """`grace` is in seconds; `copies` are those of this process."""

    store: ObjectStore
    grace: float
    metrics: Metrics
    copies: RunningCopies

    def reclaim(self, result: RunResult) -> float | None:
        """Deletes what is due; returns the seconds until more may be, None when nothing waits."""
        named = set() if result.head is None else {self.store.key(file.path) for file in result.head.files}
        now_ms = time.time() * 1000
        waits: list[float] = []
        for known in result.segments:
            if known.deletion is None or not self._taken_in(known, result):
                continue
            if known.data is not None and known.data.key in named:
                continue
            left = self._fence(known) - (now_ms - known.deletion.time_ms) / 1000
            if left <= 0 and known.key.segment_id in self.copies:
                left = COPY_RECHECK_SECONDS
            if left > 0:
                waits.append(left)
                continue
            keys = known.objects()
            self.store.delete_many(keys)
            self.store.delete_many([known.listed.key])
            self.metrics.reclaimed_objects.inc(len(keys) + 1)
        return min(waits, default=None)

    def _fence(self, known: KnownSegment) -> float:
        """Seconds a tombstone lives at least.

        One that replaced no index must outlive every copy that could still finish: those of this process are known,
        one of another bridge ends with its deadline and the put it has begun.
        """
        if known.segment is None:
            single = self.store.single_process
            return max(self.grace, LATE_COPY_SECONDS if single else COPY_SECONDS_MAX + LATE_PUT_SECONDS)
        return self.grace

    @staticmethod
    def _taken_in(known: KnownSegment, result: RunResult) -> bool:
        """Whether the head's state no longer depends on the segment (rule R12)."""
        if known.segment is None or result.head is None or known.deletion is None:
            return True
        state = result.states.get(known.key.partition, PartState())
        newest = known.segment.runs[-1][0] if known.segment.runs else -1
        seen = bool(state.lineage) and state.lineage[-1][0] >= newest
        if known.deletion.kind is SegmentState.WITHDRAWN:
            return seen
        return seen and (state.floor > known.key.last or state.frontier > known.key.last)
