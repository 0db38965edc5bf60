"""A projection of the table, as a model: a reader with a frontier that the table's retention has to wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from iceberg_catalog.plan.hold import Deletion, Hold, Reader, ReadTo
from iceberg_catalog.plan.types import Events, PartState, Segment, SegmentState

FOR_EVER = 10**9
#: How rows that Kafka had deleted left the table, over all projections: "read", or "let go" when their time was over;
#: and how often some "waited" over a commit.
LEFT: Counter[str] = Counter()


@dataclass
class Projection:
    """Reads in steps, and what was taken back or came late again. `limit`: how long deleted rows wait for it."""

    limit: int
    next: int = 0
    rewinds: int = 0
    repairs: int = 0
    rows: dict[int, int] = field(default_factory=dict)

    def start(self, state: PartState) -> int:
        """The first offset it still has to read of a table with this state."""
        return min(self.next, again_from(state.rewinds, self.rewinds), again_from(state.repairs, self.repairs))

    def read(self, rows: dict[int, int], state: PartState, end: int) -> bool:
        """Takes what a head has below `end`; whether some of it was read before."""
        start, taken_back = self.start(state), again_from(state.rewinds, self.rewinds)
        again = start < self.next
        end = max(min(end, state.frontier), start)
        self.rows = {offset: epoch for offset, epoch in self.rows.items() if offset < taken_back}
        self.rows |= {offset: epoch for offset, epoch in rows.items() if start <= offset < end}
        self.next, self.rewinds, self.repairs = end, counted(state.rewinds), counted(state.repairs)
        return again

    def hold(self, listing: list[Segment] | None, deleted: dict[str, tuple[int, int]], now: int) -> Hold:
        """What the plan is told. `deleted`: (last offset, when) by segment; a listing may not show all of it."""
        reader = Reader(ReadTo(self.next, self.rewinds, self.repairs), self.limit)
        if listing is None:
            return Hold((reader,), None, now)
        gone = [item for item in listing if item.state == SegmentState.DELETED]
        return Hold((reader,), tuple(Deletion(i.base, i.last, i.runs, deleted[i.id][1]) for i in gone), now)

    def over(self, offset: int, deleted: dict[str, tuple[int, int]], now: int) -> bool:
        """Whether a row has waited for as long as it may: since the first deletion that reaches above it."""
        return any(at + self.limit <= now for end, at in deleted.values() if end >= offset)


def counted(events: Events) -> int:
    return events[-1][0] if events else 0


def again_from(events: Events, seen: int) -> int:
    """Where reading has to begin again; never, if nothing is new, and at 0 if too much is."""
    new = dict(events)
    missed = range(seen + 1, counted(events) + 1)
    return min((new.get(number, 0) for number in missed), default=FOR_EVER)
