"""Worker threads for short calls from the event loop.

`loop.run_in_executor` costs more than a tombstone's put: two futures, each with a lock, and a wake-up of the loop for
every result. Here a job is one entry of a queue, and a result that comes before the loop has fetched earlier ones is
fetched with them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    future: asyncio.Future[Any]
    work: Callable[[Any], Any]
    argument: Any


@dataclass(frozen=True, slots=True)
class _Result:
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


class CallPool:
    """`size` threads. Made and used on one running event loop; a context manager that ends with what was queued."""

    def __init__(self, size: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._results: deque[_Result] = deque()
        self._collecting = False  # the loop will come and collect
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[A], T], argument: A) -> asyncio.Future[T]:
        """Queues `work(argument)`. Cancelling the future keeps work from beginning, not from going on."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(future, work, argument))
        return future

    def close(self) -> None:
        """Waits for what is queued and what runs."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.cancelled():
                continue
            try:
                result = _Result(job.future, job.work(job.argument), None)
            except BaseException as error:  # noqa: BLE001 - belongs to whoever awaits the future
                result = _Result(job.future, None, error)
            self._results.append(result)
            if not self._collecting:
                self._collecting = True
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        # Before the first look: a result that comes after the last one then calls again.
        self._collecting = False
        while self._results:
            result = self._results.popleft()
            if result.future.done():
                continue  # cancelled meanwhile
            if result.error is None:
                result.future.set_result(result.value)
            else:
                result.future.set_exception(result.error)
