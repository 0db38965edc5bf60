"""What a segment that got its rows late adds to the table below the frontier. Pure, one partition.

The plan never adds below the frontier (R11): a late upload there may be anything. A repair is an explicit command for
named segments, and adds exactly the committed rows of a segment that

* is live, and alive as a whole: the lineage has every epoch of it,
* lie in a batch at or above the floor and below the frontier, whole, and
* belong to a batch that no live file reaches into.

Rows whose transaction nothing decides but a peek wait for the marker; another repair adds them then. Where the next
plan would rewind, nothing is repaired before it has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from converter.types import BoolArray
from iceberg_catalog.decide import Verdict
from iceberg_catalog.lineage import Lineage, fold
from iceberg_catalog.plan_files import incoming, span
from iceberg_catalog.plan_inputs import Input, Stretch, living
from iceberg_catalog.plan_rewind import rewound
from iceberg_catalog.plan_types import Batches, Derive, LiveFile, PartState, Policy, Segment, SegmentState, UseMain
from iceberg_catalog.plan_view import judged
from iceberg_catalog.plan_walk import Walk, raised


def plan_repair(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    converted: Collection[str],
) -> list[UseMain | Derive]:
    """Files to add. Applied to its own result it says nothing new.

    Args:
        segments: every index of the partition.
        files: our live files of the partition in the head.
        state: recorded with the head; it stays as it is.
        policy: what becomes of rows that Kafka's retention deleted.
        converted: ids of the segments to repair from.
    """
    ordered = sorted(segments, key=lambda item: (item.base, item.end, item.id))
    lineage = fold(ordered, state)
    alive = living(ordered, lineage)
    rewind, frontier, floor = rewound(Lineage(state.lineage, state.known_end), lineage, alive, state)
    if rewind is not None:
        return []
    floor = raised(floor, alive)
    taken = [(file.first, file.last) for file in files]
    add: list[UseMain | Derive] = []
    for item in alive:
        if item.segment.id in converted and _usable(item):
            for piece in _missing(item, alive, frontier, floor, policy, sorted(taken)):
                add.append(piece)
                taken.append(span(piece, item.segment))
    return add


def _usable(item: Input) -> bool:
    segment = item.segment
    whole = item.valid_end == segment.end + 1
    return whole and segment.state is SegmentState.LIVE and segment.main is not None and not segment.conflict


def _missing(
    item: Input,
    alive: Sequence[Input],
    frontier: int,
    floor: int,
    policy: Policy,
    taken: Sequence[tuple[int, int]],
) -> list[UseMain | Derive]:
    start, end = max(item.segment.base, floor), min(item.segment.end + 1, frontier)
    if start >= end:
        return []
    seen = judged(alive, Walk([Stretch(item, start, end)], [], end))
    end = min([end, seen.stop, *(base for _, base in seen.peeked)])
    left_alone = _touched(item.batches, taken) | (item.batches.base < start) | (item.batches.last >= end)
    stretches = [
        (stretch, np.where(left_alone, np.uint8(Verdict.UNDECIDED), verdicts)) for stretch, verdicts in seen.stretches
    ]
    return incoming(stretches, end, taken, floor, policy)


def _touched(batches: Batches, taken: Sequence[tuple[int, int]]) -> BoolArray:
    """Batches that reach into one of these ranges [first, last], which ascend and do not overlap."""
    if not taken:
        return np.zeros(len(batches), dtype=np.bool_)
    firsts, lasts = np.array(taken, dtype=np.int64).T
    following = np.searchsorted(lasts, batches.base)
    reached = firsts[np.minimum(following, len(firsts) - 1)] <= batches.last
    touched: BoolArray = (following < len(firsts)) & reached
    return touched
