"""`tierberg advise` that is interrupted in the middle of a query ends; no failing clean-up makes that an answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from repartition.advise import advise as advising
from repartition.advise.advise import AdviseOptions, QueriedTable, survey
from repartition.advise.queries import parse_queries
from repartition.advise.report import Figures, TableReport
from repartition.advise.spark_plan import SparkPlan, _deadline
from repartition.errors import RepartitionError


class DeadJava:
    """In the place of Spark's session and context after an interrupted call: nothing answers."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("Java does not answer")


class Context:
    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def setJobGroup(self, group: str, description: str, *, interruptOnCancel: bool) -> None:  # noqa: N802, N803
        pass

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802
        raise RuntimeError("Java does not answer")

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)


class Session:
    """A session; `catalog` is dead, `sparkContext` answers until the query ends."""

    def __init__(self) -> None:
        self.catalog, self.sparkContext = DeadJava(), Context()


def until_cancelled(context: Context) -> None:
    while not context.cancelled:
        time.sleep(0.001)
    raise RuntimeError("cancelled")


ENDINGS = [KeyboardInterrupt(), SystemExit(143)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_is_interrupted_ends(ending: BaseException) -> None:
    session = Session()
    with pytest.raises(type(ending)) as raised, _deadline(session, 60.0):
        raise ending
    assert raised.value is ending
    assert session.sparkContext.cancelled == []


def test_a_late_run_is_told_all_the_same() -> None:
    session = Session()
    with pytest.raises(RepartitionError, match="ended after"), _deadline(session, 0.01):
        until_cancelled(session.sparkContext)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_survey_that_is_interrupted_ends(monkeypatch: pytest.MonkeyPatch, ending: BaseException) -> None:
    def interrupted(*_: object) -> SparkPlan:
        raise ending

    monkeypatch.setattr(advising, "run", interrupted)
    monkeypatch.setattr(advising, "_open", lambda session, asked, view: _ready(asked.name, view))
    asked = [QueriedTable(name="kafka.t", kind="topic", spark_name="`c`.`kafka`.`t`", load=lambda: None)]
    options = AdviseOptions(topic="t", queries=Path("unused.sql"), run=True)
    with pytest.raises(type(ending)) as raised:
        survey(Session(), asked, parse_queries("SELECT 1 FROM {table}"), options, lambda _: None)
    assert raised.value is ending


def _ready(name: str, view: str) -> Any:
    return advising._Ready(TableReport(name=name, kind="topic", whole=Figures()), view, {})
