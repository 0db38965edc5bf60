"""A deadline for work that cannot be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Answer(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


def within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """Runs `work` on a daemon thread and returns what it returns.

    Raises:
        TimeoutError: it did not end in time; it is left behind. What it raises itself passes through.
    """
    answer: _Answer[T] = _Answer()
    done = threading.Event()

    def run() -> None:
        try:
            answer.value = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            answer.error = error
        finally:
            done.set()

    threading.Thread(target=run, name=f"status-{what}", daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError(f"the {what} did not answer within {seconds:g} s")
    if answer.error is not None:
        raise answer.error
    return answer.value  # type: ignore[return-value]  # T may itself be optional
