"""Producers of librdkafka beside the faults: plain, idempotent and transactional, with a codec drawn for each."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos import limits
from tests.chaos.chaos_ledger import Acked, ChaosLedger
from tests.chaos.contents import Content, Contents
from tests.chaos.record_batches import CODECS
from tests.chaos.topics import Topic

_Delivered = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a burst goes; fixed while the topic's gate is held."""

    topic: Topic
    topic_id: str
    partition: int


class Writer(ABC):
    """A thread that sends bursts until it is told to end; what goes wrong for it is noted, not raised."""

    def __init__(self, name: str, number: int, seed: int, bootstrap: str, ledger: ChaosLedger) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.draw = random.Random(f"{seed} {name}")
        self.contents = Contents(self.draw, number)
        self.failures: dict[str, int] = {}
        self.crash = ""
        self._thread = threading.Thread(target=self._run, name=name)
        self._end = threading.Event()
        self._topics: Sequence[Topic] = ()
        self._pause_s = 0.0

    def start(self, topics: Sequence[Topic], rate: float) -> None:
        """`rate`: records a second it aims at."""
        self._topics = topics
        self._pause_s = 1 / rate
        self._thread.start()

    def stop(self) -> None:
        self._end.set()

    def join(self) -> None:
        self._thread.join(300)

    @abstractmethod
    def burst(self, targets: Sequence[Target]) -> int:
        """Sends something to these places and notes it; how many records."""

    @abstractmethod
    def close(self) -> None:
        """Gives up its producer."""

    @property
    def spread(self) -> int:
        """The most places one burst goes to."""
        return 1

    def note(self, error: object) -> None:
        text = str(error)[:160]
        self.failures[text] = self.failures.get(text, 0) + 1

    def make(self, target: Target, count: int) -> list[Content]:
        shape = target.topic.shape
        return self.contents.some(count, int(time.time() * 1000), odd=shape.odd, text=shape.text)

    def count(self) -> int:
        return int(self.draw.triangular(1, limits.BURST_MAX, 40))

    def _run(self) -> None:
        try:
            self._bursts_until_end()
        except Exception:  # noqa: BLE001 - the report has it
            self.crash = traceback.format_exc()

    def _bursts_until_end(self) -> None:
        while not self._end.is_set():
            begun = time.monotonic()
            chosen = self._choose()
            with contextlib.ExitStack() as gates:
                for topic in sorted({target.name: target for target, _ in chosen}.values(), key=lambda one: one.name):
                    gates.enter_context(topic.gate.shared())
                places = [Target(topic, topic.topic_id, partition) for topic, partition in chosen]
                sent = self.burst(places)
            self._end.wait(max(0.0, sent * self._pause_s - (time.monotonic() - begun)))
        self.close()

    def _choose(self) -> list[tuple[Topic, int]]:
        weights = [topic.shape.weight for topic in self._topics]
        drawn = self.draw.choices(self._topics, weights, k=self.draw.randint(1, self.spread))
        return [(topic, self.draw.choice(topic.partitions)) for topic in drawn]


