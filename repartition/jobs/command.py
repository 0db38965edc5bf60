"""`tierberg repartition`: one Spark application for all projections of all topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iceberg_catalog.connect.open import threads_may_share
from repartition.errors import RepartitionError
from repartition.jobs.events import Watcher
from repartition.jobs.metrics import ProjectionMetrics, served
from repartition.jobs.progress_bars import Shown
from repartition.jobs.projections import Following
from repartition.jobs.rounds import Round
from repartition.run.source import Source, find_source, find_sources
from repartition.spark.session import beside, spark_session
from repartition.spark.targets import open_targets
from rsm_bridge.config.durations import duration_text
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.secrets import revealed
from rsm_bridge.limits import MIB
from rsm_bridge.storage.backend import Backend, open_backend


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionOptions:
    """Of the command. `max_bytes`: None: as the settings say. `maintenance`: its share of the running time."""

    topic: str | None = None
    topic_id: str | None = None
    continuous: bool = False
    max_bytes: int | None = None
    repair: bool = False
    replay: bool = False
    maintenance: float = 0.2


def repartition(config: Path | None, data_dir: Path | None, options: RepartitionOptions, shown: Shown) -> int:
    """Runs every projection of one topic, or of all, until there is nothing new; returns how many failed.

    Without end under `continuous`; with all topics, it then keeps those too that come later.

    Args:
        config: the settings file, None: defaults.
        data_dir: over that of the settings.
        options: what to do.
        shown: what is told of the runs.

    Raises:
        SettingsError, CatalogError: settings, store or catalog cannot be opened.
        RepartitionError: `no_source`, `bad_rule`; `spark` when the session has ended.
    """
    backend = open_backend(config, data_dir, made=True)
    limit = backend.settings.repartition.max_mib
    if options.max_bytes is None and limit is not None:
        options = replace(options, max_bytes=limit * MIB)
    following = options.topic is None and options.continuous
    sources = (
        find_sources(backend) if options.topic is None else [find_source(backend, options.topic, options.topic_id)]
    )
    rules = _rules(backend, sources, following=following)
    targets, conf = open_targets(backend, rules)
    metrics, settings = ProjectionMetrics(), backend.settings.repartition
    given = revealed(settings.spark)
    with served(metrics, settings.metrics, shown.say), spark_session(conf, given) as session:
        kept = Following(
            backend=backend,
            session=session,
            targets=targets,
            max_bytes=options.max_bytes,
            repair=options.repair,
            replay=options.replay,
            maintenance=options.maintenance,
            metrics=metrics,
            say=shown.say,
        )
        kept.take(sources)
        if options.continuous and not kept.projections:
            seconds = duration_text(settings.interval)
            shown.say(f"no topic that a rule with `copies` matches has a table yet; looked for every {seconds}")
        watchers: Sequence[Watcher] = (*shown.watchers, metrics)
        shared = all(threads_may_share(target.catalog) for target in targets.values())
        others = settings.side_by_side - 1 if shared else 0
        lanes = [session, *(beside(session, {**conf, **given}) for _ in range(others))]
        if not options.continuous:
            return Round(watchers).run(kept.projections, lanes)
        return Round(watchers, settings.interval, kept.look if following else None).run(kept.projections, lanes)


def _rules(backend: Backend, sources: Sequence[Source], *, following: bool) -> list[ProjectionRule]:
    """Of all projections that the job can meet. `following`: also those of topics that are still to come."""
    topics = sorted({source.owner.topic for source in sources})
    given = backend.settings.topics if following else [backend.settings.rule(topic) for topic in topics]
    found = [projection for rule in given for projection in rule.copies]
    if not found:
        said = "no rule" if following else f"no topic with a table ({', '.join(topics) or 'there is none'})"
        raise RepartitionError("bad_rule", f"{said} has `copies`")
    return found
