"""R4–R7: how far retention has gone, which segments give rows, and the way over them from the frontier on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_catalog.plan.inputs import Cover, Input, Stretch
from iceberg_catalog.plan.types import Follow, Policy, Segment, SegmentState


@dataclass(slots=True)
class Walk:
    """Where rows come from, stretches nobody has ([first, last]), and the offset the walk ended at."""

    stretches: list[Stretch] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    pos: int = -1


def beginnings(segments: Iterable[Segment]) -> dict[int, int]:
    """By epoch the lowest offset at which a leader's own history begins with it."""
    found: dict[int, int] = {}
    for epoch, start in (item.checkpoint[0] for item in segments if item.checkpoint):
        found[epoch] = min(start, found.get(epoch, start))
    return found


def raised(floor: int, alive: Sequence[Input], begun: Mapping[int, int]) -> int:
    """R4, R5: the floor after what retention deleted; a withdrawn copy says nothing about it, however old it is.

    Kafka raises a partition's log start before it deletes, so offsets below can never be served again. But a leader
    also deletes what has only epochs older than all it knows, and then its log start does not rise. Where one is known
    that had newer epochs at the same offsets, and a log of the older ones has won back since, the deletion may have
    been of that kind: it says nothing, and the rows wait for the next that does. A deletion of which nobody knows
    whether it is of the living log waits for a listing that tells.

    Args:
        floor: before.
        alive: what is alive of all segments.
        begun: of all segments, dead ones too (:func:`beginnings`).
    """
    gone = (item for item in alive if item.segment.state == SegmentState.DELETED and item.proven)
    ends = ((newest_epoch(item.segment), item.valid_end) for item in gone)
    return max([floor, *(end for newest, end in ends if not of_a_branch_that_lost(newest, end, begun))])


def newest_epoch(segment: Segment) -> int:
    """Of its records; -1: it has none."""
    return max((epoch for epoch, _ in segment.runs), default=-1)


def of_a_branch_that_lost(newest: int, end: int, begun: Mapping[int, int]) -> bool:
    """Whether newer epochs began below `end`, so that one of their leaders may have deleted what is older."""
    return any(epoch > newest and start < end for epoch, start in begun.items())


def sources(alive: Sequence[Input], policy: Policy) -> list[Input]:
    """R6: what new rows may come from, and is in the store for certain (R12)."""
    return [item for item in alive if gives(item.segment, policy) and not item.spent]


def gives(segment: Segment, policy: Policy) -> bool:
    """R6: whether new rows may come from it, as far as its state goes: a copy that failed is made again."""
    kept = segment.state is SegmentState.DELETED and not isinstance(policy, Follow)
    return segment.state is SegmentState.LIVE or kept


def walked(alive: Sequence[Input], frontier: int, floor: int, policy: Policy, *, relisted: bool) -> Walk | None:
    """R7: from the frontier as far as the sources reach. None: a hole was met, list again before believing it."""
    cover = Cover(sources(alive, policy))
    least = floor if isinstance(policy, Follow) else 0
    pos = max(frontier, least)
    if frontier < 0:  # the very first start: nothing lies below it, but a hurried listing may have missed the lowest
        lowest = cover.next_base()
        if lowest is None:
            return Walk(pos=floor or -1)
        if lowest > least and not relisted:
            return None
        pos = max(lowest, least)
    walk = Walk(pos=pos)
    while True:
        best = cover.at(walk.pos)
        if best is not None:
            end = cover.until(best)
            walk.stretches.append(Stretch(best, walk.pos, end))
            walk.pos = end
            continue
        higher = cover.next_base()
        if higher is None:
            return walk
        if not relisted:
            return None
        walk.gaps.append((walk.pos, higher - 1))
        walk.pos = higher
