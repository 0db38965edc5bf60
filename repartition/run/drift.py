"""What the topic's table changed below a projection's frontier, from its recorded state alone. Pure.

Two things happen there. A *rewind*: an unclean election, or a transaction that ended otherwise, took rows back that had
been published. A *repair*: segments that had been stored as they are got their rows later. Retention is neither: what
it took, the projection keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import Events, PartState, counted, events_since
from repartition.run.frontier import NO_EPOCH, Frontier, Position


@dataclass(frozen=True, slots=True)
class Drift:
    """Of one projection. Offsets by Kafka partition.

    Attributes:
        rewound: first offset that was taken back, below the projection's frontier.
        repaired: first offset below the frontier that has rows which it had not when it was read.
    """

    rewound: Mapping[int, int]
    repaired: Mapping[int, int]


def drift(frontier: Frontier, states: Mapping[int, PartState]) -> Drift:
    """Compares. `states`: recorded with the snapshot that is to be read."""
    rewound: dict[int, int] = {}
    repaired: dict[int, int] = {}
    known = {number: position for number, position in frontier.positions.items() if number in states}
    for number, position in known.items():
        state = states[number]
        taken_back = [*_new(state.rewinds, position.rewinds), *_off_the_lineage(position, state)]
        added = _new(state.repairs, position.repairs)
        if min(taken_back, default=position.next) < position.next:
            rewound[number] = min(taken_back)
        if min(added, default=position.next) < position.next:
            repaired[number] = min(added)
    return Drift(rewound, repaired)


def _new(events: Events, seen: int) -> list[int]:
    """Their offsets. A table that was dropped and made anew counts from the beginning."""
    return events_since(events, seen if seen <= counted(events) else 0)


def _off_the_lineage(position: Position, state: PartState) -> list[int]:
    """Where the living history left the one that the projection read; empty if it did not."""
    if position.epoch == NO_EPOCH or not state.lineage:
        return []
    lineage = Lineage(state.lineage, state.known_end)
    found = lineage.epoch_at(position.next - 1)
    if found in (None, NO_EPOCH, position.epoch):
        return []
    return [min((start for epoch, start in lineage.entries if epoch > position.epoch), default=0)]
