"""Fair shares between callers: who is admitted, in which order places are given, who loses one for silence."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import (
    ANSWER_SECONDS_MAX,
    CONTENDED_SILENCE_SECONDS,
    COPY_RATE_MIN_BYTES,
    COPY_SECONDS_MAX,
    COPY_WAIT_SECONDS_MAX,
    FETCH_CLAIM_SECONDS,
    FRAME_WAIT_SECONDS_MAX,
    HOST_SHARE,
    PEER_TICK_SECONDS,
)
from rsm_bridge.serving.copy.peer_patience import Patience, overdue
from rsm_bridge.serving.scheduling.copy_places import CopyPlaces, Ticket
from rsm_bridge.serving.scheduling.fair_queue import FairQueue
from rsm_bridge.serving.scheduling.peers import Admission, Peer, admits, peer_of


def peer(host: str, port: int = 1) -> Peer:
    return Peer(host, f"{host}:{port}")


class Call:
    def __init__(self, name: str) -> None:
        self.name = name

    def peer(self) -> str:
        return self.name


def test_hosts_and_connections() -> None:
    assert peer_of(Call("ipv4:10.0.0.1:99")) == Peer("ipv4:10.0.0.1", "ipv4:10.0.0.1:99")
    assert peer_of(Call("ipv6:%5B::1%5D:99")).host == "ipv6:%5B::1%5D"
    assert peer_of(Call("unix:")) == Peer("unix:", "unix:")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=400), st.integers(1, 256))
def test_there_is_room_for_who_has_none(calls: list[tuple[int, int]], maximum: int) -> None:
    """As long as anything is free, a first call comes in; and two callers alone never fill all of a large limit."""
    admission, total = Admission(maximum, "calls"), 0
    with ExitStack() as open_calls:
        for host, port in calls:
            with suppress(BridgeError):
                open_calls.enter_context(admission.of(peer(f"h{host}", port)))
                total += 1
            assert total <= maximum
        if total < maximum:
            with admission.of(peer("newcomer")):
                pass


def test_one_connection_has_half_and_one_host_three_quarters() -> None:
    mine = 0
    while admits(mine, mine, mine, 256):
        mine += 1
    assert mine == 129
    of_host = 0
    while admits(0, of_host, of_host, 256):
        of_host += 1
    assert of_host == 256 * HOST_SHARE // (HOST_SHARE + 1) + 1
    assert admits(0, 0, of_host, 256)
    assert not admits(0, 0, 256, 256)
    assert admits(0, 0, 0, 1)
    assert not admits(0, 0, 1, 1)


def test_counts_are_given_back() -> None:
    admission = Admission(1, "calls")
    for _ in range(3):
        with admission.of(peer("a")), pytest.raises(BridgeError, match="1 calls, 0 of them"), admission.of(peer("b")):
            pass


def test_hosts_take_turns_and_connections_within_them() -> None:
    queue: FairQueue[str] = FairQueue()
    for name, host, port in (("a1", "a", 1), ("a2", "a", 1), ("a3", "a", 1), ("b1", "b", 1), ("A1", "a", 2)):
        queue.put(peer(host, port), name)
    assert list(queue) == ["a1", "b1", "A1", "a2", "a3"]
    assert queue.ahead_of("a2") == 3
    queue.remove(peer("a", 1), "a2")
    queue.remove(peer("a", 1), "not there")
    assert [queue.take() for _ in range(5)] == ["a1", "b1", "A1", "a3", None]
    assert len(queue) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_the_order_said_is_the_order_kept(entries: list[tuple[int, int]]) -> None:
    queue: FairQueue[tuple[int, int, int]] = FairQueue()
    for number, (host, port) in enumerate(entries):
        queue.put(peer(f"h{host}", port), (host, port, number))
    said = list(queue)
    assert [queue.take() for _ in entries] == said
    assert sorted(said) == sorted((host, port, number) for number, (host, port) in enumerate(entries))


def test_a_newcomer_waits_for_one_turn_however_much_another_has_queued() -> None:
    async def run() -> list[str]:
        places, order = CopyPlaces(1), []

        async def one(name: str, host: str) -> None:
            ticket = Ticket(peer(host))
            await places.take(ticket)
            order.append(name)
            await asyncio.sleep(0)
            places.give_back(ticket)

        greedy = [asyncio.ensure_future(one(f"g{number}", "greedy")) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(one("honest", "other"), *greedy)
        return order

    assert asyncio.run(run()).index("honest") <= 4


def test_a_place_that_is_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COPY_WAIT_SECONDS_MAX < COPY_SECONDS_MAX
    monkeypatch.setattr("rsm_bridge.serving.scheduling.copy_places.COPY_WAIT_SECONDS_MAX", 0.05)

    async def run() -> None:
        places = CopyPlaces(1)
        first, waiting = Ticket(peer("a")), Ticket(peer("b"))
        await places.take(first)
        assert not places.wanted_by_others(first)
        with pytest.raises(BridgeError, match="no place") as failed:
            await places.take(waiting)
        assert failed.value.kind == "overloaded"
        places.give_back(first)
        await places.take(Ticket(peer("b")))

    asyncio.run(run())


def test_no_more_leave_than_are_waited_for() -> None:
    async def run() -> None:
        places = CopyPlaces(2)
        holders = [Ticket(peer("a", number)) for number in range(2)]
        for ticket in holders:
            await places.take(ticket)
        waiting = Ticket(peer("b"))
        wait = asyncio.ensure_future(places.take(waiting))
        await asyncio.sleep(0)
        assert all(places.wanted_by_others(ticket) for ticket in holders)
        assert not places.wanted_by_others(waiting)
        places.leave(holders[0])
        assert not places.wanted_by_others(holders[1])
        places.give_back(holders[0])
        await wait

    asyncio.run(run())


def test_a_call_that_ends_while_it_waits_leaves_the_queue() -> None:
    async def run() -> None:
        places, first = CopyPlaces(1), Ticket(peer("a"))
        await places.take(first)
        gone, next_one = Ticket(peer("b")), Ticket(peer("c"))
        waits = [asyncio.ensure_future(places.take(ticket)) for ticket in (gone, next_one)]
        await asyncio.sleep(0)
        assert (places.ahead_of(gone), places.ahead_of(next_one)) == (0, 1)
        assert places.wanted_by_others(first)
        waits[0].cancel()
        await asyncio.gather(*waits[:1], return_exceptions=True)
        places.give_back(first)
        await waits[1]
        assert next_one.holds
        assert not gone.holds

    asyncio.run(run())


def test_what_silence_costs() -> None:
    short, most = CONTENDED_SILENCE_SECONDS, FRAME_WAIT_SECONDS_MAX
    assert overdue(most - 1, most - 1, 0, contended=False) is None
    assert overdue(most, most, 1 << 30, contended=False) == "no message for 60 s"
    assert overdue(short - 0.1, short - 0.1, 0, contended=True) is None
    assert "while other copies wait" in (overdue(short, short, 1 << 30, contended=True) or "")
    # A byte now and then is silence too; a slow but steady peer is none.
    assert "12 bytes in 6 s" in (overdue(0.1, 6.0, 12, contended=True) or "")
    assert overdue(0.1, 100.0, 100 * COPY_RATE_MIN_BYTES, contended=True) is None
    assert PEER_TICK_SECONDS < short < most
    assert FETCH_CLAIM_SECONDS < PEER_TICK_SECONDS < ANSWER_SECONDS_MAX


def test_drops_that_keep_a_call_alive_do_not_keep_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.copy.peer_patience.CONTENDED_SILENCE_SECONDS", 0.3)
    contended = False

    async def drop() -> object:
        await asyncio.sleep(0.05)
        return b"x"

    async def run() -> int:
        nonlocal contended
        patience = Patience(lambda: contended)
        for _ in range(10):
            assert await patience.message(drop()) == b"x"
        contended = True
        for drops in range(100):
            try:
                await patience.message(drop())
            except BridgeError as error:
                return drops if "bytes in" in str(error) else 100
        return 100

    assert asyncio.run(run()) < 10


def test_a_read_that_fails_or_ends_is_handed_on() -> None:
    async def fails() -> object:
        raise ValueError("gone")

    async def run(read: Coroutine[object, object, object]) -> object:
        return await Patience(lambda: True).message(read)

    with pytest.raises(ValueError, match="gone"):
        asyncio.run(run(fails()))
