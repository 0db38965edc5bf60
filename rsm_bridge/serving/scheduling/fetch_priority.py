"""Fetches first: copies pause between two steps, and publishing before a run, while a fetch waits for bytes.

Niceness alone does not do it. The operating system's scheduler counts threads of the whole machine and knows nothing
of the interpreter's lock, which a copy at low priority may hold while others run; and a copy that reads its frames
keeps the event loop, gRPC and the sender busy. So copies pause in both places: the worker between two steps, and the
event loop reads no frame while the worker has another, so that flow control stops the sender. Workers pause in turns,
one for every two processors, and for a bounded time: copies go on under any load, by at least 4 MiB per pause and turn.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from rsm_bridge.limits import COPY_PAUSE_SECONDS_MAX


class FetchPriority:
    """Counts the fetches that wait. `yield_to_fetches` belongs to worker threads, the rest to the event loop."""

    def __init__(self) -> None:
        self._waiting = 0
        self._none_waits = threading.Event()
        self._none_waits.set()
        self._turns = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        """A fetch waits for bytes during the block."""
        self._waiting += 1
        self._none_waits.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._none_waits.set()

    @property
    def claimed(self) -> bool:
        """Whether a fetch waits."""
        return self._waiting > 0

    def yield_to_fetches(self) -> float:
        """Waits until no fetch does, at most `COPY_PAUSE_SECONDS_MAX` from its turn on; returns the seconds it took."""
        if self._none_waits.is_set():
            return 0.0
        started = time.monotonic()
        with self._turns:
            self._none_waits.wait(COPY_PAUSE_SECONDS_MAX)
        return time.monotonic() - started


COPY_NICENESS = 10
PREFETCH_NICENESS = 5


def lower_priority(niceness: int = COPY_NICENESS) -> None:
    """Lowers the calling thread's priority. Linux counts niceness per thread; elsewhere nothing happens."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
