"""R10, R11 while projections wait: rows that Kafka's retention deleted stay until every projection has read them.

A projection is a second copy of the table, which somebody else derives from it. Each has a limit: how long a row may
wait for it after Kafka deleted that row. Of one partition what waits for a projection is one stretch of offsets, from
the first that it has not read, or that its limit lets wait, up to what is known to be deleted:

* An offset was deleted when the first segment that reaches above it was: Kafka raises a partition's log start before it
  deletes (R5), so a deletion further up tells of all below it.
* What a projection has read ends where the table took rows back since (a rewind), or got some late (a repair): it must
  read from there on again.
* Below the floor and above every deletion that is known, nobody can tell since when: nothing waits there. The reclaimer
  leaves the tombstones that are needed to know (rsm_bridge/tables/reclaim/rules.py).

While something waits, rows of deleted segments that are not published yet come into the table too, as under a duration
(R6): the projection would miss them, however late the publisher was. A policy `Keep` needs none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iceberg_catalog.plan.decide import NEVER
from iceberg_catalog.plan.lineage import Lineage, valid_end
from iceberg_catalog.plan.types import Holding, Keep, PartState, Policy, Runs, events_since


@dataclass(frozen=True, slots=True)
class ReadTo:
    """What a projection has read of one partition: all below `next`, after so many rewinds and repairs of the table."""

    next: int = 0
    rewinds: int = 0
    repairs: int = 0


@dataclass(frozen=True, slots=True)
class Reader:
    """A declared projection, for one partition. `limit_ms`: how long a deleted row waits for it; 0: never."""

    read: ReadTo
    limit_ms: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment [base, end] (inclusive) that retention deleted at `time_ms`, with the epoch runs of its batches."""

    base: int
    end: int
    runs: Runs
    time_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """What decides which deleted rows of one partition stay.

    deletions: all that the store knows of; None: not known, so whatever was not read stays. now_ms: since the epoch.
    """

    readers: tuple[Reader, ...] = ()
    deletions: tuple[Deletion, ...] | None = ()
    now_ms: int = 0


NO_HOLD: Final = Hold()


def holding(
    policy: Policy, hold: Hold, lineage: Lineage, state: PartState, floor: int, rewind: int | None = None
) -> Policy:
    """The policy, and below the floor what has to stay.

    Args:
        policy: what becomes of rows that Kafka's retention deleted.
        hold: of the partition.
        lineage: the living history.
        state: recorded with the head.
        floor: below it everything is deleted.
        rewind: rows from there on are about to be taken back.
    """
    if isinstance(policy, Keep | Holding):
        return policy
    start, end = waiting(hold, lineage, state, rewind)
    return Holding(policy, start, end) if start < min(end, floor) else policy


def waiting(hold: Hold, lineage: Lineage, state: PartState, rewind: int | None = None) -> tuple[int, int]:
    """Offsets [start, end) that wait for a projection once below the floor; none if `start` is not below `end`."""
    ends = None if hold.deletions is None else living_ends(hold.deletions, lineage)
    firsts = [
        max(first_unread(reader.read, state, rewind), lost_below(reader.limit_ms, ends or (), hold.now_ms))
        for reader in hold.readers
        if reader.limit_ms > 0
    ]
    top = NEVER if ends is None else max((end for end, _ in ends), default=0)
    return min(firsts, default=NEVER), top


def first_unread(read: ReadTo, state: PartState, rewind: int | None = None) -> int:
    """The first offset that a projection still has to read."""
    again = [*events_since(state.rewinds, read.rewinds), *events_since(state.repairs, read.repairs)]
    return min([read.next, *again, *([] if rewind is None else [rewind])])


def living_ends(deletions: Sequence[Deletion], lineage: Lineage) -> list[tuple[int, int]]:
    """(first offset above what is alive of it, when it was deleted) of each deletion that says something (R5)."""
    found = [(valid_end(item.runs, item.base, item.end + 1, lineage), item) for item in deletions]
    return [(end, item.time_ms) for end, item in found if end > item.base]


def lost_below(limit_ms: int, ends: Sequence[tuple[int, int]], now_ms: int) -> int:
    """The offset below which rows have waited for `limit_ms`. `ends`: of :func:`living_ends`."""
    return max((end for end, time_ms in ends if time_ms + limit_ms <= now_ms), default=0)
