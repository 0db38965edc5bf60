"""The markers in the log against what Kafka's own files say, across segments.

A transaction that begins in one segment and ends in another is decided by its marker (R8). Two files say it too:

* the transaction index of the marker's segment lists the transaction exactly if it was aborted;
* the producer snapshot at a segment's end lists it exactly if its marker lies above. (One that lists too little is rule
  R8's business: after an unclean election it is how a transaction ends that no marker will.)

A read_committed consumer believes the transaction index. But an abort marker without an entry can also show that its
leader does not know the transaction's beginning: a follower that fell behind begins at the log start with no producer
state, and after an unclean election producers end what the new log does not have, where a checkpoint that was cut at
the log start hides since when that log is the living one. So a batch below all that the marker's copy tells of its
leader's history is no contradiction: its rows stay out.

Else nobody can say what the table should hold where the two differ: the partition stops there until a person has
looked. Within one segment the copy itself has compared them (converter.batches.transactions.MarkerCheck).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.types import BoolArray, Int64Array, UInt8Array
from iceberg_catalog.plan.decide import NEVER, SnapshotEnd, Verdict, View, next_markers
from iceberg_catalog.plan.types import BatchKind


def contradiction(view: View, verdicts: UInt8Array, ends: Sequence[SnapshotEnd]) -> int | None:
    """Base offset of the first transactional batch whose marker contradicts a file; None if there is none.

    Args:
        view: the living log.
        verdicts: of its batches, by markers alone.
        ends: producer snapshots at ends of wholly valid segments in the view.
    """
    transactional = view.kind == BatchKind.TXN
    if not transactional.any():
        return None
    marker_at, _ = next_markers(view)
    wrong = transactional & _differ(view, verdicts, marker_at)
    for snapshot in ends:
        for producer, first in snapshot.open:
            low, high = np.searchsorted(view.base, (first, snapshot.end + 1))
            part = slice(int(low), int(high))
            wrong[part] |= (
                transactional[part] & (view.producer_id[part] == producer) & (marker_at[part] <= snapshot.end)
            )
    return int(view.base[wrong.argmax()]) if wrong.any() else None


def _differ(view: View, verdicts: UInt8Array, marker_at: Int64Array) -> BoolArray:
    """Batches whose marker says abort and no entry does, or the other way round."""
    marker = (view.kind == BatchKind.COMMIT) | (view.kind == BatchKind.ABORT)
    judged = (verdicts == Verdict.COMMITTED) | (verdicts == Verdict.ABORTED)
    judged &= (marker_at != NEVER) & np.isin(marker_at, view.base[marker & view.indexed])
    aborted = verdicts == Verdict.ABORTED
    differ: BoolArray = judged & (aborted != _listed(view, marker_at)) & ~(aborted & _of_another_log(view, marker_at))
    return differ


def _of_another_log(view: View, marker_at: Int64Array) -> BoolArray:
    """Batches that the leader of their marker's copy may never have had, or not have any more."""
    place = np.minimum(np.searchsorted(view.base, marker_at), len(view.base) - 1)
    other: BoolArray = view.base < view.told_from[place]
    return other


def _listed(view: View, marker_at: Int64Array) -> BoolArray:
    """Batches that an entry with their marker's offset covers."""
    if not len(view.aborts):
        return np.zeros(len(view.base), dtype=np.bool_)
    entries = view.aborts[np.argsort(view.aborts[:, 2], kind="stable")]
    place = np.minimum(np.searchsorted(entries[:, 2], marker_at), len(entries) - 1)
    found = entries[place]
    listed: BoolArray = (found[:, 2] == marker_at) & (found[:, 0] == view.producer_id) & (found[:, 1] <= view.base)
    return listed
