"""What somebody deleted, cut or emptied in the store: `tierberg status` names it, also where Kafka was not asked."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.progress.facts import Gap, KafkaFacts
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.report import Finding
from rsm_bridge.status.store.facts import head_of, stored_topic
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.status_facts import facts, kafka, kafka_partition, kafka_topic, stored, stored_partition
from tests.worlds.maintain_support import NAMESPACE, World, make_world, published
from tests.worlds.status_support import read_topics


def seen(world: World, folder: Path, asked: KafkaFacts | None = None) -> list[Finding]:
    """What a report calls somebody for, of the world's topic alone."""
    settings = load_settings(None, {"data_dir": folder})
    (read,) = read_topics(world.store, None, math.inf)
    found = stored_topic(read, head_of(world.catalog, NAMESPACE), world.store, settings)
    report = assess(facts(found, now_ms=world.now_ms(), kafka=asked))
    return [item for item in report.all_findings() if item.level is Level.PERSON]


def path_of(world: World, key: str) -> Path:
    return Path(world.store.uri(key).removeprefix("file://"))


def lose(world: World, number: int) -> None:
    """An index object goes; they are listed by their last offsets."""
    path_of(world, sorted(world.stored("index"))[number]).unlink()


def test_the_lowest_index_is_missed_by_its_rows(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    assert not seen(world, tmp_path)
    lose(world, 0)
    (gap,) = seen(world, tmp_path)
    assert (gap.code, gap.said) == (CauseCode.GAP_UNEXPLAINED, "no index covers offsets 0 to 2")
    lose(world, 0)
    (gap,) = seen(world, tmp_path)
    assert gap.said == "no index covers offsets 0 to 5"


def test_an_index_that_a_deletion_lies_below_is_missed(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    first, *_ = published(world)
    world.delete(first)
    world.publish()
    lose(world, 1)
    (gap,) = seen(world, tmp_path)
    assert gap.said == "no index covers offsets 3 to 5"


def test_nothing_is_missed_of_what_kafka_deleted_or_withdrew(tmp_path: Path) -> None:
    """By retention, reclaimed or not, published or not, and of a copy whose rows wait for the next one."""
    world = make_world(tmp_path, graces=Graces(600.0, 0.0))
    segments = published(world, (3, 3, 3, 3))
    world.delete(segments[0])
    assert not seen(world, tmp_path)
    world.publish()
    assert not seen(world, tmp_path)
    world.later(3600)
    world.reclaim(world.publish())
    assert len(world.stored("index")) == 3, "the tombstone is reclaimed"
    assert not seen(world, tmp_path)
    world.withdraw(segments[1])
    world.publish()
    assert not seen(world, tmp_path)


def test_what_is_tiered_and_published_while_status_looks_is_no_gap(tmp_path: Path) -> None:
    """Indexes are listed before the table's head is read: a slow catalog, or a busy topic, is all it takes."""
    world = make_world(tmp_path)
    published(world)
    settings = load_settings(None, {"data_dir": tmp_path})
    (read,) = read_topics(world.store, None, math.inf)
    world.copy(3)
    world.publish()
    found = stored_topic(read, head_of(world.catalog, NAMESPACE), world.store, settings)
    assert found.unindexed == {}
    assert found.table is not None
    assert found.table.frontiers[0] > max(item.key.last for item in read.segments)


def test_what_is_tiered_while_status_looks_hides_no_gap_below(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    settings = load_settings(None, {"data_dir": tmp_path})
    lose(world, 2)
    (read,) = read_topics(world.store, None, math.inf)
    world.copy(3)
    world.publish()
    found = stored_topic(read, head_of(world.catalog, NAMESPACE), world.store, settings)
    assert found.unindexed == {0: Gap(6, 8, explained=False)}


def test_kafkas_log_start_says_it_once() -> None:
    """What rows tell and what the log start tells is one gap; below the log start it is none."""
    part = stored_partition(start=30, covered_from=30, gaps=(Gap(5, 29, explained=False),))
    for log_start, said in ((0, "offsets 0 to 29"), (10, "offsets 10 to 29"), (30, "")):
        report = assess(facts(stored(part), kafka=kafka(kafka_topic(kafka_partition(log_start=log_start)))))
        found = [item for item in report.all_findings() if item.code is CauseCode.GAP_UNEXPLAINED]
        assert [item.said for item in found] == ([f"no index covers {said}"] if said else [])


@pytest.mark.parametrize("root", ["data", "kept"])
def test_an_object_that_was_cut_is_lost(tmp_path: Path, root: str) -> None:
    world = make_world(tmp_path)
    published(world)
    world.log().write(3)
    world.copy_range(9, 11, mode="verbatim")
    key = max(world.stored(root))
    whole = path_of(world, key).read_bytes()
    for left in (0, 7, len(whole)):
        path_of(world, key).write_bytes(whole[:left])
        lost = [f"1 object, first {key}, {left} of {len(whole):,} bytes"] if left < len(whole) else []
        assert [item.said for item in seen(world, tmp_path)] == lost
