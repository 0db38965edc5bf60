"""What is asked of Kafka and what becomes of its answers, with a client that answers from memory.

The real client and a real broker: tests/e2e/test_e2e_status.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec

from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts, Problem, Unread
from rsm_bridge.metrics.progress.kafka import KafkaSource
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from tests.support.status_facts import DAY, NOW, facts, kafka, kafka_partition, kafka_topic, stored

TOPIC_ID = "00112233445566778899aabbccddeeff"


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


def refused(code: int = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> KafkaException:
    return KafkaException(KafkaError(code))


LEADER = SimpleNamespace(id=1, host="b", port=9092)
#: What the client says of a leader that it does not reach: no error.
UNREACHED = SimpleNamespace(offset=-1001, timestamp=-1, leader_epoch=None)


@dataclass
class Answers:
    """Two partitions of `orders`, the second without a leader; `local` is not tiered."""

    config: Any
    end: Any = None
    broker_config: Any = None
    topic: Any = None


class Client:
    """As much of confluent-kafka's AdminClient as is called."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def list_topics(self, timeout: float) -> Any:
        assert 0 < timeout <= 20
        return SimpleNamespace(topics={"orders": None, "local": None}, brokers={3: None, 1: None})

    def describe_topics(self, names: Any, request_timeout: float) -> dict[str, Future[Any]]:
        high, low = int(TOPIC_ID[:16], 16), int(TOPIC_ID[16:], 16) - 2**64
        topic_id = SimpleNamespace(get_most_significant_bits=lambda: high, get_least_significant_bits=lambda: low)
        partitions = [SimpleNamespace(id=0, leader=LEADER), SimpleNamespace(id=1, leader=None)]
        topic = SimpleNamespace(topic_id=topic_id, is_internal=False, partitions=partitions)
        return {name: done(self.answers.topic or topic) for name in names.topic_names}

    def describe_configs(self, resources: list[ConfigResource], request_timeout: float) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {}
        for resource in resources:
            if resource.restype.name == "BROKER":
                self.asked.append(f"broker {resource.name}")
                answers[resource] = done(self.answers.broker_config)
                continue
            config = self.answers.config if resource.name == "orders" else {"remote.storage.enable": "false"}
            if isinstance(config, KafkaException):
                answers[resource] = done(config)
                continue
            answers[resource] = done({key: SimpleNamespace(value=value) for key, value in config.items()})
        return answers

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.asked.extend(f"{place.topic}-{place.partition}" for place in wanted)
        found: dict[TopicPartition, Future[Any]] = {}
        for place, spec in wanted.items():
            if spec is OffsetSpec.earliest():
                found[place] = done(SimpleNamespace(offset=5, timestamp=-1, leader_epoch=0))
            elif spec is OffsetSpec.max_timestamp():
                found[place] = done(SimpleNamespace(offset=9, timestamp=1234, leader_epoch=0))
            else:
                found[place] = done(self.answers.end or SimpleNamespace(offset=10, timestamp=-1, leader_epoch=None))
        return found


def ask(answers: Answers, monkeypatch: pytest.MonkeyPatch, wanted: str | None = None) -> tuple[KafkaFacts, Client]:
    client = Client(answers)

    def opened(settings: Mapping[str, Any]) -> Client:
        assert settings["bootstrap.servers"] == "b:1"
        assert settings["security.protocol"] == "ssl"
        return client

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", opened)
    source = KafkaSource({"bootstrap.servers": "b:1", "security.protocol": "ssl"}, time.monotonic() + 20)
    return source.ask(wanted), client


TIERED = {"remote.storage.enable": "true", "segment.ms": "1000", "max.message.bytes": "7"}


def test_a_topic_as_kafka_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, client = ask(Answers(TIERED), monkeypatch)
    topic = facts.topics["orders"]
    assert topic.topic_id == TOPIC_ID
    assert topic.config == {"remote.storage.enable": "true", "segment.ms": "1000"}  # only what is judged by
    part = topic.partitions[0]
    assert (part.has_leader, part.log_start, part.end, part.stable_end, part.newest_ms) == (True, 5, 10, 10, 1234)
    assert (part.newest_offset, part.newest_epoch, part.leader) == (9, 0, "broker 1 at b:9092")
    assert not topic.partitions[1].has_leader
    assert topic.partitions[1].end is None
    assert "orders-1" not in client.asked  # nobody would answer


