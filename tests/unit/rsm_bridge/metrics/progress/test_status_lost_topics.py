"""Topics of which no index is left, or none can be read: their tables tell `tierberg status` of them, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError

from iceberg_catalog.tables.names import is_name_of, table_name
from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts, KafkaPartition, KafkaTopic
from rsm_bridge.status import gather, tables
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.store.read import patient, with_stored
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.status_facts import kafka, kafka_topic
from tests.unit.rsm_bridge.status.test_status_lost import path_of
from tests.worlds.maintain_support import World, make_world, published


@contextmanager
def answering(found: KafkaFacts | None) -> Iterator[None]:
    """Kafka's answer is made up; None: it is not asked."""

    def asked(_: Settings, facts: Facts) -> Facts:
        if found is None or facts.wanted is None:
            return replace(facts, kafka=found)
        return replace(facts, kafka=replace(found, topics={n: t for n, t in found.topics.items() if n == facts.wanted}))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gather, "_kafka", asked)
        yield


def told(
    folder: Path, *, topic: str | None = None, asked: KafkaFacts | None = None, level: str = "person", **options: Any
) -> list[tuple[str, str | None, str]]:
    """Code, topic and sentence of each finding of the level."""
    with answering(asked):
        given = StatusOptions(data_dir=folder, bridge="none", json=True, topic=topic, patience=0.0, **options)
        text, _ = status(given)
    document = json.loads(text)
    found = list(document["findings"])
    for item in document["topics"]:
        found += [*item["findings"], *(finding for part in item["partitions"] for finding in part["findings"])]
    return [(item["code"], item["topic"], item["said"]) for item in found if item["level"] == level]


def empty(world: World) -> None:
    """Every index object of the topic goes."""
    for key in world.stored("index"):
        path_of(world, key).unlink()


def lacks(world: World, table: str, rows: int) -> tuple[str, str, str]:
    said = f"kafka.{table} has {rows} rows, and the store has no index of topic id {world.topic_id.hex()}"
    return "store_lacks", world.topic, said


def of(world: World, **config: str) -> KafkaTopic:
    parts = {0: KafkaPartition(has_leader=True, log_start=0, end=world.log().end, stable_end=world.log().end)}
    return kafka_topic(topic=world.topic, topic_id=world.topic_id.hex(), config=config, partitions=parts)


def test_a_topic_that_lost_every_index_is_named_by_its_table(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    other = World(world.store, world.catalog, topic="other")
    for item in (world, other):
        published(item)
    assert not told(tmp_path)
    empty(world)
    said = lacks(world, "orders", 9)
    assert told(tmp_path) == told(tmp_path, topic="orders") == [said]
    assert not told(tmp_path, topic="other")
    assert told(tmp_path, asked=kafka(of(world), of(other))) == [said]
    assert told(tmp_path, asked=kafka(of(world, **{"remote.log.copy.disable": "true"}), of(other))) == [said]
    assert told(tmp_path, asked=kafka(of(other))) == [said], "whatever became of the topic in Kafka"
    with answering(None):
        accepted = StatusOptions(data_dir=tmp_path, bridge="none", patience=0.0, accept=("store_lacks:orders",))
        assert not status(accepted)[1]
    (damage,) = verify_store(None, tmp_path, "orders").damages
    assert "table kafka.orders: 9 rows, and the store has nothing of topic id" in damage
    assert not verify_store(None, tmp_path, "other").damages
    with pytest.raises(BridgeError, match="the store has nothing of a topic oders"):
        verify_store(None, tmp_path, "oders")


def test_under_any_name_that_its_table_may_have(tmp_path: Path) -> None:
    world = make_world(tmp_path, topic="a.b")
    second = World(world.store, world.catalog, topic="a-b")
    for item in (world, second):
        published(item)
    empty(second)
    name = second.loaded().name()[-1]
    assert name != "a_b"
    for asked in (None, kafka(of(world), of(second))):
        assert told(tmp_path, asked=asked) == told(tmp_path, topic="a-b", asked=asked) == [lacks(second, name, 9)]
        assert not told(tmp_path, topic="a.b", asked=asked)


def test_nothing_is_lost_of_what_kafka_deleted(tmp_path: Path) -> None:
    """Of an archive every row stays, and its tombstones may be gone."""
    world = make_world(tmp_path, graces=Graces(600.0, 0.0))
    archive = World(world.store, world.catalog, topic="archive", graces=Graces(600.0, 0.0))
    archive.rule(retention=lambda _: "keep")
    for item in (world, archive):
        item.delete(*published(item))
        item.publish()
        assert not told(tmp_path)
        item.later(3600)
        item.reclaim(item.publish())
    empty(archive)
    assert not world.stored("index")
    assert (len(world.offsets()), len(archive.offsets())) == (0, 9)
    for asked in (None, kafka(of(archive))):
        assert not told(tmp_path, asked=asked)
    assert not told(tmp_path, level="note")[1:], "kafka_not_asked"


def test_tables_of_another_store_are_not_ours(tmp_path: Path) -> None:
    """Unless Kafka has the topic: then it is the settings' store that is the wrong one."""
    ours = make_world(tmp_path, topic="ours")
    world = World(make_world(tmp_path / "theirs").store, ours.catalog)
    for item in (ours, world):
        published(item)
    assert not told(tmp_path)
    assert told(tmp_path, asked=kafka(of(world)))[0] == lacks(world, "orders", 9)


def test_what_came_since_the_store_was_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path)
    real = with_stored

    def read(*given: Any) -> Any:
        found = real(*given)
        published(world)
        return found

    monkeypatch.setattr(gather, "with_stored", read)
    assert not told(tmp_path)


