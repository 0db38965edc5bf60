"""Reads partitions from their start to a known end with librdkafka's defaults, and counts.

Settings: bootstrap, topic, ends (partition → offset, exclusive). Figures: records, value_bytes, wire_bytes (received
from the broker's socket, fetch responses and their headers), wall_s (go to last record), first_s (to the first), cpu_s.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from benchmarks.clients.protocol import serve, text
from benchmarks.limits import CONSUME_STALL_S

_BATCH = 10_000


@dataclass(slots=True)
class _Work:
    consumer: Consumer
    topic: str
    ends: dict[int, int]
    wire: dict[str, int]


def _prepare(settings: dict[str, object]) -> _Work:
    ends = settings["ends"]
    if not isinstance(ends, dict):
        raise TypeError("ends is no object")
    wire = {"bytes": 0}

    def statistics(document: str) -> None:
        brokers = json.loads(document)["brokers"].values()
        wire["bytes"] = sum(broker["rxbytes"] for broker in brokers)

    consumer = Consumer(
        {
            "bootstrap.servers": text(settings, "bootstrap"),
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "statistics.interval.ms": 100,
            "stats_cb": statistics,
            "log_level": 2,
        }
    )
    topic = text(settings, "topic")
    # The connection is made before the clock starts.
    consumer.list_topics(topic, timeout=30)
    return _Work(consumer, topic, {int(partition): int(end) for partition, end in ends.items()}, wire)


def _consume(work: _Work) -> dict[str, object]:
    started, cpu = time.perf_counter(), time.process_time()
    work.consumer.assign([TopicPartition(work.topic, partition, 0) for partition in work.ends])
    # Partitions begin at 0 and hold no control batches: their ends sum to the number of records.
    expected = sum(work.ends.values())
    total = value_bytes = 0
    first_s = 0.0
    last = started
    while total < expected:
        messages = work.consumer.consume(_BATCH, timeout=0.5)
        now = time.perf_counter()
        if not messages:
            if now - last > CONSUME_STALL_S:
                raise RuntimeError(f"no record for {CONSUME_STALL_S:.0f} s after {total} of {expected}")
            continue
        last = now
        first_s = first_s or now - started
        total += len(messages)
        value_bytes += sum(len(message) for message in messages)
        failed = next((message.error() for message in messages if message.error() is not None), None)
        if failed is not None:
            raise RuntimeError(str(failed))
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    work.consumer.poll(0.3)  # the last statistics
    wire = work.wire["bytes"]
    work.consumer.close()
    return {
        "records": total,
        "value_bytes": value_bytes,
        "wire_bytes": wire,
        "wall_s": wall_s,
        "first_s": first_s,
        "cpu_s": cpu_s,
    }


if __name__ == "__main__":
    serve(_prepare, _consume)
