"""Many records at a time: producers that return what was acknowledged, and a consumer that returns what it got."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.ledger import SCHEMA, records
from tierberg.stack.jars import broker_jars
from tierberg.stack.java_program import JavaProgram

#: Time of the Java producer's records; the other's are of the time they were sent, which it learns with the offset.
SENT_MS = 1_700_000_000_000
_CHUNK = 5_000
_ACKNOWLEDGED_S = 180.0
_CONSUMED_S = 90.0
_PROGRAM = Path(__file__).parents[1] / "support" / "TransactionalProducer.java"


class Transactional(Protocol):
    """A producer with a transactional id, of either client."""

    name: str

    def begin(self) -> None: ...
    def send(self, partition: int, count: int, size: int = 1000) -> pa.Table:
        """Sends new records and returns them as acknowledged, in the columns of a ledger."""
        ...

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class BatchProducer:
    """librdkafka's producer, idempotent or, with `transactional_id`, transactional."""

    def __init__(self, bootstrap: str, topic: str, name: str, **settings: Any) -> None:
        base = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        self._producer = Producer({**base, **{key.replace("_", "."): value for key, value in settings.items()}})
        self.name = name
        self._topic = topic
        self._number = 0
        self._draw = random.Random(name)
        if "transactional_id" in settings:
            self._producer.init_transactions(60)

    def send(self, partition: int, count: int, size: int = 1000) -> pa.Table:
        """Raises KafkaException with the first refusal."""
        numbers = range(self._number, self._number + count)
        self._number += count
        content = self._draw.randbytes(count * size)
        keys = [b"%s-%d" % (self.name.encode(), number) for number in numbers]
        values = [content[start : start + size] for start in range(0, count * size, size)]
        offsets: list[int] = []
        timestamps: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                errors.append(error or KafkaError(KafkaError.UNKNOWN))
            else:
                offsets.append(offset)
                timestamps.append(message.timestamp()[1])

        batch = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        for start in range(0, count, _CHUNK):
            part = batch[start : start + _CHUNK]
            assert self._producer.produce_batch(self._topic, part, partition, on_delivery=delivered) == len(part)
            self._producer.poll(0)
        waiting = self._producer.flush(_ACKNOWLEDGED_S)
        if errors:
            raise KafkaException(errors[0])
        assert not waiting, f"{waiting} records of {self.name} are not acknowledged"
        # One producer, one partition: acknowledged in the order sent.
        assert all(before < after for before, after in itertools.pairwise(offsets))
        return records(partition, offsets, timestamps, keys, values)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._until_done(self._producer.commit_transaction)

    def abort(self) -> None:
        self._until_done(self._producer.abort_transaction)

    def close(self) -> None:
        # One that was fenced says so once more.
        with contextlib.suppress(KafkaException):
            self._producer.close()

    def _until_done(self, call: Any) -> None:
        """A coordinator that moves answers that the call may be repeated."""
        deadline = time.monotonic() + _ACKNOWLEDGED_S
        while True:
            try:
                call(30)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


class JavaProducer:
    """Kafka's own transactional producer, which speaks transaction.version 2. A refusal raises StackError."""

    def __init__(self, bootstrap: str, topic: str, name: str, *, version: str, **settings: Any) -> None:
        given = {"bootstrap.servers": bootstrap, "linger.ms": 20, "transactional.id": name}
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        self._program = JavaProgram(
            _PROGRAM, [f"{key}={value}" for key, value in given.items()], jars=broker_jars(version)
        )
        self.name = name
        self._topic = topic
        self._number = 0
        self._program.ask("init")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, partition: int, count: int, size: int = 1000) -> pa.Table:
        numbers = range(self._number, self._number + count)
        self._number += count
        words = ["send", self._topic, partition, SENT_MS, self.name, numbers.start, count, size]
        offsets = [int(line) for line in self._program.ask("\t".join(map(str, words)))]
        keys = [f"{self.name}-{number}".encode() for number in numbers]
        values = [(key * (size // len(key) + 1))[:size] for key in keys]
        return records(partition, offsets, [SENT_MS] * count, keys, values)

    def begin(self) -> None:
        self._program.ask("begin")

    def commit(self) -> None:
        self._program.ask("commit")

    def abort(self) -> None:
        self._program.ask("abort")

    def close(self) -> None:
        self._program.close()


def consume(bootstrap: str, topic: str, spans: Mapping[int, tuple[int, int]]) -> pa.Table:
    """What a read_committed consumer gets of each partition from its first offset up to its end, exclusive."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    parts = [SCHEMA.empty_table()]
    try:
        for partition, (start, end) in spans.items():
            consumer.assign([TopicPartition(topic, partition, start)])
            while start < end:
                found, reached_end = _more(consumer, partition)
                parts.append(found)
                if reached_end:
                    break
    finally:
        consumer.close()
    return pa.concat_tables(parts)


def _more(consumer: Consumer, partition: int) -> tuple[pa.Table, bool]:
    """The next records, and whether they were the last; fails when none come."""
    deadline = time.monotonic() + _CONSUMED_S
    while time.monotonic() < deadline:
        messages = consumer.consume(10_000, 1.0)
        errors = [error for message in messages if (error := message.error()) is not None]
        good = [message for message in messages if message.error() is None]
        ended = any(error.code() == KafkaError._PARTITION_EOF for error in errors)
        for error in errors:
            # What Kafka answers while a read fails or a leader moves; clients ask again.
            known = error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN)
            assert known or error.retriable(), str(error)
        if good or ended:
            return _table(partition, good), ended
    raise AssertionError(f"nothing from partition {partition} for {_CONSUMED_S:.0f} s")


def _table(partition: int, messages: list[Message]) -> pa.Table:
    timestamps = [message.timestamp()[1] for message in messages]
    keys, values = [message.key() for message in messages], [message.value() for message in messages]
    columns: list[Any] = [[message.offset() for message in messages], timestamps, keys, values]
    return records(partition, *columns)
