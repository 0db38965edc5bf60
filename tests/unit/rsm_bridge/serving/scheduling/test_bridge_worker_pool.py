"""Wanted work goes first, and what is read ahead is hurried up."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from rsm_bridge.serving.scheduling.worker_pool import ReadTicket, WorkerPool


def test_wanted_work_does_not_wait_for_work_ahead_of_time() -> None:
    release = threading.Event()
    with WorkerPool(1, "test") as pool:
        ahead = [pool.submit(ReadTicket(urgent=False), lambda: release.wait(30)) for _ in range(5)]
        try:
            assert pool.submit(ReadTicket(), lambda: "here").result(10) == "here"
            assert not any(job.done() for job in ahead)
        finally:
            release.set()
        assert all(job.result(10) for job in ahead)


def test_a_ticket_that_becomes_wanted_overtakes_the_others() -> None:
    release, order = threading.Event(), list[str]()
    with WorkerPool(1, "test") as pool:
        pool.submit(ReadTicket(urgent=False), lambda: release.wait(30))
        first, second = ReadTicket(urgent=False), ReadTicket(urgent=False)
        jobs = [
            pool.submit(first, lambda: order.append("first")),
            pool.submit(second, lambda: order.append("second")),
        ]
        pool.hurry(second)
        try:
            jobs[1].result(10)
            assert order == ["second"]
            # What follows in the same ticket is wanted from the start.
            assert pool.submit(second, lambda: 7).result(10) == 7
        finally:
            release.set()
        jobs[0].result(10)
    assert order == ["second", "first"]


def test_an_error_reaches_who_waits_and_the_thread_goes_on() -> None:
    def fail() -> None:
        raise ValueError("no")

    with WorkerPool(1, "test") as pool:
        with pytest.raises(ValueError, match="no"):
            pool.submit(ReadTicket(), fail).result(10)
        assert pool.submit(ReadTicket(), lambda: 1).result(10) == 1


def test_close_ends_the_threads_and_cancels_what_is_queued() -> None:
    begun, release = threading.Event(), threading.Event()
    before = threading.active_count()
    pool = WorkerPool(1, "test")

    def work() -> bool:
        begun.set()
        return release.wait(30)

    running = pool.submit(ReadTicket(), work)
    assert begun.wait(30)
    queued = pool.submit(ReadTicket(), lambda: True)
    threading.Timer(0.1, release.set).start()
    pool.close()
    assert running.result(0)
    with pytest.raises(CancelledError):
        queued.result(0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(ReadTicket(), lambda: True)
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_every_job_is_done_once_under_many_submitters() -> None:
    done = list[int]()
    with WorkerPool(4, "test") as pool:

        def submit(start: int) -> None:
            for number in range(start, start + 200):
                ticket = ReadTicket(urgent=number % 3 == 0)
                futures.append(pool.submit(ticket, lambda n=number: done.append(n)))  # type: ignore[misc]
                if number % 5 == 0:
                    pool.hurry(ticket)

        futures = list[object]()
        threads = [threading.Thread(target=submit, args=(1000 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not wait(futures, 30).not_done  # type: ignore[arg-type]
    assert sorted(done) == [1000 * n + number for n in range(4) for number in range(200)]


def test_work_ahead_of_time_begins_when_nothing_wanted_runs_or_after_its_patience() -> None:
    release = threading.Event()
    with WorkerPool(1, "test", prefetch_waits=30.0) as pool:
        wanted = pool.submit(ReadTicket(), lambda: release.wait(30))
        ahead = pool.submit(ReadTicket(urgent=False), wanted.done)
        with pytest.raises(TimeoutError):
            ahead.result(0.2)
        release.set()
        assert ahead.result(10)
    release.clear()
    with WorkerPool(1, "test", prefetch_waits=0.05) as pool:
        wanted = pool.submit(ReadTicket(), lambda: release.wait(30))
        assert not pool.submit(ReadTicket(urgent=False), wanted.done).result(10)
        release.set()
