"""Which client asks the store for what somebody waits for: a quick one, and a patient one for a slow store.

One request of many that hangs costs least when it is given up early and asked again. When the store is slow for all of
them, giving up early means never to have an answer, and a consumer that stands for ever. So a read that the quick
client could not get in its time is asked once more with patience: its answer comes too late for this fetch, but it is
kept for the one that follows. From then on reads start with patience, until none has been slow for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from obstore.exceptions import BaseError

from rsm_bridge.limits import SLOW_STORE_SECONDS

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

T = TypeVar("T")


class ReadClients:
    """Both clients of one store.

    Args:
        quick: gives a request up after `quick_seconds` and asks again a few times.
        patient: waits longer; None when the quick one is patient enough.
        quick_seconds: time-out of one request of the quick client.
    """

    def __init__(self, quick: Client, patient: Client | None = None, quick_seconds: float = 0.0) -> None:
        self._quick = quick
        self._patient = patient
        self._quick_seconds = quick_seconds
        self._slow_until = 0.0

    @property
    def current(self) -> Client:
        """The one that reads begin with now."""
        slow = self._patient is not None and time.monotonic() < self._slow_until
        return self._patient if slow and self._patient is not None else self._quick

    def ask(self, question: Callable[[Client], T]) -> T:
        """What `question` returns for a client that is patient enough. Raises what the last one asked raises."""
        client, started = self.current, time.monotonic()
        if client is self._quick:
            try:
                return question(client)
            except (BaseError, OSError):
                # An answer, or nobody there, is known sooner than time runs out.
                if self._patient is None or time.monotonic() - started < self._quick_seconds:
                    raise
            client, started = self._patient, time.monotonic()
        answer = question(client)
        if time.monotonic() - started >= self._quick_seconds:
            self._slow_until = time.monotonic() + SLOW_STORE_SECONDS
        return answer
