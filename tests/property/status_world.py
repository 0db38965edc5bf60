"""`tierberg status` on a real store and table, with Kafka's side made up, while something happens in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from converter.types import SegmentMetadata
from iceberg_catalog.commit.head import Head
from iceberg_catalog.plan.merge import MergeLimits
from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts, KafkaPartition, KafkaTopic, StoredTopic
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import Level
from rsm_bridge.status.report import Report
from rsm_bridge.status.store.facts import head_of, stored_topic
from rsm_bridge.status.text import as_json, as_text
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.changing_store import ChangingStore
from tests.support.status_facts import BROKER, CONFIG
from tests.worlds.maintain_support import DAY, NAMESPACE, World, make_world
from tests.worlds.status_support import read_topics

MERGING = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=2, files_max=6, age_ms=0, span_ms=DAY * 1000)


@dataclass
class StatusWorld:
    """A topic of two partitions that copies, publishes, deletes, merges and reclaims as it is told."""

    folder: Path
    world: World = field(init=False)
    live: list[SegmentMetadata] = field(default_factory=list)
    gone: bool = False

    def __post_init__(self) -> None:
        self.world = make_world(self.folder, graces=Graces(0.0, 0.0), merging=MERGING)
        vars(self.world.store)["single_process"] = False

    def copy(self, partition: int = 0) -> None:
        self.live.append(self.world.copy(3, partition))

    def open_transaction(self, partition: int = 0) -> None:
        """A segment whose rows wait for a marker: its batches are read by every look."""
        log = self.world.log(partition)
        first = log.end
        log.write(2, producer_id=7)
        self.live.append(self.world.copy_range(first, log.end - 1, partition))

    def end_transaction(self, partition: int = 0) -> None:
        log = self.world.log(partition)
        first = log.end
        log.end_transaction(7, commit=True)
        self.live.append(self.world.copy_range(first, log.end - 1, partition))

    def retention(self, partition: int = 0) -> None:
        """The oldest segment goes."""
        mine = [segment for segment in self.live if segment.partition == partition]
        for segment in sorted(mine, key=lambda item: item.start_offset)[:1]:
            self.world.delete(segment)
            self.live.remove(segment)

    def delete_topic(self) -> None:
        for segment in self.live:
            self.world.delete(segment)
        self.live.clear()
        self.gone = True

    def withdraw(self, partition: int = 0) -> None:
        """A copy whose reply was lost is taken back."""
        log = self.world.log(partition)
        first = log.end
        log.write(2)
        self.world.withdraw(self.world.copy_range(first, log.end - 1, partition))
        self.live.append(self.world.copy_range(first, log.end - 1, partition))

    def publish(self) -> None:
        self.world.publish()

    def reclaim(self) -> None:
        self.world.later(2 * DAY)
        self.world.reclaim(self.world.publish())

    def maintain(self) -> None:
        self.world.later(2 * DAY)
        self.world.maintain()

    def status(self, meanwhile: Mapping[int, Callable[[], object]] | None = None) -> tuple[Report, int]:
        """The report, and how often store and catalog were asked for it."""
        store = ChangingStore(self.world.store, meanwhile or {})
        settings = load_settings(None, {"data_dir": self.folder})
        find = head_of(self.world.catalog, NAMESPACE)

        def head(known: KnownSegment) -> Head | None:
            store.tick()
            return find(known)

        seen: dict[str, StoredTopic] = {}
        asked = cast(ObjectStore, store)
        for topic in read_topics(asked, None, time.monotonic() + 60):
            seen[topic.topic_id.hex()] = stored_topic(topic, head, asked, settings)
        facts = Facts(
            now_ms=int(time.time() * 1000), freshness_target=None, publish_interval=1.0, stored=seen, kafka=self.kafka()
        )
        report = assess(facts)
        assert as_json(report)
        assert as_text(report)
        return report, store.asked

    def kafka(self) -> KafkaFacts:
        """Kafka is asked last."""
        if self.gone:
            return KafkaFacts({}, BROKER)
        now_ms = int(time.time() * 1000)
        partitions = {}
        for number, log in self.world.logs.items():
            starts = [segment.start_offset for segment in self.live if segment.partition == number]
            start = min(starts, default=log.end)
            partitions[number] = KafkaPartition(
                has_leader=True,
                log_start=start,
                end=log.end,
                stable_end=log.end,
                newest_ms=now_ms,
                pending_ms=now_ms,
                record_bytes=20,
            )
        topic = KafkaTopic(
            topic=self.world.topic,
            topic_id=self.world.topic_id.hex(),
            internal=False,
            config=CONFIG,
            partitions=partitions,
        )
        return KafkaFacts({topic.topic: topic}, BROKER)

    def key_of(self, segment: SegmentMetadata) -> str:
        return str(index_key(segment))

    def spoil(self, key: str, at: int) -> None:
        """One byte of an object changes; its length does not."""
        path = self.folder / "store" / key
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)


def alarms(report: Report) -> dict[str, str]:
    """What would call somebody, but for the mass delete, which really was one."""
    return {
        str(item.code): item.said
        for item in report.all_findings()
        if item.level is Level.PERSON and item.code != "mass_delete"
    }
