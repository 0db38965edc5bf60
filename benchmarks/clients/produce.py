"""Produces one payload to all partitions of a topic, batch after batch, as fast as it goes.

Settings: bootstrap, topic, partitions, payload, bytes_max (of values), compression, batch_bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.clients.protocol import number, serve, text
from benchmarks.payloads import records

_SLICE = 2000  # records handed over in one call, all to one partition
_FLUSH_S = 120

_Delivered = Callable[[KafkaError | None, Message], None]


@dataclass(slots=True)
class _Work:
    producer: Producer
    topic: str
    partitions: int
    values: list[bytes]


def _prepare(settings: dict[str, object]) -> _Work:
    producer = Producer(
        {
            "bootstrap.servers": text(settings, "bootstrap"),
            "compression.type": text(settings, "compression"),
            "batch.size": number(settings, "batch_bytes"),
            "enable.idempotence": True,
            "queue.buffering.max.messages": 400_000,
            "log_level": 2,
        }
    )
    values = records(text(settings, "payload"), number(settings, "bytes_max")).values()
    return _Work(producer, text(settings, "topic"), number(settings, "partitions"), values)


def _produce(work: _Work) -> dict[str, object]:
    errors: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001 - the client's signature
        if error is not None:
            errors.append(str(error))

    partitions = itertools.cycle(range(work.partitions))
    for first in range(0, len(work.values), _SLICE):
        _send(work, [{"value": value} for value in work.values[first : first + _SLICE]], next(partitions), delivered)
    if work.producer.flush(_FLUSH_S):
        errors.append("not everything was delivered in time")
    if errors:
        raise RuntimeError(errors[0])
    return {"records": len(work.values), "bytes": sum(map(len, work.values))}


def _send(work: _Work, messages: list[dict[str, object]], partition: int, delivered: _Delivered) -> None:
    while messages:
        try:
            queued = work.producer.produce_batch(work.topic, messages, partition, on_delivery=delivered)
        except BufferError:
            queued = 0
        messages = messages[queued:]
        work.producer.poll(0.05 if messages else 0)


if __name__ == "__main__":
    serve(_prepare, _produce)
