"""Structured logs: JSON unless standard error is a terminal, one canonical line per request, on standard error.

Standard output stays free for the ready line. Fields with times end in `_ms`, with sizes in `_bytes`. Credentials that
a library or a server quoted back are blanked in the finished line, whatever field or traceback they are in.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO, Final

import structlog

from iceberg_catalog.connect.redaction import hide
from rsm_bridge.limits import LOG_WAITING_CHARS_MAX

#: How long a process that ends waits for its last lines to be read.
_LAST_LINES_S: Final = 1.0
#: Of a stream that takes nothing now and does not make its writers wait.
_FULL_PAUSE_S: Final = 0.05

# Made once: `json.dumps` with any option makes one per line.
_encode = json.JSONEncoder(default=repr).encode


class LineWriter:
    """What loggers take for a file: lines go out by a thread of its own. For any thread.

    Whoever reads them may stop, go away, or have a full disk: nobody waits for that, and nothing fails of it. What does
    not get through is lost and counted.

    Attributes:
        lost: lines that nobody got, since the start.
    """

    def __init__(self, out: BinaryIO, tell: Callable[[int], None]) -> None:
        """Writes to `out`, unbuffered; `tell` is told of lines that were lost since the last that got through."""
        self.lost = 0
        self._out, self._tell = out, tell
        self._told = 0
        self._torn = self._writing = False
        self._chars = 0
        self._waiting: deque[str] = deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, line: str) -> int:
        """Takes a line with its end; returns its length."""
        with self._changed:
            if self._chars + len(line) > LOG_WAITING_CHARS_MAX:
                self.lost += 1
            else:
                self._waiting.append(line)
                self._chars += len(line)
                self._changed.notify_all()
        return len(line)

    def flush(self) -> None:
        """Does nothing: lines go out at once."""

    def drain(self, seconds: float) -> bool:
        """Waits so long for all lines to be out, and says whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                line = self._waiting.popleft()
                self._chars -= len(line)
                self._writing = True
            if not self._put(line):
                with self._changed:
                    self.lost += 1
            elif self.lost > self._told and self._chars < LOG_WAITING_CHARS_MAX // 2:  # there is room for what is told
                since, self._told = self._told, self.lost
                self._tell(self._told - since)

    def _put(self, line: str) -> bool:
        """Whether all of it went out; what comes behind a piece of one begins a line of its own."""
        left = memoryview(("\n" * self._torn + line).encode("utf-8", "backslashreplace"))
        try:
            while left:
                written = self._out.write(left)
                if not written:
                    time.sleep(_FULL_PAUSE_S)
                    continue
                left, self._torn = left[written:], True
        except (OSError, ValueError):  # ValueError: it is closed
            return False
        self._torn = False
        return True


_writer: LineWriter | None = None


def configure_logs(level: str = "info", secrets: frozenset[str] = frozenset()) -> None:
    """Sets up logging for the process.

    Args:
        level: one of debug, info, warning, error.
        secrets: texts that no line may show.
    """
    global _writer  # noqa: PLW0603 - a process has one standard error
    _writer = LineWriter(_unbuffered(), _tell_lost)
    number = logging.getLevelNamesMapping()[level.upper()]
    rendered = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else _json_line

    def discreet(given: structlog.typing.WrappedLogger, method: str, event: structlog.typing.EventDict) -> str:
        return hide(str(rendered(given, method, event)), secrets)

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            discreet,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=_writer),  # type: ignore[arg-type]  # it writes and flushes
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(_writer)
    handler.setFormatter(_Discreet(secrets))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])


def drain_logs() -> None:
    """Before the process ends: waits for the last lines, but not for ever."""
    if _writer is not None:
        _writer.drain(_LAST_LINES_S)


def lost_lines() -> int:
    """Lines of the log that nobody got, since the start."""
    return 0 if _writer is None else _writer.lost


def _unbuffered() -> BinaryIO:
    """Standard error without what Python keeps of lines that do not get through."""
    buffered = sys.stderr.buffer
    raw: BinaryIO = getattr(buffered, "raw", buffered)
    return raw


def _tell_lost(lines: int) -> None:
    logger("logs").warning("lines of this log were lost: nobody read them, or they could not be written", lines=lines)


class _Discreet(logging.Formatter):
    """Lines of the libraries."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__("%(name)s: %(message)s")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record), self._secrets)


def logger(room: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry `room`."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(room=room)
    return bound


def _json_line(_: object, __: str, event: structlog.typing.EventDict) -> str:
    return _encode(event)
