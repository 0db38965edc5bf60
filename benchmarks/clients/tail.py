"""Follows the end of a topic and times every record from when it was due (see latency.py) to its receipt.

Settings: bootstrap, topic, records (how many to expect). Figures: p50_ms, p99_ms, max_ms, records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from benchmarks.clients.latency import due_ns
from benchmarks.clients.protocol import number, serve, text
from benchmarks.limits import CONSUME_STALL_S
from benchmarks.meters import percentile

_WARM_RECORDS_SHARE = 0.1  # not counted, like the producer's first seconds


@dataclass(slots=True)
class _Work:
    consumer: Consumer
    records: int


def _prepare(settings: dict[str, object]) -> _Work:
    consumer = Consumer(
        {
            "bootstrap.servers": text(settings, "bootstrap"),
            "group.id": "benchmark-tail",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "log_level": 2,
        }
    )
    topic = text(settings, "topic")
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    positions = []
    for partition in partitions:
        # The end now, by number: what is produced from here on is not missed.
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        positions.append(TopicPartition(topic, partition, end))
    consumer.assign(positions)
    consumer.poll(1.0)
    return _Work(consumer, number(settings, "records"))


def _follow(work: _Work) -> dict[str, object]:
    latencies_ms: list[float] = []
    last = time.monotonic()
    while len(latencies_ms) < work.records:
        message = work.consumer.poll(0.5)
        if message is None:
            if time.monotonic() - last > CONSUME_STALL_S:
                raise RuntimeError(f"no record for {CONSUME_STALL_S:.0f} s after {len(latencies_ms)}")
            continue
        value = message.value()
        if message.error() is not None or value is None:
            raise RuntimeError(str(message.error()))
        last = time.monotonic()
        latencies_ms.append((time.time_ns() - due_ns(value)) / 1e6)
    work.consumer.close()
    counted = latencies_ms[int(work.records * _WARM_RECORDS_SHARE) :]
    return {
        "records": len(counted),
        "p50_ms": percentile(counted, 50),
        "p99_ms": percentile(counted, 99),
        "max_ms": max(counted),
    }


if __name__ == "__main__":
    serve(_prepare, _follow)
