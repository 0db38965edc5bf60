"""The bridge's cache: one flight per key, a bound on bytes, errors not kept, dropped keys stay away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from rsm_bridge.serving.fetch.byte_cache import ByteCache


@pytest.fixture
def lookups() -> Counter:
    return Counter("lookups", "by cache and result", ("cache", "result"), registry=CollectorRegistry())


@pytest.fixture
def cache(lookups: Counter) -> ByteCache[bytes]:
    return ByteCache("test", 100, len, lookups)


def count(lookups: Counter, result: str) -> float:
    return float(lookups.labels("test", result)._value.get())


def giving(value: bytes) -> Callable[[], Awaitable[bytes]]:
    async def make() -> bytes:
        await asyncio.sleep(0)
        return value

    return make


async def never() -> bytes:
    raise AssertionError("made again")


class Gate:
    """A value that is made when the test says so."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.made = 0

    async def make(self) -> bytes:
        self.made += 1
        await self.open.wait()
        return b"value"


def test_a_value_is_made_once_and_kept(cache: ByteCache[bytes], lookups: Counter) -> None:
    async def run() -> None:
        assert await cache.get("k", giving(b"abc")) == b"abc"
        assert await cache.get("k", never) == b"abc"
        assert cache.peek("k") == b"abc"
        assert "k" in cache
        assert cache.bytes == 3

    asyncio.run(run())
    assert (count(lookups, "miss"), count(lookups, "hit"), count(lookups, "joined")) == (1, 1, 0)


def test_many_wait_for_one_flight(cache: ByteCache[bytes], lookups: Counter) -> None:
    async def run() -> None:
        gate = Gate()
        waiting = [asyncio.ensure_future(cache.get("k", gate.make)) for _ in range(5)]
        await asyncio.sleep(0)
        assert "k" in cache
        assert cache.peek("k") is None
        gate.open.set()
        assert await asyncio.gather(*waiting) == [b"value"] * 5
        assert gate.made == 1

    asyncio.run(run())
    assert (count(lookups, "miss"), count(lookups, "joined")) == (1, 4)


def test_a_flight_goes_on_when_all_who_waited_have_left(cache: ByteCache[bytes]) -> None:
    async def run() -> None:
        gate = Gate()
        waiting = asyncio.ensure_future(cache.get("k", gate.make))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()
        assert await cache.get("k", never) == b"value"
        assert gate.made == 1

    asyncio.run(run())


def test_an_error_reaches_all_who_wait_and_is_not_kept(cache: ByteCache[bytes]) -> None:
    async def fail() -> bytes:
        await asyncio.sleep(0)
        raise ValueError("away")

    async def run() -> None:
        found = await asyncio.gather(*(cache.get("k", fail) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in found] == ["away"] * 3
        assert "k" not in cache
        assert await cache.get("k", giving(b"back")) == b"back"

    asyncio.run(run())


def test_the_least_recently_used_goes_first(cache: ByteCache[bytes]) -> None:
    async def run() -> None:
        for key in ("a", "b", "c"):
            await cache.get(key, giving(bytes(33)))
        await cache.get("a", never)
        await cache.get("d", giving(bytes(33)))
        assert [key for key in "abcd" if key in cache] == ["a", "c", "d"]
        assert cache.bytes == 99

    asyncio.run(run())


def test_a_value_above_the_bound_is_returned_and_not_kept(cache: ByteCache[bytes]) -> None:
    async def run() -> None:
        await cache.get("small", giving(bytes(60)))
        assert len(await cache.get("large", giving(bytes(101)))) == 101
        assert "large" not in cache
        assert cache.bytes == 60

    asyncio.run(run())


def test_dropped_keys_do_not_come_back_by_a_flight(cache: ByteCache[bytes]) -> None:
    async def run() -> None:
        gate = Gate()
        await cache.get(("gone", 1), giving(bytes(10)))
        await cache.get(("stays", 1), giving(bytes(20)))
        waiting = asyncio.ensure_future(cache.get(("gone", 2), gate.make))
        await asyncio.sleep(0)
        cache.drop(lambda key: isinstance(key, tuple) and key[0] == "gone")
        gate.open.set()
        assert await waiting == b"value"
        assert ("gone", 1) not in cache
        assert ("gone", 2) not in cache
        assert cache.bytes == 20

    asyncio.run(run())


def test_read_ahead_is_joined_by_who_needs_it(cache: ByteCache[bytes], lookups: Counter) -> None:
    async def run() -> None:
        gate = Gate()
        cache.start("k", gate.make)
        waiting = asyncio.ensure_future(cache.get("k", never))
        await asyncio.sleep(0)
        gate.open.set()
        assert await waiting == b"value"

    asyncio.run(run())
    assert (count(lookups, "miss"), count(lookups, "joined")) == (0, 1)
