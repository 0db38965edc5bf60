"""How far a projection has read its topic's table, written with the projection's own commits.

One snapshot property, :data:`FRONTIER`: JSON `{"version": 1, "topic_id": "…", "partitions": {"0": [3, 4711, 0, 0]}}`,
per Kafka partition the leader epoch of the last offset read, the next offset to read, and how many rewinds and repairs
of the topic's table had been seen by then. A row is in the projection if and only if it lies below; what a run adds
and how far it read are one commit, so no row is lost or doubled whenever a run ends.

What the projection will never have is in the same commit, in all up to then: `"lost": {"0": [4, 7, 1700000000000]}`, as
ProjectionLoss, of the partitions that have lost something; without any the field is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iceberg_catalog.plan.lineage import UNKNOWN
from repartition.errors import RepartitionError
from rsm_bridge.storage.projections.progress import ProjectionLoss

FRONTIER: Final = "tierberg.frontier"
_VERSION: Final = 1
#: Of a partition that nothing was read of, and where the topic's table does not know the epoch either.
NO_EPOCH: Final = UNKNOWN


@dataclass(frozen=True, slots=True)
class Position:
    """Of one Kafka partition. `next`: offset, exclusive end of what was read; `epoch`: of the offset before it.

    rewinds, repairs: of the topic's table, as counted in its recorded state (iceberg_catalog.plan.types.PartState).
    """

    epoch: int = NO_EPOCH
    next: int = 0
    rewinds: int = 0
    repairs: int = 0


@dataclass(frozen=True, slots=True)
class Frontier:
    """Of one projection. `topic_id`: 16 bytes; offsets of another topic id mean other records.

    lost: by Kafka partition, what it will never have.
    """

    topic_id: bytes
    positions: Mapping[int, Position] = field(default_factory=dict)
    lost: Mapping[int, ProjectionLoss] = field(default_factory=dict)

    def encode(self) -> str:
        """The snapshot property; equal frontiers give equal texts."""
        partitions = {
            str(number): [position.epoch, position.next, position.rewinds, position.repairs]
            for number, position in sorted(self.positions.items())
        }
        document: dict[str, object] = {
            "version": _VERSION,
            "topic_id": self.topic_id.hex(),
            "partitions": partitions,
        }
        if self.lost:
            document["lost"] = {
                str(number): [item.offsets, item.end, item.at_ms] for number, item in sorted(self.lost.items())
            }
        return json.dumps(document, separators=(",", ":"))


def decode_frontier(text: str, where: str) -> Frontier:
    """The inverse of :meth:`Frontier.encode`.

    Args:
        text: of the property.
        where: the snapshot, for the message.

    Raises:
        RepartitionError: `no_frontier` if it does not parse or is of a version we do not know.
    """
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        positions = {int(number): Position(*_wholes(entry, 4)) for number, entry in document["partitions"].items()}
        lost = {int(number): ProjectionLoss(*_wholes(entry, 3)) for number, entry in document.get("lost", {}).items()}
        return Frontier(bytes.fromhex(document["topic_id"]), positions, lost)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RepartitionError("no_frontier", f"{where}: {FRONTIER} cannot be read: {error!r}") from error


def _wholes(entry: object, count: int) -> list[int]:
    if not isinstance(entry, list) or len(entry) != count or any(type(item) is not int for item in entry):
        raise ValueError(f"{entry!r} is no list of {count} whole numbers")
    return entry
