"""R9–R11: how far rows can be published, which files leave, are cut, and come.

Row-exact waiting: the frontier stops at the first row whose transaction nothing decides yet, in the midst of a segment
if need be. The rows below it come in a derived file now, the others later; each offset is in one file at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from converter.types import BoolArray
from iceberg_catalog.plan.decide import Verdict
from iceberg_catalog.plan.inputs import Input, Stretch
from iceberg_catalog.plan.judge import Judged
from iceberg_catalog.plan.types import (
    Batches,
    Derive,
    FileRef,
    Follow,
    Holding,
    Keep,
    LiveFile,
    Policy,
    Segment,
    Trim,
    UseMain,
)


def first_waiting(judged: Sequence[Judged], end: int) -> int:
    """R9: the first offset that must wait, `end` if none does.

    A segment whose markers contradict the broker's own files waits whole. Batches without rows never wait.
    """
    for stretch, verdicts in judged:
        source = stretch.source
        if source.segment.conflict:
            return stretch.start
        batches = source.batches
        waiting = source.between(stretch.start, stretch.end) & batches.rows & (verdicts == Verdict.UNDECIDED)
        if waiting.any():
            return max(int(batches.base[waiting.argmax()]), stretch.start)
    return end


def expired(first: int, last: int, max_timestamp_ms: int | None, floor: int, policy: Policy) -> bool:
    """Whether rows of [first, last] leave by retention: Kafka's, under a duration by their age as well.

    max_timestamp_ms: the newest timestamp among them; None: they have none, and never get old.
    """
    if isinstance(policy, Holding):
        if first < policy.end and last >= policy.start:
            return False
        policy = policy.policy
    if isinstance(policy, Keep) or last >= floor:
        return False
    return isinstance(policy, Follow) or (max_timestamp_ms is not None and max_timestamp_ms < policy.horizon_ms)


def outgoing(
    files: Sequence[LiveFile], frontier: int, floor: int, policy: Policy, stays: Callable[[LiveFile], int]
) -> tuple[list[str], list[str], list[Trim]]:
    """R10: paths that go by retention, paths that go with a dead branch, files to cut.

    Args:
        files: our live files of the partition.
        frontier: the rewound one. What is cut away lies above it, so that it comes again as far as it is alive; and it
            was taken back to where any file died (rewind.py), so that all below it stays.
        floor: the new one.
        policy: what becomes of rows that Kafka's retention deleted.
        stays: from which offset on a file's rows stay all the same: they are alive, and cannot come again.
    """
    limit = max(frontier, 0)
    remove: list[str] = []
    replaced: list[str] = []
    trim: list[Trim] = []
    for item in sorted(files, key=lambda file: (file.first, file.path)):
        if expired(item.first, item.last, item.max_timestamp_ms, floor, policy):
            remove.append(item.path)
            continue
        if limit > item.last or (again := max(stays(item), limit)) <= max(item.first, limit):
            continue
        below = limit if not expired(item.first, limit - 1, item.max_timestamp_ms, floor, policy) else item.first
        cut = Trim(item.path, below, again)
        if cut.kept(item):
            trim.append(cut)
        else:
            replaced.append(item.path)
    return remove, replaced, trim


def incoming(
    judged: Sequence[Judged], end: int, kept: Sequence[tuple[int, int]], floor: int, policy: Policy
) -> list[UseMain | Derive]:
    """R11: files to add for the committed rows below `end`. `kept`: ranges [first, last] of files that stay."""
    add: list[UseMain | Derive] = []
    for whole, verdicts in judged:
        if whole.start >= end:
            break
        stretch = Stretch(whole.source, whole.start, min(whole.end, end))
        batches = stretch.source.batches
        wanted = stretch.source.between(stretch.start, stretch.end)
        wanted &= batches.rows & (verdicts == Verdict.COMMITTED)
        if not wanted.any():
            continue
        pieces = _pieces(stretch, wanted, kept)
        add += [piece for piece in pieces if not _too_late(piece, stretch.source, wanted, floor, policy)]
    return add


def _too_late(piece: UseMain | Derive, source: Input, wanted: BoolArray, floor: int, policy: Policy) -> bool:
    """Whether a new file would leave at once: judged as it will be in the table, by its own rows and no others."""
    first, last = span(piece, source.segment)
    batches = source.batches
    held = wanted & (batches.last >= first) & (batches.base <= last)
    newest = int(batches.max_timestamp_ms[held].max(initial=-1))
    return expired(first, last, newest if newest >= 0 else None, floor, policy)


def span(piece: UseMain | Derive, segment: Segment) -> tuple[int, int]:
    """First and last offset a new file of this segment's rows may have rows of."""
    if isinstance(piece, Derive):
        return piece.ranges[0][1], piece.ranges[-1][2]
    file = segment.tail if piece.tail else segment.main
    if file is None:
        raise ValueError(f"{segment.id} has no such file")
    return file.first, file.last


