"""The turn for what a place cannot hold, between event loops and threads: never two, in order, given back once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_MEMORY_BYTES
from rsm_bridge.serving.scheduling.copy_memory import CopyMemory, CopyShare
from tests.support.eventually import eventually

COPIES = 5
STEP_SECONDS = 20


class Thread:
    """One worker thread that does large work when told to; `held` while it is inside."""

    def __init__(self, share: CopyShare) -> None:
        self._share = share
        self._end = threading.Event()
        self._gone = threading.Event()
        self.inside = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _check(self) -> None:
        if self._gone.is_set():
            raise InterruptedError

    def _run(self) -> None:
        try:
            with self._share.held(self._check), self._share.held(self._check):
                self.inside.set()
                self._end.wait(STEP_SECONDS)
        except InterruptedError:
            return

    def cancel(self) -> None:
        """While it waits: it leaves the queue. While it is inside it does its work to the end."""
        self._gone.set()

    def finish(self) -> None:
        self._gone.set()
        self._end.set()
        self._thread.join(STEP_SECONDS)
        assert not self._thread.is_alive()


class Turns(RuleBasedStateMachine):
    """Copies that keep the turn for files, work large in threads, and are cancelled, against a list of who is next."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = CopyMemory(COPY_MEMORY_BYTES, COPIES)
        self.shares = [self.memory.share() for _ in range(COPIES)]
        self.files: dict[int, asyncio.Task[None]] = {}
        self.workers: dict[int, Thread] = {}
        self.queue: deque[int] = deque()  # the model: the first has the turn
        self.loop = asyncio.new_event_loop()
        self.runner = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.runner.start()

    def on_loop(self, work: Callable[[], object]) -> object:
        async def do() -> object:
            done = work()
            await asyncio.sleep(0)
            return done

        return asyncio.run_coroutine_threadsafe(do(), self.loop).result(STEP_SECONDS)

    def asked(self, number: int) -> None:
        if number not in self.queue:
            self.queue.append(number)

    def left(self, number: int) -> None:
        if number not in self.files and number not in self.workers:
            self.queue.remove(number)

    @rule(number=st.integers(0, COPIES - 1))
    def files_arrive(self, number: int) -> None:
        if number in self.files or number in self.workers:
            return
        self.files[number] = self.on_loop(lambda: asyncio.ensure_future(self.shares[number].keep()))  # type: ignore[assignment]
        self.asked(number)

    @rule(number=st.integers(0, COPIES - 1))
    def work_begins(self, number: int) -> None:
        if number in self.workers or (number in self.files and self.queue[0] != number):
            return
        self.workers[number] = Thread(self.shares[number])
        self.asked(number)
        # Whoever asks next is behind it.
        eventually(lambda: self.memory.turns.waiting == len(self.queue) - 1)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def work_ends_or_is_cancelled(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.workers)))
        self.workers.pop(number).finish()
        self.left(number)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def the_call_is_cancelled_while_its_worker_works(self, data: st.DataObject) -> None:
        """Who works goes on and still has the turn; who waits leaves."""
        number = data.draw(st.sampled_from(sorted(self.workers)))
        if number == self.queue[0]:
            assert self.workers[number].inside.wait(STEP_SECONDS)
        self.workers[number].cancel()
        if number != self.queue[0]:
            self.workers.pop(number).finish()
            self.left(number)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def files_go(self, data: st.DataObject) -> None:
        """The files of a copy whose worker still works stay; a copy that waits for the turn is cancelled."""
        number = data.draw(st.sampled_from(sorted(self.files)))
        task = self.files[number]
        if number in self.workers:
            return
        if self.queue[0] == number:
            eventually(task.done)
        self.on_loop(task.cancel)
        self.on_loop(self.shares[number].leave)
        eventually(task.done)
        del self.files[number]
        self.left(number)

    @invariant()
    def as_the_model(self) -> None:
        eventually(lambda: self.memory.turns.waiting == max(0, len(self.queue) - 1))
        if self.queue:
            first = self.queue[0]
            if first in self.workers:
                assert self.workers[first].inside.wait(STEP_SECONDS)
            if first in self.files:
                eventually(self.files[first].done)
        for number, share in enumerate(self.shares):
            ahead = self.queue.index(number) if number in self.queue else 0
            assert (share.ahead, share.waits) == (ahead, ahead > 0)
            inside = number in self.workers and self.workers[number].inside.is_set()
            assert not inside or ahead == 0
            kept = number in self.files and ahead == 0
            assert share.wanted_by_others == (kept and len(self.queue) > 1)

    def teardown(self) -> None:
        for worker in self.workers.values():
            worker.cancel()
        for number, task in self.files.items():
            self.on_loop(task.cancel)
            self.on_loop(self.shares[number].leave)
        for worker in self.workers.values():
            worker.finish()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.runner.join(STEP_SECONDS)
        self.loop.close()
        assert self.memory.turns.waiting == 0


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_work_within_the_turn_of_its_own_files_waits_for_nobody() -> None:
    async def run() -> list[str]:
        memory, seen = CopyMemory(COPY_MEMORY_BYTES, 2), []
        mine, other = memory.share(), memory.share()
        await mine.keep()
        waiting = asyncio.ensure_future(other.keep())
        await asyncio.sleep(0)

        def work() -> None:
            with mine.held(lambda: None):
                seen.append("worked")

        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, work)
        assert not waiting.done(), "the files are still there"
        mine.leave()
        mine.leave()
        await asyncio.wait_for(waiting, 10)
        other.leave()
        with memory.large():
            assert memory.turns.waiting == 0
        return seen

    assert asyncio.run(run()) == ["worked"]


def test_whoever_is_no_copy_waits_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.scheduling.copy_memory.LARGE_WAIT_SECONDS_MAX", 0.1)
    memory = CopyMemory(COPY_MEMORY_BYTES, 1)
    asked = memory.turns.ask()
    with pytest.raises(BridgeError, match="no turn for large work within") as caught, memory.large():
        pass
    assert caught.value.kind == "overloaded"
    memory.turns.give_back(asked)
    with memory.large():
        assert memory.turns.waiting == 0
