"""What a job counts, for Prometheus. Sizes are bytes, times seconds; each line is of one projection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from repartition.jobs.events import Began, Ended, Event, Failed, Planned, ProjectionName, Raced
from repartition.maintain.due import Chore
from repartition.run.run import Ran
from rsm_bridge.errors import SettingsError
from rsm_bridge.metrics.http_pages import MetricsPage

_PROJECTION: Final = ("topic", "table")
_CHORES: Final = frozenset(get_args(Chore))
_OUTCOMES: Final = ("ok", "nothing_new", "raced", "failed")


def _registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


@dataclass(slots=True)
class ProjectionMetrics:
    """A watcher that counts, with a registry of its own. `clock`, `now`: seconds, monotonic and since the epoch."""

    registry: CollectorRegistry = field(default_factory=_registry)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    runs: Counter = field(init=False)
    read_records: Counter = field(init=False)
    read_bytes: Counter = field(init=False)
    dead_letters: Counter = field(init=False)
    step_seconds: Counter = field(init=False)
    maintenance_seconds: Counter = field(init=False)
    failures: Counter = field(init=False)
    lag: Gauge = field(init=False)
    last_success: Gauge = field(init=False)
    _doing: dict[ProjectionName, tuple[str, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        def counter(name: str, said: str, *labels: str) -> Counter:
            return Counter(f"tierberg_copy_{name}", said, (*_PROJECTION, *labels), registry=self.registry)

        def gauge(name: str, said: str) -> Gauge:
            return Gauge(f"tierberg_copy_{name}", said, _PROJECTION, registry=self.registry)

        self.runs = counter("runs", f"Runs by outcome: {', '.join(_OUTCOMES)}", "outcome")
        self.read_records = counter("read_records", "Records that runs have read of the topic's table")
        self.read_bytes = counter("read_bytes", "Bytes of the data files those lie in")
        self.dead_letters = counter("dead_letters", "Records that have no row in the projection")
        self.step_seconds = counter("step_seconds", "Time of runs by step; Spark reads while it writes", "step")
        self.maintenance_seconds = counter("maintenance_seconds", "Time of maintenance by chore", "chore")
        self.failures = counter("failures", "Rounds that ended with an error, by its kind", "kind")
        self.lag = gauge("lag_offsets", "Offsets of the topic's table that the last run has left unread")
        self.last_success = gauge("last_success_timestamp_seconds", "When a run last ended well, since the epoch")

    def expect(self, projections: Iterable[ProjectionName]) -> None:
        """Has lines of these from the beginning on, so that the first of a kind is seen as a rise."""
        for projection in projections:
            for outcome in _OUTCOMES:
                self.runs.labels(projection.topic, projection.table, outcome)
            for each in (self.read_records, self.read_bytes, self.dead_letters):
                each.labels(projection.topic, projection.table)

    def forget(self, projections: Iterable[ProjectionName]) -> None:
        """Has no more how far these are and how old that is, which nothing would change any more."""
        for projection in projections:
            for each in (self.lag, self.last_success):
                each.remove(projection.topic, projection.table)

    def __call__(self, projection: ProjectionName, event: Event) -> None:
        """Counts."""
        if isinstance(event, Planned):  # what is read counts when it is in the projection
            return
        self._over(projection)
        match event:
            case Began(step):
                self._doing[projection] = (step, self.clock())
            case Ended(ran):
                self._ended(projection, ran)
            case Raced():
                self.runs.labels(projection.topic, projection.table, "raced").inc()
            case Failed(error, maintaining):
                self.failures.labels(projection.topic, projection.table, error.kind).inc()
                if not maintaining:
                    self.runs.labels(projection.topic, projection.table, "failed").inc()

    def _over(self, projection: ProjectionName) -> None:
        """The time of the step that was going on counts now."""
        if projection not in self._doing:
            return
        step, began = self._doing.pop(projection)
        seconds = self.maintenance_seconds if step in _CHORES else self.step_seconds
        seconds.labels(projection.topic, projection.table, step.replace(" ", "_")).inc(self.clock() - began)

    def _ended(self, projection: ProjectionName, ran: Ran) -> None:
        names, reading = (projection.topic, projection.table), ran.reading
        self.runs.labels(*names, "ok" if ran.ranges else "nothing_new").inc()
        self.read_records.labels(*names).inc(reading.rows)
        self.read_bytes.labels(*names).inc(reading.size_bytes)
        self.dead_letters.labels(*names).inc(ran.dead_letters)
        self.lag.labels(*names).set(reading.left_offsets)
        self.last_success.labels(*names).set(self.now())


@contextmanager
def served(metrics: ProjectionMetrics, listen: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Serves the page `/metrics` until the block ends; `listen` None: none.

    An address that cannot be used is said and no error: a `--repair` by hand, beside the job that goes on, has the
    same settings.
    """
    if listen is None:
        yield
        return
    try:
        page = MetricsPage(metrics.registry, {}, "repartition.metrics", listen)
    except SettingsError as error:
        say(f"{error}; this job runs without")
        yield
        return
    say(f"metrics: http://{page.address}/metrics")
    try:
        yield
    finally:
        page.close()
