"""One case under way, and what its scenario may do with it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.e2e.e2e_support import wait_tiered
from tests.faults_matrix.comparing import wait_published
from tests.faults_matrix.world import World
from tests.faults_matrix.writing import Writing
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

Victim = Literal["bridge", "broker"]

TIER_S = 90
GONE_S = 60
COMMAND_S = 120  # a lease that a killed command held is taken over within two TTLs of 30 s
_TOMBSTONE = b"TBTS"


class Segment(NamedTuple):
    """First and last offset, inclusive, and the key of an index object."""

    base: int
    last: int
    key: str


@dataclass(slots=True)
class CaseRun:
    """Topic, table and what is expected of them.

    Attributes:
        start: of Kafka's log: the first offset consumers get.
        rows_from: from this offset on the table must have every row; below it may have some.
        found: what a scenario wants to find again.
        command: the process that is to reach the point, if it is not the bridge.
    """

    world: World
    topic: str
    point: str
    victim: Victim
    topic_id: str = ""
    start: int = 0
    rows_from: int = 0
    command: ServerProcess | None = None
    writing: Writing = field(init=False)
    stack: ExitStack = field(default_factory=ExitStack)
    found: list[Any] = field(default_factory=list)

    @property
    def table(self) -> str:
        """Its name in the catalog."""
        return f"kafka.{self.topic}"

    @property
    def about(self) -> tuple[str, ...]:
        """What fail points say when they work for this topic."""
        return (self.topic_id, self.table)

    def create(self) -> None:
        """The topic, with nothing in it."""
        self.world.pair.admin.create_topic(self.topic)
        self.topic_id = self.world.pair.admin.topic_id(self.topic)
        self.writing = Writing(self.world.broker, self.topic)

    def settle(self) -> None:
        """Until all that was written is on the remote tier alone, and its rows in the table."""
        wait_tiered(self.world.pair, self.topic, timeout_s=TIER_S)
        with self.world.ground.catalog() as catalog:
            wait_published(catalog, self.table, self.writing.log.committed, self.rows_from)

    def segments(self) -> list[Segment]:
        """What the store has indexes or tombstones of, ascending."""
        keys = self.world.ground.keys(f"index/{self.topic_id}/0/")
        named = (key.rpartition("/")[2].split("-") for key in keys)
        return sorted(Segment(int(base), int(last), key) for key, (last, base, _) in zip(keys, named, strict=True))

    def delete_below_the_last_segment(self) -> None:
        """Moves the start of Kafka's log up to the base of the last segment."""
        self.start = self.rows_from = max(segment.base for segment in self.segments())
        self.delete_records()

    def delete_records(self) -> None:
        """Asks Kafka to move the start of the log, perhaps once more."""
        self.world.pair.admin.delete_records(self.topic, 0, self.start)

    def wait_tombstones(self) -> None:
        """Until every segment below the start of the log is deleted in the store too."""

        def all_deleted() -> bool:
            below = [segment.key for segment in self.segments() if segment.last < self.start]
            return all(self.world.ground.read(key)[:4] == _TOMBSTONE for key in below)

        wait_for(f"tombstones below offset {self.start}", all_deleted, GONE_S, 0.3)

    def wait_reclaimed(self) -> None:
        """Until the store has no data file below the start of the log."""

        def left() -> list[str]:
            keys = self.world.ground.keys(f"data/{self.topic_id}/0/")
            return [key for key in keys if int(key.rpartition("/")[2].split("-")[1]) < self.start]

        wait_for(f"data files below offset {self.start} to leave the store", lambda: not left(), GONE_S, 0.3)

    def start_command(self, *arguments: str) -> None:
        """Starts `tierberg …`, which is to reach the point."""
        self.command = self.world.command(arguments[0], *arguments)
        self.command.start()

    def wait_command(self, said: str) -> None:
        """Until the command that runs has done its work."""
        running = self.command
        assert running is not None
        wait_for(f"tierberg {said} to end", lambda: not running.alive, COMMAND_S)
        assert running.returncode == 0, running.output()

    def finish_command(self, *arguments: str) -> None:
        """Until the work is done: by the command that went on, or when it was killed by another one."""
        if self.victim == "bridge":
            self.start_command(*arguments)
        self.wait_command(" ".join(arguments))
