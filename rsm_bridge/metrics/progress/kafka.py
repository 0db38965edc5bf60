"""Asks Kafka for `tierberg status`: topics, their settings, offsets, and timestamps of the records that wait.

Through confluent-kafka, an optional extra: imported here only, inside functions. Kafka tells no client where a
partition's open segment begins, and confluent-kafka has no DescribeLogDirs; the timestamp of the first record that is
not tiered stands in for it, read by a consumer that joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rsm_bridge.limits import STATUS_HISTORY_SECONDS, STATUS_TIMESTAMPS_MAX, STATUS_UNREAD_SECONDS
from rsm_bridge.metrics.progress.facts import KafkaFacts, KafkaPartition, KafkaTopic, Unread
from rsm_bridge.words import plural

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Where = tuple[str, int]

_TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "local.retention.bytes",
        "local.retention.ms",
        "message.timestamp.type",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    }
)
_BROKER_SETTINGS = frozenset({"remote.log.storage.system.enable", "remote.log.storage.manager.class.name"})

#: Of a consumer that joins no group and commits nothing.
_READING: Mapping[str, str | bool | int] = {
    "group.id": "tierberg-status",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class _Read:
    """A record's timestamp and uncompressed bytes, or why there is none. Neither: nothing follows the offset."""

    stamp_ms: int | None = None
    size: int | None = None
    unread: Unread | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one resource was answered: a value, Kafka's refusal, or neither where it has no such resource."""

    value: Any = None
    refusal: str | None = None


