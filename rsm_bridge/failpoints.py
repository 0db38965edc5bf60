"""Failures on purpose, for tests. Inert unless the environment variable `TIERBERG_FAULT` is set at start.

`TIERBERG_FAULT` is a comma-separated list of `point=action` with an action of `raise` (an unexpected exception),
`raise-once`, `sleep:SECONDS` or `kill` (SIGKILL to the own process). Points:

| point | where |
|---|---|
| `convert` | before each step of a conversion |
| `store-put` | before a put or compare-and-swap |
| `store-get` | before a ranged read |
| `upload-write` | before each write to an upload |
| `before-index` | data file and kept bytes are durable, the index is not yet put |
| `after-index` | the index is put, the answer not yet sent |
| `before-commit` | before an Iceberg commit |
"""

from __future__ import annotations

import os
import signal
import threading
import time

POINTS = frozenset(
    {"convert", "store-put", "store-get", "upload-write", "before-index", "after-index", "before-commit"}
)


class InjectedFaultError(Exception):
    """What a `raise` action raises: an error that no part of the product expects."""


def parse(text: str) -> dict[str, str]:
    """Points and actions of a `TIERBERG_FAULT` value.

    Raises:
        ValueError: an unknown point or action.
    """
    faults: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        point, _, action = item.partition("=")
        if point not in POINTS or not (action in ("raise", "raise-once", "kill") or action.startswith("sleep:")):
            raise ValueError(f"TIERBERG_FAULT: {item!r} is not a known point and action")
        faults[point] = action
    return faults


_faults = parse(os.environ.get("TIERBERG_FAULT", ""))
_lock = threading.Lock()


def hit(point: str) -> None:
    """Does what was asked for at this point; usually nothing."""
    if not _faults:
        return
    with _lock:
        action = _faults.get(point)
        if action == "raise-once":
            del _faults[point]
    if action is None:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action.startswith("sleep:"):
        time.sleep(float(action.partition(":")[2]))
        return
    raise InjectedFaultError(f"fault injected at {point}")
