"""R8: which transactional batches are committed.

A batch is decided by the next COMMIT or ABORT of the same producer id. The producer epoch is not compared: KIP-890
raises it with every marker. Two things end a transaction without a marker; its rows are then *lost*, never published:

* a hole in the coverage that will never be filled: the marker may have been in it, and the producer's next marker
  belongs to another transaction;
* the producer snapshot at the end of a wholly valid segment that does not list the transaction as open.

One case nothing tells apart: an unclean leader's log start rises over the place where its log leaves the dead branch
before its first copy, and the next marker above is a commit of the same producer. A transaction that was open on the
dead branch below is taken for the one it ends, as the one of a clean cluster would be that looks the same.

R8: markers that only look alive.

An unclean election can cut a marker off without any checkpoint to show it: the new leader's log start has risen over
the place before its first copy, and a checkpoint begins at the log start. What shows it is the producer snapshot of
such a copy: it lists a transaction as open that the marker ended. That marker is dead. Left in the view it would end
the transaction, or contradict the broker's files for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from converter.types import BoolArray, Int64Array, UInt8Array
from iceberg_catalog.plan.types import Batches, BatchKind

NEVER = np.iinfo(np.int64).max
_NOTHING = np.empty(0, dtype=np.int64)
_NO_ABORTS = np.empty((0, 3), dtype=np.int64)


class Verdict(IntEnum):
    """What a batch's rows are."""

    UNDECIDED = 0
    COMMITTED = 1  # plain batches too
    ABORTED = 2
    LOST = 3


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPart:
    """What one segment gives to a view: which of its batches count, the number of the stretch, and `told_from`."""

    batches: Batches
    mask: BoolArray
    stretch: int
    told_from: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class View:
    """The living log's batches in order, each once. `stretch` grows by one at every hole in the coverage.

    `aborts`: entries of the transaction indexes, (n, 3), whose markers are in the view. `indexed`: the transaction
    index of the batch's segment is known. `told_from`: from where on the batch's segment tells the history of the
    leader that copied it; 0 where it tells none.
    """

    base: Int64Array
    last: Int64Array
    epoch: npt.NDArray[np.int32]
    producer_id: Int64Array
    kind: UInt8Array
    stretch: Int64Array
    aborts: Int64Array
    indexed: BoolArray
    told_from: Int64Array

    @staticmethod
    def join(parts: Sequence[SegmentPart]) -> View:
        """From parts of segments, ascending."""
        kept = [(part.batches, part.mask) for part in parts]
        counts = [int(part.mask.sum()) for part in parts]

        def each(values: Iterable[int]) -> Int64Array:
            return np.repeat(np.array(list(values), dtype=np.int64), counts)

        return View(
            base=np.concatenate([_NOTHING, *(batches.base[mask] for batches, mask in kept)]),
            last=np.concatenate([_NOTHING, *(batches.last[mask] for batches, mask in kept)]),
            epoch=np.concatenate([_NOTHING.astype(np.int32), *(batches.epoch[mask] for batches, mask in kept)]),
            producer_id=np.concatenate([_NOTHING, *(batches.producer_id[mask] for batches, mask in kept)]),
            kind=np.concatenate([_NOTHING.astype(np.uint8), *(batches.kind[mask] for batches, mask in kept)]),
            stretch=each(part.stretch for part in parts),
            aborts=np.concatenate([_NO_ABORTS, *(_aborts(batches, mask) for batches, mask in kept)]),
            indexed=each(part.batches.aborts is not None for part in parts).astype(np.bool_),
            told_from=each(part.told_from for part in parts),
        )

    def without(self, dead: BoolArray) -> View:
        """Without these batches, and what the transaction indexes say of them."""
        if not dead.any():
            return self
        kept = ~dead
        return View(
            base=self.base[kept],
            last=self.last[kept],
            epoch=self.epoch[kept],
            producer_id=self.producer_id[kept],
            kind=self.kind[kept],
            stretch=self.stretch[kept],
            aborts=self.aborts[~np.isin(self.aborts[:, 2], self.base[dead])],
            indexed=self.indexed[kept],
            told_from=self.told_from[kept],
        )


