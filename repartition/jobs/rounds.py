"""Rounds over the projections of a job: one run of each in turn, so that none waits for another's backlog."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repartition.errors import RepartitionError, as_ours
from repartition.jobs.events import Began, Ended, Event, Failed, Maintained, Planned, ProjectionName, Raced, Watcher
from repartition.limits import RACE_WAIT_S_MAX, RACES_MAX
from repartition.maintain.due import Budget
from repartition.maintain.maintain import maintain
from repartition.run.frontier import Frontier
from repartition.run.read_plan import Reading
from repartition.run.run import ProjectionJob, Ran
from repartition.spark.session import require_session
from rsm_bridge.errors import BridgeError


@dataclass(frozen=True, eq=False, slots=True)
class Tended:
    """A projection's job, and what its maintenance may take."""

    job: ProjectionJob
    budget: Budget

    @property
    def name(self) -> ProjectionName:
        """As watchers are told."""
        return ProjectionName(self.job.source.owner.topic, self.job.projection.table)

    def tell(self, watchers: Sequence[Watcher], event: Event) -> None:
        """Tells all of them."""
        for watcher in watchers:
            watcher(self.name, event)


def run_round(projections: Sequence[Tended], watchers: Sequence[Watcher], end: float = math.inf) -> int:
    """Runs projections in turn, each followed by what maintenance is due, until all have everything; how many failed.

    A projection whose run fails is out until the next round; one whose maintenance fails goes on without. Why is told.

    Args:
        projections: to be run, each at least once.
        watchers: what is told.
        end: by `time.monotonic`. From then on none has another turn: projections that had everything wait for theirs.

    Raises:
        RepartitionError: `spark` when the session has ended: no round could go well any more.
    """
    failed, left = set[Tended](), list(projections)
    while left:
        more: list[Tended] = []
        for projection in left:
            ran = _ran(projection, watchers)
            if ran is None or (projection not in failed and not _maintained(projection, watchers)):
                failed.add(projection)
            if ran is not None and not ran.complete:
                more.append(projection)
        left = more if time.monotonic() < end else []
    return len(failed)


def _ran(projection: Tended, watchers: Sequence[Watcher]) -> Ran | None:
    """One run; None when it failed."""
    projection.job.step = lambda step: projection.tell(watchers, Began(step))
    try:
        ran, seconds = _run(projection.job, lambda event: projection.tell(watchers, event))
    except (RepartitionError, BridgeError) as error:
        if error.kind == "raced":  # again and again: the job itself says nothing of a single race
            projection.job.report(as_ours(error))
        projection.tell(watchers, Failed(error))
        require_session(projection.job.session)
        return None
    projection.budget.working_s += seconds
    projection.tell(watchers, Ended(ran, seconds))
    return ran


def _maintained(projection: Tended, watchers: Sequence[Watcher]) -> bool:
    """What is due and the budget has; False when it failed."""
    try:
        for done in maintain(projection.job, projection.budget):
            projection.tell(watchers, Maintained(done, projection.budget.per_hour()))
    except (RepartitionError, BridgeError) as error:
        projection.job.report(as_ours(error))
        projection.tell(watchers, Failed(error, maintaining=True))
        require_session(projection.job.session)
        return False
    return True


def _run(job: ProjectionJob, tell: Callable[[Event], None]) -> tuple[Ran, float]:
    """One run and its seconds; again while others are faster.

    Raises:
        RepartitionError: as ProjectionJob.run; `raced` when the projection came no further meanwhile, RACES_MAX times.
    """
    races = 0
    at: Frontier | None = None

    def planned(reading: Reading) -> None:
        nonlocal races, at
        if reading.before != at:  # the first run, or another job has brought the projection further
            races, at = 0, reading.before
        tell(Planned(reading))

    job.planned = planned
    while True:
        began = time.monotonic()
        try:
            return job.run(), time.monotonic() - began
        except RepartitionError as error:
            races += 1
            if error.kind != "raced" or races > RACES_MAX:
                raise
        tell(Raced())
        lost_s = min(time.monotonic() - began, RACE_WAIT_S_MAX)
        time.sleep(random.uniform(0, lost_s))  # noqa: S311 - only to fall out of step