def test_tables_that_were_not_looked_at_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, topic="z")
    others = [World(world.store, world.catalog, topic=name) for name in ("a", "b")]
    for item in (world, *others):
        published(item)
        empty(item)
    monkeypatch.setattr(tables, "STATUS_LOST_TABLES_MAX", 1)
    note = ("partly_read", None, "1 of 3 tables without a known topic were looked at")
    assert told(tmp_path) == [lacks(others[0], "a", 9)]
    assert note in told(tmp_path, level="note")
    assert told(tmp_path, topic="z") == [lacks(world, "z", 9)], "the likeliest first"
    assert told(tmp_path, asked=kafka(of(world)))[0] == lacks(world, "z", 9)
    monkeypatch.setattr(gather, "STATUS_CATALOG_SECONDS", -0.5)
    found = gather._tables(world.catalog, patient(_settings(tmp_path)), _nothing())
    assert found.tables_unread == "0 of 3 tables without a known topic were looked at"


def test_a_catalog_that_lists_nothing_is_asked_for_kafkas_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    published(world)
    empty(world)

    def refuse(*_: object) -> None:
        raise ForbiddenError("no right to list")

    monkeypatch.setattr(type(world.catalog), "list_tables", refuse)
    absent = kafka_topic(topic="absent", topic_id="0f" * 16)
    note = ("partly_read", None, "the catalog does not list the tables of kafka: no right to list")
    assert told(tmp_path, asked=kafka(of(world), absent)) == [lacks(world, "orders", 9)]
    assert note in told(tmp_path, asked=kafka(of(world)), level="note")
    assert note in told(tmp_path, level="note")


def test_a_table_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of one whose state is damaged too nobody can say that Kafka deleted its rows."""
    world = make_world(tmp_path)
    published(world)
    empty(world)
    with monkeypatch.context() as patched:
        patched.setattr(tables, "lost_rows", _away)
        assert not told(tmp_path)
        assert ("partly_read", None, "1 table cannot be read, first kafka.orders") in told(tmp_path, level="note")
    for path in (tmp_path / "store" / "state").rglob("*.json"):
        path.write_bytes(b"{")
    assert told(tmp_path) == [lacks(world, "orders", 9)]


@pytest.mark.parametrize("named", [False, True])
def test_a_topic_without_a_readable_index_has_its_name(tmp_path: Path, *, named: bool) -> None:
    """From Kafka, or from its table's owner; its id stood for it, and `--accept index_damaged:orders` met nothing."""
    world = make_world(tmp_path)
    other = World(world.store, world.catalog, topic="other")
    for item in (world, other):
        published(item, (3,))
    (key,) = world.stored("index")
    path_of(world, key).write_bytes(b"damaged")
    asked = kafka(of(world), of(other)) if named else None
    for topic in (None, "orders"):
        found = told(tmp_path, asked=asked, topic=topic)
        assert {(code, name) for code, name, _ in found} == {("index_damaged", "orders")}
        assert any(key in said for *_, said in found)
    with answering(asked):
        accepted = StatusOptions(data_dir=tmp_path, bridge="none", patience=0.0, accept=("index_damaged:orders",))
        assert not status(accepted)[1]


def test_names_that_a_topics_table_may_have() -> None:
    assert all(is_name_of(name, "a.b") for name in ("a_b", "a_b_0123abcd"))
    assert not any(is_name_of(name, "a.b") for name in ("a_b_", "a_b_0123abc", "a_b_0123abcde", "a_bc", "a", "xa_b"))
    assert all(is_name_of(name, "a.b", lambda _: "ruled") for name in ("ruled", "ruled_0123abcd", table_name("a.b")))


def _away(*_: object) -> int:
    raise StoreError("no answer")


def _settings(folder: Path) -> Settings:
    return load_settings(None, {"data_dir": folder})


def _nothing() -> Facts:
    return Facts(now_ms=0, freshness_target=None, publish_interval=1.0)
