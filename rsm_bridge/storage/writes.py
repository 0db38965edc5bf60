"""Whether the store takes copies: a store may answer every read and take no write.

A disk mounted read-only, a policy without writes, a bucket's quota: what asks the store for something small sees none
of them. The copies themselves do, so they are the witness. `tierberg status` is told by the bridge's health service.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from rsm_bridge.limits import STORE_REFUSAL_SECONDS_MAX, STORE_REFUSAL_SECONDS_MIN

#: Asked of the health service like a service: SERVING, or NOT_SERVING with why as UTF-8 in the trailer.
HEALTH_SERVICE = "tierberg.v1.StoreWrites"
WHY_TRAILER = "tierberg-why-bin"
#: Of what a client says the beginning names the object, and the end the store's answer.
_WHY_CHARS_MAX: Final = 800


@dataclass(slots=True)
class StoreWrites:
    """What became of the last copies. Told on the event loop; any thread may ask."""

    _first: float | None = None
    _last: float = 0.0
    _why: str = ""

    def failed(self, why: str) -> None:
        """A copy failed because the store did not do what it was asked."""
        now = time.monotonic()
        if self._first is None or now - self._last > STORE_REFUSAL_SECONDS_MAX:
            self._first = now
        self._last, self._why = now, why

    def worked(self) -> None:
        """A copy is stored."""
        self._first = None

    def refusal(self) -> str | None:
        """Why the store takes no copies; None: it does, or nobody knows.

        One failure says little. They count when they went on for STORE_REFUSAL_SECONDS_MIN without a success, and for
        STORE_REFUSAL_SECONDS_MAX after the last: a broker repeats a copy sooner, unless there is none any more.
        """
        first, last = self._first, self._last
        if first is None or last - first < STORE_REFUSAL_SECONDS_MIN:
            return None
        if time.monotonic() - last > STORE_REFUSAL_SECONDS_MAX:
            return None
        why = self._why.partition("\n")[0]
        if len(why) <= _WHY_CHARS_MAX:
            return why
        return f"{why[: _WHY_CHARS_MAX // 4]} … {why[-_WHY_CHARS_MAX * 3 // 4 :]}"
