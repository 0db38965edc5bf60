"""Consumers of a real broker that go to one place of a topic after the other, and how long each first record took."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.limits import CONSUME_STALL_S

_MORE = 100  # records that are read on from each place, as far as they came with the first


@dataclass(frozen=True, slots=True)
class Place:
    """What is read: offsets [0, end) of every partition; offset n holds `values[n % len(values)]`."""

    bootstrap: str
    topic: str
    partitions: int
    end: int
    values: Sequence[bytes]


@dataclass(slots=True)
class Seekers:
    """Threads with a consumer each, until the end of the block, which raises what any of them met first.

    seen: (seconds since the epoch at which it was asked for, seconds until the first record), in no order.
    """

    place: Place
    consumers: int
    seen: list[tuple[float, float]] = field(default_factory=list)
    _failure: BaseException | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(self.consumers)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if error is None:
            self.check()

    def check(self) -> None:
        """Raises what a consumer met: no record, an error, or another record than was written."""
        if self._failure is not None:
            raise self._failure

    def between(self, start_s: float, end_s: float) -> list[float]:
        """Milliseconds of what was under way at any moment between the two, seconds since the epoch."""
        return [took * 1000 for began, took in self.seen if began < end_s and began + took > start_s]

    def _run(self, seed: int) -> None:
        try:
            self._seek(random.Random(seed))
        except BaseException as failure:  # noqa: BLE001 - raised by check()
            self._failure = self._failure or failure

    def _seek(self, draw: random.Random) -> None:
        place = self.place
        consumer = Consumer(
            {
                "bootstrap.servers": place.bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                # No more in advance than what is looked at: every place costs the broker one fetch.
                "queued.max.messages.kbytes": 1024,
                "log_level": 2,
            }
        )
        try:
            while not self._ended.is_set():
                partition, offset = draw.randrange(place.partitions), draw.randrange(place.end)
                began = time.time()
                consumer.assign([TopicPartition(place.topic, partition, offset)])
                first = consumer.poll(CONSUME_STALL_S)
                self.seen.append((began, time.time() - began))
                if first is None:
                    raise RuntimeError(f"no record at {partition}-{offset} within {CONSUME_STALL_S:.0f} s")
                found = [first, *consumer.consume(_MORE, timeout=0)]
                for expected, message in enumerate(found, offset):
                    self._compare(message, partition, expected)
        finally:
            consumer.close()

    def _compare(self, message: Message, partition: int, offset: int) -> None:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        values = self.place.values
        if (message.partition(), message.offset()) != (partition, offset) or message.value() != values[
            offset % len(values)
        ]:
            raise RuntimeError(f"another record than was written at {partition}-{offset}: {message.offset()}")
