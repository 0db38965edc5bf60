"""Turns of a job's projections: one run of each, so that none waits for another's backlog, and several at once."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from repartition.errors import RepartitionError, as_ours
from repartition.jobs.events import Began, Ended, Event, Failed, Maintained, Planned, ProjectionName, Raced, Watcher
from repartition.jobs.rota import Rota
from repartition.limits import RACE_WAIT_S_MAX, RACES_MAX
from repartition.maintain.due import Budget
from repartition.maintain.maintain import maintain
from repartition.run.frontier import Frontier
from repartition.run.read_plan import Reading
from repartition.run.run import ProjectionJob, Ran
from repartition.spark.session import in_pool, require_session
from rsm_bridge.errors import BridgeError

#: A lane that waits looks again after so long, come what may.
_LOOK_AGAIN_S: Final = 5.0


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


@dataclass(slots=True)
class Round:
    """Projections in turn, each followed by what maintenance is due; several at once, each in a session of its own.

    A projection whose run fails waits as one that has everything; one whose maintenance fails goes on without until
    then. Why is told. Watchers are called one after the other.

    Attributes:
        watchers: what is told.
        interval: of Rota.
        look: called at most every `interval` seconds; gives the projections from then on. None: they stay.
    """

    watchers: Sequence[Watcher]
    interval: float = math.inf
    look: Callable[[], Sequence[Tended]] | None = None
    _turns: Rota[Tended] = field(init=False)
    _failed: set[Tended] = field(default_factory=set, init=False)
    _ended: BaseException | None = field(default=None, init=False)
    _looked: float = field(default_factory=time.monotonic, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _telling: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._turns = Rota(self.interval)
        watchers, telling = tuple(self.watchers), self._telling

        def tell(name: ProjectionName, event: Event) -> None:
            with telling:
                for watcher in watchers:
                    watcher(name, event)

        self.watchers = (tell,)

    def run(self, projections: Sequence[Tended], sessions: Sequence[Any] = ()) -> int:
        """Until no projection has a turn more; how many failed.

        Args:
            projections: to be run, each at least once.
            sessions: Spark's, of one application: so many projections run at once. None given: one after the other, in
                the sessions that they have.

        Raises:
            RepartitionError: `spark` when the session has ended: no turn could go well any more.
        """
        self._turns.keep(projections, time.monotonic())
        # Daemons: who interrupts the job does not wait for what Spark is doing in the others.
        others = [threading.Thread(target=self._lane, args=(session,), daemon=True) for session in sessions[1:]]
        for other in others:
            other.start()
        self._lane(sessions[0] if sessions else None)
        if isinstance(self._ended, Exception) or self._ended is None:
            for other in others:
                other.join()
        if self._ended is not None:
            raise self._ended
        return len(self._failed)

    def _lane(self, session: Any) -> None:
        try:
            while (turn := self._next()) is not None:
                self._turn(turn, session)
        except BaseException as error:  # noqa: BLE001 - raised by `run`, when the others have ended their turns
            with self._changed:
                self._ended = self._ended or error
                self._changed.notify_all()

    def _next(self) -> Tended | None:
        """Who is next, waited for; None: nobody any more, or another lane has ended with an error."""
        with self._changed:
            while self._ended is None:
                now = time.monotonic()
                if self.look is not None and now >= self._looked + self.interval:
                    self._looked = now
                    self._turns.keep(self.look(), now)
                if (turn := self._turns.next(now)) is not None:
                    return turn
                wait = self._turns.wait(now)
                if self.look is not None:  # others may come
                    wait = min(math.inf if wait is None else wait, self._looked + self.interval - now)
                if wait is None:
                    break
                self._changed.wait(min(wait, _LOOK_AGAIN_S))
            return None

    def _turn(self, projection: Tended, session: Any) -> None:
        began, more = time.monotonic(), False
        if session is not None:
            projection.job.session = session
            in_pool(session, projection.name.table)
        projection.job.given_up = lambda: self._ended is not None
        try:
            ran = _ran(projection, self.watchers)
            goes_on = not math.isinf(self.interval)
            if ran is None or (projection not in self._failed and not _maintained(projection, self.watchers, goes_on)):
                self._failed.add(projection)
            more = ran is not None and not ran.complete
        finally:
            with self._changed:
                if not more and not math.isinf(self.interval):
                    self._failed.discard(projection)
                self._turns.over(projection, began=began, now=time.monotonic(), again=more)
                self._changed.notify_all()


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


def _maintained(projection: Tended, watchers: Sequence[Watcher], goes_on: bool) -> bool:
    """What is due and the budget has; False when it failed. `goes_on`: the job has no end."""
    try:
        for done in maintain(projection.job, projection.budget):
            projection.tell(watchers, Maintained(done, projection.budget.per_hour() if goes_on else None))
    except (RepartitionError, BridgeError) as error:
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
