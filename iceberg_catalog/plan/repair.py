"""What a segment that got its rows late adds to the table below the frontier. Pure, one partition.

The plan never adds below the frontier (R11): a late upload there may be anything. A repair is an explicit command for
named segments, and adds exactly the committed rows of a segment that

* is live, or deleted where the policy keeps such rows, up to where the lineage has its epochs,
* lie in a batch below the frontier, whole, and at or above the floor unless the policy keeps what is below, and
* belong to a batch that no live file reaches into.

Where nothing decides a batch but a peek, it waits for the marker, and so does all of its segment behind it: a file that
lay around it would count as having it. Another repair adds them then, so they are counted for whoever has to run it.
Where the next plan would rewind, nothing is repaired before it has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from converter.types import BoolArray
from iceberg_catalog.plan.decide import Verdict
from iceberg_catalog.plan.file_epochs import Endings, Look, no_look
from iceberg_catalog.plan.files import incoming, span, spanned
from iceberg_catalog.plan.inputs import Input, Stretch, living
from iceberg_catalog.plan.judge import OpenEnds, judged
from iceberg_catalog.plan.lineage import of_segment
from iceberg_catalog.plan.lineage_record import cut, fold, read_record
from iceberg_catalog.plan.rewind import rewound
from iceberg_catalog.plan.types import (
    Batches,
    Derive,
    Follow,
    KeepUntil,
    LiveFile,
    PartState,
    Policy,
    Runs,
    Segment,
    UseMain,
)
from iceberg_catalog.plan.walk import Walk, beginnings, gives, raised


@dataclass(slots=True, kw_only=True)
class Repair:
    """Files to add, and how many rows below the frontier wait for a marker that no segment has yet.

    left: segments of which rows may be missing all the same, as of those that end in a dead branch. rewinds: because
    the next plan takes rows back first. lineage: to record with the files: it reaches down to what comes (R1).
    """

    add: list[UseMain | Derive] = field(default_factory=list)
    waiting: int = 0
    left: set[str] = field(default_factory=set)
    rewinds: bool = False
    lineage: Runs = ()


def plan_repair(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    converted: Collection[str],
    look: Look = no_look,
) -> Repair:
    """What to add. Applied to its own result it adds nothing.

    Args:
        segments: every index of the partition.
        files: our live files of the partition in the head.
        state: recorded with the head; but for the lineage it stays as it is.
        policy: what becomes of rows that Kafka's retention deleted.
        converted: ids of the segments to repair from. Of deleted ones the caller knows that their objects are there.
        look: gives the leader epochs of a file, as for `plan`.
    """
    ordered = sorted(segments, key=lambda item: (item.base, item.last, item.id))
    lineage = fold(ordered, state)
    alive = living(ordered, lineage, state)
    record = read_record(state, [of_segment(item) for item in ordered])
    rewind, frontier, floor = rewound(Endings(record, lineage, look), files, alive, state)
    if rewind is not None:
        return Repair(left=set(converted), rewinds=True, lineage=state.lineage)
    floor = raised(floor, alive, beginnings(ordered))
    taken = [(file.first, file.last) for file in files]
    repair = Repair(lineage=state.lineage)
    open_ends = OpenEnds(alive)
    for item in alive:
        if item.segment.id in converted and not _usable(item, policy):
            repair.left.add(item.segment.id)
        elif item.segment.id in converted:
            missing = _missing(item, alive, open_ends, frontier, floor, policy, sorted(taken))
            repair.add += missing.add
            repair.waiting += missing.waiting
            if missing.waiting or item.valid_end <= item.segment.last:
                repair.left.add(item.segment.id)
            came = [span(piece, item.segment) for piece in missing.add]
            taken += came
            first = min((first for first, _ in came), default=frontier)
            if state.lineage and first < repair.lineage[0][1]:
                repair.lineage = cut(record.entries, first)
    return repair


def sources_of(piece: UseMain | Derive) -> list[str]:
    """Ids of the segments that a new file's rows come from, ascending."""
    return [piece.segment_id] if isinstance(piece, UseMain) else [name for name, _, _ in piece.ranges]


def _usable(item: Input, policy: Policy) -> bool:
    segment = item.segment
    return gives(segment, policy) and not segment.leaving and segment.main is not None and not segment.conflict


def _missing(
    item: Input,
    alive: Sequence[Input],
    open_ends: OpenEnds,
    frontier: int,
    floor: int,
    policy: Policy,
    taken: Sequence[tuple[int, int]],
) -> Repair:
    least = floor if isinstance(policy, Follow) else 0
    start, end = max(item.segment.base, least), min(item.valid_end, frontier)
    if start >= end or all(
        spanned(max(file.first, start), min(file.last, end - 1), taken) for file in item.segment.files
    ):
        return Repair()  # no batch of it need be read
    batches = item.batches
    # Holes below the frontier were believed when it passed them: who lost a marker in one does not wait for it.
    seen = judged(alive, Walk([Stretch(item, start, end)], [], frontier), start, open_ends=open_ends)
    stop = min(end, seen.stop)
    ((stretch, verdicts),) = seen.stretches
    missing = batches.rows & ~_touched(batches, taken) & (batches.base >= start) & (batches.last < stop)
    undecided = batches.base[missing & (verdicts == Verdict.UNDECIDED)][:1].tolist()
    end = min([stop, *undecided, *(base for _, base in seen.peeked)])
    now = missing & (batches.last < end)
    add = incoming([(stretch, np.where(now, verdicts, np.uint8(Verdict.UNDECIDED)))], end, taken, floor, policy)
    later = missing & ~now & ((verdicts == Verdict.UNDECIDED) | (verdicts == Verdict.COMMITTED))
    if isinstance(policy, KeepUntil):  # what is that old by now would leave as soon as it came
        later &= (batches.last >= floor) | (batches.max_timestamp_ms >= policy.horizon_ms)
    return Repair(add=add, waiting=int((batches.last - batches.base + 1)[later].sum()))


def _touched(batches: Batches, taken: Sequence[tuple[int, int]]) -> BoolArray:
    """Batches that reach into one of these ranges [first, last], which ascend and do not overlap."""
    if not taken:
        return np.zeros(len(batches), dtype=np.bool_)
    firsts, lasts = np.array(taken, dtype=np.int64).T
    following = np.searchsorted(lasts, batches.base)
    reached = firsts[np.minimum(following, len(firsts) - 1)] <= batches.last
    touched: BoolArray = (following < len(firsts)) & reached
    return touched
