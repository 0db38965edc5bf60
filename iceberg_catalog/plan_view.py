"""R8, applied: the living log from the walk's start on, and what each batch of it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.types import BoolArray, UInt8Array
from iceberg_catalog.decide import SnapshotEnd, Verdict, View, decide
from iceberg_catalog.plan_inputs import Cover, Input, Stretch
from iceberg_catalog.plan_types import Batches
from iceberg_catalog.plan_walk import Walk

Judged = tuple[Stretch, UInt8Array]
"""A stretch and a Verdict per batch of its segment, UNDECIDED for batches outside of the view."""


def judged(alive: Sequence[Input], walk: Walk) -> tuple[list[Judged], list[tuple[int, int]]]:
    """The walk's stretches with their verdicts, and the offsets [first, last] of batches of lost transactions."""
    view, verdicts = _decided(alive, walk)
    lost = np.flatnonzero(verdicts == Verdict.LOST)
    return (
        [(stretch, _verdicts_of(stretch, view, verdicts)) for stretch in walk.stretches],
        [(int(view.base[number]), int(view.last[number])) for number in lost],
    )


def _decided(alive: Sequence[Input], walk: Walk) -> tuple[View, UInt8Array]:
    """The view and a verdict per batch of it.

    The view's coverage is that of all living segments, deleted and withdrawn ones too. It goes on beyond the walk
    while there is no hole, and over holes only where the walk went over them.
    """
    parts: list[tuple[Batches, BoolArray, int]] = []
    if not walk.stretches:
        return View.join(parts), np.empty(0, dtype=np.uint8)
    begin = reach = walk.stretches[0].start
    cover = Cover(alive)
    stretch = 0
    while True:
        best = cover.at(reach)
        if best is not None:
            mask = best.between(reach, best.valid_end)
            if parts:
                mask &= best.batches.base >= reach
            parts.append((best.batches, mask, stretch))
            reach = best.valid_end
            continue
        higher = cover.next_base()
        if higher is None or reach >= walk.pos:
            break
        reach = higher
        stretch += 1
    ends = [
        SnapshotEnd(item.segment.end, item.segment.open_end)
        for item in alive
        if item.segment.open_end is not None
        and begin <= item.segment.end < reach
        and item.valid_end == item.segment.end + 1
    ]
    view = View.join(parts)
    return view, decide(view, ends)


def _verdicts_of(stretch: Stretch, view: View, verdicts: UInt8Array) -> UInt8Array:
    batches = stretch.source.batches
    found = np.searchsorted(view.base, batches.base)
    safe = np.minimum(found, max(len(view.base) - 1, 0))
    known = (found < len(view.base)) & (view.base[safe] == batches.base)
    return np.where(known, verdicts[safe], np.uint8(Verdict.UNDECIDED)).astype(np.uint8)
