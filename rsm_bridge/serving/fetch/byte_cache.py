"""A bounded cache of byte buffers and decoded objects, with one flight per key.

Belongs to the event loop: no locks. A value that is being made is made once, however many wait for it, and its making
goes on when all of them leave: the broker hangs up after 500 ms and comes back for the same bytes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from prometheus_client import Counter

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Least recently used values go when their sizes exceed the limit.

    Args:
        bytes_max: sum of sizes. A larger value is returned but not kept.
        size_of: bytes of a value.
        lookups: counts by `name` and `hit`, `joined` or `miss`.
    """

    def __init__(self, name: str, bytes_max: int, size_of: Callable[[V], int], lookups: Counter) -> None:
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._flights: dict[Hashable, asyncio.Task[V]] = {}
        self._size_of = size_of
        self._bytes_max = bytes_max
        self.bytes = 0
        self._hit = lookups.labels(name, "hit")
        self._joined = lookups.labels(name, "joined")
        self._miss = lookups.labels(name, "miss")

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values or key in self._flights

    def peek(self, key: Hashable) -> V | None:
        """A finished value, without counting as a use."""
        return self._values.get(key)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        """The value, made by `make` unless it is there or already on its way. An error is not kept."""
        if key in self._values:
            self._hit.inc()
            self._values.move_to_end(key)
            return self._values[key]
        flight = self._flights.get(key)
        if flight is None:
            self._miss.inc()
            flight = self.start(key, make)
        else:
            self._joined.inc()
        return await asyncio.shield(flight)

    def start(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """Begins to make a value nobody waits for yet (read-ahead)."""
        flight = asyncio.ensure_future(self._fly(key, make))
        self._flights[key] = flight
        flight.add_done_callback(lambda task: task.cancelled() or task.exception())
        return flight

    async def _fly(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await make()
        finally:
            flight = self._flights.pop(key, None)
        # A key that was dropped meanwhile must not come back.
        if flight is asyncio.current_task():
            self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: V) -> None:
        size = self._size_of(value)
        if size > self._bytes_max:
            return
        self._values[key] = value
        self.bytes += size
        while self.bytes > self._bytes_max:
            _, old = self._values.popitem(last=False)
            self.bytes -= self._size_of(old)

    def drop(self, belongs: Callable[[Hashable], bool]) -> None:
        """Forgets keys, also those on their way; who already waits for one still gets it."""
        for key in [key for key in self._values if belongs(key)]:
            self.bytes -= self._size_of(self._values.pop(key))
        for key in [key for key in self._flights if belongs(key)]:
            del self._flights[key]
