"""Topics of two Kafka clusters in one store: `tierberg status` and `tierberg topic forget` ask one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError
from rsm_bridge.metrics.progress.facts import DelayedDelete, Facts, Gap, KafkaFacts
from rsm_bridge.metrics.progress.kafka import KafkaSource
from rsm_bridge.metrics.progress.own_cluster import Asked, asked
from rsm_bridge.status import gather
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.report import Report
from rsm_bridge.status.text import as_text
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.tables.maintain.topic_forget import Wish, forget
from tests.support.status_facts import (
    HOUR,
    NOW,
    beside,
    facts,
    kafka,
    kafka_partition,
    kafka_topic,
    stored,
    stored_partition,
)
from tests.worlds.maintain_support import World, make_world, published

C = CauseCode
#: Of one topic that is not in Kafka, and of those that are.
NAMES = [
    ({"a"}, {"a"}, Asked.OWN),
    ({"b"}, {"a"}, Asked.ANOTHER),
    ({"a"}, set(), Asked.UNSURE),
    (set(), {"a"}, Asked.UNSURE),
    ({"a"}, {"a", "b"}, Asked.UNSURE),
    ({"a", "b"}, {"a"}, Asked.UNSURE),
    ({"a", "b"}, {"a", "b"}, Asked.UNSURE),
    ({"c"}, {"a", "b"}, Asked.ANOTHER),
]


@pytest.mark.parametrize(("of_topic", "of_kafka", "whose"), NAMES)
def test_one_name_on_both_sides_is_certain_and_nothing_else(
    of_topic: set[str], of_kafka: set[str], whose: Asked
) -> None:
    assert asked(of_topic, of_kafka) is whose


@pytest.mark.parametrize(("of_topic", "of_kafka", "whose"), NAMES)
def test_only_a_topic_of_the_asked_cluster_is_judged_by_what_that_has(
    of_topic: set[str], of_kafka: set[str], whose: Asked
) -> None:
    topic, there = beside(clusters=frozenset(of_kafka))
    report = assess(facts(stored(left=2, clusters=frozenset(of_topic)), topic, kafka=kafka(there)))
    expected = (C.TOPIC_LEFT, Level.PERSON) if whose is Asked.OWN else (C.OTHER_CLUSTER, Level.NOTE)
    (finding,) = next(item for item in report.topics if item.topic == "orders").findings
    assert (finding.code, finding.level, report.level()) == (*expected, expected[1])


def test_a_deletion_in_another_cluster_is_judged_as_if_kafka_was_not_asked() -> None:
    held = DelayedDelete(segments=2, rows=40, last_ms=NOW - HOUR, due_ms=NOW + HOUR)
    gap = stored_partition(gaps=(Gap(10, 19, explained=False),))
    there = kafka(beside()[1])

    def codes(clusters: str, kafka_: KafkaFacts | None) -> set[tuple[CauseCode, Level]]:
        topic = stored(gap, delayed_deletes=(held,), clusters=frozenset({clusters}))
        report = assess(facts(topic, beside()[0], kafka=kafka_))
        mine = next(item for item in report.topics if item.topic == "orders")
        return {(item.code, item.level) for item in mine.all_findings()} - {(C.OTHER_CLUSTER, Level.NOTE)}

    assert codes("west", there) == codes("west", None)
    assert (C.GAP_EXPLAINED, Level.NOTE) in codes("production", there)


@dataclass
class Two:
    """Kafka A has `orders` and `other`, Kafka B `payments` and an `orders` of its own."""

    folder: Path
    a: World
    other: World
    b: World
    namesake: World

    def kafka_a(self) -> KafkaFacts:
        return says(self.a, self.other)

    def kafka_b(self) -> KafkaFacts:
        return says(self.b, self.namesake)

    def forget(self, kafka_: KafkaFacts, topic: str, *clusters: str, topic_id: str | None = None) -> str:
        lines: list[str] = []
        wish = Wish(topic, topic_id, yes=True, clusters=frozenset(clusters))
        forget(open_backend(None, self.folder), wish, lambda _: kafka_, lines.append, lambda _: None)
        return "\n".join(lines)


def says(*worlds: World) -> KafkaFacts:
    parts = {0: kafka_partition(log_start=0, end=9, stable_end=9)}
    return kafka(*(kafka_topic(topic=item.topic, topic_id=item.topic_id.hex(), partitions=parts) for item in worlds))


@pytest.fixture
def two(tmp_path: Path) -> Two:
    first = make_world(tmp_path, cluster="a")
    rest = [("other", "a"), ("payments", "b"), ("orders", "b")]
    worlds = [first, *(World(first.store, first.catalog, topic=name, cluster=cluster) for name, cluster in rest)]
    for item in worlds:
        published(item)
    return Two(tmp_path, *worlds)


def live(world: World) -> int:
    return sum(known.live for known in world.observe().segments)


Look = Callable[[KafkaFacts], tuple[dict[str, list[str]], bool]]


@pytest.fixture
def look(two: Two, monkeypatch: pytest.MonkeyPatch) -> Look:
    """`tierberg status --json` of all topics: causes by topic id, and whether somebody is needed."""

    def run(there: KafkaFacts) -> tuple[dict[str, list[str]], bool]:
        def asked_for(_: Settings, found: Facts) -> Facts:
            return replace(found, kafka=there)

        monkeypatch.setattr(gather, "_kafka", asked_for)
        text, needed = status(StatusOptions(data_dir=two.folder, bridge="none", patience=0.0, json=True))
        topics = json.loads(text)["topics"]
        return {topic["topic_id"]: [item["code"] for item in topic["findings"]] for topic in topics}, needed

    return run


def test_status_of_either_cluster_calls_nobody_for_the_other_ones_topics(two: Two, look: Look) -> None:
    for there, mine, others in (
        (two.kafka_a(), (two.a, two.other), (two.b, two.namesake)),
        (two.kafka_b(), (two.b, two.namesake), (two.a, two.other)),
    ):
        found, needed = look(there)
        assert not needed
        assert [found[item.topic_id.hex()] for item in mine] == [[], []]
        assert [found[item.topic_id.hex()] for item in others] == [["other_cluster"], ["other_cluster"]]


def test_status_still_calls_for_a_topic_that_its_own_cluster_has_no_more(two: Two, look: Look) -> None:
    found, needed = look(says(two.other))
    assert needed
    assert found[two.a.topic_id.hex()] == ["topic_left"]
    assert found[two.namesake.topic_id.hex()] == ["other_cluster"]


@pytest.mark.parametrize("named", [False, True])
def test_forget_refuses_a_live_topic_of_the_other_cluster(two: Two, named: bool) -> None:
    with pytest.raises(BridgeError) as refused:
        two.forget(two.kafka_a(), "payments", topic_id=two.b.topic_id.hex() if named else None)
    assert refused.value.kind == "bad_request"
    assert str(refused.value) == (
        f"that Kafka has no topic payments with id {two.b.topic_id.hex()} proves nothing: its segments are of cluster "
        "b, and topics of this store that Kafka has are of cluster a. Ask cluster b itself: --bootstrap-server, or "
        "kafka.bootstrap_servers. Only if cluster b is gone for good: --cluster b"
    )
    assert (live(two.b), two.b.offsets()) == (3, list(range(9)))


def test_forget_takes_of_two_of_one_name_the_one_that_its_own_cluster_has_no_more(two: Two) -> None:
    told = two.forget(says(two.other), "orders")
    assert f"orders ({two.namesake.topic_id.hex()}) is not touched: " in told
    assert f"orders ({two.a.topic_id.hex()}) of cluster a: 3 segments" in told
    assert (live(two.a), live(two.namesake)) == (0, 3)
    assert (two.a.offsets(), two.namesake.offsets()) == ([], list(range(9)))


def test_a_cluster_that_is_gone_for_good_is_named_and_only_its_topic_goes(two: Two) -> None:
    told = two.forget(two.kafka_a(), "orders", "b")
    assert "3 segments deleted" in told
    assert (live(two.a), live(two.namesake), live(two.b)) == (3, 0, 3)
    with pytest.raises(BridgeError, match="Kafka still has topic orders"):
        two.forget(two.kafka_a(), "orders", "a")
    with pytest.raises(BridgeError, match="cluster c: what the store has of orders is of clusters a and b"):
        two.forget(two.kafka_a(), "orders", "c")


def test_a_broker_that_had_the_other_clusters_name_for_a_while_proves_nothing(two: Two) -> None:
    """A topic of A whose only readable name is B's would make A's Kafka look like B."""
    two.other.cluster = "b"
    two.other.copy()
    with pytest.raises(BridgeError, match="are of clusters a and b"):
        two.forget(says(two.other), "payments")
    with pytest.raises(BridgeError, match="are of clusters a and b"):
        two.forget(says(two.other), "orders")
    with pytest.raises(BridgeError, match=r"--cluster a --cluster b$"):
        two.forget(says(two.a), "other", "a")
    assert "4 segments deleted" in two.forget(says(two.a), "other", "a", "b")
    assert [live(item) for item in (two.a, two.b, two.namesake)] == [3, 3, 3]


def test_status_of_one_topic_asks_whose_the_others_are(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka and store are asked for that topic alone, which tells nothing of the cluster."""
    everything = [says(two.other)]

    def ask(_: KafkaSource, wanted: str | None, __: object = ()) -> KafkaFacts:
        topics = {name: topic for name, topic in everything[0].topics.items() if name == wanted}
        return replace(everything[0], topics=topics)

    monkeypatch.setattr(KafkaSource, "ask", ask)
    monkeypatch.setattr(KafkaSource, "describe", lambda _: everything[0])
    monkeypatch.setattr(KafkaSource, "hidden", lambda *_: frozenset())
    monkeypatch.setattr(KafkaSource, "with_timestamps", lambda _, found, __: found)
    monkeypatch.setattr(KafkaSource, "unread", lambda *_: {})

    def codes(topic: str) -> dict[str, list[str]]:
        options = StatusOptions(data_dir=two.folder, bridge="none", patience=0.0, json=True, topic=topic)
        text, _ = status(replace(options, bootstrap_server="a:9092"))
        return {
            item["topic_id"]: [finding["code"] for finding in item["findings"]] for item in json.loads(text)["topics"]
        }

    assert codes("payments") == {two.b.topic_id.hex(): ["other_cluster"]}
    assert codes("orders") == {two.a.topic_id.hex(): ["topic_left"], two.namesake.topic_id.hex(): ["other_cluster"]}
    everything[0] = says(World(two.a.store, two.a.catalog, topic="stranger"))
    assert set(map(tuple, codes("orders").values())) == {("other_cluster",)}


def of_two_names(**changes: Any) -> Report:
    """`orders` of two clusters, one of which was asked."""
    mine = stored(**changes)
    other = stored(topic_id="cd" * 16, clusters=frozenset({"west"}), **changes)
    return assess(facts(mine, other, kafka=kafka(kafka_topic())))


def test_topics_of_one_name_are_told_apart_in_the_lines() -> None:
    text = as_text(of_two_names(quarantined={"bad_crc": 1}))
    for topic_id in ("ab" * 16, "cd" * 16):
        assert f"     orders (id {topic_id}): 1 batch withheld" in text
        assert f" orders-0 ({topic_id[:8]}) " in text
    alone = as_text(assess(facts(stored(quarantined={"bad_crc": 1}))))
    assert "     orders: 1 batch withheld" in alone
    assert " orders-0 " in alone
