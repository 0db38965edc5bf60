"""How much CPU decoding the values of one topic may take: a share of one core, with some seconds saved up."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from rsm_bridge.limits import DECODE_BURST_SECONDS


class CpuBudget:
    """May be used by several threads. What is spent beyond it is a debt that the next seconds pay."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Full at first.

        Args:
            share: of one core; 0: there is never anything to spend.
            clock: seconds, never going back.
        """
        self._share = share
        self._clock = clock
        self._most = self._seconds = share * DECODE_BURST_SECONDS
        self._since = clock()
        self._lock = Lock()

    @property
    def left(self) -> bool:
        """Whether anything is left to spend."""
        with self._lock:
            return self._refilled() > 0.0

    def spend(self, seconds: float) -> None:
        """Takes CPU seconds that were used."""
        with self._lock:
            self._seconds = self._refilled() - seconds

    def _refilled(self) -> float:
        now = self._clock()
        self._seconds = min(self._most, self._seconds + (now - self._since) * self._share)
        self._since = now
        return self._seconds
