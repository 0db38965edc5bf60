"""What `tierberg status` finds in a store and a table as bridges leave them, beside a Kafka that is made up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.progress.facts import KafkaFacts, KafkaPartition, KafkaTopic
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.gather import Wanted, gather
from rsm_bridge.status.report import NOTHING_ACCEPTED, Accepted, Finding, Report
from rsm_bridge.status.store.topic import ReadTopic, read_topic, readers
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.topic_segments import indexed_topic_ids
from tests.support.status_facts import BROKER, CONFIG
from tests.worlds.maintain_support import World

HOUR_MS = 3_600_000


def read_topics(store: ObjectStore, wanted: str | None, ends_at: float) -> Iterator[ReadTopic]:
    """Every topic of the store that `read_topic` finds, with its arguments, one after the other.

    Raises:
        StoreError: the store does not answer.
    """
    with readers() as pool:
        for topic_id in indexed_topic_ids(store):
            found = read_topic(store, topic_id, wanted, ends_at, pool)
            if found is not None:
                yield found


def looked(folder: Path, *topics: KafkaTopic, **rules: Any) -> Report:
    """One look; without topics Kafka is not asked. `rules`: settings beside `data_dir`."""
    settings = load_settings(None, {"data_dir": folder, **rules})
    facts = gather(settings, Wanted(None, None, 30.0))
    if topics:
        facts = replace(facts, kafka=KafkaFacts({item.topic: item for item in topics}, BROKER))
    return assess(facts)


def in_kafka(world: World, changed: dict[int, dict[str, Any]] | None = None, **config: str) -> KafkaTopic:
    """The topic as Kafka has it: whole logs, all records an hour old. `changed`: of partitions."""
    newest_ms = int(time.time() * 1000) - HOUR_MS
    parts: dict[int, KafkaPartition] = {}
    for number, log in world.logs.items():
        part = KafkaPartition(has_leader=True, log_start=0, end=log.end, stable_end=log.end, newest_ms=newest_ms)
        parts[number] = replace(part, **(changed or {}).get(number, {}))
    return KafkaTopic(
        topic=world.topic, topic_id=world.topic_id.hex(), internal=False, config={**CONFIG, **config}, partitions=parts
    )


def persons(report: Report, accepted: Accepted = NOTHING_ACCEPTED) -> set[tuple[str, int | None]]:
    """(cause, partition) of what needs somebody."""
    urgent = [item for item in report.all_findings() if item.level is Level.PERSON and not accepted.has(item)]
    return {(str(item.code), item.partition) for item in urgent}


def of(report: Report, code: CauseCode) -> list[Finding]:
    """Findings of one cause."""
    return [item for item in report.all_findings() if item.code is code]


def indexes(world: World, partition: int = 0) -> list[Path]:
    """The index objects of a partition, ascending."""
    keys = [key for key in world.stored("index") if f"/{partition}/" in key]
    return [Path(world.store.uri(key).removeprefix("file://")) for key in sorted(keys)]


def damage(path: Path, at: int | None = None) -> None:
    """Turns the bits of one byte, in the middle unless said."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    path.write_bytes(data)
