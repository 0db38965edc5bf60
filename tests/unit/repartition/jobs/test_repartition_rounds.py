"""Rounds of a job over its projections: they take turns, failures stay apart, and a dead session ends the job."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import ServerError

import repartition.jobs.rounds
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.jobs.events import Ended, Event, Failed, Planned, ProjectionName
from repartition.jobs.rounds import Round, Tended
from repartition.limits import RACES_MAX
from repartition.maintain.due import Budget
from repartition.maintain.maintain import Done
from repartition.spark.session import require_session
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections.hold import DeclaredProjection
from rsm_bridge.storage.projections.progress import read_one
from tests.worlds.projection_job_support import FakeJob, FakeSession, Run, portion

PROJECTION = DeclaredProjection(ProjectionRule(table="orders_now"), "tierberg", "kafka.orders_now")


@pytest.fixture
def _no_chores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repartition.jobs.rounds, "maintain", lambda *_: [])


def a_projection(name: str, *runs: Run) -> Tended:
    job: Any = FakeJob(iter(runs), projection=SimpleNamespace(table=name))
    return Tended(job, Budget(0.2))


def turns(projections: list[Tended]) -> tuple[int, str]:
    """How many failed, and the projections in the order of their runs; those that failed in capitals."""
    told: list[str] = []

    def watch(projection: ProjectionName, event: Event) -> None:
        if isinstance(event, Ended | Failed):
            told.append(projection.table if isinstance(event, Ended) else projection.table.upper())

    return Round((watch,)).run(projections), "".join(told)


@pytest.mark.usefixtures("_no_chores")
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=6))
def test_projections_take_turns_until_each_has_everything(backlogs: list[tuple[int, bool]]) -> None:
    """Each has some portions, and some then fail."""
    projections, expected = [], [""] * 8
    for name, (portions, fails) in zip("abcdef", backlogs, strict=False):
        last = [RepartitionError("spark", "")] if fails else []
        projections.append(a_projection(name, *[portion(3)] * portions, *last))
        for number in range(portions):
            expected[number] += name
        expected[portions] += name.upper() if fails else name
    assert turns(projections) == (sum(fails for _, fails in backlogs), "".join(expected))


class EndOfTestError(Exception):
    """Ends a job that has no end."""


@pytest.mark.usefixtures("_no_chores")
def test_one_that_has_everything_has_a_turn_in_each_interval_whatever_backlog_others_have() -> None:
    """And what comes later is kept too, what goes is not."""
    a, b, c = a_projection("a", *[portion(3)] * 40), a_projection("b"), a_projection("c")
    told: list[str] = []
    looks = iter([[a, b], [a, c]])

    def watch(projection: ProjectionName, event: Event) -> None:
        if isinstance(event, Ended):
            told.append(projection.table)
            time.sleep(0.02)

    def look() -> list[Tended]:
        try:
            return next(looks)
        except StopIteration:
            raise EndOfTestError from None

    with pytest.raises(EndOfTestError):
        Round((watch,), 0.2, look).run([a, b])
    first, second = "".join(told).find("c"), "".join(told).rfind("b")
    assert told[:2] == ["a", "b"]
    assert 3 <= told.count("b") + told.count("c") <= 5
    assert second < first
    assert told.count("a") > 10


@pytest.mark.usefixtures("_no_chores")
def test_projections_run_at_once_in_sessions_of_their_own() -> None:
    together = threading.Barrier(2)
    sessions: Any = [FakeSession(), FakeSession()]
    seen: set[tuple[str, int]] = set()
    projections = [a_projection(name, portion(1), portion(0)) for name in "ab"]

    def watch(projection: ProjectionName, event: Event) -> None:
        job = next(one.job for one in projections if one.name == projection)
        if isinstance(event, Planned):
            seen.add((projection.table, sessions.index(job.session)))

    for projection in projections:
        run = projection.job.run

        def at_once(run: Any = run) -> Any:
            together.wait(10)
            return run()

        projection.job.run = at_once  # type: ignore[method-assign]
    assert Round((watch,)).run(projections, sessions) == 0
    assert {table for table, _ in seen} == {"a", "b"}
    assert {number for _, number in seen} == {0, 1}
    assert {session.pool for session in sessions} <= {"a", "b"}


@pytest.mark.usefixtures("_no_chores")
def test_a_session_that_ends_ends_all_that_run_in_it() -> None:
    sessions: Any = [FakeSession(), FakeSession()]
    projections = [a_projection(name, RepartitionError("spark", name), *[portion(1)] * 1000) for name in "ab"]
    for session in sessions:
        session.stopped = True
    with pytest.raises(RepartitionError, match="start the job again"):
        Round(()).run(projections, sessions)


def test_a_projection_is_maintained_between_its_runs_and_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def maintain(job: Any, _: Budget) -> list[Done]:
        asked.append(job.projection.table)
        if job.projection.table == "b":
            raise RepartitionError("spark", "no chore")
        return []

    monkeypatch.setattr(repartition.jobs.rounds, "maintain", maintain)
    projections = [a_projection("a", portion(3), portion(0)), a_projection("b", portion(6), portion(3), portion(0))]
    assert turns(projections) == (1, "abBabb")
    assert "".join(asked) == "aba"
    assert projections[1].job.reported == [], "runs go well"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_no_chores")
def test_status_hears_of_a_projection_that_others_are_always_faster_than(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repartition.jobs.rounds, "RACE_WAIT_S_MAX", 0.0)
    raced = RepartitionError("raced", "main has moved")
    projection = a_projection("a", *[raced] * RACES_MAX, portion(0), *[raced] * (RACES_MAX + 1))
    assert turns([projection]) == (0, "a")
    assert projection.job.reported == []  # type: ignore[attr-defined]
    assert turns([projection]) == (1, "A")
    assert projection.job.reported == [raced]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_no_chores")
@pytest.mark.parametrize(("alive", "stopped"), [(False, False), (True, True)], ids=["java", "spark"])
def test_a_failure_of_a_session_that_has_ended_ends_the_job(alive: bool, stopped: bool) -> None:
    told: list[Event] = []
    watchers = (lambda _, event: told.append(event),)
    job: Any = FakeJob(iter([RepartitionError("spark", "no space"), RepartitionError("spark", "no answer")]))
    assert Round(watchers).run([Tended(job, Budget(0.2))]) == 1
    job.session.alive, job.session.stopped = alive, stopped
    with pytest.raises(RepartitionError, match="start the job again") as raised:
        Round(watchers).run([Tended(job, Budget(0.2))])
    assert raised.value.kind == "spark"
    assert [str(event.error) for event in told if isinstance(event, Failed)] == ["no space", "no answer"]


def test_a_session_that_python_has_ended_has_ended() -> None:
    session = FakeSession()
    require_session(session)
    session.sparkContext = SimpleNamespace(_jsc=None)
    with pytest.raises(RepartitionError):
        require_session(session)


def maintained(store: ObjectStore, raised: Exception) -> tuple[bool, list[Event]]:
    """A round whose run goes well, and whose projection's catalog then raises."""

    def load_table(_: object) -> None:
        raise raised

    job: Any = FakeJob(iter([portion(0)]))
    job.source = SimpleNamespace(owner=Owner("c", "orders", b"t" * 16), backend=SimpleNamespace(store=store))
    job.projection = PROJECTION
    job.target = SimpleNamespace(catalog=SimpleNamespace(load_table=load_table))
    job.name, job.letters_name = ("kafka", "orders_now"), ("kafka", "orders_now__dead_letters")
    job.rule = PROJECTION.rule
    told: list[Event] = []
    kept = Tended(job, Budget(0.5, working_s=3600))
    return Round((lambda _, event: told.append(event),)).run([kept]) == 0, told


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OSError("503"), "spark"),
        (ServerError("503"), "unavailable"),
        (ValueError("what a client raises"), "spark"),
        (RepartitionError("not_ours", "somebody else's"), "not_ours"),
    ],
)
def test_a_catalog_that_is_away_before_maintenance_ends_the_round_of_one_projection(
    tmp_path: Path, raised: Exception, kind: str
) -> None:
    store = open_store(load_settings(None, {"data_dir": tmp_path}))
    well, told = maintained(store, raised)
    assert not well
    assert isinstance(told[-2], Ended)
    assert isinstance(failed := told[-1], Failed)
    assert isinstance(failed.error, RepartitionError | BridgeError)
    assert (failed.error.kind, failed.maintaining) == (kind, True)
    progress = read_one(store, PROJECTION.key(b"t" * 16))
    assert progress is not None
    assert list(progress.failed_chores) == ["look"]