def _aborts(batches: Batches, mask: BoolArray) -> Int64Array:
    """Entries of the segment's transaction index whose marker is among the masked batches."""
    if batches.aborts is None or not len(batches.aborts):
        return _NO_ABORTS
    return batches.aborts[np.isin(batches.aborts[:, 2], batches.base[mask])]


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """What the producer snapshot at `end` (inclusive offset of the segment's end) lists as open.

    The copy tells its leader's history from `told_from` on, where that was in epoch `told_epoch`.
    """

    end: int
    open: tuple[tuple[int, int], ...]  # (producer id, first offset)
    told_from: int = 0
    told_epoch: int = 0


def decide(view: View, ends: Sequence[SnapshotEnd]) -> UInt8Array:
    """One Verdict per batch of the view. `ends`: of wholly valid segments that lie in the view's coverage."""
    verdicts = np.full(len(view.base), Verdict.COMMITTED, dtype=np.uint8)
    transactional = view.kind == BatchKind.TXN
    if not transactional.any():
        return verdicts
    marker_at, commits = next_markers(view)
    verdicts[transactional] = np.where(commits, Verdict.COMMITTED, Verdict.ABORTED)[transactional]
    undecided = transactional & (marker_at == NEVER)
    verdicts[undecided] = np.where(view.stretch < view.stretch[-1], Verdict.LOST, Verdict.UNDECIDED)[undecided]
    for snapshot in ends:
        pending = np.flatnonzero(transactional & (view.base <= snapshot.end) & (marker_at > snapshot.end))
        listed: dict[int, int] = {}
        for producer, first in snapshot.open:
            listed[producer] = min(first, listed.get(producer, first))
        producers, where = np.unique(view.producer_id[pending], return_inverse=True)
        first_open = np.array([listed.get(int(producer), NEVER) for producer in producers], dtype=np.int64)
        verdicts[pending[first_open[where] > view.base[pending]]] = Verdict.LOST
    return verdicts


def next_markers(view: View) -> tuple[Int64Array, BoolArray]:
    """Per batch: offset of the next marker of its producer in the same stretch (NEVER: none), and if it commits."""
    count = len(view.base)
    order = np.lexsort((np.arange(count), view.producer_id, view.stretch))
    kind = view.kind[order]
    marker = (kind == BatchKind.COMMIT) | (kind == BatchKind.ABORT)
    places = np.where(marker, np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    safe = np.minimum(following, count - 1)
    same = (following < count) & (view.producer_id[order][safe] == view.producer_id[order])
    same &= view.stretch[order][safe] == view.stretch[order]
    marker_at = np.full(count, NEVER, dtype=np.int64)
    marker_at[order] = np.where(same, view.base[order][safe], NEVER)
    commits = np.zeros(count, dtype=np.bool_)
    commits[order] = same & (kind[safe] == BatchKind.COMMIT)
    return marker_at, commits


def dead_markers(view: View, ends: Sequence[SnapshotEnd]) -> BoolArray:
    """Which batches of the view are markers that a later producer snapshot proves dead.

    Only below the offset from which the snapshot's leader tells its history, and only of an older epoch than that
    history begins with: two logs that agree on an epoch agree on everything below it.

    Args:
        view: the log as the lineage has it.
        ends: producer snapshots at ends of wholly valid segments in the view.
    """
    dead = np.zeros(len(view.base), dtype=np.bool_)
    marker = (view.kind == BatchKind.COMMIT) | (view.kind == BatchKind.ABORT)
    for snapshot in ends:
        for producer, first in snapshot.open:
            low, high = np.searchsorted(view.base, (first, min(snapshot.told_from, snapshot.end + 1)))
            part = slice(int(low), int(high))
            dead[part] |= marker[part] & (view.producer_id[part] == producer) & (view.epoch[part] < snapshot.told_epoch)
    return dead
