"""The plan from a listing that begins at the frontier, where that is enough.

Why so little is enough: what was taken in below the frontier is in the recorded state. No row is ever added below it
(R11), its lineage is recorded (R1), the markers of rows that wait lie above it (R8). What is listed from the frontier
on holds every row that may come, every marker that may decide it, and every producer snapshot in between. A view that
lacks what somebody has just stored is always allowed: it is the store as it was a moment ago.

What can lie below the frontier and change the table all the same is a delete (R5) or a history that leaves the
recorded one (R1, R3). What a delete says hangs on all copies of the partition: whoever made it may have lost since,
and what shows that may lie below the frontier. A new leader shows by its epoch, in any segment of it that is seen. So
for a deletion that tells something, for a hole, and whenever the result would touch the recorded history, nothing is
said, and the caller lists the whole partition. What nobody notices, a new leader's segments that all end below the
frontier or a delete that another bridge was told of, waits for the next whole listing.
"""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_catalog.plan import plan
from iceberg_catalog.plan_hold import NO_HOLD, Hold
from iceberg_catalog.plan_types import PartState, Plan, Policy, Segment


def plan_ahead(segments: Sequence[Segment], state: PartState, policy: Policy, hold: Hold = NO_HOLD) -> Plan | None:
    """What one commit must do to this partition, or None when its whole listing is needed to tell.

    Args:
        segments: every index whose last offset is the frontier or above; any others, deletions most of all.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted. Rows that leave by their age alone, or because no
            copy waits for them any more, are left to the next plan from a whole listing.
        hold: which of those rows stay because copies have not read them. Without all tombstones of the partition its
            deletions are not known.

    Returns:
        What `plan` says of all indexes of the partition, given that those left out are the ones it knew when `state`
        was made. It removes no file.
    """
    if state.frontier < 0:
        return None
    made = plan(segments, (), state, policy, relisted=False, hold=hold)
    if made.need_relist or made.rewind is not None or made.state.floor != state.floor:
        return None
    return made if made.state.lineage == state.lineage else None
