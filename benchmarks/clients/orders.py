"""Produces a stretch of the stream of orders, compressed with zstd, as fast as it goes.

Settings: bootstrap, topic, orders, days, first, count (of events).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.clients.protocol import number, serve, text
from benchmarks.orders import Event, Sized, events

_FLUSH_S = 120


@dataclass(slots=True)
class _Work:
    producer: Producer
    topic: str
    sized: Sized
    first: int
    count: int
    errors: list[str] = field(default_factory=list)

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))


def _prepare(settings: dict[str, object]) -> _Work:
    producer = Producer(
        {
            "bootstrap.servers": text(settings, "bootstrap"),
            "compression.type": "zstd",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 400_000,
            "linger.ms": 100,
            "log_level": 2,
        }
    )
    sized = Sized(number(settings, "orders"), number(settings, "days"))
    return _Work(producer, text(settings, "topic"), sized, number(settings, "first"), number(settings, "count"))


def _produce(work: _Work) -> dict[str, object]:
    total = 0
    for event in events(work.sized, work.first, work.count):
        total += len(event.value)
        _send(work, event)
    if work.producer.flush(_FLUSH_S):
        work.errors.append("not everything was delivered in time")
    if work.errors:
        raise RuntimeError(work.errors[0])
    return {"records": work.count, "bytes": total}


def _send(work: _Work, event: Event) -> None:
    while True:
        try:
            work.producer.produce(
                work.topic,
                value=event.value,
                key=event.key,
                partition=event.partition,
                timestamp=event.timestamp_ms,
                on_delivery=work.delivered,
            )
        except BufferError:
            work.producer.poll(0.05)
        else:
            return


if __name__ == "__main__":
    serve(_prepare, _produce)
