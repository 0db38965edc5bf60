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
import numpy.typing as npt

from converter.types import BoolArray, Int64Array, UInt8Array
from iceberg_catalog.plan_types import Batches, BatchKind

NEVER = np.iinfo(np.int64).max
_NO_ABORTS = np.empty((0, 3), dtype=np.int64)


class Verdict(IntEnum):
    """What a batch's rows are."""

    UNDECIDED = 0
    COMMITTED = 1  # plain batches too
    ABORTED = 2
    LOST = 3


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The living log's batches in order, each once. `stretch` grows by one at every hole in the coverage.

    `aborts`: entries of the transaction indexes, (n, 3), whose markers are in the view. `indexed`: the transaction
    index of the batch's segment is known.
    """

    base: Int64Array
    last: Int64Array
    epoch: npt.NDArray[np.int32]
    producer_id: Int64Array
    kind: UInt8Array
    stretch: Int64Array
    aborts: Int64Array
    indexed: BoolArray

    @staticmethod
    def join(parts: Sequence[tuple[Batches, BoolArray, int]]) -> View:
        """From (batches of a segment, which of them count, number of the stretch), ascending."""
        if not parts:
            empty = np.empty(0, dtype=np.int64)
            nothing = np.empty(0, dtype=np.uint8)
            no_epochs = np.empty(0, dtype=np.int32)
            return View(empty, empty, no_epochs, empty, nothing, empty, _NO_ABORTS, nothing.astype(np.bool_))
        return View(
            np.concatenate([batches.base[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.last[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.epoch[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.producer_id[mask] for batches, mask, _ in parts]),
            np.concatenate([batches.kind[mask] for batches, mask, _ in parts]),
            np.concatenate([np.full(int(mask.sum()), stretch, dtype=np.int64) for _, mask, stretch in parts]),
            np.concatenate([_NO_ABORTS, *(_aborts(batches, mask) for batches, mask, _ in parts)]),
            np.concatenate([np.full(int(mask.sum()), batches.aborts is not None) for batches, mask, _ in parts]),
        )

    def without(self, dead: BoolArray) -> View:
        """Without these batches, and what the transaction indexes say of them."""
        if not dead.any():
            return self
        kept = ~dead
        return View(
            self.base[kept],
            self.last[kept],
            self.epoch[kept],
            self.producer_id[kept],
            self.kind[kept],
            self.stretch[kept],
            self.aborts[~np.isin(self.aborts[:, 2], self.base[dead])],
            self.indexed[kept],
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
