"""Bridge and broker die, freeze and come back: no record lost, no row doubled, nothing stuck, consumers go on."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_follower import Follower
from tests.e2e.e2e_support import (
    Pair,
    Rec,
    Sender,
    read,
    rows_by_offset,
    same,
    wait_rows,
    wait_tiered,
)
from tierberg.stack.errors import StackError
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TOPIC = "survivor"
AWAY_S = 60


def some(seed: int, count: int) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(b"key %d" % n, draw.randbytes(1000), (), 1_700_000_000_000 + n) for n in range(count)]


def slow_follower(pair: Pair) -> Follower:
    """Close-handed too, so that it is still in the middle of the history when something happens."""
    config = {
        "reconnect.backoff.max.ms": 1000,
        "fetch.message.max.bytes": 262_144,
        "queued.max.messages.kbytes": 512,
    }
    return Follower(pair.broker.bootstrap, TOPIC, config=config, at_once=200, pause_s=0.05)


def tiered(pair: Pair, count: int = 12_000) -> Sender:
    """A topic with twelve segments in the remote store only."""
    pair.admin.create_topic(TOPIC)
    sender = Sender(pair.broker, TOPIC)
    sender.send(some(0, count))
    wait_tiered(pair, TOPIC)
    return sender


def all_is_there(pair: Pair, sender: Sender, running: Follower | None = None) -> None:
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
    with slow_follower(pair) as running:
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


def start_to_die(pair: Pair) -> None:
    """What is left to publish is published at once: the bridge may reach its point before anybody has seen it ready."""
    try:
        pair.bridge.start()
    except StackError:
        assert pair.bridge.process.returncode == -signal.SIGKILL


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
        start_to_die(pair)
    wait_for(f"the bridge to die {point}", lambda: not pair.bridge.process.alive, 60)
    del pair.bridge.process.env["TIERBERG_FAULT"]
    pair.bridge.start()
    all_is_there(pair, sender)


@pytest.mark.parametrize("how", ["frozen", "absent"])
def test_a_bridge_away_for_a_minute(own_pair: Pair, how: str) -> None:
    pair = own_pair
    sender = tiered(pair)
    with slow_follower(pair) as running:
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
    with slow_follower(pair) as running:
        for number, end in enumerate((pair.broker.stop, pair.broker.process.kill, pair.broker.process.kill)):
            sender.send(some(50 + number, 3000))
            end()
            pair.broker.start()
        sender.send(some(60, 1000))
        all_is_there(pair, sender, running)
