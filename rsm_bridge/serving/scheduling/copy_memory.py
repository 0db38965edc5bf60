"""What copies may hold in memory: one account for all of a bridge, of which each takes before it allocates.

Two things are given out. *Places*: COPY_MEMORY_BYTES each, for as long as a copy runs; steps, pieces and row groups
are so small that it needs no more, whatever its batches and values are. And *the turn*: what a copy needs beyond that,
for one batch or one value, which nothing can split, or for unusually large files beside its log. There is one turn, so
the bridge needs the memory for it once. Copies wait for it in their order, and whoever has it never waits for anything
that another one must give back first: a copy asks for it only when it has its place, and within its turn needs no
other. Only the peer whose files have it may be slow, and loses it while others wait (serving/copy/peer_patience.py).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa

from rsm_bridge.limits import COPY_MEMORY_BYTES, LARGE_WAIT_SECONDS_MAX
from rsm_bridge.turns import Turns, await_turn, within


class CopyMemory:
    """The account. Any thread.

    Args:
        budget_bytes: for places; there is one at least.
        workers: most copies that run at once, whatever the budget.

    Attributes:
        copies: how many places there are (copy_places.py hands them out); a copy takes one before its first byte is
            read, and gives it back when it has ended.
        turns: with the memory for large work.
    """

    def __init__(self, budget_bytes: int, workers: int) -> None:
        self.copies = max(1, min(workers, budget_bytes // COPY_MEMORY_BYTES))
        self.turns = Turns()

    def share(self) -> CopyShare:
        """The part of one copy."""
        return CopyShare(self.turns)

    def large(self) -> AbstractContextManager[None]:
        """One piece of large work of somebody who is no copy.

        Raises:
            BridgeError: `overloaded` where its turn has not come within LARGE_WAIT_SECONDS_MAX.
        """
        return self.share().held(within("large work", LARGE_WAIT_SECONDS_MAX))


class CopyShare:
    """The turn as one copy has it: of the event loop for the files beside the log, of its worker for large work.

    Within its turn the copy may ask again; it gives the turn back when both have left. `held` is for one thread at a
    time, `keep` and `leave` for the event loop, the properties for any.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lock = threading.Lock()
        self._asked: Future[None] | None = None
        self._users = 0
        self._depth = 0  # of the worker, within itself
        self._kept = False

    @property
    def waits(self) -> bool:
        """Whether the copy stands in the queue for the turn."""
        asked = self._asked
        return asked is not None and not asked.done()

    @property
    def ahead(self) -> int:
        """How many come before it; 0 when it does not wait."""
        asked = self._asked
        return 0 if asked is None else self._turns.ahead_of(asked)

    @property
    def wanted_by_others(self) -> bool:
        """Whether somebody waits for the turn that the copy's files have, and so for the copy's peer."""
        return self._kept and not self.waits and self._turns.waiting > 0

    async def keep(self) -> None:
        """Event loop: waits for the turn and has it until :meth:`leave`; a wait that is cancelled leaves the queue.

        Nothing where it is kept already.
        """
        if self._kept:
            return
        loop, granted = asyncio.get_running_loop(), asyncio.Event()
        self._enter().add_done_callback(lambda _: loop.call_soon_threadsafe(granted.set))
        try:
            await granted.wait()
        except BaseException:
            self._leave()
            raise
        self._kept = True

    def leave(self) -> None:
        """Ends what :meth:`keep` began; nothing when nothing is kept. What had the turn's memory must be free."""
        if self._kept:
            self._kept = False
            self._leave()

    @contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[None]:
        """A worker's large work, a converter.types.LargeWork; may be entered again within itself.

        `check`: asked while it waits; what it raises ends the wait.
        """
        if not self._depth:
            self._await_turn(check)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                # What Arrow keeps for later is the next one's; the system gets it back first.
                pa.default_memory_pool().release_unused()
                self._leave()

    def _await_turn(self, check: Callable[[], None]) -> None:
        asked = self._enter()
        try:
            await_turn(asked, check)
        except BaseException:
            self._leave()
            raise

    def _enter(self) -> Future[None]:
        with self._lock:
            if self._asked is None:
                self._asked = self._turns.ask()
            self._users += 1
            return self._asked

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._asked is not None:
                asked, self._asked = self._asked, None
                self._turns.give_back(asked)
