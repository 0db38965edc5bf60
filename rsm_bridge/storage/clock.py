"""The time by the store's clock: what may go by its age goes by that, not by the clock of whichever machine asks.

Rows of a table that keeps them for a duration, rows that wait for a projection, objects that no index names yet: a
bridge whose own clock is a day ahead, or jumps, would let them go a day early. Every object has the time at which the
store took it, so one small object that is written anew tells what time it is there. Between two looks the monotonic
clock goes on.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import CLOCK_FRESH_SECONDS, CLOCK_SKEW_SECONDS_MAX
from rsm_bridge.storage.object_store import ObjectStore

CLOCK_KEY: Final = "clock/now"


def local_ms() -> int:
    """This machine's clock, milliseconds since the epoch: for what is shown, and for a store that is this machine."""
    return int(time.time() * 1000)


@dataclass(slots=True)
class StoreClock:
    """Never ahead of the store's clock; behind it by a request's duration at most. Any thread.

    elapsed: seconds, only ever forward.
    """

    store: ObjectStore
    elapsed: Callable[[], float] = time.monotonic
    _seen: tuple[int, float] | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def now_ms(self) -> int:
        """Milliseconds since the epoch.

        Raises:
            StoreError: the store is away; what may go has to wait then.
        """
        if self.store.single_process:
            return local_ms()
        with self._lock:
            if self._seen is None or self.elapsed() - self._seen[1] >= CLOCK_FRESH_SECONDS:
                self._seen = self._look(), self.elapsed()
            told_ms, at = self._seen
            return told_ms + int((self.elapsed() - at) * 1000)

    def _look(self) -> int:
        """Writes the object, unless another bridge does so at this moment, and asks for its time."""
        data = secrets.token_hex(16).encode()
        try:
            self.store.replace(CLOCK_KEY, data, self.store.read(CLOCK_KEY).version)
        except ObjectNotFoundError:
            self.store.put_if_absent(CLOCK_KEY, data)
        return self.store.stat(CLOCK_KEY).modified_ms


def taken_ms(said_ms: int, stored_ms: int) -> int:
    """When something was stored that says itself when: by its writer's clock, unless that was far off."""
    return stored_ms if abs(stored_ms - said_ms) > CLOCK_SKEW_SECONDS_MAX * 1000 else said_ms
