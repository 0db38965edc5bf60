"""Facts for the tests of `tierberg status`: a healthy topic, and changes to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rsm_bridge.metrics.progress.facts import (
    Facts,
    KafkaFacts,
    KafkaPartition,
    KafkaTopic,
    StoredPartition,
    StoredTopic,
    TableFacts,
)

NOW = 1_700_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
TOPIC_ID = "ab" * 16
OTHER_ID = "ef" * 16
#: The only name that segments have.
CLUSTER = frozenset({"production"})
CONFIG = {
    "cleanup.policy": "delete",
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "false",
    "segment.ms": str(DAY),
    "segment.bytes": str(1 << 20),
    "local.retention.ms": "-2",
    "retention.ms": str(7 * DAY),
}
BROKER = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "io.tierberg.rsm.TierbergRemoteStorageManager",
}


def stored_partition(**changes: Any) -> StoredPartition:
    """Offsets 0 to 99 tiered an hour ago, all publishable; 1,000 log bytes an offset."""
    base = StoredPartition(
        segments=2,
        start=0,
        tiered_end=100,
        tiered_ms=NOW - HOUR,
        record_ms=NOW - HOUR - MINUTE,
        source_bytes=100_000,
        publishable_end=100,
    )
    return replace(base, **changes)


def table(**changes: Any) -> TableFacts:
    return replace(TableFacts(name="kafka.orders", frontiers={0: 100}, committed_ms=NOW - HOUR), **changes)


def stored(partition: StoredPartition | None = None, **changes: Any) -> StoredTopic:
    partitions = {0: partition or stored_partition()}
    base = StoredTopic(
        topic="orders",
        topic_id=TOPIC_ID,
        partitions=partitions,
        clusters=CLUSTER,
        indexes=2,
        indexes_read=2,
        table=table(),
    )
    return replace(base, **changes)


def beside(**changes: Any) -> tuple[StoredTopic, KafkaTopic]:
    """Another topic, which store and Kafka have: it tells that this Kafka is the store's cluster."""
    named = {"topic": "other", "topic_id": OTHER_ID}
    return stored(**{**named, **changes}), kafka_topic(topic="other", topic_id=OTHER_ID)


def kafka_partition(**changes: Any) -> KafkaPartition:
    """All of it is tiered, and no transaction is open unless `stable_end` says so."""
    if "end" in changes:
        changes = {"stable_end": changes["end"]} | changes
    return replace(
        KafkaPartition(has_leader=True, log_start=0, end=100, stable_end=100, newest_ms=NOW - HOUR - MINUTE), **changes
    )


def kafka_topic(partition: KafkaPartition | None = None, **changes: Any) -> KafkaTopic:
    config = {**CONFIG, **changes.pop("config", {})}
    return replace(
        KafkaTopic(
            topic="orders",
            topic_id=TOPIC_ID,
            internal=False,
            config=config,
            partitions={0: partition or kafka_partition()},
        ),
        **changes,
    )


def kafka(*topics: KafkaTopic, broker_config: dict[str, str] | None = None) -> KafkaFacts:
    found = topics or (kafka_topic(),)
    return KafkaFacts({topic.topic: topic for topic in found}, BROKER if broker_config is None else broker_config)


def facts(*topics: StoredTopic, **changes: Any) -> Facts:
    base = Facts(
        now_ms=NOW,
        freshness_target=None,
        publish_interval=1.0,
        stored={topic.topic_id: topic for topic in topics or (stored(),)},
        kafka=kafka(),
    )
    return replace(base, **changes)


def pending(**changes: Any) -> KafkaFacts:
    """Ten offsets beyond the tiered end, from a minute ago on."""
    values = {"end": 110, "pending_ms": NOW - MINUTE, "newest_ms": NOW - 1000, **changes}
    return kafka(kafka_topic(kafka_partition(**values)))
