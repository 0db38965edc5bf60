"""Whether the Kafka that was asked is a topic's own cluster. Pure.

One store may have topics of several clusters, and a Kafka has no topic of another one: that it has none of an id says
something only where it is the topic's own. Segments have the `cluster.name` of the broker that sent them; Kafka itself
knows no such name, and gives its own id to no plugin. What ties the two together are topic ids, which are unique: the
names on topics that Kafka has are names of that Kafka.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum


class Asked(Enum):
    """What the Kafka that was asked is to a topic that it does not have."""

    OWN = "own"
    UNSURE = "unsure"
    ANOTHER = "another"


def asked(of_topic: Collection[str], of_kafka: Collection[str]) -> Asked:
    """Its own cluster where both have one name, and the same. Several names on one side are certain of nothing.

    Args:
        of_topic: the cluster names of its segments.
        of_kafka: those of the store's topics that Kafka has by id.
    """
    mine, theirs = frozenset(of_topic), frozenset(of_kafka)
    if len(theirs) == 1 and mine == theirs:
        return Asked.OWN
    return Asked.ANOTHER if mine and theirs and not mine & theirs else Asked.UNSURE


def doubt(of_topic: Collection[str], of_kafka: Collection[str]) -> str:
    """Why it is not certain, as the end of a sentence about the topic. Arguments as :func:`asked` has."""
    mine = f"its segments are of {clusters(of_topic)}" if of_topic else "none of its segments tells its cluster"
    if not of_kafka:
        return f"{mine}, and Kafka has no topic of this store that would tell which cluster it is"
    return f"{mine}, and topics of this store that Kafka has are of {clusters(of_kafka)}"


def clusters(names: Collection[str]) -> str:
    """`cluster a`, `clusters a and b`."""
    ordered = sorted(names)
    return f"cluster{'s' if len(ordered) > 1 else ''} {' and '.join(ordered)}"
