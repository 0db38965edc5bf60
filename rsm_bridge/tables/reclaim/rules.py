"""When a tombstoned segment may leave the store: publish rule R12, pure.

Its index is an input of the plan until the head's state has taken everything in that it says:

* lineage: the state's history is as new as the segment's, or the plan could later follow a dead branch;
* rows: the frontier, and for a deletion the floor too, has passed its valid end, so no plan adds them any more;
* markers: none at or above the frontier, where it may still decide a transaction;
* floor: it shows of no deletion that is still to raise the floor that it need not (plan_walk.raised);
* projections: it reaches above no row of the head that waits for one, for it tells since when that does
(iceberg_catalog/plan/hold.py);
* rollbacks: where deleted rows are kept, the state of every snapshot that the table lists has passed it too. Somebody
may roll back to any of them, and the plan then goes on from that one's state: it adds what that snapshot lacks, from
nothing but the segments that are there. Nor has one of them more or fewer repairs (plan/repair.py): what these took
rows from, and the markers above, another repair needs then.

Where the state has passed its history and its markers but not its rows (a withdrawn copy that was never published, a
dead branch), no plan made from now on uses it, since the tombstone is there. One made before it was may. So one more
commit must come first: FENCE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

import numpy as np

from iceberg_catalog.plan.lineage import Lineage, of_segment, valid_end
from iceberg_catalog.plan.types import BatchKind, PartState, Segment, SegmentState, first_differing
from iceberg_catalog.plan.walk import beginnings, newest_epoch, of_a_branch_that_lost


class TombstoneVerdict(Enum):
    """What the state of a head says about a tombstoned segment."""

    NEEDED = 0  # by the plan: not before another commit, or never
    FENCE = 1  # only by a request that was planned on this head
    FREE = 2


def verdict(
    segment: Segment, state: PartState, waiting: int | None = None, raising: Mapping[int, int] | None = None
) -> TombstoneVerdict:
    """Whether the plan still needs a tombstoned segment.

    Args:
        segment: DELETED or WITHDRAWN.
        state: of its partition, recorded with the table's current head.
        waiting: the first offset below the floor that the head has for projections of the table; None: none does.
        raising: what deletions of the partition are still to raise the floor to (:func:`still_to_raise`).
    """
    lineage = Lineage(state.lineage, state.known_end)
    if of_segment(segment).rank > lineage.rank or _decides(segment, state.frontier):
        return TombstoneVerdict.NEEDED
    end = valid_end(segment.runs, segment.base, segment.last + 1, lineage)
    if segment.state is SegmentState.DELETED and waiting is not None and end > waiting:
        return TombstoneVerdict.NEEDED
    if any(of_a_branch_that_lost(newest, above, beginnings([segment])) for newest, above in (raising or {}).items()):
        return TombstoneVerdict.NEEDED
    # Under `follow` the frontier is never below the floor, unless projections wait; under `keep` a deleted segment is
    # still to be published.
    passed = min(state.floor, state.frontier) if segment.state is SegmentState.DELETED else state.frontier
    if passed >= end:
        return TombstoneVerdict.FREE
    if segment.state is SegmentState.DELETED and end > segment.base:
        return TombstoneVerdict.NEEDED  # the next run raises the floor
    return TombstoneVerdict.FENCE


def needed_after_rollback(segment: Segment, state: PartState, now: PartState) -> bool:
    """Whether the plan or a repair would still read a DELETED segment, were the table rolled back to a snapshot.

    Not only rows count. Without a marker the rows that wait for it would never come, and where nothing is left of some
    offsets, be they without rows, the walk finds a hole, which ends the transactions that are open there.

    Args:
        segment: DELETED, of a table that keeps deleted rows.
        state: of its partition, recorded with the snapshot; the default where it records none.
        now: recorded with the head.
    """
    repaired = first_differing(state.repairs, now.repairs)
    if repaired is not None and segment.last >= repaired:
        return True
    lineage = Lineage(state.lineage, state.known_end)
    if of_segment(segment).rank > lineage.rank:
        return True  # that snapshot may be of a branch that lost: then its rows go, and these come
    end = valid_end(segment.runs, segment.base, segment.last + 1, lineage)
    return end > max(state.frontier, segment.base) or _decides(segment, state.frontier)


def still_to_raise(deleted: Iterable[Segment], state: PartState) -> dict[int, int]:
    """By newest epoch, how far (offset, exclusive) DELETED segments reach above the floor of a partition's state."""
    lineage = Lineage(state.lineage, state.known_end)
    found: dict[int, int] = {}
    for segment in deleted:
        end = valid_end(segment.runs, segment.base, segment.last + 1, lineage)
        if end > max(state.floor, segment.base):
            newest = newest_epoch(segment)
            found[newest] = max(end, found.get(newest, end))
    return found


def _decides(segment: Segment, frontier: int) -> bool:
    """Whether it holds a marker at or above the frontier."""
    if segment.last < frontier:
        return False
    batches = segment.load()
    markers = (batches.kind == BatchKind.COMMIT) | (batches.kind == BatchKind.ABORT)
    return bool(np.any(markers & (batches.base >= frontier)))
