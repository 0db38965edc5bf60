"""Leaders die, stop in order and are moved while a million records are on their way: no record is lost or doubled."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.e2e.e2e_batches import BatchProducer
from tests.e2e.e2e_cluster import ThreeBrokers
from tests.support.ledger import Ledger

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

TOPIC = "moved"
#: Each broker is the preferred leader of one partition.
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
RECORDS = 350_000  # in each partition at least
ROUND = 10_000
SIZE = 100
#: Between two rounds, so that the load lasts as long as the disturbances.
PAUSE_S = 1.0
CODECS = ("none", "lz4", "zstd")


@dataclass(slots=True)
class Load:
    """One thread and two producers per partition, until it is enough: plain rounds, committed and aborted ones."""

    three: ThreeBrokers
    enough: threading.Event = field(default_factory=threading.Event)
    ledger: Ledger = field(default_factory=Ledger)
    failures: list[BaseException] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)

    def run(self, partition: int) -> None:
        """Goes on until `RECORDS` are sent and `enough` is set; then slowly, so that it does not end too early."""
        settings = {"compression_type": CODECS[partition]}
        bootstrap, name = self.three.kafka.bootstrap, f"{TOPIC}-{partition}"
        plain = BatchProducer(bootstrap, TOPIC, f"{name}-plain", **settings)
        transactional = BatchProducer(bootstrap, TOPIC, f"{name}-tx", transactional_id=name, **settings)
        try:
            for number in itertools.count():
                count = ROUND if self.sent.get(partition, 0) < RECORDS else 100
                if count < ROUND and self.enough.is_set():
                    break
                self._round(partition, number, plain, transactional, count)
                self.sent[partition] = self.sent.get(partition, 0) + count
                self.enough.wait(PAUSE_S)
        except BaseException as failure:  # noqa: BLE001 - handed to the test
            self.failures.append(failure)
        finally:
            plain.close()
            transactional.close()

    def _round(
        self, partition: int, number: int, plain: BatchProducer, transactional: BatchProducer, count: int
    ) -> None:
        if number % 3:
            self.ledger.committed.append(plain.send(partition, count, SIZE))
            return
        transactional.begin()
        found = transactional.send(partition, count, SIZE)
        if number % 6:
            transactional.commit()
            self.ledger.committed.append(found)
        else:
            transactional.abort()
            self.ledger.aborted.append(found)


@contextmanager
def load(three: ThreeBrokers) -> Iterator[Load]:
    """Runs while the block does, and then until every thread has sent its share."""
    running = Load(three)
    threads = [threading.Thread(target=running.run, args=(partition,)) for partition in range(len(REPLICAS))]
    for thread in threads:
        thread.start()
    try:
        yield running
    finally:
        running.enough.set()
        for thread in threads:
            thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
    if running.failures:
        raise running.failures[0]


def test_a_million_records_while_leaders_die_and_move(three: ThreeBrokers) -> None:
    three.create(TOPIC, REPLICAS, segment_bytes=str(4 << 20), min_insync_replicas="2")
    started = time.monotonic()
    leaders: list[int] = []
    with load(three) as running:
        for victim, partition in ((1, 0), (2, 1)):
            three.kafka.brokers[victim].kill()
            others = {1, 2, 3} - {victim}
            three.wait_leader(TOPIC, partition, *others)
            leaders.append(three.leader(TOPIC, partition).node.number)
            three.kafka.brokers[victim].start()
            three.wait_in_sync(TOPIC, partition, 1, 2, 3)
            three.java.elect(TOPIC, partition)
            three.wait_leader(TOPIC, partition, victim)
        three.bridges[0].kill()
        three.kafka.brokers[3].stop()
        three.wait_leader(TOPIC, 2, 1, 2)
        three.bridges[0].start()
        three.kafka.brokers[3].start()
        three.wait_in_sync(TOPIC, 2, 1, 2, 3)
        print(f"disturbed for {time.monotonic() - started:.0f} s; sent meanwhile {running.sent}")
    print(f"sent after {time.monotonic() - started:.0f} s: {running.sent}, aborted {running.ledger.aborted_rows()}")
    expected = running.ledger.table()
    assert pa.concat_tables([expected, *running.ledger.aborted]).num_rows >= 1_000_000
    three.agree(TOPIC, expected, range(len(REPLICAS)))
    print(f"agreed after {time.monotonic() - started:.0f} s")
