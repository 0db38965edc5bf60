"""Which projections a job keeps, while topics come and go under it."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

import repartition.jobs.command
import repartition.jobs.projections
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.jobs.command import RepartitionOptions
from repartition.jobs.metrics import ProjectionMetrics
from repartition.jobs.progress_bars import Shown
from repartition.jobs.projections import Following
from repartition.jobs.rounds import Round
from repartition.run.source import Source
from repartition.spark.targets import Target
from rsm_bridge.config.settings import Settings

SETTINGS = Settings.model_validate(
    {
        "topics": [
            {"pattern": "plain"},
            {
                "pattern": ".*",
                "copies": [
                    {"table": "{topic}_by_day"},
                    {"table": "mart.{topic}", "catalog": {"name": "far", "properties": {"type": "rest"}}},
                ],
            },
        ]
    }
)
PLACE: Any = SimpleNamespace(settings=SETTINGS)


def topic(name: str, number: int = 0, table: str | None = None) -> Source:
    return Source(PLACE, Owner("c", name, bytes([number]) * 16), ("kafka", table or name))


def following() -> tuple[Following, list[str]]:
    targets: Any = {SETTINGS.catalog.name: Target(None, "own"), "far": Target(None, "far")}  # type: ignore[arg-type]
    said: list[str] = []
    return Following(
        backend=PLACE,
        session=None,
        targets=targets,
        max_bytes=7,
        repair=True,
        replay=False,
        maintenance=0.3,
        metrics=ProjectionMetrics(),
        say=said.append,
    ), said


def tables(kept: Following) -> list[str]:
    return [tended.name.table for tended in kept.projections]


def found(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> None:
    monkeypatch.setattr(repartition.jobs.projections, "find_sources", lambda _: list(sources))


def test_a_topic_that_comes_later_is_kept_and_the_others_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, said = following()
    kept.take([topic("flights"), topic("plain")])
    assert tables(kept) == ["kafka.flights_by_day", "mart.flights"]
    first = kept.projections
    assert (first[0].job.max_bytes, first[0].job.repair, first[0].budget.share) == (7, True, 0.3)
    assert [tended.job.target.spark_name for tended in first] == ["own", "far"]
    found(monkeypatch, topic("flights"), topic("orders"), topic("plain"))
    kept.look()
    assert tables(kept)[2:] == ["kafka.orders_by_day", "mart.orders"]
    assert all(now is before for now, before in zip(kept.projections, first, strict=False)), "budget and manifests"
    assert said == [
        "kafka.orders_by_day: topic orders has come, and its projection is kept from now on",
        "mart.orders: topic orders has come, and its projection is kept from now on",
    ]


def test_a_topic_that_was_created_again_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = following()
    kept.take([topic("orders")])
    (first, _) = kept.projections
    found(monkeypatch, topic("orders"), topic("orders", 1, "orders_2"))
    kept.look()
    assert tables(kept) == ["kafka.orders_by_day", "mart.orders", "kafka.orders_2_by_day", "mart.orders_2"]
    assert kept.projections[0] is first
    found(monkeypatch, topic("orders", 1, "orders"))
    kept.look()
    assert tables(kept) == ["kafka.orders_by_day", "mart.orders"]
    assert kept.projections[0].job.source.owner.topic_id == b"\1" * 16


def test_a_topic_whose_table_is_gone_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, said = following()
    kept.take([topic("flights"), topic("orders")])
    for tended in kept.projections:
        kept.metrics.last_success.labels(*vars_of(tended.name)).set(5)
    found(monkeypatch, topic("orders"))
    kept.look()
    assert tables(kept) == ["kafka.orders_by_day", "mart.orders"]
    assert said[0] == "kafka.flights_by_day: topic flights has no table any more, and its projection stays as it is"
    page = generate_latest(kept.metrics.registry).decode()
    ages = re.findall(r'last_success_timestamp_seconds\{table="([^"]*)"', page)
    assert sorted(ages) == ["kafka.orders_by_day", "mart.orders"], "an age that grows for ever would be an alert"


def vars_of(name: Any) -> tuple[str, str]:
    return name.topic, name.table


def test_a_catalog_that_is_away_takes_no_projections_from_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> list[Source]:
        raise OSError("503")

    kept, said = following()
    kept.take([topic("flights")])
    before = kept.projections
    monkeypatch.setattr(repartition.jobs.projections, "find_sources", away)
    kept.look()
    assert kept.projections == before
    assert said == ["topics cannot be looked for, the next round tries again: OSError: 503"]


def test_a_job_without_topics_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Ends(Round):
        def run(self, *_: Any) -> int:
            raise NoMoreRoundsError

    targets = {SETTINGS.catalog.name: SimpleNamespace(catalog=None)}
    for name, value in {
        "open_backend": lambda *_, **__: PLACE,
        "find_sources": lambda _: [],
        "open_targets": lambda *_: (targets, {}),
        "threads_may_share": lambda _: False,
        "spark_session": lambda *_: nullcontext(),
        "Round": Ends,
    }.items():
        monkeypatch.setattr(repartition.jobs.command, name, value)
    with pytest.raises(NoMoreRoundsError):
        repartition.jobs.command.repartition(None, None, RepartitionOptions(continuous=True), Shown((), said.append))
    assert said == ["no topic that a rule with `copies` matches has a table yet; looked for every 60s"]


class NoMoreRoundsError(Exception):
    """Ends a job that has no end."""


@pytest.mark.parametrize("continuous", [True, False])
def test_a_job_for_all_topics_may_begin_before_the_first(monkeypatch: pytest.MonkeyPatch, continuous: bool) -> None:
    rules: list[str] = []

    def opened(_: object, given: Any) -> Any:
        rules.extend(rule.table for rule in given)
        raise NoMoreRoundsError

    monkeypatch.setattr(repartition.jobs.command, "open_backend", lambda *_, **__: PLACE)
    monkeypatch.setattr(repartition.jobs.command, "find_sources", lambda _: [])
    monkeypatch.setattr(repartition.jobs.command, "open_targets", opened)
    with pytest.raises((NoMoreRoundsError, RepartitionError)) as raised:
        repartition.jobs.command.repartition(None, None, RepartitionOptions(continuous=continuous), Shown((), print))
    if continuous:
        assert rules == ["{topic}_by_day", "mart.{topic}"], "their catalogs are set when Spark begins"
    else:
        assert str(raised.value) == "no topic with a table (there is none) has `copies`"
