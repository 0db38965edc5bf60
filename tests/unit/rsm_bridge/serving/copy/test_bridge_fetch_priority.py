"""Fetches first: how long copies pause, on worker threads and on the event loop."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from crc32c import crc32c

from rsm_bridge.limits import COPY_PAUSE_SECONDS_MAX
from rsm_bridge.serving.copy.frame_feed import FeedClosedError, FrameFeed
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority
from rsm_bridge.serving.wire.messages import End, Frame


def test_copies_give_way_while_a_fetch_waits_and_no_longer_than_the_limit() -> None:
    priority = FetchPriority()
    assert priority.yield_to_fetches() == 0.0
    with priority.fetching(), priority.fetching():
        started = time.monotonic()
        assert priority.yield_to_fetches() >= COPY_PAUSE_SECONDS_MAX * 0.9
        assert time.monotonic() - started < COPY_PAUSE_SECONDS_MAX + 5
    assert priority.yield_to_fetches() == 0.0


def test_copies_that_give_way_take_turns() -> None:
    priority, copies = FetchPriority(), 2 * max(1, (os.cpu_count() or 1) // 2)
    started = time.monotonic()
    with priority.fetching(), ThreadPoolExecutor(copies) as workers:
        pauses = list(workers.map(lambda _: priority.yield_to_fetches(), range(copies)))
    assert min(pauses) >= COPY_PAUSE_SECONDS_MAX * 0.9
    assert time.monotonic() - started >= COPY_PAUSE_SECONDS_MAX * 1.9


def test_a_copy_goes_on_as_soon_as_the_last_fetch_has_its_bytes() -> None:
    priority = FetchPriority()

    async def fetch() -> float:
        with priority.fetching():
            pause = asyncio.get_running_loop().run_in_executor(None, priority.yield_to_fetches)
            await asyncio.sleep(COPY_PAUSE_SECONDS_MAX / 10)
        return await pause

    assert min(asyncio.run(fetch()) for _ in range(3)) < COPY_PAUSE_SECONDS_MAX * 0.9


def test_fetches_claim_precedence_until_the_last_has_its_bytes() -> None:
    priority = FetchPriority()
    with priority.fetching():
        with priority.fetching():
            assert priority.claimed
        assert priority.claimed
    assert not priority.claimed


def test_a_frame_is_needed_when_the_worker_has_none() -> None:
    async def feeding() -> list[bool]:
        feed = FrameFeed()
        seen = [await needed(feed)]
        await feed.put(End(0))
        seen.append(await needed(feed))
        return seen

    assert asyncio.run(feeding()) == [True, False]


def test_frames_are_asked_for_while_the_worker_is_busy_with_the_last_one() -> None:
    async def feeding() -> list[bool]:
        feed = FrameFeed()
        frames = feed.frames(2)
        await feed.put(frame(0))
        await feed.put(frame(1))
        assert bytes(next(frames)) == b"x"
        seen = [await needed(feed)]
        assert bytes(next(frames)) == b"x"
        return [*seen, await needed(feed)]

    assert asyncio.run(feeding()) == [False, True]


def test_a_worker_that_has_ended_wakes_who_waits_for_its_need() -> None:
    async def feeding() -> None:
        feed = FrameFeed()
        await feed.put(frame(0))
        feed.close()
        assert await needed(feed)
        with pytest.raises(FeedClosedError):
            await feed.put(frame(1))

    asyncio.run(feeding())


async def needed(feed: FrameFeed) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await feed.needed()
    except TimeoutError:
        return False
    return True


def frame(position: int) -> Frame:
    return Frame(position, memoryview(b"x"), crc32c(b"x"))
