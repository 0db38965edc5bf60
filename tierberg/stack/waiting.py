"""Waiting with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tierberg.stack.errors import StackError
from tierberg.stack.limits import POLL_S

T = TypeVar("T")


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, poll_s: float = POLL_S) -> T:
    """Call `probe` until it returns something true, and return that.

    Args:
        what: ends the sentence "gave up after … s waiting for …".
        probe: looked at once at the start and at least once at the deadline.
        timeout_s: seconds until giving up.
        poll_s: seconds between two looks.

    Raises:
        StackError: nothing true came before the deadline. What `probe` itself raises passes through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        last_look = time.monotonic() >= deadline
        found = probe()
        if found:
            return found
        if last_look:
            raise StackError(f"gave up after {timeout_s:.0f} s waiting for {what}")
        time.sleep(poll_s)
