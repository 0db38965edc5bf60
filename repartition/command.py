"""`tierberg repartition`: one Spark application for all copies of all topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog

from iceberg_catalog.catalogs import CatalogSettings, open_catalog
from repartition.errors import RepartitionError
from repartition.job import CopyJob, Ran, Target
from repartition.session import spark_session
from repartition.source import Source, find_source, find_sources
from repartition.spark_catalog import spark_catalog
from rsm_bridge.copy_rules import CopyRule
from rsm_bridge.limits import MIB
from rsm_bridge.maintain_command import Place, open_place
from rsm_bridge.publisher import catalog_properties
from rsm_bridge.secret_settings import revealed

#: Runs of one copy that another job may beat before it is left to the next round.
RACES_MAX = 5


def repartition(
    config: Path | None,
    data_dir: Path | None,
    topic: str | None,
    topic_id: str | None,
    *,
    continuous: bool,
    max_mib: int | None,
    say: Callable[[str], None],
) -> int:
    """Runs every copy of one topic, or of all, until there is nothing new; returns how many failed in the last round.

    Args:
        config: the settings file, None: defaults.
        data_dir: over that of the settings.
        topic: its name; None: every topic with `copies`.
        topic_id: which one, 32 hex digits, when a topic was created again.
        continuous: go on until interrupted.
        max_mib: how much one run reads; None: as the settings say.
        say: receives one line per run.

    Raises:
        SettingsError, CatalogError: settings, store or catalog cannot be opened.
        RepartitionError: `no_source`, `bad_rule`.
    """
    place = open_place(config, data_dir)
    limit = max_mib or place.settings.repartition.max_mib
    with _jobs(place, topic, topic_id, None if limit is None else limit * MIB) as jobs:
        while True:
            began = time.monotonic()
            failed = sum(not _caught_up(job, say) for job in jobs)
            if not continuous:
                return failed
            time.sleep(max(0.0, began + place.settings.repartition.interval - time.monotonic()))


def _caught_up(job: CopyJob, say: Callable[[str], None]) -> bool:
    """Runs a copy until it has everything; False when it failed, and why is said."""
    name, races = ".".join(job.name), 0
    while True:
        began = time.monotonic()
        try:
            ran = job.run()
        except RepartitionError as error:
            races += error.kind == "raced"
            if error.kind != "raced" or races > RACES_MAX:
                say(f"{name}: failed: {error}")
                return False
            continue
        say(f"{name}: {_said(ran, time.monotonic() - began)}")
        if ran.complete:
            return True


def _said(ran: Ran, seconds: float) -> str:
    if not ran.ranges:
        return "nothing new"
    letters = f", {ran.dead_letters} dead letters" if ran.dead_letters else ""
    return f"{ran.ranges} partitions, {ran.size_bytes / MIB:.1f} MiB read in {seconds:.1f} s{letters}"


@contextmanager
def _jobs(place: Place, topic: str | None, topic_id: str | None, max_bytes: int | None) -> Iterator[list[CopyJob]]:
    sources = [find_source(place, topic, topic_id)] if topic is not None else find_sources(place)
    pairs = [(source, rule) for source in sources for rule in place.settings.rule(source.owner.topic).copies]
    if not pairs:
        raise RepartitionError(
            "bad_rule", f"{'no topic' if topic is None else f'topic {topic}'} has `copies` in the settings"
        )
    own = catalog_properties(place.settings)
    conf = spark_catalog(own.name, own.properties)
    targets: dict[str, tuple[Catalog, str]] = {own.name: (place.catalog, own.name)}
    for _, rule in pairs:
        if rule.catalog is not None and rule.catalog.name not in targets:
            properties = revealed(rule.catalog.properties)
            opened = open_catalog(CatalogSettings(rule.catalog.name, properties))
            targets[rule.catalog.name] = opened, rule.catalog.name
            conf |= spark_catalog(rule.catalog.name, properties)
    with spark_session(conf, revealed(place.settings.repartition.spark)) as session:
        yield [
            CopyJob(
                session, source, own.name, rule, _target(targets, own.name, rule), _name(place, source, rule), max_bytes
            )
            for source, rule in pairs
        ]


def _target(targets: dict[str, tuple[Catalog, str]], own: str, rule: CopyRule) -> Target:
    return Target(*targets[own if rule.catalog is None else rule.catalog.name])


def _name(place: Place, source: Source, rule: CopyRule) -> tuple[str, ...]:
    return rule.table_of(source.name[-1], place.namespace)
