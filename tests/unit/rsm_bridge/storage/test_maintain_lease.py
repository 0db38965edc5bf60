"""The lease: one holder at a time, a killed one is replaced within two TTLs, on a folder and on S3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import StoreError
from rsm_bridge.storage.lease import Lease, kept, lease_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from tests.support.s3_server import S3Server, moto_server

KEY = lease_key("0" * 32)
TTL = 30.0


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(load_settings(None, {"data_dir": tmp_path}))
    s3: S3Server = request.getfixturevalue("s3")
    url = f"s3://{s3.new_bucket('lease')}"
    return open_store(
        load_settings(None, {"store": {"url": url, "options": s3.store_options(), "fetch_timeout": "10s"}})
    )


def lease(store: ObjectStore, clock: Clock, holder: str = "one") -> Lease:
    return Lease(store=store, key=KEY, holder=holder, ttl=TTL, clock=clock)


def test_one_holder_at_a_time(store: ObjectStore) -> None:
    clock = Clock()
    one, two = lease(store, clock), lease(store, clock, "two")
    assert one.acquire()
    assert not two.acquire()
    clock.now += TTL - 1
    assert not two.acquire()
    assert one.renew()
    clock.now += TTL - 1
    assert not two.acquire()


def test_a_released_one_is_free_at_once(store: ObjectStore) -> None:
    clock = Clock()
    one, two = lease(store, clock), lease(store, clock, "two")
    assert one.acquire()
    one.release()
    assert two.acquire()
    assert not one.acquire()


@pytest.mark.parametrize("first_look", [0.0, TTL / 2, TTL - 0.1])
def test_a_killed_holder_is_replaced_within_two_ttls(store: ObjectStore, first_look: float) -> None:
    clock = Clock()
    assert lease(store, clock).acquire()  # and is never heard of again
    clock.now = first_look
    two = lease(store, clock, "two")
    while not two.acquire():
        clock.now += 1.0
        assert clock.now <= 2 * TTL
    assert clock.now >= TTL


def test_a_holder_that_slept_notices(store: ObjectStore) -> None:
    clock = Clock()
    one, two = lease(store, clock), lease(store, clock, "two")
    assert one.acquire()
    assert not two.acquire()
    clock.now += TTL
    assert two.acquire()
    assert not one.renew()
    one.release()  # of what is not its own any more: nothing happens
    assert two.renew()
    clock.now += TTL / 2
    assert two.renew()


def test_a_long_pass_keeps_it_and_then_lets_go(tmp_path: Path) -> None:
    store = open_store(load_settings(None, {"data_dir": tmp_path}))
    one, two = Lease(store=store, key=KEY, holder="one", ttl=1.5), Lease(store=store, key=KEY, holder="two", ttl=1.5)
    assert one.acquire()
    with kept(one):
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            assert not two.acquire()
            time.sleep(0.1)
    assert two.acquire()


def test_a_store_that_is_away_costs_the_lease_not_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(load_settings(None, {"data_dir": tmp_path}))
    one = Lease(store=store, key=KEY, holder="one", ttl=0.15)
    assert one.acquire()

    def away(*_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(store, "read", away)
    with kept(one):
        time.sleep(0.3)


def test_racing_threads_get_one(tmp_path: Path) -> None:
    """On a folder; that conditional puts are atomic on a real S3 server is shown by the tests of the store."""
    clock, store = Clock(), open_store(load_settings(None, {"data_dir": tmp_path}))
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda name: lease(store, clock, f"{name}").acquire(), range(8)))
    assert sum(got) == 1


def test_what_cannot_be_read_is_taken_over_after_a_ttl(store: ObjectStore) -> None:
    clock = Clock()
    assert store.put_if_absent(KEY, b"not json")
    one = lease(store, clock)
    assert not one.acquire()
    clock.now += TTL
    assert one.acquire()


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["look", "renew", "release", "die"]), st.floats(0, TTL)),
        max_size=40,
    )
)
def test_two_that_keep_time_never_both_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, float]]
) -> None:
    """A holder that renews in time is never robbed; each believes only what `renew` just told it."""
    clock = Clock()
    store = open_store(load_settings(None, {"data_dir": tmp_path_factory.mktemp("lease")}))
    ones = [lease(store, clock, str(number)) for number in range(3)]
    holder: int | None = None
    renewed_at = 0.0
    for who, what, pause in steps:
        clock.now += pause
        if what == "look":
            got = ones[who].acquire()
            in_time = holder is not None and clock.now - renewed_at < TTL
            assert not (got and in_time and who != holder), "robbed"
            if got:
                holder, renewed_at = who, clock.now
        elif what == "renew" and ones[who].renew():
            assert who == holder
            renewed_at = clock.now if ones[who]._renewed_at == clock.now else renewed_at
        elif what == "release":
            ones[who].release()
            holder = None if who == holder else holder
        elif what == "die":
            ones[who] = lease(store, clock, str(who))
