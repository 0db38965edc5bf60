"""A consumer that is never restarted, watched while something happens to what serves it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.e2e.e2e_support import Rec, note
from tierberg.stack.waiting import wait_for

#: Close-handed, so that it is in mid-history when something happens, with nothing to live on.
CLOSE_HANDED: Mapping[str, Any] = {"fetch.message.max.bytes": 131_072, "queued.max.messages.kbytes": 128}


class Follower:
    """Reads one partition from its start in the background, and goes on at its end.

    Attributes:
        found: offset → record of what came so far.
        arrivals: when each of them came; seconds of the monotonic clock.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int = 0,
        *,
        config: Mapping[str, Any] | None = None,
        at_once: int = 500,
        pause_s: float = 0.0,
    ) -> None:
        """It asks for at most `at_once` records, after a pause each time. `config`: of the client, beside ours."""
        self.found: dict[int, Rec] = {}
        self.arrivals: list[float] = []
        self._failure: BaseException | None = None
        self._pause_s, self._at_once = pause_s, at_once
        self._end = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"follower-{topic}-{partition}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
                **(config or {}),
            }
        )
        self._partition = TopicPartition(topic, partition, 0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.assign([self._partition])
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
        if self._failure is not None:
            raise self._failure
        return len(self.found) >= count

    def wait(self, count: int, timeout_s: float = 120) -> dict[int, Rec]:
        """The records once there are `count`."""
        wait_for(f"the running consumer to have {count} records", lambda: self.has(count), timeout_s, 0.05)
        return self.found

    def longest_wait_s(self, since: float) -> float:
        """Longest time between two arrivals, of those that ended after `since`."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return max((after - before for before, after in pairs if after > since), default=0.0)

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                time.sleep(self._pause_s)
                for message in self._consumer.consume(self._at_once, 0.2):
                    error = message.error()
                    if error is None:
                        note(self.found, message)
                        self.arrivals.append(time.monotonic())
                    else:
                        # What Kafka answers while history cannot be read; clients report it and ask again.
                        assert error.retriable() or error.code() == KafkaError.UNKNOWN, str(error)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._failure = error
