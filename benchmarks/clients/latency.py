"""Produces at a steady rate and times every record to its acknowledgement.

Settings: bootstrap, topic, payload, rate (records per second), seconds. Each value begins with its time of production
(8 bytes, nanoseconds), for the tail consumer. A record's clock starts when it was due, not when it could be sent, so
that a stall counts for every record it held up. Figures: p50_ms, p99_ms, max_ms, records, started_s
(when the first was due, since the epoch).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.clients.protocol import number, serve, text
from benchmarks.meters import percentile
from benchmarks.payloads import records

_DUE = struct.Struct("<q")
_WARM_S = 2.0  # not counted: connections, first batches


@dataclass(slots=True)
class _Work:
    producer: Producer
    topic: str
    values: list[bytes]
    rate: int
    seconds: int


def due_ns(value: bytes) -> int:
    """When the record of this value was due, nanoseconds since the epoch."""
    (found,) = _DUE.unpack_from(value)
    return int(found)


def _prepare(settings: dict[str, object]) -> _Work:
    producer = Producer({"bootstrap.servers": text(settings, "bootstrap"), "acks": "all", "log_level": 2})
    topic = text(settings, "topic")
    producer.list_topics(topic, timeout=30)
    rate, seconds = number(settings, "rate"), number(settings, "seconds")
    values = records(text(settings, "payload"), 4_000_000).values()
    return _Work(producer, topic, values, rate, seconds)


def _produce(work: _Work) -> dict[str, object]:
    latencies_ms: list[float] = []
    errors: list[str] = []

    def delivery(due: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001 - the client's signature
            if error is not None:
                errors.append(str(error))
            latencies_ms.append((time.time_ns() - due) / 1e6)

        return delivered

    start = time.time_ns()
    for number_sent in range(work.rate * work.seconds):
        due = start + number_sent * 1_000_000_000 // work.rate
        while (wait_s := (due - time.time_ns()) / 1e9) > 0:
            work.producer.poll(wait_s)
        value = _DUE.pack(due) + work.values[number_sent % len(work.values)][_DUE.size :]
        work.producer.produce(work.topic, value, on_delivery=delivery(due))
    work.producer.flush(60)
    if errors or len(latencies_ms) < work.rate * work.seconds:
        raise RuntimeError(errors[0] if errors else "not everything was delivered in time")
    counted = latencies_ms[int(work.rate * _WARM_S) :]
    return {
        "records": len(counted),
        "started_s": start / 1e9,
        "p50_ms": percentile(counted, 50),
        "p99_ms": percentile(counted, 99),
        "max_ms": max(counted),
    }


if __name__ == "__main__":
    serve(_prepare, _produce)
