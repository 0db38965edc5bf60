"""A job of a projection without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier
from repartition.run.read_plan import Range, Reading
from repartition.run.run import Ran
from rsm_bridge.limits import MIB

TABLE = "kafka.orders_now"
STEPS = ("read", "write", "dead letters", "publish")
START = Frontier(b"t" * 16)
NOTHING = Reading(ranges=(), before=START, after=START)
#: What a run of the fake does: reads so much, or fails so.
Run = Reading | RepartitionError


def portion(left_mib: int, size_mib: int = 1, before: Frontier = START) -> Reading:
    """One of several, of five records each."""
    ranges = (Range(0, 0, 5),)
    size, left = size_mib * MIB, left_mib * MIB
    return Reading(
        ranges=ranges,
        before=before,
        after=START,
        size_bytes=size,
        complete=not left_mib,
        rows=5,
        left_bytes=left,
        left_offsets=5 * left_mib,
    )


class FakeSession:
    """Spark's; `alive`: whether Java answers, `stopped`: what it then says of Spark. `pool`: of the last turn."""

    def __init__(self) -> None:
        self.alive, self.stopped, self.pool = True, False, ""
        self._jvm, self._jsparkSession = Mock(), Mock()  # Spark's names
        self.sparkContext = SimpleNamespace(  # Spark's name
            _jsc=SimpleNamespace(sc=self._context), setLocalProperty=self._pooled, setJobGroup=lambda *_: None
        )

    def _pooled(self, _key: str, name: str) -> None:
        self.pool = name

    def _context(self) -> SimpleNamespace:
        if not self.alive:
            raise ConnectionRefusedError(111, "Connection refused")
        return SimpleNamespace(isStopped=lambda: self.stopped)


@dataclass
class FakeJob:
    """A ProjectionJob: `runs` one after another, then nothing new."""

    runs: Iterator[Run]
    projection: Any = field(default_factory=lambda: SimpleNamespace(table=TABLE))
    source: Any = field(default_factory=lambda: SimpleNamespace(owner=SimpleNamespace(topic="orders")))
    planned: Callable[[Reading], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    before: Callable[[], Frontier] = lambda: START
    given_up: Callable[[], bool] = lambda: False
    session: FakeSession = field(default_factory=FakeSession)
    reported: list[RepartitionError] = field(default_factory=list)

    def report(self, error: RepartitionError) -> None:
        """As for the store."""
        self.reported.append(error)

    def run(self) -> Ran:
        """The next one."""
        found = next(self.runs, NOTHING)
        if found is NOTHING:
            return Ran(NOTHING, 0, 7)
        self.planned(found if isinstance(found, Reading) else portion(0, before=self.before()))
        for step in STEPS:
            self.step(step)
            if step == "publish" and isinstance(found, RepartitionError):
                raise found
        assert isinstance(found, Reading)
        return Ran(found, 2, 7)
