"""Structured logs: JSON unless standard error is a terminal, one canonical line per request.

Standard output stays free for the ready line. Fields with times end in `_ms`, with sizes in `_bytes`. Credentials that
a library or a server quoted back are blanked in the finished line, whatever field or traceback they are in.
"""

from __future__ import annotations

import json
import logging
import sys

import structlog

from iceberg_catalog.connect.redaction import hide

# Made once: `json.dumps` with any option makes one per line.
_encode = json.JSONEncoder(default=repr).encode


def configure_logs(level: str = "info", secrets: frozenset[str] = frozenset()) -> None:
    """Sets up logging for the process.

    Args:
        level: one of debug, info, warning, error.
        secrets: texts that no line may show.
    """
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
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Discreet(secrets))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])


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
