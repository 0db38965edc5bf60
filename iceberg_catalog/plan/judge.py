"""R8, applied: the living log from the walk's start on, and what each batch of it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from converter.types import BoolArray, UInt8Array
from iceberg_catalog.limits import PEEKED_MAX
from iceberg_catalog.plan.cross_check import contradiction
from iceberg_catalog.plan.decide import NEVER, SegmentPart, SnapshotEnd, Verdict, View, dead_markers, decide
from iceberg_catalog.plan.inputs import Cover, Input, Stretch
from iceberg_catalog.plan.lineage import of_segment
from iceberg_catalog.plan.peeked import Checked, applied, checked
from iceberg_catalog.plan.types import Batches, BatchKind, Peeked, Segment
from iceberg_catalog.plan.walk import Walk

Judged = tuple[Stretch, UInt8Array]
"""A stretch and a Verdict per batch of its segment, UNDECIDED for batches outside of the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the walk met.

    Attributes:
        stretches: of the walk, with their verdicts.
        lost: offsets [first, last] of batches of lost transactions.
        view: the living log.
        peeked: transactions decided without a marker, with the base offset of the first batch that needed it.
        marked: what the markers of the view say of transactions that were peeked before.
        conflict: offset of the first batch whose marker contradicts Kafka's files.
    """

    stretches: list[Judged]
    lost: list[tuple[int, int]]
    view: View
    marked: Checked
    peeked: tuple[tuple[Peeked, int], ...] = ()
    conflict: int | None = None

    @property
    def stop(self) -> int:
        """R9: offset that nothing is published from on, whatever the verdicts; the walk's start or above."""
        return NEVER if self.conflict is None else max(self.conflict, self.stretches[0][0].start)


class OpenEnds:
    """What the producer snapshots of wholly living segments list as open: it may speak against markers far below.

    Args:
        alive: the living segments.
    """

    def __init__(self, alive: Sequence[Input]) -> None:
        listed = [
            (producer, first, item.segment.last)
            for item in alive
            if item.valid_end == item.segment.last + 1
            for producer, first in item.segment.open_end or ()
        ]
        self._producer, self._first, self._end = np.array(listed, dtype=np.int64).reshape(-1, 3).T

    def of(self, producers: Collection[int], reach: int) -> bool:
        """Whether one at or above `reach` lists a transaction of these producers that began below."""
        far = (self._end >= reach) & (self._first < reach)
        return bool(np.isin(self._producer[far], list(producers)).any())


def judged(
    alive: Sequence[Input],
    walk: Walk,
    frontier: int,
    peeked: Sequence[Peeked] = (),
    open_ends: OpenEnds | None = None,
) -> Judgement:
    """The walk's stretches with a verdict for each batch, by marker or by what was peeked.

    Args:
        alive: the living segments.
        walk: over them, from the frontier on.
        frontier: offset that the walk was to begin at.
        peeked: transactions that the frontier has passed without a marker. Those that still have none count against
            how many may be.
        open_ends: of all living segments: the view need not go further than what decides the walk's batches, and no
            batches are read of what lies behind. What is said of anything else is then not all. None: the view goes to
            the end.
    """
    view, ends = _seen(alive, walk, open_ends)
    by_marker = decide(view, ends)
    marked = checked(peeked, view, follows=bool(walk.stretches) and walk.stretches[0].start == frontier)
    told = applied(view, by_marker, alive, PEEKED_MAX - len(marked.open))
    lost = np.flatnonzero(told.verdicts == Verdict.LOST)
    return Judgement(
        stretches=[(stretch, _verdicts_of(stretch, view, told.verdicts)) for stretch in walk.stretches],
        lost=[(int(view.base[number]), int(view.last[number])) for number in lost],
        view=view,
        marked=marked,
        peeked=told.used,
        conflict=contradiction(view, by_marker, ends),
    )