def spanned(first: int, last: int, ascending: Sequence[tuple[int, int]]) -> bool:
    """Whether ranges [first, last], which ascend and do not overlap, hold every offset of another; true of none."""
    at = bisect_left(ascending, first, key=lambda item: item[1])
    while first <= last and at < len(ascending) and ascending[at][0] <= first:
        first = ascending[at][1] + 1
        at += 1
    return first > last


def _pieces(stretch: Stretch, wanted: BoolArray, kept: Sequence[tuple[int, int]]) -> list[UseMain | Derive]:
    """The segment's own files where they fit exactly, else derived ones, split at every file that is there then."""
    segment, batches = stretch.source.segment, stretch.source.batches
    used = [file for file in segment.files if _fits(file, stretch, wanted, kept)]
    pieces: list[UseMain | Derive] = [UseMain(segment.id, tail=file is segment.tail) for file in used]
    for file in used:
        wanted = wanted & ~_held(file, segment, batches)
    present = sorted([*kept, *((file.first, file.last) for file in used)])
    return [*pieces, *_derived(stretch, wanted, present)]


def _fits(file: FileRef, stretch: Stretch, wanted: BoolArray, kept: Sequence[tuple[int, int]]) -> bool:
    """Whether a segment's own file holds only wanted rows and meets no kept file."""
    whole = bool(wanted[_held(file, stretch.source.segment, stretch.source.batches)].all())
    fits = whole and not (file.shared or file.pending) and stretch.start <= file.first and file.last < stretch.end
    return fits and not any(first <= file.last and last >= file.first for first, last in kept)


def _held(file: FileRef, segment: Segment, batches: Batches) -> BoolArray:
    """The batches whose rows one of the segment's own files holds. The tail's first row lies in its first batch."""
    if segment.tail is None:
        return batches.rows
    in_tail = batches.last >= segment.tail.first
    held: BoolArray = batches.rows & (in_tail if file is segment.tail else ~in_tail)
    return held


def _derived(stretch: Stretch, wanted: BoolArray, kept: Sequence[tuple[int, int]]) -> list[UseMain | Derive]:
    """Derived files for the wanted batches, split at every kept file."""
    segment, batches = stretch.source.segment, stretch.source.batches
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


def _ranges(batches: Batches, wanted: BoolArray, stretch: Stretch) -> list[tuple[int, int]]:
    """Offsets [first, last] of wanted rows, as few ranges as possible: batches without rows do not part them."""
    holders = np.flatnonzero(batches.rows & (batches.last >= stretch.start) & (batches.base < stretch.end))
    take = wanted[holders]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], take, [False])).astype(np.int8)))
    starts, stops = edges[0::2], edges[1::2] - 1
    return [
        (max(int(batches.base[holders[a]]), stretch.start), min(int(batches.last[holders[b]]), stretch.end - 1))
        for a, b in zip(starts, stops, strict=True)
    ]
