"""Worker threads that do what somebody waits for before what is done ahead of time.

Read-ahead must never delay a fetch: twenty consumers that begin at once would each queue five chunks, and the last one
would wait for a hundred. So jobs come in two queues with threads of their own, those for work ahead of time at a lower
priority of the operating system. Where jobs are bound to the processor, that is not enough on few of them: a job ahead
of time can also be told to begin only when nothing urgent is queued or runs, or after a time. A
:class:`ReadTicket` names what a row of jobs is for; when somebody comes to wait for one that was begun ahead of time,
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

from rsm_bridge.serving.scheduling.fetch_priority import PREFETCH_NICENESS, lower_priority

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class ReadTicket:
    """What jobs are for. `urgent`: somebody waits for it; only :meth:`WorkerPool.hurry` changes it."""

    urgent: bool = True


@dataclass(frozen=True, slots=True)
class _Job:
    ticket: ReadTicket
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
    """`size` threads for what is urgent and as many for what is not yet. A context manager that ends with them.

    Args:
        size: threads of each kind.
        name: begins the names of the threads.
        prefetch_waits: seconds that a job ahead of time waits, at most, until nothing urgent is queued or runs.
    """

    def __init__(self, size: int, name: str, prefetch_waits: float = 0.0) -> None:
        self._prefetch_waits = prefetch_waits
        self._urgent_runs = 0
        self._urgent: deque[_Job] = deque()
        self._prefetch: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._some_urgent = threading.Condition(self._lock)
        self._some_prefetch = threading.Condition(self._lock)
        self._none_urgent = threading.Condition(self._lock)
        self._closed = False
        self._threads = [
            threading.Thread(target=work, name=f"{name}{suffix}_{number}", daemon=True)
            for number in range(size)
            for suffix, work in (("", self._work), ("-prefetch", self._work_prefetch))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, ticket: ReadTicket, work: Callable[[], T]) -> Future[T]:
        """Queues `work`.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            job = _Job(ticket, future, work)
            if ticket.urgent:
                self._urgent.append(job)
                self._some_urgent.notify()
            else:
                self._prefetch.append(job)
                self._some_prefetch.notify()
        return future

    def hurry(self, ticket: ReadTicket) -> None:
        """Somebody waits for the ticket from now on."""
        with self._lock:
            ticket.urgent = True
            moved = [job for job in self._prefetch if job.ticket is ticket]
            for job in moved:
                self._prefetch.remove(job)
            self._urgent.extend(moved)
            self._some_urgent.notify(len(moved))

    def close(self) -> None:
        """Cancels what is queued and waits for what runs."""
        with self._lock:
            self._closed = True
            queued = [*self._urgent, *self._prefetch]
            self._urgent.clear()
            self._prefetch.clear()
            self._some_urgent.notify_all()
            self._some_prefetch.notify_all()
            self._none_urgent.notify_all()
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
        while (job := self._next_urgent()) is not None:
            job.run()
            del job  # its result may be large, and the wait for the next job long
            with self._lock:
                self._urgent_runs -= 1
                if self._nothing_urgent():
                    self._none_urgent.notify_all()

    def _next_urgent(self) -> _Job | None:
        """The next job, None when the pool is closed."""
        with self._lock:
            self._some_urgent.wait_for(lambda: self._closed or self._urgent)
            if self._closed:
                return None
            self._urgent_runs += 1
            return self._urgent.popleft()

    def _work_prefetch(self) -> None:
        lower_priority(PREFETCH_NICENESS)
        while (job := self._next_prefetch()) is not None:
            job.run()
            del job

    def _next_prefetch(self) -> _Job | None:
        """The same; a job that waits for its time stays in the queue, where it can be hurried."""
        with self._lock:
            while not self._closed:
                self._some_prefetch.wait_for(lambda: self._closed or self._prefetch)
                self._none_urgent.wait_for(self._nothing_urgent, self._prefetch_waits)
                if self._prefetch:
                    return self._prefetch.popleft()
        return None

    def _nothing_urgent(self) -> bool:
        return self._closed or not (self._urgent or self._urgent_runs)