class LibrdkafkaWriter(Writer):
    """Plain, or idempotent."""

    client = "librdkafka"

    def __init__(self, *arguments: object, idempotent: bool) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.idempotent = idempotent
        self.kind = "idempotent" if idempotent else "plain"
        self.producer: Producer | None = None
        self.codec = "none"
        self._bursts = 0

    def settings(self) -> dict[str, object]:
        return {"enable.idempotence": self.idempotent}

    def burst(self, targets: Sequence[Target]) -> int:
        if self._bursts % limits.BURSTS_PER_PRODUCER == 0:
            self.close()
        self._bursts += 1
        producer = self.opened()
        sent = 0
        for target in targets:
            contents = self.make(target, self.count())
            sent += len(contents)
            if not self.send(producer, target, contents, 0):
                self.close()
                break
        return sent

    def opened(self) -> Producer:
        if self.producer is None:
            self.codec = self.draw.choice(CODECS)
            self.producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "acks": "all",
                    "compression.type": self.codec,
                    "linger.ms": self.draw.choice((0, 5, 50)),
                    "batch.num.messages": self.draw.choice((1, 20, 500, 10_000)),
                    "message.timeout.ms": limits.DELIVERY_S * 1000,
                    "topic.metadata.propagation.max.ms": limits.DELIVERY_S * 1000,
                    "message.max.bytes": 1_900_000,
                    "log_level": 0,
                    **self.settings(),
                }
            )
        return self.producer

    def send(self, producer: Producer, target: Target, contents: Sequence[Content], transaction: int) -> bool:
        """Sends and waits; whether every record was acknowledged."""
        kind = f"{self.kind} {self.client} {self.codec}"
        digests = [content.digest for content in contents]
        self.ledger.sent(kind, digests, repeatable=self.kind == "plain")
        noted = _Noted(self.ledger, target, kind, transaction)
        try:
            for content, digest in zip(contents, digests, strict=True):
                if not self._produce(producer, target, content, noted.callback(content, digest)):
                    break
            if producer.flush(limits.FLUSH_S):
                producer.purge()
                producer.flush(5)
        finally:  # a producer that was fenced raises, and what was acknowledged before counts
            noted.settle()
        for error in noted.errors:
            self.note(error)
        return not noted.errors and not noted.waiting

    def close(self) -> None:
        if self.producer is not None:
            with contextlib.suppress(KafkaException):
                self.producer.purge()
                self.producer.flush(5)
        self.producer = None

    def _produce(
        self,
        producer: Producer,
        target: Target,
        content: Content,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> bool:
        while True:
            try:
                producer.produce(
                    target.topic.name,
                    content.value,
                    content.key,
                    target.partition,
                    timestamp=content.timestamp_ms,
                    headers=list(content.headers) or None,
                    on_delivery=delivered,
                )
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                self.note(error)
                delivered(error.args[0], None)  # type: ignore[arg-type]
                return False
            else:
                producer.poll(0)
                return True


class _Noted:
    """Takes the reports of one burst to one partition.

    librdkafka calls back amid its own C code. Where an exception is pending there, a lock that is taken is never given
    back, and all writers stand (seen): so a callback only keeps the report, and :meth:`settle` tells the ledger.
    """

    def __init__(self, ledger: ChaosLedger, target: Target, kind: str, transaction: int) -> None:
        self._ledger, self._target, self._kind, self._transaction = ledger, target, kind, transaction
        self.waiting: dict[int, tuple[Content, bytes]] = {}
        self.errors: list[KafkaError] = []
        self._number = 0
        self._reports: list[tuple[int, KafkaError | None, Message]] = []

    def callback(self, content: Content, digest: bytes) -> _Delivered:
        self._number += 1
        number, reports = self._number, self._reports
        self.waiting[number] = (content, digest)

        def delivered(error: KafkaError | None, message: Message) -> None:
            reports.append((number, error, message))

        return delivered

    def settle(self) -> None:
        """Tells the ledger what was reported; of the rest nobody knows."""
        place = (self._target.topic_id, self._target.partition)
        log_append = self._target.topic.shape.config.get("message.timestamp.type") == "LogAppendTime"
        for number, error, message in self._reports[:]:
            if (sent := self.waiting.pop(number, None)) is None:
                continue
            content, digest = sent
            if error is not None:
                self.errors.append(error)
                self._ledger.doubt(self._target.topic.name, digest)
                continue
            offset = message.offset()
            if offset is None or offset < 0:
                self._ledger.acknowledge_somewhere(place, digest, self._kind)
                continue
            when = message.timestamp()[1] if log_append else content.timestamp_ms
            self._ledger.acknowledge(place, offset, Acked(when, digest, self._transaction), self._kind)
        for _, digest in self.waiting.values():
            self._ledger.doubt(self._target.topic.name, digest)


class TransactionalWriter(LibrdkafkaWriter):
    """Transactions over some partitions: committed, aborted, or left behind open."""

    def __init__(self, *arguments: object, spread: int = 3) -> None:
        super().__init__(*arguments, idempotent=True)
        self.kind = "transactional"
        self._spread = spread

    @property
    def spread(self) -> int:
        return self._spread

    def settings(self) -> Mapping[str, object]:  # type: ignore[override]
        timeout_ms = limits.TRANSACTION_TIMEOUT_S * 1000
        # A record may not live longer than its transaction.
        return {
            "transactional.id": self.name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms - 1000,
        }

    def burst(self, targets: Sequence[Target]) -> int:
        if self._bursts % limits.BURSTS_PER_PRODUCER == 0:
            self.close()
        self._bursts += 1
        try:
            return self._transaction(targets)
        except KafkaException as error:
            self.note(error)
            self.close()
            return 20

    def opened(self) -> Producer:
        if self.producer is None:
            producer = super().opened()
            try:
                producer.init_transactions(limits.INIT_S)
            except KafkaException:
                self.producer = None
                raise
        assert self.producer is not None
        return self.producer

    def _transaction(self, targets: Sequence[Target]) -> int:
        producer = self.opened()
        transaction = self.ledger.new_transaction()
        producer.begin_transaction()
        sent, whole = 0, True
        for target in targets:
            contents = self.make(target, max(1, self.count() // len(targets)))
            sent += len(contents)
            whole = whole and self.send(producer, target, contents, transaction)
        fate = self.draw.random()
        if fate < 0.08:
            self.producer = None  # left behind: the coordinator, or whoever comes next under this name, aborts it
        elif fate < 0.3 or not whole:
            producer.abort_transaction(limits.COMMIT_S)
        else:
            self.ledger.end(transaction, "unknown")
            self.ledger.end(transaction, "committed" if self._commit(producer) else "aborted")
        return sent

    def _commit(self, producer: Producer) -> bool:
        """Whether it is committed; False: aborted. Raises when nobody knows."""
        deadline = time.monotonic() + limits.COMMIT_S
        while True:
            try:
                producer.commit_transaction(limits.COMMIT_S)
            except KafkaException as error:
                cause = error.args[0]
                if cause.txn_requires_abort():
                    producer.abort_transaction(limits.COMMIT_S)
                    return False
                if not cause.retriable() or time.monotonic() > deadline:
                    raise
            else:
                return True
