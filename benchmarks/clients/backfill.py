"""Consumers that read a topic's history over and over, each from a place of its own, until the input ends.

Settings: bootstrap, topic, ends (partition → offset, exclusive), consumers, seconds, pace_kb_per_s (of values, each
consumer; 0: as fast as it goes). Every consumer reads all partitions; consumer i begins at i/consumers of each.
Figures: records, bytes (of values), records_per_s, errors.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.clients.protocol import number, serve, text

#: A paced consumer fetches no more in advance than this, so that the broker feels its pace.
_QUEUE_KB = 2048


@dataclass(slots=True)
class _Work:
    consumers: list[Consumer]
    topic: str
    ends: dict[int, int]
    seconds: int
    pace: int  # bytes per second of each consumer; 0 for no limit


@dataclass(slots=True)
class _Count:
    records: int = 0
    bytes: int = 0
    errors: int = 0


def _prepare(settings: dict[str, object]) -> _Work:
    ends = settings["ends"]
    if not isinstance(ends, dict):
        raise TypeError("ends is no object")
    topic = text(settings, "topic")
    consumers = [
        Consumer(
            {
                "bootstrap.servers": text(settings, "bootstrap"),
                "group.id": f"benchmark-backfill-{number_}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "enable.partition.eof": True,
                **({"queued.max.messages.kbytes": _QUEUE_KB} if number(settings, "pace_kb_per_s") else {}),
                "log_level": 2,
            }
        )
        for number_ in range(number(settings, "consumers"))
    ]
    for consumer in consumers:
        consumer.list_topics(topic, timeout=30)
    return _Work(
        consumers,
        topic,
        {int(key): int(end) for key, end in ends.items()},
        number(settings, "seconds"),
        number(settings, "pace_kb_per_s") * 1000,
    )


def _backfill(work: _Work) -> dict[str, object]:
    deadline = time.monotonic() + work.seconds
    counts: list[_Count] = []
    threads = [
        threading.Thread(target=lambda place=place: counts.append(_read(work, place, deadline)))
        for place in range(len(work.consumers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(count.records for count in counts)
    return {
        "records": total,
        "bytes": sum(count.bytes for count in counts),
        "errors": sum(count.errors for count in counts),
        "records_per_s": total / work.seconds,
    }


def _read(work: _Work, place: int, deadline: float) -> _Count:
    consumer = work.consumers[place]
    share = place / len(work.consumers)
    consumer.assign([TopicPartition(work.topic, key, int(end * share)) for key, end in work.ends.items()])
    count = _Count()
    started = time.monotonic()
    while (now := time.monotonic()) < deadline:
        if work.pace and (early_s := count.bytes / work.pace - (now - started)) > 0:
            time.sleep(min(early_s, deadline - now))
            continue
        for message in consumer.consume(5000, timeout=0.2):
            error, partition = message.error(), message.partition()
            if error is None:
                count.records += 1
                count.bytes += len(message)
            elif error.code() == KafkaError._PARTITION_EOF and partition is not None:  # noqa: SLF001 - its public name
                consumer.seek(TopicPartition(work.topic, partition, 0))
            else:
                count.errors += 1
    consumer.close()
    return count


if __name__ == "__main__":
    serve(_prepare, _backfill)
