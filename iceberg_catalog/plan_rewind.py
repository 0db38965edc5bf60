"""R3: what leaves the table when a newer history contradicts the recorded one.

Everything from the divergence on goes, and more: a transaction that was open there may have been decided by a marker
on the dead branch, and the living one may say otherwise. So it goes from the first offset of any such transaction on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iceberg_catalog.lineage import Lineage, divergence
from iceberg_catalog.plan_inputs import Input
from iceberg_catalog.plan_types import BatchKind, PartState


def rewound(
    recorded: Lineage, lineage: Lineage, alive: Sequence[Input], state: PartState
) -> tuple[int | None, int, int]:
    """(rewind offset or None, frontier, floor) after leaving a dead branch."""
    start = divergence(recorded, lineage)
    if start is None:
        return None, state.frontier, state.floor
    floor = min(state.floor, start)
    first = min([start, *open_at(start, alive)])
    if first >= state.frontier:
        return None, state.frontier, floor
    return first, first, floor


def open_at(end: int, alive: Sequence[Input]) -> list[int]:
    """First offsets of the transactions that are open at `end` on the living log below it."""
    opened: dict[int, int] = {}
    seen = -1
    for item in sorted((item for item in alive if item.segment.base < end), key=lambda item: item.segment.base):
        if item.segment.base > seen + 1:
            opened.clear()  # a hole for good: those transactions are lost, not open
        batches = item.batches
        special = item.between(seen + 1, end) & (batches.kind != BatchKind.PLAIN) & (batches.base > seen)
        for number in np.flatnonzero(special):
            producer = int(batches.producer_id[number])
            if batches.kind[number] == BatchKind.TXN:
                opened.setdefault(producer, int(batches.base[number]))
            else:
                opened.pop(producer, None)
        seen = max(seen, min(item.valid_end, end) - 1)
    return list(opened.values())
