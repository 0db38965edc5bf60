"""`tierberg repartition`: one Spark application for all copies of all topics."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from repartition.catalogs import open_targets
from repartition.chores import Budget
from repartition.errors import RepartitionError
from repartition.frontier import Frontier
from repartition.job import CopyJob, Ran
from repartition.limits import RACE_WAIT_S_MAX, RACES_MAX
from repartition.maintenance import maintain
from repartition.metrics import CopyMetrics, served
from repartition.reading import Reading
from repartition.session import require_session, spark_session
from repartition.showing import Shown
from repartition.source import Source, find_source, find_sources
from repartition.watching import Began, CopyName, Ended, Event, Failed, Maintained, Planned, Raced, Watcher
from rsm_bridge.copy_hold import declared_copies
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import MIB
from rsm_bridge.maintain_command import Place, open_place
from rsm_bridge.secret_settings import revealed


@dataclass(frozen=True, slots=True)
class Options:
    """Of the command. `max_bytes`: None: as the settings say. `maintenance`: its share of the running time."""

    topic: str | None = None
    topic_id: str | None = None
    continuous: bool = False
    max_bytes: int | None = None
    repair: bool = False
    maintenance: float = 0.2


def repartition(config: Path | None, data_dir: Path | None, options: Options, shown: Shown) -> int:
    """Runs every copy of one topic, or of all, until there is nothing new; returns how many failed in the last round.

    Args:
        config: the settings file, None: defaults.
        data_dir: over that of the settings.
        options: what to do.
        shown: what is told of the runs.

    Raises:
        SettingsError, CatalogError: settings, store or catalog cannot be opened.
        RepartitionError: `no_source`, `bad_rule`; `spark` when the session has ended.
    """
    place = open_place(config, data_dir)
    limit = place.settings.repartition.max_mib
    if options.max_bytes is None and limit is not None:
        options = replace(options, max_bytes=limit * MIB)
    chosen = find_sources(place) if options.topic is None else [find_source(place, options.topic, options.topic_id)]
    declared = [source for source in chosen if options.topic or place.settings.rule(source.owner.topic).copies]
    metrics = CopyMetrics()
    with served(metrics, place.settings.repartition.metrics, shown.say), _jobs(place, declared, options) as jobs:
        metrics.expect(map(_name, jobs))
        watchers: Sequence[Watcher] = (*shown.watchers, metrics)
        budgets = [Budget(options.maintenance) for _ in jobs]
        while True:
            began = time.monotonic()
            failed = sum(not run_round(job, budget, watchers) for job, budget in zip(jobs, budgets, strict=True))
            if not options.continuous:
                return failed
            time.sleep(max(0.0, began + place.settings.repartition.interval - time.monotonic()))


def run_round(job: CopyJob, budget: Budget, watchers: Sequence[Watcher]) -> bool:
    """Runs a copy until it has everything, then maintains it; False when it failed, and why is told.

    Raises:
        RepartitionError: `spark` when the session has ended: no round could go well any more.
    """
    copy, complete = _name(job), False

    def tell(event: Event) -> None:
        for watcher in watchers:
            watcher(copy, event)

    job.step = lambda step: tell(Began(step))
    try:
        while not complete:
            ran, seconds = _run(job, tell)
            budget.working_s += seconds
            tell(Ended(ran, seconds))
            complete = ran.complete
        for done in maintain(job, budget):
            tell(Maintained(done, budget.per_hour()))
    except (RepartitionError, BridgeError) as error:
        tell(Failed(error, maintaining=complete))
        require_session(job.session)
        return False
    return True


def _run(job: CopyJob, tell: Callable[[Event], None]) -> tuple[Ran, float]:
    """One run and its seconds; again while others are faster.

    Raises:
        RepartitionError: as CopyJob.run; `raced` when the copy came no further meanwhile, RACES_MAX times.
    """
    races = 0
    at: Frontier | None = None

    def planned(reading: Reading) -> None:
        nonlocal races, at
        if reading.before != at:  # the first run, or another job has brought the copy further
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


def _name(job: CopyJob) -> CopyName:
    return CopyName(job.source.owner.topic, job.copy.table)


@contextmanager
def _jobs(place: Place, chosen: Sequence[Source], options: Options) -> Iterator[list[CopyJob]]:
    """One job per declared copy, on one session."""
    pairs = [
        (source, copy)
        for source in chosen
        for copy in declared_copies(place.settings, source.owner.topic, source.name[-1])
    ]
    if not pairs:
        topics = ", ".join(source.owner.topic for source in chosen) or "no topic"
        raise RepartitionError("bad_rule", f"no `copies` in the rules of these topics: {topics}")
    targets, conf = open_targets(place, (copy for _, copy in pairs))
    own = targets[place.settings.catalog.name].spark_name
    with spark_session(conf, revealed(place.settings.repartition.spark)) as session:
        yield [
            CopyJob(
                session,
                source,
                own,
                copy,
                targets[copy.catalog],
                options.max_bytes,
                options.repair,
            )
            for source, copy in pairs
        ]
