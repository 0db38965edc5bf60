"""What happens to the projections of a job, for those who show or count it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iceberg_catalog.connect.redaction import hide
from repartition.errors import RepartitionError
from repartition.maintain.maintain import Done
from repartition.run.read_plan import Reading
from repartition.run.run import Ran
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import MIB


@dataclass(frozen=True, slots=True)
class ProjectionName:
    """One projection. `table`: namespaces first, with dots."""

    topic: str
    table: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A run knows what it reads, and what it leaves."""

    reading: Reading


@dataclass(frozen=True, slots=True)
class Began:
    """A step of a run, or a chore of maintenance; what was being done is over."""

    step: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A run went well. Without ranges there was nothing new."""

    ran: Ran
    seconds: float


@dataclass(frozen=True, slots=True)
class Raced:
    """Another job was faster; the run begins again."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """A chore went well.

    per_hour_s: seconds of maintenance in an hour of runs and maintenance; None: of a job that ends it tells nothing.
    """

    done: Done
    per_hour_s: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The round is over for this projection, or what is left of it goes on without maintenance: `maintaining`."""

    error: RepartitionError | BridgeError
    maintaining: bool = False


Event = Planned | Began | Ended | Raced | Maintained | Failed
#: Called by one thread at a time, of each projection in order; must not raise.
Watcher = Callable[[ProjectionName, Event], None]


def lines(say: Callable[[str], None], *, steps: bool) -> Watcher:
    """One line per run, race, chore and failure. `steps`: one per step, too."""

    def watch(projection: ProjectionName, event: Event) -> None:
        said = event.step if isinstance(event, Began) and steps else _said(event)
        if said is not None:
            say(f"{projection.table}: {said}")

    return watch


def _said(event: Event) -> str | None:
    match event:
        case Ended(ran, seconds):
            return _ended(ran, seconds)
        case Raced():
            return "another job was faster, once more"
        case Maintained(done, per_hour_s):
            share = "" if per_hour_s is None else f"; {per_hour_s:.0f} s of maintenance per hour of work"
            return f"{done.chore} in {done.seconds:.1f} s: {done.said}{share}"
        case Failed(error):
            return f"failed: {hide(str(error))}"
        case _:
            return None


def _ended(ran: Ran, seconds: float) -> str:
    replayed = f"{ran.replayed} dead letters are none any more" if ran.replayed else ""
    if not ran.ranges:
        return replayed or "nothing new"
    letters = f", {ran.dead_letters} dead letters" if ran.dead_letters else ""
    left = "" if ran.complete else f", {ran.reading.left_bytes / MIB:.1f} MiB left"
    read = f"{ran.ranges} partitions, {ran.reading.size_bytes / MIB:.1f} MiB read in {seconds:.1f} s"
    return f"{read}{letters}{left}{_lost(ran)}{replayed and f'; {replayed}'}"


def _lost(ran: Ran) -> str:
    where = ", ".join(f"partition {n} offsets {first} to {end - 1}" for n, (first, end) in ran.reading.lost.items())
    return f"; gone before they were read, as Kafka had deleted them: {where}" if where else ""
