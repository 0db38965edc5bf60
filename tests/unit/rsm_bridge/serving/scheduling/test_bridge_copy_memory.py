"""The account of copies' memory: one turn for large work, in order, given back whatever happens."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rsm_bridge.limits import COPY_MEMORY_BYTES
from rsm_bridge.serving.scheduling.copy_memory import CopyMemory
from tests.support.eventually import eventually


@pytest.mark.parametrize(
    ("budget", "workers", "copies"),
    [
        (4 * COPY_MEMORY_BYTES, 4, 4),
        (4 * COPY_MEMORY_BYTES, 2, 2),
        (4 * COPY_MEMORY_BYTES - 1, 4, 3),
        (COPY_MEMORY_BYTES - 1, 4, 1),
    ],
)
def test_places_are_as_many_as_the_budget_holds(budget: int, workers: int, copies: int) -> None:
    assert CopyMemory(budget, workers).copies == copies


def _waits(memory: CopyMemory, count: int) -> bool:
    return memory.turns.waiting == count


def test_one_at_a_time_and_whoever_asks_first_is_first() -> None:
    memory = CopyMemory(COPY_MEMORY_BYTES, 8)
    inside: list[int] = []
    most = [0]
    held = threading.Event()

    def work(number: int) -> None:
        with memory.large():
            inside.append(number)
            most[0] = max(most[0], memory.copies)
            if number == 0:
                held.wait(10)

    threads: list[threading.Thread] = []
    for number in range(5):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        eventually(partial(_waits, memory, number))
        eventually(lambda: inside == [0])
    assert inside == [0]
    held.set()
    for thread in threads:
        thread.join(10)
    assert inside == [0, 1, 2, 3, 4]
    assert memory.turns.waiting == 0


def test_within_its_turn_a_copy_may_ask_again() -> None:
    memory = CopyMemory(COPY_MEMORY_BYTES, 2)
    share = memory.share()
    other = threading.Thread(target=lambda: memory.large().__enter__())
    with share.held(lambda: None):
        with share.held(lambda: None):
            pass
        other.start()
        eventually(lambda: memory.turns.waiting == 1)
        with share.held(lambda: None):
            assert memory.turns.waiting == 1
    other.join(10)
    assert not other.is_alive()


def test_who_is_not_wanted_any_more_waits_no_longer_and_leaves_the_others_in_order() -> None:
    memory = CopyMemory(COPY_MEMORY_BYTES, 4)
    gone = threading.Event()
    seen: list[str] = []

    def check() -> None:
        if gone.is_set():
            raise RuntimeError("cancelled")

    def cancelled() -> None:
        try:
            with memory.share().held(check):
                seen.append("in")
        except RuntimeError as error:
            seen.append(str(error))

    def patient() -> None:
        with memory.large():
            seen.append("patient")

    with memory.large():
        first = threading.Thread(target=cancelled)
        first.start()
        eventually(lambda: memory.turns.waiting == 1)
        second = threading.Thread(target=patient)
        second.start()
        eventually(lambda: memory.turns.waiting == 2)
        gone.set()
        first.join(10)
        assert seen == ["cancelled"]
        assert memory.turns.waiting == 1
    second.join(10)
    assert seen == ["cancelled", "patient"]


def test_an_error_gives_the_turn_back() -> None:
    memory = CopyMemory(COPY_MEMORY_BYTES, 2)
    with pytest.raises(ValueError, match="bad"), memory.large():
        raise ValueError("bad")
    started = time.monotonic()
    with memory.large():
        assert time.monotonic() - started < 5
