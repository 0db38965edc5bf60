"""Every request to the store waits 400 ms, and then a bridge is killed: consumers go on reading."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from tests.e2e.e2e_batches import BatchProducer
from tests.e2e.e2e_cluster import ThreeBrokers
from tests.e2e.e2e_follower import CLOSE_HANDED, Follower
from tests.e2e.e2e_support import Rec
from tests.support.ledger import NOTHING, Ledger, compare, records
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

TOPIC = "far"
PARTITIONS = (0, 1, 2)
RECORDS = 8000  # of 1 KB, in each partition: eight segments
DELAY_S = 0.4
STALL_S = 2.0
READ_S = 180


def served(bridge: Bridge) -> float:
    return bridge.metric("tierberg_served_bytes_total")


def serving(three: ThreeBrokers) -> Bridge:
    """A bridge that is serving."""
    before = [served(bridge) for bridge in three.bridges]

    def busy() -> Bridge | None:
        pairs = zip(three.bridges, before, strict=True)
        return next((bridge for bridge, bytes_before in pairs if served(bridge) > bytes_before), None)

    return wait_for("a bridge that serves", busy, 30, 0.01)


def as_table(partition: int, found: dict[int, Rec]) -> pa.Table:
    """What a follower got, in the columns of a ledger."""
    timestamps = [record.timestamp_ms for record in found.values()]
    keys, values = [record.key or b"" for record in found.values()], [record.value or b"" for record in found.values()]
    return records(partition, list(found), timestamps, keys, values)


def test_consumers_go_on_when_the_store_is_far_and_a_bridge_dies(three: ThreeBrokers) -> None:
    three.create(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    ledger = Ledger()
    producer = BatchProducer(three.kafka.bootstrap, TOPIC, TOPIC)
    ledger.committed += [producer.send(number, RECORDS) for number in PARTITIONS]
    three.agree(TOPIC, ledger.table(), PARTITIONS)
    for bridge in three.bridges:
        bridge.stop()  # and forget what it has read
        bridge.start()

    three.store.set_delay(DELAY_S)
    started = time.monotonic()
    followers = [
        Follower(three.kafka.bootstrap, TOPIC, number, config=CLOSE_HANDED, at_once=100, pause_s=0.03)
        for number in PARTITIONS
    ]
    with followers[0], followers[1], followers[2]:
        wait_for("all to be on their way", lambda: all(follower.has(1500) for follower in followers), READ_S)
        on_their_way = time.monotonic() - started
        victim = serving(three)
        killed = time.monotonic()
        victim.kill()
        assert not all(follower.has(RECORDS) for follower in followers)
        wait_for("all to be through", lambda: all(follower.has(RECORDS) for follower in followers), READ_S)
    waits = [follower.longest_wait_s(killed) for follower in followers]
    print(f"on their way after {on_their_way:.1f} s, through {time.monotonic() - killed:.1f} s after the kill")
    print(f"longest waits after the kill: {[f'{wait:.2f} s' for wait in waits]}")
    for number, follower in enumerate(followers):
        consumed = as_table(number, follower.found)
        (sent,) = [part for part in ledger.committed if part["partition"][0].as_py() == number]
        assert compare(sent, consumed) == NOTHING
    assert max(waits) <= STALL_S

    # Two bridges, still far from their store, take what is new and publish it.
    ledger.committed += [producer.send(number, 1500) for number in PARTITIONS]
    three.agree(TOPIC, ledger.table(), PARTITIONS)
    producer.close()
