"""What copies may hold in memory: one account for all of a bridge, of which each takes before it allocates.

Two things are given out. *Places*: COPY_MEMORY_BYTES each, for as long as a copy runs; steps, pieces and row groups
are so small that it needs no more, whatever its batches and values are. And *the turn for large work*: what one batch
or one value needs beyond that, which nothing can split. There is one turn, so the bridge needs the memory for it once,
and whoever has it never waits for anything that another one needs to give a place back: copies wait in their order,
none fails for it, and nothing is ever stuck.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from rsm_bridge.limits import COPY_MEMORY_BYTES, LARGE_TURN_CHECK_SECONDS


class CopyMemory:
    """The account.

    Args:
        budget_bytes: for places; there is one at least.
        workers: most copies that run at once, whatever the budget.

    Attributes:
        copies: how many places there are (copy_places.py hands them out); a copy takes one before its first byte is
            read, and gives it back when it has ended.
    """

    def __init__(self, budget_bytes: int, workers: int) -> None:
        self.copies = max(1, min(workers, budget_bytes // COPY_MEMORY_BYTES))
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()  # the first has the turn

    @property
    def waiting(self) -> int:
        """How many wait for the turn."""
        with self._changed:
            return max(0, len(self._queue) - 1)

    def share(self, check: Callable[[], None] = lambda: None) -> CopyShare:
        """The large work of one thread. `check`: asked while it waits; what it raises ends the wait."""
        return CopyShare(self, check)

    def large(self) -> AbstractContextManager[None]:
        """One piece of large work of somebody who is no copy."""
        return self.share()()

    def take_turn(self, check: Callable[[], None]) -> object:
        """Waits for the turn; returns what gives it back. Whoever asks first is first."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket:
                    self._changed.wait(LARGE_TURN_CHECK_SECONDS)
                    check()
            except BaseException:
                self._queue.remove(ticket)
                self._changed.notify_all()
                raise
        return ticket

    def give_turn(self, ticket: object) -> None:
        """Ends the turn."""
        with self._changed:
            self._queue.remove(ticket)
            self._changed.notify_all()


@dataclass(slots=True)
class CopyShare:
    """The large work of one copy, a converter.types.LargeWork; may be entered again within itself. For one thread."""

    memory: CopyMemory
    check: Callable[[], None]
    _ticket: object | None = field(default=None)
    _depth: int = 0

    @contextmanager
    def _held(self) -> Iterator[None]:
        if self._ticket is None:
            self._ticket = self.memory.take_turn(self.check)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                ticket, self._ticket = self._ticket, None
                # What Arrow keeps for later is the next one's; the system gets it back first.
                pa.default_memory_pool().release_unused()
                self.memory.give_turn(ticket)

    def __call__(self) -> AbstractContextManager[None]:
        """The context of one piece of large work."""
        return self._held()
