"""Log lines of the process: one JSON object a line, written at once, with what is bound to the logger and the call."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from rsm_bridge.logs import _Discreet, configure_logs, logger


class _Writes(io.StringIO):
    """A standard error that counts its writes."""

    count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return super().write(text)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def own_configuration() -> Iterator[None]:
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def configured(level: str = "info", secrets: frozenset[str] = frozenset()) -> _Writes:
    writes = _Writes()
    with contextlib.redirect_stderr(writes):
        configure_logs(level, secrets)
    return writes


def test_a_line_is_one_object_in_one_write() -> None:
    stderr = configured()
    log = logger("request")
    structlog.contextvars.bind_contextvars(topic="orders", partition=3)
    log.bind(kind="ok", duration_ms=1.5).info("delete")
    log.bind(kind="ok").info("delete")
    assert stderr.count == 2
    first, second = stderr.lines()
    assert first.pop("timestamp")
    assert first == {
        "event": "delete",
        "level": "info",
        "room": "request",
        "kind": "ok",
        "duration_ms": 1.5,
        "topic": "orders",
        "partition": 3,
    }
    assert "duration_ms" not in second


def test_what_json_does_not_know_is_shown_as_python_does() -> None:
    stderr = configured()
    logger("bridge").info("odd", path=Path("/x"), data=b"\xff", name="zażółć\n")
    (line,) = stderr.lines()
    assert line["path"] == repr(Path("/x"))
    assert line["data"] == "b'\\xff'"
    assert line["name"] == "zażółć\n"


def test_an_unexpected_error_comes_with_its_trace() -> None:
    stderr = configured()
    try:
        raise KeyError("gone")
    except KeyError as error:
        logger("request").error("delete", exc_info=error)
    (line,) = stderr.lines()
    assert "KeyError: 'gone'" in str(line["exception"])


def test_lines_below_the_level_are_not_written() -> None:
    stderr = configured("warning")
    logger("request").info("delete")
    logger("request").warning("fetch")
    assert [line["event"] for line in stderr.lines()] == ["fetch"]


def test_credentials_are_blanked_in_every_field_and_in_traces() -> None:
    stderr = configured(secrets=frozenset({"hunter2-hunter2"}))
    try:
        raise ValueError("token hunter2-hunter2 is unknown")
    except ValueError as error:
        logger("publisher").warning(
            "failed with hunter2-hunter2", error=str(error), seen={"hunter2-hunter2"}, exc_info=error
        )
    (line,) = stderr.lines()
    assert "hunter2" not in stderr.getvalue()
    assert line["error"] == "token [hidden] is unknown"
    assert "ValueError: token [hidden] is unknown" in str(line["exception"])


def test_lines_of_libraries_are_blanked_too() -> None:
    record = logging.LogRecord("urllib3", logging.WARNING, "x", 1, "retry %s", ("http://a:hunter2-hunter2@b",), None)
    formatted = _Discreet(frozenset({"hunter2-hunter2"})).format(record)
    assert formatted == "urllib3: retry http://a:[hidden]@b"
