"""A job's Spark session: what it is told, and that what ended the job is what is told."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyspark.sql
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from repartition.errors import RepartitionError
from repartition.spark import session as session_module
from repartition.spark.session import properties_text, spark_session

ROOT = Path(__file__).resolve().parents[4]


class FakeConf(dict[str, str]):
    """Settings of the session."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


class FakeSession:
    """In the place of Spark's; `stops`: how often it was asked to end."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure, self.stops = failure, 0
        self.builder = self
        self.started: dict[str, str] = {}

    def config(self, conf: Any) -> FakeSession:
        self.of_spark, self.conf = dict(conf.getAll()), FakeConf()
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
    monkeypatch.setattr(session_module, "start_java", session.started.update)
    monkeypatch.setattr(session_module, "require_iceberg", lambda: None)
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


CATALOG = {"spark.sql.catalog.lake": "a", "spark.sql.catalog.lake.credential": "id:hunter2"}
GIVEN = {"spark.sql.catalog.lake": "b", "spark.driver.host": "h"}


def test_the_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fake(monkeypatch)
    with spark_session(CATALOG, GIVEN) as found:
        assert found is session
        assert session.conf == {**CATALOG, "spark.sql.catalog.lake": "b"}
    assert session.stops == 1
    expected = {"spark.driver.host": "h", "spark.sql.ansi.enabled": "true", "spark.master": "local[*]"}
    assert expected.items() <= session.started.items()
    assert session.started.items() <= session.of_spark.items()


def test_catalogs_are_settings_of_the_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fake(monkeypatch)
    with spark_session(CATALOG, GIVEN):
        assert session.conf["spark.sql.catalog.lake.credential"] == "id:hunter2"
    assert not [key for key in (*session.of_spark, *session.started) if key.startswith("spark.sql.catalog")]


@pytest.mark.parametrize("variable", ["SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT"])
def test_under_spark_submit_nothing_is_started(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    session = fake(monkeypatch)
    before = pyspark.SparkConf().get("spark.app.name")  # of a session that another test has begun in this process
    monkeypatch.setenv(variable, "1")
    with spark_session(CATALOG, GIVEN):
        assert session.conf["spark.sql.catalog.lake.credential"] == "id:hunter2"
    assert not session.started
    assert session.of_spark["spark.driver.host"] == "h"
    assert session.of_spark.get("spark.app.name") == before


NAMES = ["s3.secret-access-key", "jdbc.password", "token", "credential", "adls.auth.shared-key.account.key"]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_pages_of_spark_blank(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    session = fake(monkeypatch)
    with spark_session({}, {}):
        blanked = session.of_spark["spark.redaction.regex"]
        assert re.search(blanked.removeprefix("(?i)"), name, re.IGNORECASE)
    with spark_session({}, {"spark.redaction.regex": "mine"}):
        assert session.of_spark["spark.redaction.regex"] == "mine"


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT))
@example({"spark.x ": " =:#!\\\n\r\tü😀"})
def test_settings_in_a_file(settings: dict[str, str]) -> None:
    assert read_properties(properties_text(settings)) == settings


def read_properties(text: str) -> dict[str, str]:
    """`java.util.Properties`: whatever is not a letter, digit, or one of four signs must stand as `\\uXXXX`."""
    found = {}
    for line in text.splitlines():
        assert re.fullmatch(r"(?:[A-Za-z0-9./_-]|\\u[0-9a-f]{4})*=(?:[A-Za-z0-9./_-]|\\u[0-9a-f]{4})*", line)
        key, _, value = line.partition("=")
        found[_unescaped(key)] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    units = re.findall(r"\\u([0-9a-f]{4})|(.)", text)
    data = b"".join(bytes.fromhex(unit) if unit else plain.encode("utf-16-be") for unit, plain in units)
    return data.decode("utf-16-be")


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    wanted = r"pip install 'tierberg\[repartition\]'"
    with pytest.raises(RepartitionError, match=wanted) as raised, spark_session({}, {}):
        pass
    assert raised.value.kind == "no_spark"


def test_spark_that_does_not_start_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    monkeypatch.setattr(session_module, "start_java", Mock(side_effect=RuntimeError("[JAVA_GATEWAY_EXITED] ended")))
    with pytest.raises(RepartitionError, match=r"JAVA_GATEWAY_EXITED.*Java 17 or 21") as raised, spark_session({}, {}):
        pass
    assert raised.value.kind == "spark"


class FakeJavaError(Py4JJavaError):  # type: ignore[misc]  # its package has no types
    """As py4j tells of what Java has thrown."""

    def __init__(self, kind: str) -> None:
        self.java_exception = SimpleNamespace(
            getClass=lambda: SimpleNamespace(getName=lambda: kind), getMessage=lambda: "said", getCause=lambda: None
        )

    def __str__(self) -> str:
        return "a trace"


def java_with(monkeypatch: pytest.MonkeyPatch, load: Mock) -> None:
    thread = SimpleNamespace(getContextClassLoader=lambda: SimpleNamespace(loadClass=load))
    lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
    monkeypatch.setattr(pyspark.SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(pyspark.SparkContext, "_jvm", SimpleNamespace(java=SimpleNamespace(lang=lang)))


def test_without_the_jar_of_iceberg_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    look = session_module.require_iceberg
    session = fake(monkeypatch)
    monkeypatch.setattr(session_module, "require_iceberg", look)
    java_with(monkeypatch, Mock(side_effect=FakeJavaError("java.lang.ClassNotFoundException")))
    started = Mock()
    monkeypatch.setattr(session, "getOrCreate", started)
    with (
        pytest.raises(RepartitionError, match=r"`repartition\.spark: \{spark\.jars\.packages: ") as raised,
        spark_session({}, {}),
    ):
        pass
    assert raised.value.kind == "no_spark"
    started.assert_not_called()
    (package,) = re.findall(r"packages: (\S+)}`", str(raised.value))
    page = (ROOT / "docs" / "running-projections.md").read_text(encoding="utf-8")
    assert f"| always | `{package}` |" in page


def test_iceberg_is_looked_for_where_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Mock()
    java_with(monkeypatch, load)
    session_module.require_iceberg()
    load.assert_called_once_with("org.apache.iceberg.spark.SparkCatalog")
    java_with(monkeypatch, Mock(side_effect=FakeJavaError("java.lang.LinkageError")))
    with pytest.raises(FakeJavaError):
        session_module.require_iceberg()