def test_offsets_of_local_topics_are_not_asked_for_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, client = ask(Answers(TIERED), monkeypatch)
    assert "local" in facts.topics
    assert "local-0" not in client.asked
    facts, client = ask(Answers(TIERED), monkeypatch, "local")
    assert set(facts.topics) == {"local"}
    assert "local-0" in client.asked


def test_a_refusal_leaves_a_figure_out_and_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, _ = ask(Answers(TIERED, end=refused(), broker_config=refused()), monkeypatch)
    part = facts.topics["orders"].partitions[0]
    assert (part.has_leader, part.end, part.stable_end, part.log_start) == (True, None, None, 5)
    assert facts.broker_config == {}


@pytest.mark.parametrize("answer", [UNREACHED, refused(KafkaError._TIMED_OUT), refused(KafkaError.REQUEST_TIMED_OUT)])
def test_a_leader_that_does_not_answer_is_named_and_its_log_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    found, _ = ask(Answers(TIERED, end=answer), monkeypatch)
    part = found.topics["orders"].partitions[0]
    assert (part.has_leader, part.log_start, part.end, part.start_has_epoch) == (True, None, None, True)
    assert found.unanswered == (
        "broker 1 at b:9092 did not say in time how far 1 partition go, first orders-0; other brokers answer"
    )
    tiered = replace(
        facts(), kafka=replace(found, topics={"orders": replace(found.topics["orders"], topic_id="ab" * 16)})
    )
    persons = [item.code for item in assess(tiered).all_findings() if item.level is Level.PERSON]
    assert persons == [CauseCode.KAFKA_AWAY, CauseCode.NO_LEADER]


def test_a_topic_that_nobody_describes_in_time_is_not_taken_for_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
        with pytest.raises(TimeoutError, match="no broker has said what it knows of topic local"):
            ask(Answers(TIERED, topic=refused(code)), monkeypatch)
    with pytest.raises(TimeoutError, match="the settings of topic orders"):
        ask(Answers(refused(KafkaError._TIMED_OUT)), monkeypatch)
    found, _ = ask(Answers(TIERED, topic=refused(KafkaError.UNKNOWN_TOPIC_OR_PART)), monkeypatch)
    assert found.topics == {}
    found, _ = ask(Answers(refused(KafkaError.UNKNOWN_TOPIC_OR_PART)), monkeypatch)
    assert set(found.topics) == {"local"}


def test_settings_that_are_not_shown_are_not_taken_for_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that the topic is not tiered; what it has in the store says that it was."""
    found, client = ask(Answers(refused()), monkeypatch)
    topic = found.topics["orders"]
    assert topic.config_refused is not None
    assert "orders-0" not in client.asked
    late = kafka_topic(
        kafka_partition(end=99_000_000, pending_ms=NOW - 30 * DAY, newest_ms=NOW - 9 * DAY, record_bytes=900)
    )
    hidden = replace(late, config={}, config_refused=topic.config_refused)

    def codes(made: Facts) -> set[CauseCode]:
        return {item.code for item in assess(made).all_findings()}

    assert codes(facts(stored(left=1), kafka=kafka(hidden))) >= {CauseCode.SETTINGS_HIDDEN, CauseCode.COPY_STUCK}
    assert codes(replace(facts(kafka=kafka(hidden)), stored={})) == {CauseCode.SETTINGS_HIDDEN}


def test_one_broker_is_asked_for_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "remote.log.storage.system.enable": SimpleNamespace(value="true"),
        "listeners": SimpleNamespace(value="PLAINTEXT://:9092"),
    }
    facts, client = ask(Answers(TIERED, broker_config=settings), monkeypatch)
    assert facts.broker_config == {"remote.log.storage.system.enable": "true"}
    assert [entry for entry in client.asked if entry.startswith("broker")] == ["broker 1"]


def test_time_left_never_means_for_ever() -> None:
    assert KafkaSource({}, time.monotonic() - 5).left() == pytest.approx(0.1)


def test_a_read_that_fails_while_the_store_is_away_is_no_finding_of_its_own() -> None:
    """It was called a cut history, whose advice is to stop the broker."""
    asked = kafka(kafka_topic(kafka_partition(unread=Unread(60, "Unknown broker error"))))
    report = assess(facts(stored={}, store_problem=Problem("unavailable", "no route to host"), kafka=asked))
    urgent = {item.code for item in report.all_findings() if item.level is Level.PERSON}
    assert urgent == {CauseCode.STORE_AWAY}
