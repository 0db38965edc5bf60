"""Rounds of a job over its copies: what fails stays with its copy, and a session that has ended ends the job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import ServerError

import repartition.command
from iceberg_catalog.names import Owner
from repartition.chores import Budget
from repartition.command import run_round
from repartition.errors import RepartitionError
from repartition.session import require_session
from repartition.watching import Ended, Event, Failed
from rsm_bridge.errors import BridgeError
from tests.unit.copy_job_support import FakeJob, FakeSession, portion


@pytest.mark.parametrize(("alive", "stopped"), [(False, False), (True, True)], ids=["java", "spark"])
def test_a_failure_of_a_session_that_has_ended_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, alive: bool, stopped: bool
) -> None:
    monkeypatch.setattr(repartition.command, "maintain", lambda *_: [])
    told: list[Event] = []
    watchers = (lambda _, event: told.append(event),)
    job: Any = FakeJob(iter([RepartitionError("spark", "no space"), RepartitionError("spark", "no answer")]))
    assert not run_round(job, Budget(0.2), watchers)
    job.session.alive, job.session.stopped = alive, stopped
    with pytest.raises(RepartitionError, match="start the job again") as raised:
        run_round(job, Budget(0.2), watchers)
    assert raised.value.kind == "spark"
    assert [str(event.error) for event in told if isinstance(event, Failed)] == ["no space", "no answer"]


def test_a_session_that_python_has_ended_has_ended() -> None:
    session = FakeSession()
    require_session(session)
    session.sparkContext = SimpleNamespace(_jsc=None)
    with pytest.raises(RepartitionError):
        require_session(session)


def maintained(raised: Exception) -> tuple[bool, list[Event]]:
    """A round whose run goes well, and whose copy's catalog then raises."""

    def load_table(_: object) -> None:
        raise raised

    job: Any = FakeJob(iter([portion(0)]))
    job.source = SimpleNamespace(owner=Owner("c", "orders", b"t" * 16), place=SimpleNamespace(store=None))
    job.copy = SimpleNamespace(table="kafka.orders_now", key=lambda _: "copies/t/1.json")
    job.target = SimpleNamespace(catalog=SimpleNamespace(load_table=load_table))
    job.name, job.rule = ("kafka", "orders_now"), SimpleNamespace(mode="append", retention=None, sort_by=())
    told: list[Event] = []
    return run_round(job, Budget(0.5, working_s=3600), (lambda _, event: told.append(event),)), told


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OSError("503"), "spark"),
        (ServerError("503"), "unavailable"),
        (ValueError("what a client raises"), "spark"),
        (RepartitionError("not_ours", "somebody else's"), "not_ours"),
    ],
)
def test_a_catalog_that_is_away_before_maintenance_ends_the_round_of_one_copy(raised: Exception, kind: str) -> None:
    well, told = maintained(raised)
    assert not well
    assert isinstance(told[-2], Ended)
    assert isinstance(failed := told[-1], Failed)
    assert isinstance(failed.error, RepartitionError | BridgeError)
    assert (failed.error.kind, failed.maintaining) == (kind, True)
