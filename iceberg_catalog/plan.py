"""What a partition's table must become, from what is in the store, what the table has and what was recorded with it.

A pure function of one partition of one topic id. It is applied by compare-and-swap on the head it was made from, and
made again after any failure; crash recovery, retries, leader changes, lost replies and deletes are all this one act.
`plan` applied to its own result says nothing new.

Order of a run: read the head first, list indexes after, plan. The other way round a swap would not protect a plan made
from an old listing and a new head.

| rule | says | why |
|---|---|---|
| R1 lineage | the newest leader-epoch history wins, completed by older ones (lineage.py) | higher epoch per offset is wrong |
| R2 validity | the newest run of a segment that agrees with the lineage proves all before it | log matching |
| R3 rewind | where the recorded lineage is left, published rows go; from the first offset of a transaction open there | its marker was on the dead branch |
| R4 deletes | with custom metadata: DELETED (retention); without: WITHDRAWN (failed copy, will be uploaded again) | taking one for the other loses rows for ever |
| R5 floor | everything below a DELETED segment's valid end is gone; it never sinks by a late upload | log start rose before Kafka deleted |
| R6 inputs | new rows come from LIVE, and under `keep` DELETED segments; all serve for decisions | a marker may lie in a deleted segment |
| R7 walk | from the frontier on; a stretch nobody has, below a valid segment, is a gap for good once the listing was repeated | Kafka copies in order; one paged listing may miss a segment |
| R8 decide | see decide.py; a segment with an undecided batch waits whole, one whose markers contradict the broker's files too | |
| R9 frontier | the end of what was walked and decided; never below the (rewound) old one | |
| R10 remove | files of a dead branch or wholly below the floor (`follow`) go; files that stick out are cut | rows leave by floor a file at a time |
| R11 add | exactly the committed rows from the old frontier to the new; a segment's own file if all its rows are wanted, else a derived one | every offset once |
"""  # noqa: E501

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from converter.types import BoolArray, UInt8Array
from iceberg_catalog.decide import SnapshotEnd, Verdict, View, decide
from iceberg_catalog.lineage import Lineage, divergence, fold, valid_end
from iceberg_catalog.plan_types import (
    Batches,
    BatchKind,
    Derive,
    LiveFile,
    PartState,
    Plan,
    Policy,
    Segment,
    SegmentState,
    Trim,
    UseMain,
)


@dataclass(slots=True, eq=False)
class _Input:
    """A segment and how far it is alive; batches are loaded when first needed."""

    segment: Segment
    valid_end: int
    _batches: Batches | None = None

    @property
    def batches(self) -> Batches:
        if self._batches is None:
            self._batches = self.segment.load()
        return self._batches

    def between(self, start: int, end: int) -> BoolArray:
        """Which batches reach into [start, end)."""
        mask: BoolArray = (self.batches.last >= start) & (self.batches.base < min(end, self.valid_end))
        return mask


class _Cover:
    """Which input covers an offset, asked for ascending offsets."""

    def __init__(self, inputs: Sequence[_Input]) -> None:
        self._inputs = sorted(inputs, key=lambda item: item.segment.base)
        self._next = 0
        self._reach: list[tuple[int, str, int]] = []

    def at(self, pos: int) -> _Input | None:
        """One that begins at `pos` if there is one, for its own file may fit; else the one that reaches furthest."""
        exact: list[_Input] = []
        while self._next < len(self._inputs) and self._inputs[self._next].segment.base <= pos:
            item = self._inputs[self._next]
            heapq.heappush(self._reach, (-item.valid_end, item.segment.id, self._next))
            if item.segment.base == pos:
                exact.append(item)
            self._next += 1
        while self._reach and -self._reach[0][0] <= pos:
            heapq.heappop(self._reach)
        if exact:
            return max(exact, key=lambda item: (item.valid_end, item.segment.id))
        return self._inputs[self._reach[0][2]] if self._reach else None

    def next_base(self) -> int | None:
        """The lowest base above all offsets asked for so far."""
        return self._inputs[self._next].segment.base if self._next < len(self._inputs) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Stretch:
    """Offsets [start, end) taken from one input."""

    source: _Input
    start: int
    end: int


@dataclass(slots=True)
class _Walk:
    """R7: where rows come from."""

    stretches: list[_Stretch] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    pos: int = -1