class KafkaClientMissingError(Exception):
    """confluent-kafka is not installed."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """One cluster. `settings` are librdkafka's; `deadline` is in monotonic seconds."""

    settings: Mapping[str, str]
    deadline: float

    def left(self) -> float:
        """Seconds until the deadline; never so few that a client takes them for "for ever"."""
        return max(0.1, self.deadline - time.monotonic())

    def ask(self, wanted: str | None, stored: Collection[str] = ()) -> KafkaFacts:
        """Topics, all or the one wanted, without timestamps of waiting records.

        Args:
            wanted: its name; None: all.
            stored: topic ids, 32 hex digits, whose offsets are asked for also while they are not tiered.

        Raises:
            KafkaClientMissingError: the extra `kafka` is not installed.
            Exception: what the client raises when brokers do not answer in time.
        """
        client = self._client()
        described = self._described(client, wanted)
        topics = described.topics
        asked = {
            (name, number): partition
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if partition.has_leader and (topic.topic_id in stored or _worth(topic, wanted))
        }
        offsets = self._offsets(client, asked)
        silent = {place: asked[place].leader for place, part in offsets.items() if part is None}
        topics = {
            name: replace(
                topic,
                partitions={
                    number: offsets.get((name, number)) or partition for number, partition in topic.partitions.items()
                },
            )
            for name, topic in topics.items()
        }
        return replace(described, topics=topics, unanswered=_unanswered(silent))

    def describe(self) -> KafkaFacts:
        """All topics with their settings, without offsets. Raises what :meth:`ask` raises."""
        return self._described(self._client(), None)

    def hidden(self, names: Iterable[str]) -> frozenset[str]:
        """Those that Kafka does not say to be unknown: it may have them and not show them to this client.

        Raises what :meth:`ask` raises.
        """
        from confluent_kafka import TopicCollection

        wanted = sorted(names)
        if not wanted:
            return frozenset()
        client = self._client()  # answers of a client that is gone are errors
        answers = client.describe_topics(TopicCollection(wanted), request_timeout=self.left())
        told = {name: self._answer(answers[name], f"topic {name}") for name in wanted}
        return frozenset(name for name, answer in told.items() if answer != _Answer())

    def _client(self) -> AdminClient:
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise KafkaClientMissingError("confluent-kafka is not installed") from error
        return AdminClient({**self.settings, "log_level": 0})

    def _described(self, client: AdminClient, wanted: str | None) -> KafkaFacts:
        metadata = client.list_topics(timeout=self.left())
        names = sorted(name for name in metadata.topics if wanted is None or name == wanted)
        return KafkaFacts(self._topics(client, names), self._broker_config(client, sorted(metadata.brokers)))

    def with_timestamps(self, facts: KafkaFacts, reached: Mapping[Where, int]) -> KafkaFacts:
        """The facts, with timestamps of the first record from `reached` on and of the one at the last stable offset.

        Args:
            facts: from :meth:`ask`.
            reached: the tiered end of partitions with something beyond it.
        """
        known = {
            (name, number): part for name, topic in facts.topics.items() for number, part in topic.partitions.items()
        }
        some = dict(list(reached.items())[:STATUS_TIMESTAMPS_MAX])
        first = self._records(some, self.deadline)
        stable = {
            place: part.stable_end
            for place, part in known.items()
            if place in some and part.stable_end is not None and part.end is not None and part.stable_end < part.end
        }
        opened = self._records(
            {place: offset for place, offset in stable.items() if offset != some[place]}, self.deadline
        )
        for place, offset in stable.items():
            if offset == some[place] and place in first:
                opened[place] = first[place]
        for place in first.keys() | opened.keys():
            read = first.get(place, _Read())
            known[place] = replace(
                known[place],
                pending_ms=read.stamp_ms,
                record_bytes=read.size,
                stable_ms=opened[place].stamp_ms if place in opened else None,
                unread=read.unread if read.unread is not None and read.unread.why is not None else None,
            )
        topics = {
            name: replace(topic, partitions={number: known[name, number] for number in topic.partitions})
            for name, topic in facts.topics.items()
        }
        return replace(facts, topics=topics)

    def _topics(self, client: AdminClient, names: Sequence[str]) -> dict[str, KafkaTopic]:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import ConfigResource, ResourceType

        if not names:
            return {}
        described = client.describe_topics(TopicCollection(list(names)), request_timeout=self.left())
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        configs = client.describe_configs(list(resources.values()), request_timeout=self.left())
        found: dict[str, KafkaTopic] = {}
        for name in names:
            topic = self._answer(described[name], f"topic {name}").value
            answer = self._answer(configs[resources[name]], f"the settings of topic {name}")
            if topic is None or answer == _Answer():
                continue  # deleted meanwhile, or not to be seen
            config = answer.value or {}
            found[name] = KafkaTopic(
                topic=name,
                topic_id=_uuid_hex(topic.topic_id),
                internal=bool(topic.is_internal),
                config={key: config[key].value or "" for key in _TOPIC_SETTINGS if key in config},
                partitions={
                    info.id: KafkaPartition(has_leader=_has_leader(info.leader), leader=_broker(info.leader))
                    for info in topic.partitions
                },
                config_refused=answer.refusal,
            )
        return found

    def _offsets(
        self, client: AdminClient, places: Mapping[Where, KafkaPartition]
    ) -> dict[Where, KafkaPartition | None]:
        """What leaders say; None of a partition whose leader did not answer. A refusal leaves its figure out."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not places:
            return {}

        def ask(spec: Any, isolation: IsolationLevel) -> dict[Where, Any]:
            """Futures by partition; nothing is waited for."""
            wanted = {TopicPartition(name, number): spec for name, number in places}
            # Half the time: a partition whose leader is just moving must not use up all of it.
            answers = client.list_offsets(wanted, isolation_level=isolation, request_timeout=self.left() / 2)
            return {(key.topic, key.partition): future for key, future in answers.items()}

        # All four are under way before the first is waited for.
        plain, committed = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        # The end is asked for after the last stable offset, so that it is never the lower one.
        starts, stables = ask(OffsetSpec.earliest(), plain), ask(OffsetSpec.latest(), committed)
        ends, newest = ask(OffsetSpec.latest(), plain), ask(OffsetSpec.max_timestamp(), plain)
        found: dict[Where, KafkaPartition | None] = {}
        for place in places:
            answers = [self._told(asked[place]) for asked in (starts, stables, ends, newest)]
            start, stable, end, latest = (answer.value if answer is not None else None for answer in answers)
            if any(answer is None or _unknown(answer.value) for answer in answers[:3]):
                found[place] = None
                continue
            found[place] = replace(
                places[place],
                log_start=start.offset if start is not None else None,
                end=end.offset if end is not None else None,
                stable_end=stable.offset if stable is not None else None,
                newest_ms=latest.timestamp if latest is not None and latest.timestamp >= 0 else None,
                newest_offset=latest.offset if latest is not None and latest.timestamp >= 0 else None,
                newest_epoch=latest.leader_epoch if latest is not None and latest.timestamp >= 0 else None,
                # Kafka has an epoch for every offset from its log start on, also of an empty log.
                start_has_epoch=start is None or start.leader_epoch is not None,
            )
        return found

    def _broker_config(self, client: AdminClient, brokers: Iterable[int]) -> dict[str, str]:
        """Settings of the first broker that answers; empty when they may not be read."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        for broker in brokers:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            answer = self._told(client.describe_configs([resource], request_timeout=self.left() / 4)[resource])
            if answer is not None:
                config = answer.value or {}
                return {key: config[key].value or "" for key in _BROKER_SETTINGS if key in config}
        return {}

    def _answer(self, future: Future[Any], what: str) -> _Answer:
        """What was answered of a topic.

        Raises:
            TimeoutError: nothing was, in time; names `what`.
        """
        answer = self._told(future)
        if answer is None:
            raise TimeoutError(f"no broker has said what it knows of {what}")
        return answer

    def _told(self, future: Future[Any]) -> _Answer | None:
        """What was answered; None: nothing was, in time."""
        from confluent_kafka import KafkaError, KafkaException

        unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001 - public codes
        try:
            return _Answer(future.result(self.left()))
        except TimeoutError:
            return None
        except KafkaException as error:
            code, said = error.args[0].code(), error.args[0].str()
        if code in unknown:
            return _Answer()
        # Codes of the client itself are negative: no broker has answered.
        return None if code < 0 or code == KafkaError.REQUEST_TIMED_OUT else _Answer(refusal=said)

    def unread(self, offsets: Mapping[Where, int]) -> dict[Where, Unread]:
        """Those of the offsets that a leader does not serve, and why, as far as time allows; reads a record of each."""
        some = dict(list(offsets.items())[:STATUS_TIMESTAMPS_MAX])
        found = self._records(some, min(self.deadline, time.monotonic() + STATUS_HISTORY_SECONDS))
        return {place: read.unread for place, read in found.items() if read.unread is not None}

    def _records(self, offsets: Mapping[Where, int], ends_at: float) -> dict[Where, _Read]:
        """The first record at or above each offset, or the error that every attempt to read it met, until `ends_at`."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        found: dict[Where, _Read] = {}
        left = dict(offsets)
        if not left:
            return found
        out_of_range = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - a public code
        nothing_follows = KafkaError._PARTITION_EOF  # noqa: SLF001 - another; at most markers do
        failed: dict[Where, tuple[str, float]] = {}
        consumer = Consumer({**self.settings, **_READING, "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(name, number, offset) for (name, number), offset in left.items()])
            while left and time.monotonic() < ends_at and not _given_up(left, failed):
                message = consumer.poll(min(0.2, self.left()))
                name, number = (None, None) if message is None else (message.topic(), message.partition())
                if message is None or name is None or number is None or (name, number) not in left:
                    continue
                place, error = (name, number), message.error()
                if error is None:
                    stamp = message.timestamp()[1]
                    size = len(message) + len(message.key() or b"")
                    found[place] = _Read(stamp if stamp >= 0 else None, size)
                elif error.code() == nothing_follows:
                    found[place] = _Read()
                elif error.code() in out_of_range:
                    found[place] = _Read(unread=Unread(left[place], None))
                else:
                    failed.setdefault(place, (error.str(), time.monotonic()))
                    continue
                del left[place]
                consumer.incremental_unassign([TopicPartition(name, number)])
        finally:
            consumer.close()
        return found | {place: _Read(unread=Unread(left[place], failed[place][0])) for place in left if place in failed}


def _unknown(offset: Any) -> bool:
    """The client's answer for a leader that it did not reach is an offset below 0, and no error."""
    return offset is not None and offset.offset < 0


