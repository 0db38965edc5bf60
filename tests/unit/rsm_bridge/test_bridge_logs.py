"""Log lines of the process: one JSON object a line, written at once, with what is bound to the logger and the call."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from rsm_bridge import logs
from rsm_bridge.logs import _Discreet, configure_logs, drain_logs, logger, lost_lines


class _Raw(io.BytesIO):
    """What is behind a standard error. It counts writes, and takes none while it is `full`, or not `read`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.full = False
        self.read_again = threading.Event()
        self.read_again.set()
        self.at_once = 1 << 30

    def write(self, data: Any) -> int:
        if not self.read_again.wait(60):
            raise TimeoutError
        if self.full:
            raise OSError(28, "No space left on device")
        self.count += 1
        return super().write(data[: self.at_once])


class _Writes(io.TextIOWrapper):
    """A standard error."""

    def __init__(self) -> None:
        self.raw = _Raw()
        super().__init__(self.raw)

    @property
    def count(self) -> int:
        return self.raw.count

    def getvalue(self) -> str:
        drain_logs()
        return self.raw.getvalue().decode()

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
    first, second = stderr.lines()
    assert stderr.count == 2
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


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    stderr = configured()
    log = logger("copy")
    log.info("first")
    drain_logs()
    stderr.raw.full = True
    for _ in range(3):
        log.info("lost")
    drain_logs()
    assert lost_lines() == 3
    stderr.raw.full = False
    log.info("last")
    first, last, told = stderr.lines()
    assert (first["event"], last["event"]) == ("first", "last")
    assert (told["level"], told["lines"]) == ("warning", 3)
    assert "lines of this log were lost" in str(told["event"])


def test_whoever_stops_reading_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_WAITING_CHARS_MAX", 20_000)
    monkeypatch.setattr(logs, "_LAST_LINES_S", 0.05)
    stderr = configured()
    stderr.raw.read_again.clear()
    for number in range(1000):
        logger("copy").info("copied", number=number)
    drain_logs()
    assert stderr.raw.count == 0
    lost = lost_lines()
    assert lost > 500
    monkeypatch.setattr(logs, "_LAST_LINES_S", 30)
    stderr.raw.read_again.set()
    lines = stderr.lines()
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers[:100] == list(range(100))
    assert len(numbers) == 1000 - lost
    assert [line["lines"] for line in lines if "lines" in line] == [lost]


def test_a_line_that_was_cut_off_does_not_spoil_the_next() -> None:
    stderr = configured()
    stderr.raw.at_once = 10
    logger("copy").info("whole, in pieces")
    drain_logs()
    whole = stderr.raw.write

    def once(data: Any) -> int:
        stderr.raw.full, written = True, whole(data)
        return written

    stderr.raw.write = once  # type: ignore[method-assign]
    logger("copy").info("cut")
    drain_logs()
    stderr.raw.full, stderr.raw.write = False, whole  # type: ignore[method-assign]
    logger("copy").info("next")
    texts = stderr.getvalue().splitlines()
    assert [json.loads(texts[number])["event"] for number in (0, 2)] == ["whole, in pieces", "next"]
    assert len(texts[1]) == 10
