"""Sends the events as three different applications would, and keeps the ledger from the broker's acknowledgements."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from tierberg.demo.errors import DemoError
from tierberg.demo.events import EWR, JFK, LGA, Event
from tierberg.demo.ledger import Ledger

#: Records per transaction of LaGuardia's producer.
TRANSACTION_RECORDS = 2000
#: Every so many transactions, the first attempt is aborted and sent again, as an application does after an error.
ABORT_EVERY = 5
_FLUSH_S = 120.0
_CODEC = {EWR: "lz4", JFK: "zstd", LGA: "none"}


class Producers:
    """One producer for each partition; LaGuardia's is transactional. Call :meth:`send`, then :meth:`close`."""

    def __init__(self, bootstrap: str, topic: str, ledger: Ledger) -> None:
        """Connects; the ledger is filled as acknowledgements come."""
        self._topic = topic
        self._ledger = ledger
        self._failure: KafkaError | None = None
        self._transaction: list[Event] = []
        self._transactions = 0
        self._producers = {number: Producer(_settings(bootstrap, topic, number)) for number in (EWR, JFK, LGA)}
        self._producers[LGA].init_transactions(_FLUSH_S)

    def send(self, event: Event) -> None:
        """Send one event; LaGuardia's wait until a transaction is full.

        Raises:
            DemoError: the broker refused a record.
        """
        if event.partition == LGA:
            self._in_transaction(event)
        else:
            self._produce(event, committed=True)

    def close(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            DemoError: something was refused, or was not acknowledged in time.
        """
        self._finish_transaction()
        for producer in self._producers.values():
            self._flush(producer)

    def _in_transaction(self, event: Event) -> None:
        self._transaction.append(event)
        if len(self._transaction) == TRANSACTION_RECORDS:
            self._finish_transaction()

    def _finish_transaction(self) -> None:
        if not self._transaction:
            return
        producer = self._producers[LGA]
        self._transactions += 1
        if self._transactions % ABORT_EVERY == 0:
            producer.begin_transaction()
            self._send_transaction(committed=False)
            producer.abort_transaction(_FLUSH_S)
        producer.begin_transaction()
        self._send_transaction(committed=True)
        producer.commit_transaction(_FLUSH_S)
        self._transaction = []

    def _send_transaction(self, *, committed: bool) -> None:
        for event in self._transaction:
            self._produce(event, committed=committed)
        # Flushed first, so that an aborted transaction is really in the log.
        self._flush(self._producers[LGA])

    def _produce(self, event: Event, *, committed: bool) -> None:
        producer = self._producers[event.partition]
        acknowledged = partial(self._acknowledged, event, committed)
        while True:
            try:
                producer.produce(
                    self._topic,
                    event.value,
                    event.key,
                    event.partition,
                    timestamp=event.timestamp_ms,
                    headers=list(event.headers) or None,
                    on_delivery=acknowledged,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        self._raise_failure()

    def _acknowledged(self, event: Event, committed: bool, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self._failure = error
        else:
            self._ledger.add(offset, event, committed=committed)

    def _flush(self, producer: Producer) -> None:
        if producer.flush(_FLUSH_S):
            raise DemoError(f"the broker did not acknowledge everything within {_FLUSH_S:.0f} s")
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise DemoError(f"the broker refused a record: {self._failure}")


def _settings(bootstrap: str, topic: str, partition: int) -> dict[str, str | int]:
    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "compression.type": _CODEC[partition],
        "enable.idempotence": "true",
        "linger.ms": 20,
        "queue.buffering.max.messages": 50_000,
        "log_level": 0,
    }
    if partition == LGA:
        settings["transactional.id"] = f"laguardia-{topic}"
    return settings