def _seen(alive: Sequence[Input], walk: Walk, open_ends: OpenEnds | None) -> tuple[View, list[SnapshotEnd]]:
    """The view, and the producer snapshots that lie in it.

    The view's coverage is that of all living segments, deleted and withdrawn ones too. It goes on beyond the walk
    while there is no hole, and over holes only where the walk went over them. Markers of a dead branch are not in it.
    """
    parts: list[SegmentPart] = []
    if not walk.stretches:
        return View.join(parts), []
    begin = reach = walk.stretches[0].start
    cover = Cover([item for item in alive if item.valid_end > begin])
    undecided = _Undecided(walk.stretches[-1].end)
    stretch = 0
    while True:
        best = cover.at(reach)
        if best is not None:
            mask = best.between(reach, best.valid_end)
            if parts:
                mask &= best.batches.base >= reach
            told_from = _told(best.segment)[0] if best.segment.checkpoint else 0
            parts.append(SegmentPart(best.batches, mask, stretch, told_from))
            reach = best.valid_end
            if open_ends is not None:
                undecided.take(parts[-1])
                if undecided.ended_by(reach, open_ends):
                    view, ends = _joined(parts, alive, begin, reach)
                    if not dead_markers(view, ends).any():
                        return view, ends
                    open_ends = None  # the marker that counts in its place may lie anywhere above
            continue
        higher = cover.next_base()
        if higher is None or reach >= walk.pos:
            break
        reach = higher
        stretch += 1
    view, ends = _joined(parts, alive, begin, reach)
    return view.without(dead_markers(view, ends)), ends


def _joined(
    parts: Sequence[SegmentPart], alive: Sequence[Input], begin: int, reach: int
) -> tuple[View, list[SnapshotEnd]]:
    """Of [begin, reach), with markers of dead branches."""
    ends = [
        _snapshot_of(item.segment, item.segment.open_end)
        for item in alive
        if item.segment.open_end is not None
        and begin <= item.segment.last < reach
        and item.valid_end == item.segment.last + 1
    ]
    return View.join(parts), ends


class _Undecided:
    """Producers whose transactions below `end` have no marker in the parts of the log so far."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._all: set[int] = set()
        self._last: dict[int, int] = {}

    def take(self, part: SegmentPart) -> None:
        """The next part of the log, ascending."""
        batches = part.batches
        mine = part.mask & (batches.kind == BatchKind.TXN) & (batches.base < self._end)
        self._last.update(_last_of(batches, mine))
        self._all.update(self._last)
        if self._last:
            marker = part.mask & ((batches.kind == BatchKind.COMMIT) | (batches.kind == BatchKind.ABORT))
            for producer, base in _last_of(batches, marker).items():
                if self._last.get(producer, base) < base:
                    del self._last[producer]

    def ended_by(self, reach: int, open_ends: OpenEnds) -> bool:
        """Whether nothing at or above `reach` can change what those batches are."""
        return reach >= self._end and not self._last and not open_ends.of(self._all, reach)


def _last_of(batches: Batches, mask: BoolArray) -> dict[int, int]:
    """The base offset of each producer's last batch of these."""
    producers, where = np.unique(batches.producer_id[mask][::-1], return_index=True)
    return dict(zip(producers.tolist(), batches.base[mask][::-1][where].tolist(), strict=True))


def _snapshot_of(segment: Segment, opened: tuple[tuple[int, int], ...]) -> SnapshotEnd:
    """The producer snapshot of a copy, beside where the history begins that it tells."""
    return SnapshotEnd(segment.last, opened, *_told(segment))


def _told(segment: Segment) -> tuple[int, int]:
    """From where on a copy tells its leader's history, and in which epoch that was there."""
    entries = of_segment(segment).entries
    return (entries[0][1], entries[0][0]) if entries else (0, 0)


def _verdicts_of(stretch: Stretch, view: View, verdicts: UInt8Array) -> UInt8Array:
    batches = stretch.source.batches
    found = np.searchsorted(view.base, batches.base)
    safe = np.minimum(found, max(len(view.base) - 1, 0))
    known = (found < len(view.base)) & (view.base[safe] == batches.base)
    return np.where(known, verdicts[safe], np.uint8(Verdict.UNDECIDED)).astype(np.uint8)
