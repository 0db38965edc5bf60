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

from iceberg_catalog.limits import MERGE_ASKED_MAX, MERGE_MARKERS_WITHIN
from iceberg_catalog.plan.file_epochs import Look, no_look
from iceberg_catalog.plan.files import span, spanned
from iceberg_catalog.plan.inputs import living
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import LiveFile, PartState, Policy, Segment
from iceberg_catalog.plan.walk import gives

Range = tuple[int, int]  # [first, last]


def open_gaps(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    *,
    within: Sequence[Range] | None = None,
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
        within: offsets [first, last] to look at, ascending, none of which meet; None: all.
        bare: ids of segments without rows that may get some.
        whole: ids of segments all of whose rows are in the head's files. Batches of MERGE_ASKED_MAX others may be
            loaded, with those of MERGE_MARKERS_WITHIN segments behind each.
        look: gives the leader epochs of a file, as for `plan`.
    """
    ordered = sorted(files, key=lambda file: file.first)
    gaps = [(left.last + 1, right.first - 1) for left, right in pairwise(ordered) if left.last + 1 < right.first]
    if within is not None:
        gaps = [gap for gap in gaps if _meets_any(gap, within)]
    if not gaps:
        return []
    by_base = sorted(segments, key=lambda item: (item.base, item.last, item.id))
    alive = [item for item in living(by_base, fold(by_base, state), state) if gives(item.segment, policy)]
    covered = _joined([(item.segment.base, item.valid_end - 1) for item in alive if item.segment.id not in bare])
    asked = [item.segment for item in alive if item.segment.id not in whole and _reaches(item.segment, gaps)]
    unsure = [(item.base, item.last) for item in asked[MERGE_ASKED_MAX:]]
    for item in asked[:MERGE_ASKED_MAX]:
        near = by_base[by_base.index(item) :][: 1 + MERGE_MARKERS_WITHIN]
        unsure += _unsure(item, near, files, state, policy, look)
    return [gap for gap in gaps if not spanned(*gap, covered) or any(_meet(gap, other) for other in unsure)]


def _reaches(segment: Segment, gaps: Sequence[Range]) -> bool:
    return any(_meets_any((file.first, file.last), gaps) for file in segment.files)


def _unsure(
    segment: Segment, near: Sequence[Segment], files: Sequence[LiveFile], state: PartState, policy: Policy, look: Look
) -> list[Range]:
    """Where its rows are to come still, or those behind it do not tell: a marker is not far from its rows."""
    repair = plan_repair(near, files, state, policy, {segment.id}, look)
    if repair.rewinds or repair.left:
        return [(segment.base, segment.last)]
    return [span(piece, segment) for piece in repair.add]


def _joined(ranges: Sequence[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _meets_any(one: Range, ascending: Sequence[Range]) -> bool:
    at = bisect_right(ascending, (one[1], 2**63)) - 1
    return at >= 0 and _meet(one, ascending[at])


def _meet(one: Range, other: Range) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
