"""Failures on purpose, for tests. Inert unless the environment asks for some when the process starts.

There are two ways to ask for one:

* `TIERBERG_FAULT`, a comma-separated list of `point=action`, for the whole life of the process. Actions: `raise` (an
  unexpected exception), `raise-once`, `sleep:SECONDS`, `kill` (SIGKILL to the own process).
* `TIERBERG_FAULT_FOLDER`, a folder in which another process lays down what is wanted at any time: the file
  `<point>.fault` is an :class:`Order` as JSON. Whoever reaches the point renames it to `<point>.hit` first, which
  proves that the point was reached and makes sure that it happens once.

Every fail point of the product, in the order in which a record meets them.

A step is a piece of work with durable effects; its points lie before, between and after those effects. Whoever adds a
`hit(...)` adds its line here, and a way to reach it to `tests/faults_matrix/`: a test compares all three.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple


class Point(NamedTuple):
    """`step`: what is being done; `where`: what has happened so far, or comes next."""

    step: str
    where: str


POINTS: Final[Mapping[str, Point]] = {
    "copy-start": Point("copy", "the call has begun, nothing is stored"),
    "convert": Point("copy", "before each step of a conversion"),
    "upload-write": Point("copy", "before each write to an upload"),
    "data-complete": Point("copy", "before the data file's upload is completed"),
    "tail-complete": Point("copy", "the data file is durable, before the upload of its undecided tail is completed"),
    "kept-complete": Point("copy", "all rows are durable, before the upload of the kept bytes is completed"),
    "before-index": Point("copy", "data file and kept bytes are durable, the index is not yet put"),
    "store-put": Point("copy", "before any put or compare-and-swap in the store"),
    "after-index": Point("copy", "the index is put, the answer not yet sent"),
    "after-answer": Point("copy", "the answer is sent, the publisher not yet told"),
    "before-evolve": Point("evolve", "before the request that gives a table columns"),
    "after-evolve": Point("evolve", "the table has its columns, no data that needs them is in it"),
    "fetch-open": Point("fetch", "before a segment's directory is read"),
    "store-get": Point("fetch", "before any ranged read"),
    "fetch-decode": Point("fetch", "a chunk's bytes are read, not yet decoded"),
    "fetch-send": Point("fetch", "after each frame that was sent"),
    "fetch-index": Point("fetch", "before one of Kafka's index files is read"),
    "before-table": Point("publish", "before a table is created"),
    "after-table": Point("publish", "the table is created, it has no snapshot"),
    "head-read": Point("publish", "the head and its state are read, indexes not yet listed"),
    "listed": Point("publish", "indexes are listed, nothing is planned"),
    "derived-complete": Point("publish", "before a derived file's upload is completed"),
    "derived-written": Point("publish", "a derived file is durable, no table names it"),
    "before-state": Point("publish", "files are ready, before the state object is put"),
    "before-commit": Point("publish", "the state object is durable, no manifest is written"),
    "before-swap": Point("publish", "manifests are durable, before the request to the catalog"),
    "after-swap": Point("publish", "the catalog has answered that it is done"),
    "refused": Point("publish", "the commit did not land, before it is planned again"),
    "state-sweep": Point("publish", "the commit stands, before state objects that nothing names are deleted"),
    "before-tombstone": Point("delete", "before the tombstone is put"),
    "after-tombstone": Point("delete", "the tombstone is durable, the answer not yet sent"),
    "before-expire": Point("reclaim", "before the request that expires snapshots"),
    "after-expire": Point("reclaim", "snapshots have expired, before what only they named goes"),
    "reclaim-mark": Point("reclaim", "before a tombstone is marked as being reclaimed"),
    "reclaim-objects": Point("reclaim", "tombstones are marked, before the objects they name are deleted"),
    "reclaim-tombstones": Point("reclaim", "objects are gone, before their tombstones are deleted"),
    "reclaim-derived": Point("reclaim", "before derived files that left the table are deleted"),
    "before-lease": Point("maintain", "before a lease is taken or renewed"),
    "after-lease": Point("maintain", "the lease is taken, nothing is done under it"),
    "sweep-objects": Point("maintain", "before objects that nothing names are deleted"),
    "sweep-metadata": Point("maintain", "before metadata files that nothing names are deleted"),
    "merge-written": Point("merge", "the merged file is durable, no index names it"),
    "merge-pointer": Point("merge", "before each index that shall name the merged file is swapped"),
    "merge-pointed": Point("merge", "all indexes name the merged file, the table does not"),
    "lease-release": Point("maintain", "all is done, before the lease is let go"),
    "undelete-recorded": Point("undelete", "what is to be restored is written down, all tombstones are there"),
    "undelete-turn": Point("undelete", "before each tombstone becomes an index again, or is given up as lost"),
    "undelete-turned": Point("undelete", "all indexes are back, the rows are not"),
    "undelete-committed": Point("undelete", "the rows are back, the record is still open"),
    "undelete-undo": Point("undelete", "before each restored index becomes a tombstone again"),
    "requeue-written": Point("requeue", "a verbatim segment's rows are durable, its index is as it was"),
    "requeue-repair": Point("requeue", "indexes name the rows, before those below the frontier are committed"),
    "before-drop": Point("drop", "the table has been found empty, before it is dropped"),
    "after-drop": Point("drop", "the catalog has dropped it, its states and metadata are there"),
}


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
