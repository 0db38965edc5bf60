"""How a client process talks to the suite: `{"ready": true}` out, one line in, one JSON result out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypeVar

Prepared = TypeVar("Prepared")


def serve(prepare: Callable[[dict[str, object]], Prepared], work: Callable[[Prepared], dict[str, object]]) -> None:
    """Runs one client: settings from argv[1] as JSON, `prepare` before the ready line, `work` after the go line."""
    prepared = prepare(json.loads(sys.argv[1]))
    _say({"ready": True})
    if not sys.stdin.readline():
        return  # the suite has ended
    _say(work(prepared))


def text(settings: dict[str, object], key: str) -> str:
    """A string setting. Raises TypeError for another type, KeyError when absent."""
    value = settings[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no string")
    return value


def number(settings: dict[str, object], key: str) -> int:
    """An integer setting. Raises TypeError for another type, KeyError when absent."""
    value = settings[key]
    if not isinstance(value, int):
        raise TypeError(f"{key} is no integer")
    return value


def _say(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)
