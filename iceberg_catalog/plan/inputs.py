"""The segments of one partition as the plan walks over them: how far each is alive, and which covers an offset."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from converter.types import BoolArray
from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, of_segment, valid_end
from iceberg_catalog.plan.types import Batches, PartState, Segment, SegmentState


@dataclass(slots=True, eq=False, kw_only=True)
class Input:
    """A segment and how far it is alive (offset, exclusive); batches are loaded when first needed.

    spent: its data file may have left the store, so no row may come from it. proven: some of it is alive for certain,
    not only as far as a shortened record tells.
    """

    segment: Segment
    valid_end: int
    spent: bool = False
    proven: bool = True
    _batches: Batches | None = None

    @property
    def batches(self) -> Batches:
        """All batches of the segment, dead ones too."""
        if self._batches is None:
            self._batches = self.segment.load()
        return self._batches

    def between(self, start: int, end: int) -> BoolArray:
        """Which batches are alive and reach into [start, end)."""
        mask: BoolArray = (self.batches.last >= start) & (self.batches.base < min(end, self.valid_end))
        return mask


def living(segments: Iterable[Segment], lineage: Lineage, recorded: PartState) -> list[Input]:
    """R2: the segments of which anything is alive under the lineage, in the order given."""
    ends = [(item, valid_end(item.runs, item.base, item.last + 1, lineage)) for item in segments]
    return [
        Input(segment=item, valid_end=end, spent=spent(item, recorded), proven=_proven(item, lineage))
        for item, end in ends
        if end > item.base
    ]


def _proven(segment: Segment, lineage: Lineage) -> bool:
    if not lineage.entries or lineage.entries[0][0] != UNKNOWN:
        return True
    return valid_end(segment.runs, segment.base, segment.last + 1, lineage, proven=True) > segment.base


def spent(segment: Segment, recorded: PartState) -> bool:
    """R12: whether a deletion has been taken in by the recorded state.

    Its objects may be gone then, or go at any moment, the tombstone last (rsm_bridge/tables/reclaim/rules.py lets no
    others go). A rewind would have its rows come once more: a plan of the same head must not name them. An undelete
    puts the state back that it was taken in by; then its tombstone says so.
    """
    if segment.leaving:
        return True
    lineage = Lineage(recorded.lineage, recorded.known_end)
    if segment.state is not SegmentState.DELETED or of_segment(segment).rank > lineage.rank:
        return False
    end = valid_end(segment.runs, segment.base, segment.last + 1, lineage)
    return end == segment.base or end <= min(recorded.floor, recorded.frontier)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Offsets [start, end) taken from one input."""

    source: Input
    start: int
    end: int


class Cover:
    """Which input covers an offset, asked for ascending offsets.

    One with rows comes before one without: two copies of the same offsets may differ in that, where one is stored
    verbatim. One that is alive as a whole comes before one that is not: that one lacks the rows of transactions which
    a marker aborted that is dead. The choice must not depend on where the walk began, or rows would be passed over
    later that waited before.
    """

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = sorted(inputs, key=lambda item: item.segment.base)
        self._next = 0
        self._reach: list[tuple[bool, bool, int, str, int]] = []

    def at(self, pos: int) -> Input | None:
        """One that begins at `pos` if there is one, for its own file may fit; else the one that reaches furthest."""
        exact: list[Input] = []
        while self._next < len(self._inputs) and self._inputs[self._next].segment.base <= pos:
            item = self._inputs[self._next]
            heapq.heappush(self._reach, (*_preference(item), self._next))
            if item.segment.base == pos:
                exact.append(item)
            self._next += 1
        while self._reach and -self._reach[0][2] <= pos:
            heapq.heappop(self._reach)
        if not self._reach:
            return None
        furthest = self._inputs[self._reach[0][4]]
        fitting = [item for item in exact if _preference(item)[:2] <= _preference(furthest)[:2]]
        return min(fitting, key=_preference) if fitting else furthest

    def until(self, item: Input) -> int:
        """Where the stretch of one that `at` gave ends: where it does, or where one begins that comes before it."""
        end, wanted = item.valid_end, _preference(item)[:2]
        if wanted == (False, False):
            return end
        later = (self._inputs[number] for number in range(self._next, len(self._inputs)))
        bases = (other.segment.base for other in later if _preference(other)[:2] < wanted)
        return min(end, next(bases, end))

    def next_base(self) -> int | None:
        """The lowest base above all offsets asked for so far."""
        return self._inputs[self._next].segment.base if self._next < len(self._inputs) else None


def _preference(item: Input) -> tuple[bool, bool, int, str]:
    cut = item.valid_end <= item.segment.last
    return (item.segment.main is None, cut, -item.valid_end, item.segment.id)
