"""Worker threads that do what somebody waits for before what is done ahead of time.

Read-ahead must never delay a fetch: twenty consumers that begin at once would each queue five chunks, and the last one
would wait for a hundred. So jobs come in two queues with threads of their own, those for work ahead of time at a lower
priority of the operating system. Where jobs are bound to the processor, that is not enough on few of them: a job ahead
of time can also be told to begin only when nothing that is wanted is queued or runs, or after a time. An
:class:`Errand` names what a row of jobs is for; when somebody comes to wait for an errand that was begun ahead of time,
its jobs move to the first queue, and later ones go there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rsm_bridge.serving.scheduling.precedence import AHEAD_NICENESS, be_nice

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Errand:
    """What jobs are for. `wanted`: somebody waits for it; only :meth:`WorkerPool.want` changes it."""

    wanted: bool = True


@dataclass(frozen=True, slots=True)
class _Job:
    errand: Errand
    future: Future[Any]
    work: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - belongs to whoever waits for the future
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class WorkerPool:
    """`size` threads for what is wanted and as many for what is not yet. A context manager that ends with them.

    Args:
        size: threads of each kind.
        name: begins the names of the threads.
        ahead_waits: seconds that a job ahead of time waits, at most, until nothing wanted is queued or runs.
    """

    def __init__(self, size: int, name: str, ahead_waits: float = 0.0) -> None:
        self._ahead_waits = ahead_waits
        self._wanted_runs = 0
        self._wanted: deque[_Job] = deque()
        self._ahead: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._some_wanted = threading.Condition(self._lock)
        self._some_ahead = threading.Condition(self._lock)
        self._none_wanted = threading.Condition(self._lock)
        self._closed = False
        self._threads = [
            threading.Thread(target=work, name=f"{name}{suffix}_{number}", daemon=True)
            for number in range(size)
            for suffix, work in (("", self._work), ("-ahead", self._work_ahead))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, errand: Errand, work: Callable[[], T]) -> Future[T]:
        """Queues `work`.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            job = _Job(errand, future, work)
            if errand.wanted:
                self._wanted.append(job)
                self._some_wanted.notify()
            else:
                self._ahead.append(job)
                self._some_ahead.notify()
        return future

    def want(self, errand: Errand) -> None:
        """Somebody waits for the errand from now on."""
        with self._lock:
            errand.wanted = True
            moved = [job for job in self._ahead if job.errand is errand]
            for job in moved:
                self._ahead.remove(job)
            self._wanted.extend(moved)
            self._some_wanted.notify(len(moved))

    def close(self) -> None:
        """Cancels what is queued and waits for what runs."""
        with self._lock:
            self._closed = True
            queued = [*self._wanted, *self._ahead]
            self._wanted.clear()
            self._ahead.clear()
            self._some_wanted.notify_all()
            self._some_ahead.notify_all()
            self._none_wanted.notify_all()
        for job in queued:
            job.future.cancel()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (job := self._next_wanted()) is not None:
            job.run()
            del job  # its result may be large, and the wait for the next job long
            with self._lock:
                self._wanted_runs -= 1
                if self._nothing_wanted():
                    self._none_wanted.notify_all()

    def _next_wanted(self) -> _Job | None:
        """The next job, None when the pool is closed."""
        with self._lock:
            self._some_wanted.wait_for(lambda: self._closed or self._wanted)
            if self._closed:
                return None
            self._wanted_runs += 1
            return self._wanted.popleft()

    def _work_ahead(self) -> None:
        be_nice(AHEAD_NICENESS)
        while (job := self._next_ahead()) is not None:
            job.run()
            del job

    def _next_ahead(self) -> _Job | None:
        """The same; a job that waits for its time stays in the queue, where it can be wanted."""
        with self._lock:
            while not self._closed:
                self._some_ahead.wait_for(lambda: self._closed or self._ahead)
                self._none_wanted.wait_for(self._nothing_wanted, self._ahead_waits)
                if self._ahead:
                    return self._ahead.popleft()
        return None

    def _nothing_wanted(self) -> bool:
        return self._closed or not (self._wanted or self._wanted_runs)
