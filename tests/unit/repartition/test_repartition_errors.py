"""Errors of Spark: what they say, and which of them mean that another job was faster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pyiceberg.exceptions import ServerError
from sqlalchemy.exc import OperationalError

from iceberg_catalog.errors import CatalogError
from repartition.errors import as_ours, first_line, java_causes, lost_maintenance, lost_race
from repartition.limits import CAUSES_MAX
from rsm_bridge.errors import BridgeError, StoreError

ICEBERG = "org.apache.iceberg.exceptions"


class Thrown:
    """As py4j shows a throwable of Java's."""

    def __init__(self, name: str, message: str | None = None, cause: Thrown | None = None) -> None:
        self.cause = cause
        self.getClass = lambda: SimpleNamespace(getName=lambda: name)
        self.getMessage = lambda: message
        self.getCause = lambda: self.cause


class Py4JJavaError(Exception):
    """As py4j's own."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__("An error occurred while calling o68.sql.\n: and a stack trace")
        self.java_exception = thrown


class CapturedError(Exception):
    """As PySpark's, which knows some of Java's."""

    def __init__(self, thrown: Thrown | None) -> None:
        super().__init__("[SOME] of PySpark's own words\n\nJVM stacktrace")
        self._origin = thrown


@pytest.mark.parametrize("wrapped", [Py4JJavaError, CapturedError])
@pytest.mark.parametrize(
    ("name", "race", "maintenance"),
    [
        (f"{ICEBERG}.CommitFailedException", True, True),
        (f"{ICEBERG}.ValidationException", False, True),
        (f"{ICEBERG}.CommitStateUnknownException", False, False),
        ("java.io.IOException", False, False),
    ],
)
def test_a_refused_commit_is_found_among_the_causes(wrapped: Any, name: str, race: bool, maintenance: bool) -> None:
    deep = Thrown(
        "org.apache.spark.SparkException", "aborted", Thrown("java.lang.RuntimeException", None, Thrown(name))
    )
    for thrown in (Thrown(name), deep):
        assert lost_race(wrapped(thrown)) == race
        assert lost_maintenance(wrapped(thrown)) == maintenance


def test_errors_of_python_have_no_causes_in_java() -> None:
    for error in (ValueError("x"), CapturedError(None)):
        assert list(java_causes(error)) == []
        assert not lost_race(error)


def test_causes_that_go_round_end() -> None:
    ring = Thrown("java.lang.Error")
    ring.cause = ring
    assert len(list(java_causes(Py4JJavaError(ring)))) == CAUSES_MAX


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Py4JJavaError(Thrown("java.io.IOException", " no space\n\tat x")), "IOException: no space"),
        (Py4JJavaError(Thrown("java.lang.NullPointerException")), "NullPointerException"),
        (CapturedError(None), "CapturedError: [SOME] of PySpark's own words"),
        (ValueError(""), "ValueError"),
        (OSError("no file\nat all"), "OSError: no file"),
    ],
)
def test_the_first_line_says_what_was_wrong(error: Exception, said: str) -> None:
    assert first_line(error) == said


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (StoreError("no route to the store"), "store_unavailable", "no route to the store"),
        (BridgeError("corrupt_object", "a.json: does not parse"), "corrupt_object", "a.json: does not parse"),
        (CatalogError("state_missing", "no recorded state"), "state_missing", "no recorded state"),
        (ServerError("503"), "unavailable", "ServerError: 503"),
        (requests.ConnectionError("refused"), "unavailable", "ConnectionError: refused"),
        (OperationalError("", {}, ValueError("gone")), "unavailable", "OperationalError: (builtins.ValueError) gone"),
        (ValueError("x"), "spark", "ValueError: x"),
        (Py4JJavaError(Thrown("java.lang.OutOfMemoryError", "heap")), "spark", "OutOfMemoryError: heap"),
        (Py4JJavaError(Thrown(f"{ICEBERG}.CommitFailedException", "late")), "raced", "CommitFailedException: late"),
    ],
)
def test_errors_of_others_keep_their_kind(error: Exception, kind: str, said: str) -> None:
    found = as_ours(error)
    assert (found.kind, str(found)) == (kind, said)
