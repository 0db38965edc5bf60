"""R3: what leaves the table when a newer history contradicts the recorded one.

Everything from the divergence on goes, and more: a transaction that was open there may have been decided by a marker
on the dead branch, and the living one may say otherwise. So it goes from the first offset of any such transaction on.

A record that was shortened does not tell of all offsets where the two differ; files do, by their own epochs. Where one
of them died below the divergence, that is where the branch was left, and the frontier goes back to there. So all that
lies below the frontier afterwards is alive, and all that is cut away above it can come again. Where nobody knew the
dead branch right below the divergence, the living one may have rows that were never looked for: they come too.

A record is cut at the floor too, so the histories may differ already where it begins. Where nothing of the table stays
either, nobody can tell where the two parted, however close their epochs are: an older one may have won back before. And
what retention deleted was of the branch that is left. Then all starts anew at the lowest row that the living branch
has: Kafka serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from iceberg_catalog.plan.decide import NEVER
from iceberg_catalog.plan.file_epochs import Endings
from iceberg_catalog.plan.inputs import Input
from iceberg_catalog.plan.lineage import UNKNOWN, divergence
from iceberg_catalog.plan.types import BatchKind, LiveFile, PartState, SegmentState


def rewound(
    endings: Endings, files: Sequence[LiveFile], alive: Sequence[Input], state: PartState
) -> tuple[int | None, int, int]:
    """(rewind offset or None, frontier, floor) after leaving a dead branch.

    Args:
        endings: how far files are alive, by the recorded history and the living one.
        files: our live files of the partition in the head.
        alive: the segments of which anything is alive.
        state: recorded with the head.
    """
    start = divergence(endings.recorded, endings.lineage)
    first = state.frontier if start is None else _taken_back(start, start, alive, state)
    died = _died(endings, files, first)
    if died is not None:
        end, proven = died
        start = end if start is None else min(start, end)
        first = min(first, _taken_back(start, proven, alive, state))
    if start is None:
        return None, state.frontier, state.floor
    parted = start
    unseen = _unseen(start, min(start, state.floor), endings, files)
    unseen = min(unseen, _unread(start, state, alive, files))
    if unseen < start:
        again = max(_taken_back(unseen, unseen, alive, state), _gone_up_to(unseen, alive))
        start, first = unseen, min(first, again)
    if not any(file.first < first for file in files) and not _known_to_part(parted, endings):
        lowest = min([start, *(item.segment.base for item in alive if item.segment.state is SegmentState.LIVE)])
        start, first = lowest, min(first, lowest)
    floor = min(state.floor, start)
    return (first if first < state.frontier else None), first, floor


def lone(endings: Endings, alive: Sequence[Input], *, disputed: bool) -> Callable[[LiveFile], int]:
    """From which offset on a file's rows stay though they lie above the rewound frontier; NEVER: none does.

    Where the histories differ only below, from some offset on the same log was read before and after. A segment of it
    that was deleted may have no objects any more: its rows would be cut away, and could not come again. Follow lets
    them go as they are below the floor; who keeps them (R6) has no other copy.

    disputed: a marker says otherwise of what was peeked, so rows go back whatever the log.
    """
    agreed = None if disputed else endings.agree_from()
    deleted = [(item.segment.base, item.valid_end) for item in alive if item.segment.state is SegmentState.DELETED]

    def stays(file: LiveFile) -> int:
        if agreed is None or agreed > file.last or endings.of(file, file.last + 1) <= file.last:
            return NEVER
        first = max(agreed, file.first)
        return first if any(base <= file.last and first < end for base, end in deleted) else NEVER

    return stays


def _unseen(start: int, least: int, endings: Endings, files: Sequence[LiveFile]) -> int:
    """Where the living history is to be read from, `start` at most, `least` or above.

    That is lower than `start` if the recorded one has a hole right below it, and the table no row there. Nobody may
    have had these offsets when the walk went over them, and what the living history has there was never looked for.
    """
    old, new = endings.recorded, endings.lineage
    if old.epoch_at(start - 1) != UNKNOWN:
        return start
    hole = max(first for epoch, first in old.entries if epoch == UNKNOWN and first < start)
    begin = max([hole, least, *(min(file.last + 1, start) for file in files if file.first < start)])
    points = sorted({begin} | {first for _, first in new.entries if begin < first})
    return next((point for point in points if new.epoch_at(point) not in (None, UNKNOWN)), start)


def _unread(start: int, state: PartState, alive: Sequence[Input], files: Sequence[LiveFile]) -> int:
    """As `_unseen`, by the segments: the lowest row that one has right below `start`, where the table has none.

    What was stored after the walk had gone over it, the record knows, and nobody has read.
    """
    begin = max([state.floor, *(file.last + 1 for file in files if file.first < start)])
    lowest = start
    for item in alive:
        if item.segment.state is SegmentState.LIVE and item.segment.base < lowest and begin < item.valid_end:
            rows = item.batches.base[item.between(begin, lowest) & item.batches.rows]
            lowest = min([lowest, *(max(begin, int(base)) for base in rows[:1])])
    return lowest


def _gone_up_to(offset: int, alive: Sequence[Input]) -> int:
    """Where the rows below `offset` end that cannot come again: what nobody disputes there, stays."""
    return max([0, *(item.valid_end for item in alive if item.spent and item.valid_end <= offset)])


def _taken_back(start: int, proven: int, alive: Sequence[Input], state: PartState) -> int:
    """The frontier when the branch was left at `start`, or anywhere from `proven` on: no row lies in between."""
    return min([state.frontier, start, *open_at(proven, alive)])


def _known_to_part(start: int, endings: Endings) -> bool:
    """Whether the two histories agree on some offset below `start`."""
    old, new = endings.recorded, endings.lineage
    if not old.entries or not new.entries:
        return False
    begin = max(old.entries[0][1], new.entries[0][1])
    points = {begin} | {first for _, first in (*old.entries, *new.entries) if first > begin}
    return any(old.epoch_at(point) == new.epoch_at(point) != UNKNOWN for point in points if point < start)


def _died(endings: Endings, files: Sequence[LiveFile], frontier: int) -> tuple[int, int] | None:
    """Where the lowest file ends that does not reach to its last row or the frontier, and how far it is proven.

    A file that is dead as a whole tells only that the branch was left behind the one before it.
    """
    proven: int | None = None
    for file in sorted(files, key=lambda item: item.first):
        end = endings.of(file, frontier)
        if end < min(frontier, file.last + 1):
            return end, end if end > file.first or proven is None else proven
        proven = end
    return None


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
    return list(opened.values()) if seen + 1 >= end else []  # what a marker in that hole decided, stays as it decided
