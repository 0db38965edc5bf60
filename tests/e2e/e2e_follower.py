"""A consumer in mid-history, watched while something happens to what serves it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.e2e.e2e_support import Rec, note


class Follower:
    """A consumer of one partition that is never restarted and notes how long it ever waited."""

    def __init__(self, bootstrap: str, topic: str, partition: int, count: int) -> None:
        """`count`: how many records there are."""
        self.found: dict[int, Rec] = {}
        self.arrivals: list[float] = []
        self.failure: BaseException | None = None
        self._count = count
        self._end = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"follower-{partition}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                # Close-handed, so that it is in mid-history when something happens, with nothing to live on.
                "fetch.message.max.bytes": 131_072,
                "queued.max.messages.kbytes": 128,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0)])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(30)
        self._consumer.close()

    def has(self, count: int) -> bool:
        """Whether it has `count` records; raises what stopped it."""
        if self.failure is not None:
            raise self.failure
        return len(self.found) >= count

    @property
    def through(self) -> bool:
        """Whether it has everything."""
        return self.has(self._count)

    def longest_wait_s(self, since: float) -> float:
        """Longest time between two arrivals, of those that ended after `since`."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return max((after - before for before, after in pairs if after > since), default=0.0)

    def _run(self) -> None:
        try:
            while not self._end.is_set() and len(self.found) < self._count:
                time.sleep(0.03)
                for message in self._consumer.consume(100, 0.2):
                    error = message.error()
                    if error is None:
                        note(self.found, message)
                        self.arrivals.append(time.monotonic())
                    else:
                        # What Kafka answers while a read fails; clients ask again.
                        assert error.retriable() or error.code() == KafkaError.UNKNOWN, str(error)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.failure = error
