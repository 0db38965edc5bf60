"""Durations in settings: `0s`, `500ms`, `10m`, `2h`, `7d`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

from rsm_bridge.limits import DURATION_SECONDS_MAX

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class DurationError(ValueError):
    """A duration that nothing can wait for."""


def parse_duration(value: object) -> float:
    """Seconds of a duration text. Plain numbers are refused: their unit would be a guess.

    Raises:
        ValueError: not a number followed by ms, s, m, h or d; or longer than DURATION_SECONDS_MAX.
    """
    if isinstance(value, str) and (match := _FORM.fullmatch(value.strip())):
        seconds = float(match.group(1)) * _SECONDS[match.group(2)]
        if seconds > DURATION_SECONDS_MAX:
            raise DurationError(f"a duration is at most {DURATION_SECONDS_MAX / _SECONDS['d']:.0f}d")
        return seconds
    raise ValueError("a duration is a number and a unit: 500ms, 10s, 5m, 2h or 7d")


def duration_text(seconds: float) -> str:
    """The text that gives these seconds, in the largest unit without a fraction that is not 1."""
    if seconds and seconds < 1:
        return f"{seconds * 1000:g}ms"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0 and seconds / size > 1:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


Seconds = Annotated[float, BeforeValidator(parse_duration)]