def _unanswered(silent: Mapping[Where, str]) -> str | None:
    """What is said of leaders that did not answer; None where all did."""
    if not silent:
        return None
    brokers = ", ".join(sorted(set(silent.values())))
    (name, number), *_ = sorted(silent)
    said = plural(len(silent), "partition")
    return f"{brokers} did not say in time how far {said} go, first {name}-{number}; other brokers answer"


def _given_up(left: Iterable[Where], failed: Mapping[Where, tuple[str, float]]) -> bool:
    """Whether all that is left has failed for so long that it was tried more than once."""
    before = time.monotonic() - STATUS_UNREAD_SECONDS
    return all(place in failed and failed[place][1] < before for place in left)


def _worth(topic: KafkaTopic, wanted: str | None) -> bool:
    """Whether the topic's offsets are worth asking for: it is tiered, or somebody named it."""
    known = topic.config_refused is None
    return wanted is not None or (known and topic.config.get("remote.storage.enable") == "true")


def _broker(node: Any) -> str:
    return "" if node is None else f"broker {node.id} at {node.host}:{node.port}"


def _has_leader(leader: Any) -> bool:
    return leader is not None and getattr(leader, "id", -1) >= 0


def _uuid_hex(topic_id: Any) -> str:
    """Kafka's id as 32 hex digits."""
    high, low = (part % 2**64 for part in (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()))
    return f"{high:016x}{low:016x}"
