"""How long a thread may still wait for look-ups, where others wait for what it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_OF_THREAD = threading.local()


@dataclass(slots=True)
class LookUpTime:
    """So many seconds for all look-ups within :meth:`of_this_thread` together."""

    seconds: float

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Look-ups of this thread wait no longer than that, for the time of the block."""
        before = getattr(_OF_THREAD, "left", None)
        _OF_THREAD.left = self
        try:
            yield
        finally:
            _OF_THREAD.left = before


class LookUpTimeOverError(Exception):
    """The thread may not wait as long as a look-up may take."""


def awaited(future: Future[T], seconds: float) -> T:
    """What a look-up brings that may take so many seconds.

    Raises:
        TimeoutError: it has brought nothing by then.
        LookUpTimeOverError: the thread could not wait so long.
    """
    left: LookUpTime | None = getattr(_OF_THREAD, "left", None)
    if left is None:
        return future.result(seconds)
    enough, started = left.seconds >= seconds, time.monotonic()
    try:
        return future.result(min(seconds, max(0.0, left.seconds)))
    except TimeoutError:
        if enough:
            raise
        raise LookUpTimeOverError from None
    finally:
        left.seconds -= time.monotonic() - started
