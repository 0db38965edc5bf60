"""The end of a job's Spark session: what ended the job is what is told."""

from __future__ import annotations

from typing import Any

import pyspark.sql
import pytest

from repartition.session import spark_session


class FakeSession:
    """In the place of Spark's; `stops`: how often it was asked to end."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure, self.stops = failure, 0
        self.builder = self

    def config(self, conf: Any) -> FakeSession:
        self.conf = dict(conf.getAll())
        return self

    def getOrCreate(self) -> FakeSession:  # noqa: N802 Spark's name
        return self

    def stop(self) -> None:
        self.stops += 1
        if self.failure is not None:
            raise self.failure


def fake(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> FakeSession:
    session = FakeSession(failure)
    monkeypatch.setattr(pyspark.sql, "SparkSession", session)
    return session


@pytest.mark.parametrize("failure", [None, RuntimeError("Java does not answer")])
@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(143), ValueError("first")])
def test_what_ended_the_job_is_told(
    monkeypatch: pytest.MonkeyPatch, ending: BaseException, failure: Exception | None
) -> None:
    session = fake(monkeypatch, failure)
    with pytest.raises(type(ending)) as raised, spark_session({}, {}):
        raise ending
    assert raised.value is ending
    assert session.stops == 1


def test_a_session_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fake(monkeypatch, RuntimeError("Java does not answer"))
    with pytest.raises(RuntimeError, match="Java does not answer"), spark_session({}, {}):
        pass
    assert session.stops == 1


def test_the_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fake(monkeypatch)
    catalog = {"spark.sql.catalog.lake": "a", "spark.sql.catalog.lake.type": "rest"}
    with spark_session(catalog, {"spark.sql.catalog.lake": "b", "spark.driver.host": "h"}) as found:
        assert found is session
    assert session.stops == 1
    expected = {**catalog, "spark.sql.catalog.lake": "b", "spark.driver.host": "h", "spark.sql.ansi.enabled": "true"}
    assert expected.items() <= session.conf.items()