def plan(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    *,
    relisted: bool,
) -> Plan:
    """What one commit must do to this partition.

    Args:
        segments: every index of the partition that reaches to the frontier or above, or is tombstoned; more is fine.
        files: our live files of the partition in the head.
        state: recorded with the head; the default if there is none.
        policy: `follow` removes what Kafka's retention removed, `keep` never does.
        relisted: the listing was made again after a first one had ended, so a hole in it is real.

    Returns:
        A plan. With `need_relist` nothing else in it may be applied.
    """
    if state.frontier < 0 and files:
        state = replace(state, frontier=max(item.last for item in files) + 1)
    ordered = sorted(segments, key=lambda item: (item.base, item.end, item.id))
    lineage = fold(ordered, state)
    inputs = [_Input(segment, valid_end(segment.runs, segment.base, segment.end + 1, lineage)) for segment in ordered]
    alive = [item for item in inputs if item.valid_end > item.segment.base]
    recorded = Lineage(state.lineage, state.known_end)
    rewind, frontier, floor = _rewind(recorded, lineage, alive, state)
    gone = [item.valid_end for item in alive if item.segment.state == SegmentState.DELETED]
    floor = max([floor, *gone])
    walk = _walk(alive, frontier, floor, policy, relisted)
    if walk is None:
        return Plan(state=state, need_relist=True)
    remove, replaced, trim = _outgoing(files, lineage, frontier, floor, policy)
    gone_paths = {*remove, *replaced}
    cut = {item.path: item.keep_below - 1 for item in trim}
    kept = sorted((item.first, cut.get(item.path, item.last)) for item in files if item.path not in gone_paths)
    view, verdicts = _decided(alive, walk)
    add, reached = _incoming(walk, view, verdicts, kept)
    frontier = max(frontier, walk.pos if reached is None else reached)
    lost_mask = (verdicts == Verdict.LOST) & (view.base < frontier)
    return Plan(
        add=tuple(add),
        remove=tuple(remove),
        replace=tuple(replaced),
        trim=tuple(trim),
        state=PartState(frontier, floor, lineage.entries, lineage.end),
        rewind=rewind,
        gaps=tuple(gap for gap in walk.gaps if gap[1] < frontier),
        lost=tuple((int(b), int(e)) for b, e in zip(view.base[lost_mask], view.last[lost_mask], strict=True)),
    )


def _rewind(
    recorded: Lineage, lineage: Lineage, alive: Sequence[_Input], state: PartState
) -> tuple[int | None, int, int]:
    """R3: (rewind offset or None, frontier, floor) after leaving a dead branch."""
    start = divergence(recorded, lineage)
    if start is None:
        return None, state.frontier, state.floor
    floor = min(state.floor, start)
    below = sorted((item for item in alive if item.segment.base < start), key=lambda item: item.segment.base)
    first = start
    opened: dict[int, int] = {}
    seen = -1
    for item in below:
        if item.segment.base > seen + 1:
            opened.clear()  # a hole for good: those transactions are lost, not open
        batches = item.batches
        special = item.between(seen + 1, start) & (batches.kind != BatchKind.PLAIN) & (batches.base > seen)
        for number in np.flatnonzero(special):
            producer = int(batches.producer_id[number])
            if batches.kind[number] == BatchKind.TXN:
                opened.setdefault(producer, int(batches.base[number]))
            else:
                opened.pop(producer, None)
        seen = max(seen, min(item.valid_end, start) - 1)
    first = min([start, *opened.values()])
    if first >= state.frontier:
        return None, state.frontier, floor
    return first, first, floor


def _walk(alive: Sequence[_Input], frontier: int, floor: int, policy: Policy, relisted: bool) -> _Walk | None:
    """R6, R7. None: a hole was met and the listing must be repeated before it is believed."""
    wanted = (SegmentState.LIVE,) if policy == "follow" else (SegmentState.LIVE, SegmentState.DELETED)
    sources = _Cover([item for item in alive if item.segment.state in wanted])
    least = floor if policy == "follow" else 0
    pos = max(frontier, least)
    if frontier < 0:  # the very first start: nothing lies below it, but a hurried listing may have missed the lowest
        lowest = sources.next_base()
        if lowest is None:
            return _Walk(pos=floor or -1)
        if lowest > least and not relisted:
            return None
        pos = max(lowest, least)
    walk = _Walk(pos=pos)
    while True:
        best = sources.at(walk.pos)
        if best is not None:
            walk.stretches.append(_Stretch(best, walk.pos, best.valid_end))
            walk.pos = best.valid_end
            continue
        higher = sources.next_base()
        if higher is None:
            return walk
        if not relisted:
            return None
        walk.gaps.append((walk.pos, higher - 1))
        walk.pos = higher


