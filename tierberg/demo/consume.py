"""Reads the topic back from its first record and compares each one with the producer's own log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tierberg.demo.canonical import canonical, checksum_term
from tierberg.demo.errors import DemoError
from tierberg.demo.events import Event, Headers
from tierberg.demo.ledger import Ledger

#: Without one more record for so long, the broker is taken to be stuck.
_PATIENCE_S = 60.0
_DIFFERENCES_SHOWN = 5
Isolation = Literal["read_committed", "read_uncommitted"]
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")


@dataclass(slots=True, kw_only=True)
class ReadBack:
    """What came back.

    Attributes:
        records: how many were read.
        last_offset: the highest offset read of each partition.
        checksum: see `tierberg.demo.canonical`.
        differences: the first few records that differ from the ledger, as sentences.
        differing: how many differ, are missing, or were not expected.
    """

    records: int = 0
    last_offset: dict[int, int] = field(default_factory=dict)
    checksum: int = 0
    differences: list[str] = field(default_factory=list)
    differing: int = 0

    def differs(self, sentence: str) -> None:
        """Count a difference and keep the first few."""
        self.differing += 1
        if len(self.differences) < _DIFFERENCES_SHOWN:
            self.differences.append(sentence)


def read_back(
    bootstrap: str, topic: str, ledger: Ledger, isolation: Isolation, progress: Callable[[int], None]
) -> ReadBack:
    """Read every partition from offset 0 to its end and compare.

    Args:
        bootstrap: the broker.
        topic: has the partitions that the ledger names.
        ledger: the truth; for `read_uncommitted` its aborted events are expected too.
        isolation: of the consumer.
        progress: told how many more records were read.

    Raises:
        DemoError: no record came for a minute, or the consumer failed.
    """
    expected = _expected(ledger, isolation)
    result = ReadBack()
    seen: dict[int, set[int]] = {partition: set() for partition in expected}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"demo-{isolation}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in expected])
        _drain(consumer, expected, seen, result, progress)
    finally:
        consumer.close()
    for partition, events in expected.items():
        for offset in sorted(events.keys() - seen[partition]):
            result.differs(f"partition {partition} offset {offset} did not come back")
    return result


def _expected(ledger: Ledger, isolation: Isolation) -> dict[int, dict[int, Event]]:
    if isolation == "read_committed":
        return ledger.committed
    return {partition: events | ledger.aborted.get(partition, {}) for partition, events in ledger.committed.items()}


def _drain(
    consumer: Consumer,
    expected: Mapping[int, Mapping[int, Event]],
    seen: dict[int, set[int]],
    result: ReadBack,
    progress: Callable[[int], None],
) -> None:
    ended: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while ended != expected.keys():
        messages = consumer.consume(5000, 1.0)
        before = result.records
        for message in messages:
            error = message.error()
            partition = message.partition()
            if error is None:
                _compare(message, expected, seen, result)
            elif error.code() == KafkaError._PARTITION_EOF and partition is not None:  # noqa: SLF001
                ended.add(partition)
            elif not error.retriable():
                raise DemoError(f"reading back failed: {error}")
        if messages:
            deadline = time.monotonic() + _PATIENCE_S
            progress(result.records - before)
        elif time.monotonic() > deadline:
            raise DemoError(f"no record came for {_PATIENCE_S:.0f} s; read {result.records} so far")


def _compare(
    message: Message, expected: Mapping[int, Mapping[int, Event]], seen: dict[int, set[int]], result: ReadBack
) -> None:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise DemoError("the consumer gave a record without partition or offset")
    key, value, timestamp_ms = message.key(), message.value(), message.timestamp()[1]
    headers = _headers(message)
    result.records += 1
    result.last_offset[partition] = offset
    result.checksum += checksum_term(canonical(partition, offset, timestamp_ms, key, value, headers))
    event = expected[partition].get(offset)
    if event is None or offset in seen[partition]:
        result.differs(f"partition {partition} offset {offset} came back and should not have")
        return
    seen[partition].add(offset)
    came = (key, value, headers, timestamp_ms)
    sent = (event.key, event.value, event.headers, event.timestamp_ms)
    if came != sent:
        result.differs(f"partition {partition} offset {offset}: sent {sent}, came back {came}")


def _headers(message: Message) -> Headers:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, content.encode() if isinstance(content, str) else content) for name, content in pairs)
