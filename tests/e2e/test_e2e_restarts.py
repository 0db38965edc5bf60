"""Bridge and broker die, freeze and come back: no record lost, no row doubled, nothing stuck, consumers go on."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from stack.waiting import wait_for
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import (
    Pair,
    Rec,
    Sender,
    note,
    read,
    rows_by_offset,
    same,
    wait_rows,
    wait_tiered,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TOPIC = "survivor"
AWAY_S = 60


def some(seed: int, count: int) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(b"key %d" % n, draw.randbytes(1000), (), 1_700_000_000_000 + n) for n in range(count)]


class RunningConsumer:
    """One consumer that is never restarted: reads a partition from its start and goes on at its end."""

    def __init__(self, pair: Pair) -> None:
        self.found: dict[int, Rec] = {}
        self.failure: BaseException | None = None
        self._end = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": pair.broker.bootstrap,
                "group.id": "running",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 1000,
                # Slow and close-handed, so that it is still in the middle of the history when something happens.
                "fetch.message.max.bytes": 262_144,
                "queued.max.messages.kbytes": 512,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(30)
        self._consumer.close()

    def wait(self, count: int, timeout_s: float = 120) -> None:
        """Until it has `count` records."""

        def there() -> bool:
            if self.failure is not None:
                raise self.failure
            return len(self.found) >= count

        wait_for(f"the running consumer to have {count} records", there, timeout_s, 0.05)

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                time.sleep(0.05)
                for message in self._consumer.consume(200, 0.2):
                    error = message.error()
                    if error is None:
                        note(self.found, message)
                    else:
                        # What Kafka answers while history cannot be read; clients report it and ask again.
                        assert error.retriable() or error.code() == KafkaError.UNKNOWN, str(error)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.failure = error


def tiered(pair: Pair, count: int = 12_000) -> Sender:
    """A topic with twelve segments in the remote store only."""
    pair.admin.create_topic(TOPIC)
    sender = Sender(pair.broker, TOPIC)
    sender.send(some(0, count))
    wait_tiered(pair, TOPIC)
    return sender


def all_is_there(pair: Pair, sender: Sender, running: RunningConsumer | None = None) -> None:
    """Tiering catches up, and consumers and the table have every record once."""
    wait_tiered(pair, TOPIC)
    same(read(pair.broker, TOPIC), sender.log.committed)
    same(rows_by_offset(wait_rows(pair, TOPIC, len(sender.log.committed))), sender.log.committed)
    if running is not None:
        running.wait(len(sender.log.committed))
        same(running.found, sender.log.committed)


def test_a_bridge_killed_in_copies_and_fetches(own_pair: Pair) -> None:
    pair, draw = own_pair, random.Random(5)
    sender = tiered(pair, 6000)
    with RunningConsumer(pair) as running:
        for number in range(6):
            # Something to copy and something to fetch at the moment of the kill.
            sender.send(some(100 + number, 3000))
            time.sleep(draw.random())
            if number == 0:
                assert len(running.found) < 6000
            pair.bridge.kill()
            time.sleep(draw.random())
            pair.bridge.start()
        all_is_there(pair, sender, running)


@pytest.mark.parametrize("point", ["before-index", "after-index", "before-commit"])
def test_a_bridge_that_dies_at_a_step(own_pair: Pair, point: str) -> None:
    pair = own_pair
    pair.bridge.stop()
    pair.bridge.process.env["TIERBERG_FAULT"] = f"{point}=kill"
    pair.bridge.start()
    pair.admin.create_topic(TOPIC)
    sender = Sender(pair.broker, TOPIC)
    sender.send(some(1, 5000))
    for _ in range(2):
        wait_for(f"the bridge to die {point}", lambda: not pair.bridge.process.alive, 60)
        pair.bridge.start()
    wait_for(f"the bridge to die {point}", lambda: not pair.bridge.process.alive, 60)
    del pair.bridge.process.env["TIERBERG_FAULT"]
    pair.bridge.start()
    all_is_there(pair, sender)


@pytest.mark.parametrize("how", ["frozen", "absent"])
def test_a_bridge_away_for_a_minute(own_pair: Pair, how: str) -> None:
    pair = own_pair
    sender = tiered(pair)
    with RunningConsumer(pair) as running:
        running.wait(1500)
        if how == "frozen":
            pair.bridge.process.freeze()
        else:
            pair.bridge.kill()
        left = time.monotonic() + AWAY_S
        number = 0
        while time.monotonic() < left:
            number += 1
            sender.send(some(number, 200))  # producers notice nothing
            time.sleep(2)
        # All that it could have: the rest of the history is with the bridge alone.
        before = len(running.found)
        assert before < 12_000
        if how == "frozen":
            pair.bridge.process.resume()
        else:
            pair.bridge.start()
        back = time.monotonic()
        running.wait(before + 1)
        print(f"{how}: the consumer goes on after {time.monotonic() - back:.1f} s")
        all_is_there(pair, sender, running)
        print(f"{how}: all caught up after {time.monotonic() - back:.1f} s")


def test_a_broker_that_starts_without_a_bridge(tmp_path: Path) -> None:
    pair = start_pair(tmp_path)
    try:
        sender = tiered(pair, 3000)
        pair.broker.stop()
        pair.bridge.stop()
        pair.broker.start()
        sender.send(some(7, 3000))
        pair.bridge.start()
        all_is_there(pair, sender)
    finally:
        pair.broker.stop()
        pair.bridge.stop()


def test_a_broker_restarted_and_killed(own_pair: Pair) -> None:
    pair = own_pair
    sender = tiered(pair, 6000)
    with RunningConsumer(pair) as running:
        for number, end in enumerate((pair.broker.stop, pair.broker.process.kill, pair.broker.process.kill)):
            sender.send(some(50 + number, 3000))
            end()
            pair.broker.start()
        sender.send(some(60, 1000))
        all_is_there(pair, sender, running)
