"""Consumers beside the faults: they seek to any place, read on, and compare what comes with the ledger at once."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos import limits
from tests.chaos.chaos_ledger import ChaosLedger
from tests.chaos.contents import digest
from tests.chaos.topics import Topic


def consumer(bootstrap: str, *, committed: bool) -> Consumer:
    """One that reads what it is assigned and stops at the end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )


def row(message: Message) -> tuple[int, int, bytes]:
    """Offset, timestamp and digest."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    offset = message.offset()
    assert offset is not None
    return offset, message.timestamp()[1], digest(message.key(), message.value(), headers)


def consume(bootstrap: str, topic: str, partition: int, span: tuple[int, int], *, committed: bool) -> list[Any]:
    """Offset, timestamp and digest of each record of [first, end) that librdkafka gets, in its order.

    Raises:
        TimeoutError: nothing came for CONSUMED_S.
        KafkaException: an error that is not worth asking again.
    """
    start, end = span
    found: list[tuple[int, int, bytes]] = []
    reader = consumer(bootstrap, committed=committed)
    deadline = time.monotonic() + limits.CONSUMED_S
    try:
        reader.assign([TopicPartition(topic, partition, start)])
        while start < end:
            messages = reader.consume(5000, 1.0)
            for message in messages:
                error = message.error()
                if error is None:
                    found.append(row(message))
                    deadline = time.monotonic() + limits.CONSUMED_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    return [one for one in found if one[0] < end]
                elif not error.retriable() and error.code() != KafkaError.UNKNOWN:
                    raise KafkaException(error)
            if found and found[-1][0] >= end - 1:
                break
            if time.monotonic() > deadline:
                place = found[-1][0] if found else start
                raise TimeoutError(f"nothing of {topic}-{partition} after {place} for {limits.CONSUMED_S:.0f} s")
    finally:
        reader.close()
    return [one for one in found if one[0] < end]


class Reader:
    """A thread; `wrong` has what contradicts the ledger, `counts` what it did."""

    def __init__(self, number: int, seed: int, bootstrap: str, ledger: ChaosLedger, topics: Sequence[Topic]) -> None:
        self._draw = random.Random(f"{seed} reader {number}")
        self._bootstrap, self._ledger = bootstrap, ledger
        self._topics = [topic for topic in topics if not topic.shape.unclean]
        self._committed = number % 2 == 0
        self.wrong: list[str] = []
        self.crash = ""
        self.counts: Counter[str] = Counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader-{number}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(120)

    def _run(self) -> None:
        try:
            self._visits_until_end()
        except Exception:  # noqa: BLE001 - the report has it
            self.crash = traceback.format_exc()

    def _visits_until_end(self) -> None:
        reader = consumer(self._bootstrap, committed=self._committed)
        try:
            while not self._end.wait(self._draw.random()):
                topic = self._draw.choice(self._topics)
                try:
                    with topic.gate.shared():
                        self._visit(reader, topic, self._draw.choice(topic.partitions))
                except KafkaException as error:
                    self.counts[f"refused: {error.args[0].name()}"] += 1
        finally:
            reader.close()

    def _visit(self, reader: Consumer, topic: Topic, partition: int) -> None:
        place = TopicPartition(topic.name, partition)
        reader.list_topics(topic.name, timeout=5)  # a topic made again is not known by itself
        low, high = reader.get_watermark_offsets(place, timeout=5)
        if low >= high:
            return
        place.offset = self._draw.randrange(low, high)
        reader.assign([place])
        known = self._ledger.acked[topic.topic_id, partition]
        before, left = place.offset - 1, limits.READER_RECORDS
        deadline = time.monotonic() + limits.READER_S
        while left > 0 and time.monotonic() < deadline and not self._end.is_set():
            messages = reader.consume(500, 0.5)
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left = 0
                    elif error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
                        self._out_of_range(topic, partition, place.offset)
                        left = 0
                    continue
                found = row(message)
                self._judge(f"{topic.name}-{partition}", before, found, known)
                before = found[0]
                left -= 1
                self.counts["records"] += 1
        self.counts["visits"] += 1
        reader.unassign()

    def _out_of_range(self, topic: Topic, partition: int, offset: int) -> None:
        """Right only where records may leave."""
        self.counts["out of range"] += 1
        shape = topic.shape
        if not (shape.cut or shape.kept or shape.again):
            self.wrong.append(f"{topic.name}-{partition}: {offset} is out of range, nothing was deleted")

    def _judge(self, where: str, before: int, found: tuple[int, int, bytes], known: Mapping[int, Any]) -> None:
        offset, when, held = found
        if offset <= before:
            self.wrong.append(f"{where}: {offset} came after {before}")
        record = known.get(offset)
        if record is None:
            return
        if (record.timestamp_ms, record.digest) != (when, held):
            self.wrong.append(f"{where}: {offset} has another content")
        if self._committed and record.transaction and self._ledger.ends[record.transaction] == "aborted":
            # Commit may be under way: the ledger says `unknown` from before the request on.
            self.wrong.append(f"{where}: {offset} is of aborted transaction {record.transaction}")
