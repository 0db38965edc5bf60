"""Waiting for what another thread or process does, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tierberg.stack.waiting import wait_for

POLL_SECONDS = 0.05


def eventually(check: Callable[[], Any], seconds: float = 30.0) -> None:
    """Returns when `check` has given something true; StackError when that is not so after `seconds`."""
    wait_for("what the test expects", check, seconds, poll_s=POLL_SECONDS)
