"""R8: which transactional batches are committed.

A batch is decided by the next COMMIT or ABORT of the same producer id. The producer epoch is not compared: KIP-890
raises it with every marker. Two things end a transaction without a marker; its rows are then *lost*, never published:

* a hole in the coverage that will never be filled: the marker may have been in it, and the producer's next marker
  belongs to another transaction;
* the producer snapshot at the end of a wholly valid segment that does not list the transaction as open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from converter.types import BoolArray, Int64Array, UInt8Array
from iceberg_catalog.plan_types import Batches, BatchKind

_NEVER = np.iinfo(np.int64).max


class Verdict(IntEnum):
    """What a batch's rows are."""

    UNDECIDED = 0
    COMMITTED = 1  # plain batches too
    ABORTED = 2
    LOST = 3


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The living log's batches in order, each once. `stretch` grows by one at every hole in the coverage."""

    base: Int64Array
    last: Int64Array
    producer_id: Int64Array
    kind: UInt8Array
    stretch: Int64Array

    @staticmethod
    def join(parts: Sequence[tuple[Batches, BoolArray, int]]) -> View:
        """From (batches of a segment, which of them count, number of the stretch), ascending."""
        if not parts:
            empty = np.empty(0, dtype=np.int64)
            return View(empty, empty, empty, np.empty(0, dtype=np.uint8), empty)
        return View(
            np.concatenate([batches.base[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.last[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.producer_id[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.kind[mask] for batches, mask, _ in parts]),
            np.concatenate([np.full(int(mask.sum()), stretch, dtype=np.int64) for _, mask, stretch in parts]),
        )


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """What the producer snapshot at `end` (inclusive offset of the segment's end) lists as open."""

    end: int
    open: tuple[tuple[int, int], ...]  # (producer id, first offset)


def decide(view: View, ends: Sequence[SnapshotEnd]) -> UInt8Array:
    """One Verdict per batch of the view. `ends`: of wholly valid segments that lie in the view's coverage."""
    verdicts = np.full(len(view.base), Verdict.COMMITTED, dtype=np.uint8)
    transactional = view.kind == BatchKind.TXN
    if not transactional.any():
        return verdicts
    marker_at, commits = _next_markers(view)
    verdicts[transactional] = np.where(commits, Verdict.COMMITTED, Verdict.ABORTED)[transactional]
    undecided = transactional & (marker_at == _NEVER)
    verdicts[undecided] = np.where(view.stretch < view.stretch[-1], Verdict.LOST, Verdict.UNDECIDED)[undecided]
    for snapshot in ends:
        pending = np.flatnonzero(transactional & (view.base <= snapshot.end) & (marker_at > snapshot.end))
        listed: dict[int, int] = {}
        for producer, first in snapshot.open:
            listed[producer] = min(first, listed.get(producer, first))
        producers, where = np.unique(view.producer_id[pending], return_inverse=True)
        first_open = np.array([listed.get(int(producer), _NEVER) for producer in producers], dtype=np.int64)
        verdicts[pending[first_open[where] > view.base[pending]]] = Verdict.LOST
    return verdicts


def _next_markers(view: View) -> tuple[Int64Array, BoolArray]:
    """Per batch: offset of the next marker of its producer in the same stretch (_NEVER: none), and if it commits."""
    count = len(view.base)
    order = np.lexsort((np.arange(count), view.producer_id, view.stretch))
    kind = view.kind[order]
    marker = (kind == BatchKind.COMMIT) | (kind == BatchKind.ABORT)
    places = np.where(marker, np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    safe = np.minimum(following, count - 1)
    same = (following < count) & (view.producer_id[order][safe] == view.producer_id[order])
    same &= view.stretch[order][safe] == view.stretch[order]
    marker_at = np.full(count, _NEVER, dtype=np.int64)
    marker_at[order] = np.where(same, view.base[order][safe], _NEVER)
    commits = np.zeros(count, dtype=np.bool_)
    commits[order] = same & (kind[safe] == BatchKind.COMMIT)
    return marker_at, commits
