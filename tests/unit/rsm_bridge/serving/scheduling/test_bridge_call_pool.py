"""Short calls on worker threads: each result reaches its own caller, as many at once as there are threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from rsm_bridge.serving.scheduling.call_pool import CallPool

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(limited())


def test_every_call_gets_its_own_result() -> None:
    async def work() -> list[int]:
        with CallPool(4, "test") as pool:
            return await asyncio.gather(*(pool.submit(lambda number: number * 2, number) for number in range(5_000)))

    assert run(work()) == [number * 2 for number in range(5_000)]


def test_results_come_one_by_one_too() -> None:
    async def work() -> list[int]:
        with CallPool(2, "test") as pool:
            return [await pool.submit(lambda number: number + 1, number) for number in range(500)]

    assert run(work()) == list(range(1, 501))


def test_an_error_reaches_who_waits_and_the_thread_goes_on() -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    async def work() -> str:
        with CallPool(1, "test") as pool:
            with pytest.raises(ValueError, match="no such thing"):
                await pool.submit(fail, "no such thing")
            return await pool.submit(str.upper, "on")

    assert run(work()) == "ON"


def test_as_many_run_at_once_as_there_are_threads() -> None:
    async def work() -> list[int]:
        meeting = threading.Barrier(8)
        with CallPool(8, "test") as pool:
            return await asyncio.gather(*(pool.submit(meeting.wait, 20) for _ in range(8)))

    assert sorted(run(work())) == list(range(8))


def test_what_is_cancelled_in_the_queue_does_not_begin() -> None:
    begun: list[str] = []

    async def work() -> None:
        release = threading.Event()
        with CallPool(1, "test") as pool:
            first = pool.submit(release.wait, 20)
            second = pool.submit(begun.append, "second")
            third = pool.submit(begun.append, "third")
            second.cancel()
            release.set()
            assert await first
            await third

    run(work())
    assert begun == ["third"]


def test_a_result_that_nobody_waits_for_any_more_is_dropped() -> None:
    async def work() -> str:
        running, release = threading.Event(), threading.Event()

        def hold(text: str) -> str:
            running.set()
            release.wait(20)
            return text

        with CallPool(1, "test") as pool:
            left = pool.submit(hold, "left")
            await asyncio.to_thread(running.wait, 20)
            left.cancel()
            release.set()
            return await pool.submit(str.upper, "next")

    assert run(work()) == "NEXT"


def test_the_pool_ends_with_what_was_queued() -> None:
    done: list[int] = []

    async def work() -> None:
        before = threading.active_count()
        with CallPool(3, "test") as pool:
            for number in range(100):
                pool.submit(done.append, number)
        assert threading.active_count() == before

    run(work())
    assert sorted(done) == list(range(100))
