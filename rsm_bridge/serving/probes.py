"""What `/healthz` and `/readyz` ask. Both return None, or one sentence that says what is wrong.

Alive: the event loop answers. Ready: the kernels are loaded and the store can be reached. A catalog that is away does
not make a bridge unready: copies and fetches need none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitTimeoutError
from dataclasses import dataclass, field

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import PROBE_FRESH_SECONDS, PROBE_SECONDS
from rsm_bridge.metrics.http_pages import ProbeRemark
from rsm_bridge.serving.reachability import Reachability
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.writes import StoreWrites


async def _answer() -> None:
    """Nothing: to have run is the answer."""


@dataclass(slots=True, kw_only=True)
class Probes:
    """Asked by threads of the metrics page; never waits longer than the store's own time-outs."""

    loop: asyncio.AbstractEventLoop
    store: ObjectStore
    reach: Reachability | None = None
    writes: StoreWrites | None = None
    warm: threading.Event = field(default_factory=threading.Event)
    compiling: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: float = float("-inf")
    _said: str | None = None

    def alive(self) -> str | None:
        """Whether the event loop runs what it is given within PROBE_SECONDS."""
        call = _answer()
        try:
            flight = asyncio.run_coroutine_threadsafe(call, self.loop)
        except RuntimeError:
            call.close()
            return "the event loop is closed"
        try:
            flight.result(PROBE_SECONDS)
        except WaitTimeoutError:
            flight.cancel()
            return f"the event loop has not answered for {PROBE_SECONDS:g} s"
        return None

    async def warmed(self, warm: Callable[[threading.Event], None]) -> None:
        """Not ready until `warm` has ended, in a thread; it sets its event when it compiles."""
        await asyncio.to_thread(warm, self.compiling)
        self.warm.set()

    def ready(self) -> str | None:
        """Whether copies and fetches can be served."""
        if not self.warm.is_set():
            return f"starting: {'compiling' if self.compiling.is_set() else 'loading'} kernels"
        wrong = self._store()
        if wrong is not None:
            return wrong
        # Ready all the same: fetches need neither, and copies no catalog.
        refusal = None if self.writes is None else self.writes.refusal()
        catalog = None if self.reach is None else self.reach.note("catalog")
        said = [f"the store takes no copies: {refusal}"] if refusal is not None else []
        said += [catalog] if catalog is not None else []
        return ProbeRemark("; ".join(said)) if said else None

    def _store(self) -> str | None:
        """One look serves all probes of PROBE_FRESH_SECONDS, however many ask."""
        with self._lock:
            if time.monotonic() - self._asked < PROBE_FRESH_SECONDS:
                return self._said
            try:
                self.store.check()
                self._said = None
            except BridgeError as error:
                self._said = f"the store cannot be reached: {error}"
            self._asked = time.monotonic()
            return self._said
