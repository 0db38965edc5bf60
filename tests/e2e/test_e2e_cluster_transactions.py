"""Transactions of both protocol versions, in every way they can end, on three brokers: rows are the committed ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaException

from tests.e2e.e2e_batches import BatchProducer, JavaProducer, Transactional
from tests.e2e.e2e_cluster import ThreeBrokers
from tests.support.ledger import Ledger
from tierberg.stack.cluster_admin import ProducerState
from tierberg.stack.errors import StackError
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

TOPIC = "decided"
REPLICAS = [[1, 2, 3], [2, 3, 1]]
PARTITIONS = (0, 1)
FEATURE = "transaction.version"
#: Of the transactions that are left alone.
TIME_OUT_MS = 4000
ENDED_S = 60
#: With records of 1 KB more than three segments of 1 MiB.
LONG = 3500

#: Makes a producer with a transactional id and a transaction time-out in milliseconds.
Maker = Callable[[str, int], Transactional]


@dataclass(slots=True)
class Histories:
    """Transactions of one client, and what must come of them. Ids begin with `prefix`."""

    three: ThreeBrokers
    prefix: str
    make: Maker
    ledger: Ledger = field(default_factory=Ledger)
    _open: ExitStack = field(default_factory=ExitStack)

    def producer(self, name: str, time_out_ms: int = 60_000) -> Transactional:
        return self._open.enter_context(closing(self.make(f"{self.prefix}-{name}", time_out_ms)))

    def close(self) -> None:
        self._open.close()

    def plain_ends(self) -> None:
        """Commits and aborts over both partitions, again and again by one producer."""
        producer = self.producer("plain")
        for number in range(6):
            self.transaction(producer, 40, commit=number % 3 != 1)

    def several_segments(self) -> None:
        """One transaction over more than three segments, committed, and one aborted; others go on beside it."""
        beside = self.producer("beside")
        for name, commit in (("long-committed", True), ("long-aborted", False)):
            producer = self.producer(name)
            producer.begin()
            parts = []
            for _ in range(2):
                parts.append(producer.send(0, LONG // 2))
                self.transaction(beside, 20, commit=commit)
            self._end(producer, commit=commit)
            (self.ledger.committed if commit else self.ledger.aborted).extend(parts)

    def fenced(self) -> None:
        """A second producer of the same id ends what the first has open; the first is told when it commits."""
        first = self.producer("fenced")
        first.begin()
        self.ledger.aborted += [first.send(partition, 60) for partition in PARTITIONS]
        second = self.producer("fenced")
        with pytest.raises((KafkaException, StackError)):
            first.commit()
        self.transaction(second, 60, commit=True)

    def timed_out(self) -> None:
        """The coordinator ends a transaction that was left alone."""
        producer = self.producer("late", TIME_OUT_MS)
        producer.begin()
        self.ledger.aborted += [producer.send(partition, 60) for partition in PARTITIONS]
        self.wait_ended()
        with pytest.raises((KafkaException, StackError)):
            producer.commit()

    def second_marker(self) -> None:
        """An operator writes an ABORT after a COMMIT: it decides nothing, and the producer goes on."""
        producer = self.producer("marked")
        known = {state.producer_id for state in self._states(0)}
        self.transaction(producer, 50, commit=True)
        self.wait_ended()
        (marked,) = [state for state in self._states(0) if state.producer_id not in known]
        self._mark(marked)
        self.transaction(producer, 50, commit=False)
        self.transaction(producer, 50, commit=True)

    def _mark(self, producer: ProducerState) -> None:
        end = self._end_offset()
        self.three.java.write_abort_marker(TOPIC, 0, producer)
        wait_for(f"a marker from {end} on, by {producer}", lambda: self._end_offset() > end, ENDED_S)
        print(f"markers written after the commit: {self._end_offset() - end}")

    def transaction(self, producer: Transactional, count: int, *, commit: bool) -> None:
        """One transaction over all partitions."""
        producer.begin()
        parts = [producer.send(partition, count) for partition in PARTITIONS]
        self._end(producer, commit=commit)
        (self.ledger.committed if commit else self.ledger.aborted).extend(parts)

    def _end(self, producer: Transactional, *, commit: bool) -> None:
        if commit:
            producer.commit()
        else:
            producer.abort()

    def wait_ended(self) -> None:
        """Until the partitions have all markers: a coordinator answers before it writes them."""
        wait_for("the markers", lambda: not self._open_transactions(), ENDED_S, 0.1)

    def _states(self, partition: int) -> list[ProducerState]:
        return self.three.java.producers(TOPIC, partition)

    def _open_transactions(self) -> bool:
        return any(state.open_from >= 0 for partition in PARTITIONS for state in self._states(partition))

    def _end_offset(self) -> int:
        return self.three.admin.end_offsets(TOPIC, [0])[0]


@pytest.fixture
def makers(three: ThreeBrokers) -> dict[int, Maker]:
    """librdkafka speaks the older protocol to any cluster, Kafka's own client the newest both sides know."""
    bootstrap, version = three.kafka.bootstrap, three.kafka.version

    def rdkafka(name: str, time_out_ms: int) -> Transactional:
        return BatchProducer(bootstrap, TOPIC, name, transactional_id=name, transaction_timeout_ms=time_out_ms)

    def java(name: str, time_out_ms: int) -> Transactional:
        return JavaProducer(bootstrap, TOPIC, name, version=version, transaction_timeout_ms=time_out_ms)

    return {1: rdkafka, 2: java}


def test_every_end_of_a_transaction_in_both_versions(three: ThreeBrokers, makers: dict[int, Maker]) -> None:
    three.create(TOPIC, REPLICAS)
    assert three.java.feature(FEATURE) == 1
    old = Histories(three, "one", makers[1])
    new = Histories(three, "two", makers[2], old.ledger)
    # Astride the upgrade: begun under one version, ended under the other.
    astride = [old.producer("astride"), new.producer("astride")]
    for history in (old.plain_ends, old.several_segments, old.fenced, old.timed_out, old.second_marker):
        history()
    for producer in astride:
        producer.begin()
    parts = [producer.send(partition, 70) for producer in astride for partition in PARTITIONS]
    three.java.upgrade(FEATURE, 2)
    # A broker hears of it a moment later.
    wait_for("the upgrade", lambda: three.java.feature(FEATURE) == 2, ENDED_S)
    for producer in astride:
        producer.commit()
    old.ledger.committed += parts

    epochs = epoch_of(three, new, "epochs")
    assert epochs[1] > epochs[0], f"version 2 gives every transaction an epoch of its own: {epochs}"
    for history in (
        new.plain_ends,
        new.several_segments,
        new.fenced,
        new.timed_out,
        new.second_marker,
        old.plain_ends,
    ):
        history()
    old.close()
    new.close()
    print(f"committed {old.ledger.table().num_rows}, aborted {old.ledger.aborted_rows()}")
    three.agree(TOPIC, old.ledger.table(), PARTITIONS)


def epoch_of(three: ThreeBrokers, histories: Histories, name: str) -> list[int]:
    """The producer's epoch after each of two transactions and their markers."""
    before = {state.producer_id for state in three.java.producers(TOPIC, 0)}
    producer, found = histories.producer(name), []
    for _ in range(2):
        histories.transaction(producer, 10, commit=True)
        histories.wait_ended()
        (state,) = [state for state in three.java.producers(TOPIC, 0) if state.producer_id not in before]
        found.append(state.epoch)
    return found
