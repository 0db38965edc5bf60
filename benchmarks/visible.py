"""When offsets became visible in a topic's table, seen from outside of the bridge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass(slots=True)
class Sightings:
    """Asks `look` again and again in a thread: for each partition the next offset that a new reader would not see.

    interval_s: pause between two looks. seen: (seconds since the epoch when a look had ended, what it saw), ascending.
    """

    look: Callable[[], Mapping[int, int]]
    interval_s: float
    seen: list[tuple[float, Mapping[int, int]]] = field(default_factory=list)
    failures: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._ended.wait(self.interval_s):
            try:
                found = dict(self.look())
            except Exception:  # noqa: BLE001 - no table yet, or a file of an expired snapshot
                self.failures += 1
                continue
            self.seen.append((time.time(), found))

    def wait_for(self, ends: Mapping[int, int], timeout_s: float) -> None:
        """Returns once every partition's offsets below its end were seen, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.seen and all(self.seen[-1][1].get(number, 0) >= end for number, end in ends.items()):
                return
            time.sleep(0.1)

    def when(self, partition: int, offset: int) -> float | None:
        """Seconds since the epoch at which the offset had been seen first; None: never."""
        low, high = 0, len(self.seen)
        while low < high:
            middle = (low + high) // 2
            if self.seen[middle][1].get(partition, 0) > offset:
                high = middle
            else:
                low = middle + 1
        return self.seen[low][0] if low < len(self.seen) else None
