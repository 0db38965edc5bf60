"""Topics, offsets and deletes of a broker, in the few forms that demo and tests need. Every call has a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
)

from tierberg.stack.limits import ADMIN_S
from tierberg.stack.waiting import wait_for

#: A topic that tiers as soon as a segment is closed and keeps nothing closed on the broker's disk.
TIERED: Mapping[str, str] = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.ms": "1000",
    "retention.ms": "-1",
}

#: What is asked of a broker that has just started: it knows the topic before it leads it.
_NO_LEADER_YET = (
    KafkaError._NOENT,  # noqa: SLF001 - its public name
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


class Admin:
    """An administrative client of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        """Connects on first use."""
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        config: Mapping[str, str] = TIERED,
        *,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create it and wait until every partition has a leader. Raises KafkaException when the broker refuses.

        Args:
            topic: its name.
            partitions: how many.
            config: its settings.
            replicas: for each partition its brokers, the preferred leader first. Default: one copy on any broker.
        """
        where = {"replication_factor": 1} if replicas is None else {"replica_assignment": [[*row] for row in replicas]}
        new = NewTopic(topic, num_partitions=partitions, config=dict(config), **where)
        self._done(self._client.create_topics([new], operation_timeout=ADMIN_S))
        wait_for(f"topic {topic} to have leaders", lambda: self._has_leaders(topic, partitions), ADMIN_S)

    def delete_topic(self, topic: str) -> None:
        """Delete it; the broker goes on deleting its remote segments afterwards."""
        self._done(self._client.delete_topics([topic], operation_timeout=ADMIN_S))

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of its settings, leaving the others."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._done(self._client.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the start of the log up to `before_offset`, exclusive: that record stays."""
        self._done(self._client.delete_records([TopicPartition(topic, partition, before_offset)]))

    def start_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The first offset of each partition, remote ones included."""
        return self._offsets(topic, partitions, OffsetSpec.earliest())

    def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """One past the last offset of each partition."""
        return self._offsets(topic, partitions, OffsetSpec.latest())

    def stable_end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The first offset of an open transaction in each partition, or one past the last offset."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition now; None while there is none."""
        found = self._partition(topic, partition).leader
        return found if found >= 0 else None

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """Brokers whose replica has all that the leader has."""
        return set(self._partition(topic, partition).isrs)

    def under_replicated(self) -> list[str]:
        """Partitions of any topic, as `topic-partition`, with a replica that is not in sync."""
        topics = self._client.list_topics(timeout=ADMIN_S).topics
        partitions = [(name, found) for name, topic in topics.items() for found in topic.partitions.values()]
        return [f"{name}-{found.id}" for name, found in partitions if set(found.isrs) != set(found.replicas)]

    def topic_id(self, topic: str) -> str:
        """The topic's id as 32 hexadecimal digits, as keys of the store have it."""
        answers = self._client.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_S)
        found = answers[topic].result(ADMIN_S).topic_id
        high, low = (part % 2**64 for part in (found.get_most_significant_bits(), found.get_least_significant_bits()))
        return f"{high:016x}{low:016x}"

    def topic_names(self) -> set[str]:
        """All topics of the cluster."""
        return set(self._client.list_topics(timeout=ADMIN_S).topics)

    def _partition(self, topic: str, partition: int) -> PartitionMetadata:
        return self._client.list_topics(topic, timeout=ADMIN_S).topics[topic].partitions[partition]

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self._client.list_topics(topic, timeout=ADMIN_S).topics[topic].partitions
        return len(found) == partitions and all(item.leader >= 0 for item in found.values())

    def _offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        wanted = {TopicPartition(topic, partition): spec for partition in partitions}

        def ask() -> dict[int, int] | None:
            answers = self._client.list_offsets(wanted, isolation_level=isolation, request_timeout=ADMIN_S)
            try:
                return {key.partition: answer.result(ADMIN_S).offset for key, answer in answers.items()}
            except KafkaException as error:
                if error.args[0].code() in _NO_LEADER_YET:
                    return None
                raise

        return wait_for(f"leaders of {topic}", ask, ADMIN_S)

    @staticmethod
    def _done(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(ADMIN_S)