def _decided(alive: Sequence[_Input], walk: _Walk) -> tuple[View, UInt8Array]:
    """R8: the view from the walk's start on, and a verdict per batch of it.

    The view's coverage is that of all living segments, deleted and withdrawn ones too. It goes on beyond the walk
    while there is no hole, and over holes only where the walk went over them.
    """
    parts: list[tuple[Batches, BoolArray, int]] = []
    if not walk.stretches:
        return View.join(parts), np.empty(0, dtype=np.uint8)
    begin = cover = walk.stretches[0].start
    sources = _Cover(alive)
    stretch = 0
    while True:
        best = sources.at(cover)
        if best is not None:
            mask = best.between(cover, best.valid_end)
            if parts:
                mask &= best.batches.base >= cover
            parts.append((best.batches, mask, stretch))
            cover = best.valid_end
            continue
        higher = sources.next_base()
        if higher is None or cover >= walk.pos:
            break
        cover = higher
        stretch += 1
    ends = [
        SnapshotEnd(item.segment.end, item.segment.open_end)
        for item in alive
        if item.segment.open_end is not None
        and begin <= item.segment.end < cover
        and item.valid_end == item.segment.end + 1
    ]
    view = View.join(parts)
    return view, decide(view, ends)


def _incoming(
    walk: _Walk, view: View, verdicts: UInt8Array, kept: Sequence[tuple[int, int]]
) -> tuple[list[UseMain | Derive], int | None]:
    """R11: files to add, and where the first segment that must wait begins (None: none does)."""
    add: list[UseMain | Derive] = []
    for stretch in walk.stretches:
        source = stretch.source
        batches = source.batches
        inside = source.between(stretch.start, stretch.end)
        found = np.searchsorted(view.base, batches.base)
        safe = np.minimum(found, max(len(view.base) - 1, 0))
        matches = (found < len(view.base)) & (view.base[safe] == batches.base)
        verdict = np.where(matches, verdicts[safe], Verdict.UNDECIDED)
        if source.segment.conflict or (inside & (verdict == Verdict.UNDECIDED)).any():
            return add, stretch.start
        wanted = inside & batches.rows & (verdict == Verdict.COMMITTED)
        if not wanted.any():
            continue
        add += _files(stretch, wanted, kept)
    return add, None


def _files(stretch: _Stretch, wanted: BoolArray, kept: Sequence[tuple[int, int]]) -> list[UseMain | Derive]:
    """The segment's own file if it fits exactly, else derived ones, split at every kept file."""
    segment, batches = stretch.source.segment, stretch.source.batches
    main = segment.main
    whole = bool((wanted == batches.rows).all())
    fits = main is not None and whole and stretch.start <= main.first and main.last < stretch.end
    if main is not None and fits and not any(first <= main.last and last >= main.first for first, last in kept):
        return [UseMain(segment.id)]
    ranges = _ranges(batches, wanted, stretch)
    derived: list[UseMain | Derive] = []
    edge = stretch.start
    for first, last in (*(item for item in kept if item[1] >= stretch.start), (stretch.end, stretch.end)):
        part = tuple((segment.id, max(a, edge), min(b, first - 1)) for a, b in ranges if a < first and b >= edge)
        part = tuple(item for item in part if item[1] <= item[2])
        if part:
            derived.append(Derive(part))
        edge = max(edge, last + 1)
    return derived


def _ranges(batches: Batches, wanted: BoolArray, stretch: _Stretch) -> list[tuple[int, int]]:
    """Offsets [first, last] of wanted rows, as few ranges as possible: batches without rows do not part them."""
    holders = np.flatnonzero(batches.rows & (batches.last >= stretch.start) & (batches.base < stretch.end))
    take = wanted[holders]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], take, [False])).astype(np.int8)))
    starts, stops = edges[0::2], edges[1::2] - 1
    return [
        (max(int(batches.base[holders[a]]), stretch.start), min(int(batches.last[holders[b]]), stretch.end - 1))
        for a, b in zip(starts, stops, strict=True)
    ]


def _outgoing(
    files: Sequence[LiveFile], lineage: Lineage, frontier: int, floor: int, policy: Policy
) -> tuple[list[str], list[str], list[Trim]]:
    """R10: paths that go by retention, paths that go with a dead branch, files to cut."""
    remove: list[str] = []
    replaced: list[str] = []
    trim: list[Trim] = []
    for item in sorted(files, key=lambda file: (file.first, file.path)):
        limit = min(valid_end(item.runs, item.first, item.last + 1, lineage), max(frontier, 0))
        if policy == "follow" and item.last < floor:
            remove.append(item.path)
        elif limit <= item.first:
            replaced.append(item.path)
        elif limit <= item.last:
            trim.append(Trim(item.path, limit))
    return remove, replaced, trim
