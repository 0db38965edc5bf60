"""The plan from a listing that begins at the frontier, where that is enough.

Why so little is enough: what was taken in below the frontier is in the recorded state. No row is ever added below it
(R11), its lineage is recorded (R1), the markers of rows that wait lie above it (R8). What is listed from the frontier
on holds every row that may come, every marker that may decide it, and every producer snapshot in between. A view that
lacks what somebody has just stored is always allowed: it is the store as it was a moment ago.

What can lie below the frontier and change the table all the same is a delete (R5) or a history that leaves the
recorded one (R1, R3). A delete that is known of is given along. A new leader shows by its epoch, in any segment of it
that is seen; then, where a hole is met, and whenever the result would touch the recorded history, nothing is said, and
the caller lists the whole partition. What nobody notices, a new leader's segments that all end below the frontier or a
delete that another bridge was told of, waits for the next whole listing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iceberg_catalog.file_epochs import Look, no_look
from iceberg_catalog.lineage_record import cut
from iceberg_catalog.plan import plan
from iceberg_catalog.plan_hold import NO_HOLD, Hold
from iceberg_catalog.plan_types import LiveFile, PartState, Plan, Policy, Segment, SegmentState
from iceberg_catalog.plan_walk import newest_epoch


def plan_ahead(
    segments: Sequence[Segment],
    files: Callable[[], Sequence[LiveFile]],
    state: PartState,
    policy: Policy,
    hold: Hold = NO_HOLD,
    look: Look = no_look,
) -> Plan | None:
    """What one commit must do to this partition, or None when its whole listing is needed to tell.

    Args:
        segments: every index whose last offset is the frontier or above; any others, deletions most of all.
        files: gives our live files of the partition in the head. Asked only when some may have to go by retention.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted. Rows that leave by their age alone, or because no
            copy waits for them any more, are left to the next plan from a whole listing.
        hold: which of those rows stay because copies have not read them. Without all tombstones of the partition its
            deletions are not known.
        look: gives the leader epochs of a file, as for `plan`.

    Returns:
        What `plan` says of all indexes of the partition, given that those left out are the ones it knew when `state`
        was made.
    """
    if state.frontier < 0:
        return None
    made = plan(segments, (), state, policy, relisted=False, hold=hold)
    if made.need_relist or made.rewind is not None or made.state.floor < state.floor:
        return None
    if made.state.floor > state.floor:
        # What a branch that lost has at the offsets of a deletion may lie below the frontier.
        if state.rewinds or any(_leader_unseen(item, state) for item in segments):
            return None
        made = plan(segments, files(), state, policy, relisted=False, hold=hold, look=look)
    # A floor that rises cuts what is recorded; anything else is news.
    begin = made.state.lineage[0][1] if made.state.lineage and made.state.floor > state.floor else 0
    return made if made.rewind is None and made.state.lineage in (state.lineage, cut(state.lineage, begin)) else None


def _leader_unseen(item: Segment, state: PartState) -> bool:
    """Whether a leader may have deleted it for its old epochs and lost: one of an epoch that the record skips."""
    if item.state is not SegmentState.DELETED:
        return False
    last, newest = max((epoch for epoch, _ in state.lineage), default=-1), newest_epoch(item)
    return sum(newest < epoch < last for epoch, _ in state.lineage) < last - newest - 1
