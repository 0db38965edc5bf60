"""Reassignments, elections, log folders, features, producers: what only Kafka's own client can ask of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tierberg.stack.jars import broker_jars
from tierberg.stack.java_program import JavaProgram

_PROGRAM = Path(__file__).with_name("ClusterAdmin.java")


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader remembers of a producer; -1 where there is nothing.

    Attributes:
        producer_id: given by the coordinator.
        epoch: of its last batch or marker.
        coordinator_epoch: of its last marker.
        open_from: first offset of its open transaction.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    open_from: int


class ClusterAdmin(JavaProgram):
    """Kafka's own administrative client, in a program beside us. Every method raises StackError when it is refused."""

    def __init__(self, bootstrap: str, version: str) -> None:
        """Starts it with the client of the brokers' version."""
        super().__init__(_PROGRAM, [bootstrap], jars=broker_jars(version))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to move a partition to these brokers, the preferred leader first; see :meth:`reassigning`."""
        self.ask(f"reassign\t{topic}\t{partition}\t{','.join(map(str, replicas))}")

    def reassigning(self) -> list[str]:
        """Partitions on the move, as `topic-partition`."""
        return self.ask("reassigning")

    def elect(self, topic: str, partition: int, kind: Literal["PREFERRED", "UNCLEAN"] = "PREFERRED") -> None:
        """Make the preferred replica lead, or any that is alive, whatever it lacks."""
        self.ask(f"elect\t{topic}\t{partition}\t{kind}")

    def move(self, topic: str, partition: int, broker: int, folder: Path) -> None:
        """Begin to move one replica to another log folder of its broker; see :meth:`folders`."""
        self.ask(f"move\t{topic}\t{partition}\t{broker}\t{folder}")

    def folders(self, topic: str, partition: int, broker: int) -> tuple[Path, Path | None]:
        """The log folder of a replica, and the one it is moving to."""
        (line,) = self.ask(f"folders\t{topic}\t{partition}\t{broker}")
        current, _, future = line.partition("\t")
        return Path(current), Path(future) if future else None

    def feature(self, name: str) -> int:
        """The finalized level of a feature, for example `transaction.version`; 0 when it is off."""
        return int(self.ask(f"feature\t{name}")[0])

    def upgrade(self, name: str, level: int) -> None:
        """Raise a feature's finalized level."""
        self.ask(f"upgrade\t{name}\t{level}")

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The producers the partition's leader remembers."""
        return [ProducerState(*map(int, line.split("\t"))) for line in self.ask(f"producers\t{topic}\t{partition}")]

    def write_abort_marker(self, topic: str, partition: int, producer: ProducerState) -> None:
        """Have the leader write an ABORT for the producer, as for a hanging transaction, open or not (KIP-664)."""
        # Where the leader has seen no marker yet, any epoch will do.
        numbers = f"{producer.producer_id}\t{producer.epoch}\t{max(producer.coordinator_epoch, 0)}"
        self.ask(f"abort\t{topic}\t{partition}\t{numbers}")

    def earliest_local(self, topic: str, partition: int) -> int:
        """The first offset on the leader's disk."""
        return int(self.ask(f"earliest-local\t{topic}\t{partition}")[0])

    def latest_tiered(self, topic: str, partition: int) -> int:
        """The last offset in the remote store; -1 when there is none."""
        return int(self.ask(f"latest-tiered\t{topic}\t{partition}")[0])
