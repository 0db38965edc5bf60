"""A consumer in the background that is never restarted: it reads a partition from its start to what it is told."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from stack.waiting import wait_for
from tests.e2e.e2e_support import Rec, note


class Reader:
    """Offset → record of what came so far, aborted records left out."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.found: dict[int, Rec] = {}
        self._failure: BaseException | None = None
        self._end = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "matrix",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(30)
        self._consumer.close()

    def wait(self, count: int, timeout_s: float) -> dict[int, Rec]:
        """The records once there are `count`."""

        def there() -> bool:
            if self._failure is not None:
                raise self._failure
            return len(self.found) >= count

        wait_for(f"the running consumer to have {count} records", there, timeout_s)
        return self.found

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                for message in self._consumer.consume(500, 0.2):
                    error = message.error()
                    if error is None:
                        note(self.found, message)
                    else:
                        # What Kafka answers while history cannot be read; clients report it and ask again.
                        assert error.retriable() or error.code() == KafkaError.UNKNOWN, str(error)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._failure = error
