"""A segment of 512 MiB, and seeks into it by a consumer that has read nothing."""

from __future__ import annotations

import statistics
import time

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.e2e.e2e_support import Pair
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.waiting import wait_for

MIB = 1 << 20
SEGMENT = 512 * MIB
DEPTHS = (2, 25, 50, 75, 98)
INDEX_CACHE_BYTES = "remote.log.index.file.cache.total.size.bytes"
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT),
    # Short only once all is written: the broker also rolls the open segment when its time is up.
    "local.retention.ms": "3600000",
    "retention.ms": "-1",
    "max.message.bytes": str(2 * MIB),
}


def fill(broker: KafkaBroker, topic: str, batch_bytes: int) -> tuple[np.ndarray, int]:
    """Random records of 1,000 bytes, a little more than one segment of them.

    Returns:
        The bytes all values were cut from (value n starts at 1000 n, modulo what is there), and how many were sent.
    """
    payload = np.random.default_rng(batch_bytes).integers(0, 256, 64 * MIB, dtype=np.uint8)
    values = memoryview(payload.tobytes())
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 200,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": 2 * MIB,
            "queue.buffering.max.kbytes": 128 * 1024,
            "log_level": 0,
        }
    )
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)

    # Enough for one full segment and the start of the next, which closes it.
    count = int(SEGMENT * 1.02) // 1000
    step = len(values) - 1000
    for number in range(count):
        start = number * 1000 % step
        while True:
            try:
                producer.produce(topic, bytes(values[start : start + 1000]), partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    assert not errors
    return payload, count


def first_record(consumer: Consumer, topic: str, offset: int) -> tuple[float, Message]:
    """Seconds from naming the position to the first record, and the record."""
    started = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, offset)])
    while time.monotonic() - started < 30:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return time.monotonic() - started, message
    raise AssertionError(f"no record at offset {offset} for 30 s")


def seek(pair: Pair, topic: str, offset: int, end: int, payload: np.ndarray) -> float:
    """Seconds to the first record at an offset, for a consumer that is connected and has read nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": pair.broker.bootstrap,
            "group.id": "seeks",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "message.max.bytes": 4 * MIB,
            "log_level": 0,
        }
    )
    try:
        # Connected to the leader, as a running consumer is. A fetch at the log's end would hold the next one up for
        # the client's own fetch.wait.max.ms, so nothing is consumed yet.
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, end + 1)
        took, message = first_record(consumer, topic, offset)
    finally:
        consumer.close()
    assert message.offset() == offset
    start = offset * 1000 % (len(payload) - 1000)
    assert message.value() == payload[start : start + 1000].tobytes()
    return took


def forget_everything(pair: Pair) -> None:
    """The bridge starts anew, and the broker drops the segment indexes it has fetched."""
    pair.bridge.stop()
    pair.bridge.start()
    client = AdminClient({"bootstrap.servers": pair.broker.bootstrap, "log_level": 0})
    folder = pair.broker.data / "remote-log-index-cache"
    # The smallest size evicts all; then Kafka's default again.
    for size in ("1", str(1 << 30)):
        entry = ConfigEntry(INDEX_CACHE_BYTES, size, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(30)
        if size == "1":
            wait_for("the broker to drop its indexes", lambda: not any(folder.glob("*index")), 30)


def seek_everywhere(pair: Pair, topic: str, payload: np.ndarray, count: int, what: str) -> dict[str, dict[int, float]]:
    """Seconds to the first record, cold and warm, by depth in percent; printed too."""
    figures: dict[str, dict[int, float]] = {"cold": {}, "warm": {}}
    for depth in DEPTHS:
        offset = (count - 1) * depth // 100
        forget_everything(pair)
        figures["cold"][depth] = seek(pair, topic, offset, count - 1, payload)
    for depth in DEPTHS:
        figures["warm"][depth] = seek(pair, topic, (count - 1) * depth // 100, count - 1, payload)
    for name, took in figures.items():
        line = ", ".join(f"{depth} %: {seconds * 1000:.0f} ms" for depth, seconds in took.items())
        print(f"{what}, {name}: {line}; median {statistics.median(took.values()) * 1000:.0f} ms")
    return figures
