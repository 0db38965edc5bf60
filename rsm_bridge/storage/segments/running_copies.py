"""Which segments are being copied in this process right now.

A tombstone that replaced no index may only be reclaimed when no copy can put that index any more. How long a put may
hang has no bound that is worth waiting for after every failed copy, so the reclaimer asks.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator


class RunningCopies:
    """Counts copies by segment id. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[bytes] = Counter()

    @contextlib.contextmanager
    def of(self, segment_id: bytes) -> Iterator[None]:
        """A copy of the segment runs during the block."""
        with self._lock:
            self._running[segment_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[segment_id] -= 1
                if not self._running[segment_id]:
                    del self._running[segment_id]

    def __contains__(self, segment_id: bytes) -> bool:
        with self._lock:
            return segment_id in self._running
