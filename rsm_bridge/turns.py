"""Something that one has at a time; who asks first is first."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import LARGE_TURN_CHECK_SECONDS


class TurnBusyError(BridgeError):
    """The turn has not come in time; a retry waits for it again."""

    def __init__(self, message: str) -> None:
        super().__init__("overloaded", message)


class Turns:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Future[None]] = deque()  # the first has the turn, and is done

    @property
    def waiting(self) -> int:
        """How many wait for the turn."""
        with self._lock:
            return max(0, len(self._queue) - 1)

    def ask(self) -> Future[None]:
        """Queues for the turn: it is the asker's when the result is set."""
        asked: Future[None] = Future()
        with self._lock:
            self._queue.append(asked)
            if len(self._queue) == 1:
                asked.set_result(None)
        return asked

    def give_back(self, asked: Future[None]) -> None:
        """Ends the turn, or the wait for it. Once for each :meth:`ask`."""
        with self._lock:
            self._queue.remove(asked)
            if self._queue and not self._queue[0].done():
                self._queue[0].set_result(None)

    def ahead_of(self, asked: Future[None]) -> int:
        """How many come before one that waits, with the one that has the turn."""
        with self._lock:
            return self._queue.index(asked) if asked in self._queue else 0

    @contextmanager
    def held(self, what: str, seconds: float) -> Iterator[None]:
        """The turn, for the time of the block. `what`: it is for, as the error says it.

        Raises:
            TurnBusyError: `overloaded` where it has not come within so many seconds.
        """
        asked = self.ask()
        try:
            await_turn(asked, within(what, seconds))
            yield
        finally:
            self.give_back(asked)


def await_turn(asked: Future[None], check: Callable[[], None]) -> None:
    """Blocks until the turn has come. `check`: asked every now and then; what it raises ends the wait."""
    while not asked.done():
        try:
            asked.result(LARGE_TURN_CHECK_SECONDS)
        except TimeoutError:
            check()


def within(what: str, seconds: float) -> Callable[[], None]:
    """A check for :func:`await_turn` that raises TurnBusyError once the seconds are over."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise TurnBusyError(f"no turn for {what} within {seconds:.0f} s")

    return check
