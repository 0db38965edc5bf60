"""Three histories that have everything in them that may happen."""

from __future__ import annotations

from tests.projections.projection_histories import Act, Change
from tests.projections.projection_oracle import Shape


def put(key: int, version: int = 1, time: int = 0) -> Change:
    return Change("put", key, version, time)


def gone(key: int) -> Change:
    return Change("delete", key, 1, 0)


def moved(key: int, version: int = 1) -> Change:
    return Change("move", key, version, 0)


def bad(key: int) -> Change:
    """It does not decode."""
    return Change("broken", key, 1, 0)


def keyless(version: int = 1) -> Change:
    return Change("no key", 0, version, 0)


def sends(partition: int, *changes: Change, what: str = "send", number: int = 0) -> Act:
    return Act(what, partition, changes, number)


APPEND, UPSERT = 0, 1

#: Late rows, an unclean election, a job that dies, a backfill in portions, retention behind it.
PLAIN = (
    sends(0, put(0), put(2), put(4), gone(4), bad(2)),
    sends(1, put(0), keyless(), put(2), gone(2)),
    Act("run", APPEND),
    Act("die", UPSERT, number=3),
    Act("run", UPSERT),
    sends(0, put(0, 4), gone(2), keyless(2), put(4, 5), what="send hidden"),
    sends(0, put(4, 2), put(0, 3), bad(0), gone(0)),
    sends(1, put(2, 5), gone(0), bad(0), put(4, 4)),
    Act("portion", APPEND),
    Act("run", UPSERT),
    Act("requeue"),
    Act("again", 0, number=1),
    Act("portion", UPSERT),
    Act("run", APPEND),
    Act("merge"),
    sends(1, put(2, 2), put(4, 3), bad(0), what="rewind", number=5),
    Act("run", APPEND),
    Act("maintain", UPSERT),
    Act("retention", 0),
)

#: Keys that change, deletes with and without a tombstone.
DEBEZIUM = (
    sends(0, put(0), put(2), put(4), moved(0), keyless(2)),
    sends(1, put(0, 3), gone(0), put(2), gone(2), bad(0)),
    Act("portion", APPEND),
    Act("run", UPSERT),
    sends(0, moved(2, 4), gone(4), put(0, 5), put(2, 2)),
    Act("die", APPEND, number=2),
    Act("maintain", UPSERT),
    Act("retention", 1),
    sends(1, put(0, 5), put(2, 4), moved(2), gone(4), what="rewind", number=2),
)

#: An older record comes later, in another partition.
MOVING = (
    sends(0, put(1, 2, 20), put(2, 1, 9), put(3, 4, 5), bad(2)),
    Act("run", UPSERT),
    sends(1, put(1, 3, 10), put(2, 5, 30), put(3, 1, 5), keyless()),
    Act("run", UPSERT),
    Act("merge"),
    sends(0, put(2, 2, 12), put(3, 2, 4), put(4, 2, 1)),
    sends(1, put(4, 5, 1), put(2, 2, 40), what="rewind", number=1),
)

CASES = (
    (Shape("plain", "merge-on-read", 2), PLAIN),
    (Shape("debezium", "copy-on-write", 3), DEBEZIUM),
    (Shape("moving", "merge-on-read", 3), MOVING),
)
