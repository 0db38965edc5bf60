"""Stretches between two files of the table that rows may yet come into. Pure, one partition.

A merged file stands for every offset from its first to its last: whatever comes late within it is taken for what it
has, and never comes. So a merge may close over offsets only where it is known that no row will:

* a segment that is alive has these offsets, and it is not stored as it is; and
* its own rows lie elsewhere, or are of aborted transactions: a repair (repair.py) would add none of them, now or later.

Offsets of which no segment is known are no reason to believe anything: an index that was lost may be put back, and a
copy that came to nothing may be made again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import pairwise

from iceberg_catalog.plan.file_epochs import Look, no_look
from iceberg_catalog.plan.files import span
from iceberg_catalog.plan.inputs import Input, living
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import Derive, Follow, LiveFile, PartState, Policy, Segment, SegmentState

Range = tuple[int, int]  # [first, last]


def open_gaps(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    *,
    bare: Collection[str] = (),
    whole: Collection[str] = (),
    look: Look = no_look,
) -> list[Range]:
    """The gaps [first, last] between neighbours that rows may come into, ascending.

    Args:
        segments: every index of the partition.
        files: our live files of the partition in the head.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted.
        bare: ids of segments without rows that may get some.
        whole: ids of segments all of whose rows are in the head's files. Batches of the others may be loaded.
        look: gives the leader epochs of a file, as for `plan`.
    """
    ordered = sorted(files, key=lambda file: file.first)
    gaps = [(left.last + 1, right.first - 1) for left, right in pairwise(ordered) if left.last + 1 < right.first]
    if not gaps:
        return []
    by_base = sorted(segments, key=lambda item: (item.base, item.last, item.id))
    alive = [item for item in living(by_base, fold(by_base, state), state) if _tells(item.segment, policy)]
    covered = _joined([(item.segment.base, item.valid_end - 1) for item in alive if item.segment.id not in bare])
    asked = [item for item in alive if item.segment.id not in whole and _reaches(item, gaps)]
    unsure = _unsure(asked, by_base, files, state, policy, look) if asked else []
    return [gap for gap in gaps if not _within(gap, covered) or any(_meet(gap, other) for other in unsure)]


def _tells(segment: Segment, policy: Policy) -> bool:
    """Whether it shows which rows there are: a copy that failed may be made again, of other rows."""
    kept = segment.state is SegmentState.DELETED and not isinstance(policy, Follow)
    return segment.state is SegmentState.LIVE or kept


def _reaches(item: Input, gaps: Sequence[Range]) -> bool:
    return any(_meet((file.first, file.last), gap) for file in item.segment.files for gap in gaps)


def _unsure(
    asked: Sequence[Input],
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    look: Look,
) -> list[Range]:
    """Where their rows are to come still, or nobody can tell."""
    by_id = {item.segment.id: item.segment for item in asked}
    repair = plan_repair(segments, files, state, policy, by_id.keys(), look)
    if repair.rewinds:
        return [(item.base, item.last) for item in by_id.values()]
    named = [(piece.ranges[0][0] if isinstance(piece, Derive) else piece.segment_id, piece) for piece in repair.add]
    come = [span(piece, by_id[name]) for name, piece in named]
    return [*come, *((by_id[name].base, by_id[name].last) for name in repair.left)]


def _joined(ranges: Sequence[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _within(gap: Range, ascending: Sequence[Range]) -> bool:
    at = bisect_right(ascending, (gap[0], 2**63)) - 1
    return at >= 0 and gap[1] <= ascending[at][1]


def _meet(one: Range, other: Range) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
