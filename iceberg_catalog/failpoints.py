"""Failures on purpose, for tests. Inert unless the environment asks for some when the process starts.

The points are in `failpoint_table.py`. There are two ways to ask:

* `TIERBERG_FAULT`, a comma-separated list of `point=action`, for the whole life of the process. Actions: `raise` (an
  unexpected exception), `raise-once`, `sleep:SECONDS`, `kill` (SIGKILL to the own process).
* `TIERBERG_FAULT_FOLDER`, a folder in which another process lays down what is wanted at any time: the file
  `<point>.fault` is an :class:`Order` as JSON. Whoever reaches the point renames it to `<point>.hit` first, which
  proves that the point was reached and makes sure that it happens once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from iceberg_catalog.failpoint_table import POINTS

#: A process that was told to stop goes on by itself after so long.
STOP_SECONDS_MAX = 120.0
_STOP_POLL_SECONDS = 0.02

Action = Literal["kill", "stop", "raise"]


class InjectedFaultError(Exception):
    """What a `raise` action raises: an error that no part of the product expects."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to happen at a point, once.

    Attributes:
        action: `kill`: SIGKILL to the own process; `stop`: the thread waits there until the file `<point>.go` appears;
            `raise`: an unexpected exception.
        about: only if one of these texts is in what the point says it is about; empty: whatever it is about.
        hit: at the n-th time the point is reached, from 1.
    """

    action: Action
    about: tuple[str, ...] = ()
    hit: int = 1

    def encode(self) -> str:
        """The text of a `.fault` file."""
        return json.dumps(asdict(self))


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
_folder = Path(os.environ["TIERBERG_FAULT_FOLDER"]) if "TIERBERG_FAULT_FOLDER" in os.environ else None
_lock = threading.Lock()
_reached: dict[tuple[str, str], int] = {}


def hit(point: str, about: str = "") -> None:
    """Does what was asked for at this point; usually nothing.

    Args:
        point: of the table.
        about: what is being worked on: a key of the store, a topic id in hexadecimal, or the name of a table.
    """
    if _folder is not None:
        _obey(_folder, point, about)
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


async def hit_async(point: str, about: str = "") -> None:
    """:func:`hit` on the event loop: a thread waits, the loop does not."""
    if _folder is not None or _faults:
        await asyncio.to_thread(hit, point, about)


def _obey(folder: Path, point: str, about: str) -> None:
    """Carries out the order for this point, if there is one for what it is about."""
    lying = folder / f"{point}.fault"
    try:
        text = lying.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    order = Order(**json.loads(text))
    if order.about and not any(part in about for part in order.about):
        return
    with _lock:
        _reached[point, text] = _reached.get((point, text), 0) + 1
        if _reached[point, text] != order.hit:
            return
    try:
        lying.rename(folder / f"{point}.hit")
    except FileNotFoundError:
        return  # another process was there first
    if order.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order.action == "raise":
        raise InjectedFaultError(f"fault injected at {point}")
    go, end = folder / f"{point}.go", time.monotonic() + STOP_SECONDS_MAX
    while not go.exists() and time.monotonic() < end:
        time.sleep(_STOP_POLL_SECONDS)
