"""Structured logs: JSON unless standard error is a terminal, one canonical line per request.

Standard output stays free for the ready line. Fields with times end in `_ms`, with sizes in `_bytes`.
"""

from __future__ import annotations

import json
import logging
import sys

import structlog

# Made once: `json.dumps` with any option makes one per line.
_encode = json.JSONEncoder(default=repr).encode


def configure_logs(level: str = "info") -> None:
    """Sets up logging for the process; `level` is one of debug, info, warning, error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else _json_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s")


def logger(room: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry `room`."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(room=room)
    return bound


def _json_line(_: object, __: str, event: structlog.typing.EventDict) -> str:
    return _encode(event)
