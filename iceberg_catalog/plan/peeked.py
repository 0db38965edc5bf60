"""Transactions that are decided before their marker is tiered, and the marker's word on them.

With `peek.later.txn.indexes` a copy knows how most transactions that are open at its segment's end went on
(converter/batches/later_indexes.py); the index carries it. Where the view has no marker yet, that decides (R8). It is
knowledge of one leader's log: an unclean election may cut the marker off, and the transaction may end otherwise then,
which the lineage does not show when nothing above the segment had been tiered. So the state remembers every transaction
that the frontier passed in this way until its marker is in the view. If the marker says otherwise, it is right: the
partition goes back to the transaction's first offset, a rewind like any other (R3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.types import Int64Array, UInt8Array
from iceberg_catalog.plan.decide import Verdict, View
from iceberg_catalog.plan.inputs import Input
from iceberg_catalog.plan.types import BatchKind, Peeked


@dataclass(frozen=True, slots=True)
class Applied:
    """Verdicts with what was peeked, and the base offset of the first batch each peeked transaction decided."""

    verdicts: UInt8Array
    used: tuple[tuple[Peeked, int], ...] = ()


def applied(view: View, verdicts: UInt8Array, alive: Sequence[Input], room: int) -> Applied:
    """Decides what only a peeked transaction can decide.

    Args:
        view: the living log.
        verdicts: of its batches, by marker.
        alive: the segments of the view.
        room: how many transactions may be decided so, the lowest offsets first; the next one holds the frontier.
    """
    waiting = np.flatnonzero(verdicts == Verdict.UNDECIDED)
    if not len(waiting) or not any(item.segment.peeked for item in alive):
        return Applied(verdicts)
    # Undecided batches lie behind the last hole. What ends below says nothing of them, and must not contradict either:
    # a listing from the frontier on does not have it.
    edge = int(view.base[view.stretch.searchsorted(view.stretch[-1])])
    verdicts = verdicts.copy()
    found: list[tuple[int, Peeked, Int64Array]] = []
    for (producer, first, committed), end in _known(alive, edge):
        told = (view.base[waiting] >= first) & (view.base[waiting] <= end)
        mine = waiting[told & (view.producer_id[waiting] == producer)]
        if len(mine):
            found.append((int(view.base[mine[0]]), (producer, first, committed), mine))
    used = sorted(found, key=lambda item: item[:2])[: max(room, 0)]
    for _, (_, _, committed), mine in used:
        verdicts[mine] = Verdict.COMMITTED if committed else Verdict.ABORTED
    return Applied(verdicts, tuple((item, base) for base, item, _ in used))


def _known(alive: Sequence[Input], edge: int) -> list[tuple[Peeked, int]]:
    """What wholly living segments that end at `edge` or above say, and up to where; nothing where two of them differ.

    Each speaks of its own batches and those below, all of which its leader had. Above its end the leader may have been
    on another branch when it read how the transaction went on, and the next transaction may begin there.
    """
    known: dict[tuple[int, int], dict[bool, int]] = {}
    for item in alive:
        if item.valid_end == item.segment.last + 1 and item.segment.last >= edge:
            for producer, first, committed in item.segment.peeked:
                said = known.setdefault((producer, first), {})
                said[committed] = max(item.segment.last, said.get(committed, 0))
    return [
        ((producer, first, committed), end)
        for (producer, first), said in sorted(known.items())
        for committed, end in said.items()
        if len(said) == 1
    ]


@dataclass(frozen=True, slots=True)
class Checked:
    """`open`: no marker yet. `wrong`: first offsets of transactions whose marker says otherwise."""

    open: tuple[Peeked, ...]
    wrong: tuple[int, ...] = ()


def checked(peeked: Sequence[Peeked], view: View, *, follows: bool) -> Checked:
    """Compares what the frontier has passed with the markers above it.

    Behind a hole no marker can be told from another transaction's: those are let go.

    Args:
        peeked: of the recorded state.
        view: the living log from the frontier on.
        follows: it begins at the frontier, without a hole.
    """
    if not peeked or not len(view.base):
        return Checked(tuple(peeked))
    if not follows:
        return Checked(())
    near = view.stretch == view.stretch[0]
    markers = np.flatnonzero(near & ((view.kind == BatchKind.COMMIT) | (view.kind == BatchKind.ABORT)))
    whole = bool(near.all())
    still: list[Peeked] = []
    wrong: list[int] = []
    for producer, first, committed in peeked:
        marker = _first(markers[view.producer_id[markers] == producer])
        if marker is None:
            still += [(producer, first, committed)] if whole else []
        elif (view.kind[marker] == BatchKind.COMMIT) != committed:
            wrong.append(first)
    return Checked(tuple(still), tuple(wrong))


def _first(places: Int64Array) -> int | None:
    return int(places[0]) if len(places) else None
