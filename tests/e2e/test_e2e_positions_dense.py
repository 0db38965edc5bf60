"""Topics that compress a hundredfold, on a broker with a small heap; and plain reading across many segments.

Served uncompressed and unbounded, such a segment is hundreds of megabytes, of which the broker holds whole batches
twice. A served batch is at most max(its original size, 1 MiB), so that nothing of that size is ever asked of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import PATIENCE_S, Pair, wait_tiered
from tierberg.stack.jmx import JmxReader
from tierberg.stack.servers.kafka import BrokerOptions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

VALUE_BYTES = 1000
PARTITIONS = 3
#: Of each partition; more than a segment of 1 MiB at any of the ratios below.
RECORDS = 280_000
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.ms": "1000",
    "retention.ms": "-1",
}
OLD_MS = 1_700_000_000_000


@pytest.fixture
def small_heap_pair(tmp_path: Path) -> Iterator[Pair]:
    started = start_pair(tmp_path, BrokerOptions(heap="512m"))
    yield started
    started.broker.stop()
    started.bridge.stop()


def produce(pair: Pair, topic: str, partitions: int, values: Iterator[bytes], **settings: object) -> None:
    """Value n goes to partition n modulo `partitions`."""
    base = {"bootstrap.servers": pair.broker.bootstrap, "enable.idempotence": True, "linger.ms": 500, "log_level": 0}
    producer = Producer({**base, "batch.num.messages": 100_000, **settings})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions, timestamp=OLD_MS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def consume_counting(pair: Pair, topic: str, partitions: int, value_of: dict[int, int]) -> tuple[list[int], float]:
    """Reads everything with a client's defaults, each value's number in order.

    Args:
        value_of: partition → number of the first value; the next one of a partition is `partitions` further.

    Returns:
        Records per partition, and seconds from the first record to the last.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": pair.broker.bootstrap,
            "group.id": topic,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    counts = [0] * partitions
    ended: set[int] = set()
    deadline, first_at, last_at = time.monotonic() + PATIENCE_S, 0.0, 0.0
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"no record for {PATIENCE_S} s after {counts}"
            for message in consumer.consume(1000, 0.2):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(partition)
                    else:
                        assert error.retriable(), str(error)
                    continue
                value = message.value()
                assert value is not None
                assert message.offset() == counts[partition]
                assert int(value[:12]) == value_of[partition] + counts[partition] * partitions
                counts[partition] += 1
                last_at = time.monotonic()
                first_at = first_at or last_at
                deadline = last_at + PATIENCE_S
    finally:
        consumer.close()
    return counts, last_at - first_at


@pytest.mark.parametrize("batch_bytes", [1_000_000, 8_000_000], ids=["served-uncompressed", "kept-as-they-came"])
def test_a_hundredfold_does_not_fill_the_brokers_heap(small_heap_pair: Pair, batch_bytes: int) -> None:
    pair = small_heap_pair
    total = RECORDS * PARTITIONS
    filler = bytes(VALUE_BYTES - 12)
    pair.admin.create_topic("dense", PARTITIONS, TIERED)
    produce(
        pair,
        "dense",
        PARTITIONS,
        (b"%012d" % number + filler for number in range(total)),
        **{"compression.type": "zstd", "batch.size": batch_bytes, "message.max.bytes": 10_000_000},
    )
    wait_tiered(pair, "dense", range(PARTITIONS), timeout_s=240)
    metrics = pair.bridge.metrics()
    ratio = total * VALUE_BYTES / metrics["tierberg_copied_bytes_total"]
    assert ratio >= 100
    kept = metrics.get("tierberg_kept_bytes_total", 0.0)
    assert (kept > 0) == (batch_bytes > 1 << 20)
    counts, seconds = consume_counting(pair, "dense", PARTITIONS, dict(enumerate(range(PARTITIONS))))
    print(f"ratio {ratio:.0f}, kept {kept:.0f} B, {total} records of {VALUE_BYTES} B read in {seconds:.1f} s")
    assert counts == [RECORDS] * PARTITIONS
    pair.broker.process.require_alive()
    assert "OutOfMemoryError" not in pair.broker.process.output()
    with JmxReader(pair.broker.jmx_port) as jmx:
        assert jmx.topic_total("RemoteFetchBytesPerSec", "dense") > 0


@pytest.mark.parametrize("segment_bytes", [1 << 20, 256 << 20], ids=["many-small-segments", "one-segment"])
def test_a_plain_reader_does_not_stall(small_heap_pair: Pair, segment_bytes: int) -> None:
    """A stalled reader waits out `remote.fetch.max.wait.ms`, 500 ms, once per segment or more."""
    pair = small_heap_pair
    mib, count = 48, 48 * 1024
    payload = np.random.default_rng(7).integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    values = (b"%012d" % number + payload[number : number + VALUE_BYTES] for number in range(count))
    config = TIERED | {"segment.bytes": str(segment_bytes), "local.retention.ms": "3600000"}
    pair.admin.create_topic("plain", config=config)
    produce(pair, "plain", 1, values, **{"batch.size": 64_000})
    pair.admin.set_topic_config("plain", {"local.retention.ms": "1000"})
    wait_tiered(pair, "plain", timeout_s=240)
    counts, seconds = consume_counting(pair, "plain", 1, {0: 0})
    print(f"{segment_bytes >> 20} MiB segments: {mib} MiB in {seconds:.2f} s, {mib / seconds:.0f} MiB/s")
    assert counts == [count]
    assert seconds < mib * 0.15
