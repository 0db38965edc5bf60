"""What `status` says of a mass delete over the hours in which what it left goes on its way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from iceberg_catalog.plan.types import FileRef, PartState, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.metrics.progress.facts import KafkaPartition, KafkaTopic
from rsm_bridge.status.causes import Level
from rsm_bridge.status.delayed_deletes import delayed_deletes
from rsm_bridge.status.deletes import delayed_delete
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment, KnownTombstone, SegmentCounts
from tests.worlds.plan_support import plain, seg

MIB = 1024 * 1024
HOUR = 3_600_000
START = 1_800_000_000_000
TOPIC = b"t" * 16
SIZE = 100 * MIB


@dataclass
class Life:
    """One partition: segments of 100 offsets and 100 MiB.

    untiered: offsets on the broker alone. restored: index keys of what was undeleted. stays_ms: `table_retention`.
    """

    config: dict[str, int]
    now_ms: int = START
    segments: list[KnownSegment] = field(default_factory=list)
    tiered: int = 0
    log_start: int = 0
    untiered: int = 0
    held_ms: int = 0
    restored: set[str] = field(default_factory=set)
    stays_ms: int = 0

    def pass_by(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def copy(self, count: int = 1, record_ms: int | None = None) -> None:
        for _ in range(count):
            base = 100 * self.tiered
            segment = replace(
                seg(f"s{self.tiered}", [plain(base, base + 99)]), main=FileRef(first=base, last=base + 99, rows=100)
            )
            key = IndexKey(
                topic_id=TOPIC, partition=0, last=base + 99, base=base, segment_id=self.tiered.to_bytes(16, "big")
            )
            counts = SegmentCounts(
                record_ms=self.now_ms if record_ms is None else record_ms,
                source_bytes=SIZE,
                quarantined=(),
                copied_ms=self.now_ms,
            )
            listed, owner = ListedObject(str(key), 1, self.now_ms), Owner("c", "t", TOPIC)
            self.segments.append(
                KnownSegment(
                    key=key,
                    listed=listed,
                    owner=owner,
                    value_format="raw",
                    segment=segment,
                    data=None,
                    kept=None,
                    deletion=None,
                    counts=counts,
                )
            )
            self.tiered += 1

    def delete(self, count: int = 1) -> None:
        gone = [item for item in self.segments if item.live][:count]
        for item in gone:
            deletion = KnownTombstone(kind=SegmentState.DELETED, time_ms=self.now_ms, had_index=True)
            self.segments[self.segments.index(item)] = replace(item, deletion=deletion)
            self.log_start = max(self.log_start, item.key.last + 1)

    def reclaim(self) -> None:
        """Tombstones of no mass delete go."""
        held = {item.listed.key for item in self.segments if item.deletion and item.deletion.time_ms == self.held_ms}
        self.segments = [item for item in self.segments if item.live or item.listed.key in held]

    def mass(self, count: int) -> None:
        self.held_ms = self.now_ms
        self.delete(count)

    def level(self) -> Level | None:
        """Of the worst of what is said; None: nothing is."""
        states = {0: PartState(frontier=100 * self.tiered, known_end=100 * self.tiered)}
        config = {name.replace("_", "."): str(value) for name, value in self.config.items()}
        end = max(100 * self.tiered, self.log_start) + self.untiered
        there = {0: KafkaPartition(has_leader=True, log_start=self.log_start, end=end)}
        topic = KafkaTopic(topic="t", topic_id=TOPIC.hex(), internal=False, config=config, partitions=there)
        found = delayed_deletes(self.segments, states, 86_400, restored=self.restored, stays_ms=self.stays_ms)
        levels = {delayed_delete(held, topic, "t", self.now_ms, asked=True).level for held in found}
        return Level.PERSON if Level.PERSON in levels else Level.NOTE if levels else None


def test_what_size_has_taken_is_usual_while_what_it_left_goes_and_is_reclaimed() -> None:
    life = Life({"retention_ms": 168 * HOUR, "retention_bytes": 2 * SIZE})
    life.copy(6)
    life.pass_by(HOUR // 60)
    life.mass(4)
    assert life.level() is Level.NOTE
    for _ in range(10):
        life.pass_by(2 * HOUR)
        life.copy()
        life.delete()
        life.pass_by(HOUR // 6)
        life.reclaim()
        assert life.level() is Level.NOTE


def test_a_burst_that_size_has_taken_is_usual_when_time_has_taken_the_rest() -> None:
    life = Life({"retention_ms": 12 * HOUR, "retention_bytes": 2 * SIZE})
    life.copy(6)
    life.pass_by(HOUR // 60)
    life.mass(4)
    life.pass_by(12 * HOUR)
    life.delete(2)
    assert life.level() is Level.NOTE
    life.pass_by(HOUR)
    life.reclaim()
    assert life.level() is Level.NOTE


def test_producers_or_a_bridge_whose_clocks_are_minutes_off() -> None:
    life = Life({"retention_ms": 168 * HOUR, "retention_bytes": 2 * SIZE})
    life.copy(6, record_ms=START + HOUR // 12)
    life.pass_by(HOUR // 60)
    life.mass(4)
    assert life.level() is Level.NOTE


def test_records_deleted_by_hand_in_what_is_not_tiered_yet() -> None:
    """Retention lets the log start rise to the end of a tiered segment, no further."""
    life = Life({"retention_ms": 168 * HOUR, "retention_bytes": SIZE}, untiered=15)
    life.copy(1)
    life.pass_by(HOUR)
    life.mass(1)
    assert life.level() is Level.NOTE
    life.log_start, life.untiered = 115, 0
    for untiered in (0, 1, 40):
        life.untiered = untiered
        assert life.level() is Level.PERSON


def test_records_deleted_by_hand_stay_a_mistake_until_as_much_has_come_as_may_stay() -> None:
    life = Life({"retention_ms": 168 * HOUR, "retention_bytes": 5 * SIZE})
    life.copy(5)
    life.pass_by(HOUR)
    life.mass(5)
    assert life.level() is Level.PERSON
    life.pass_by(HOUR)
    life.copy(3)
    assert life.level() is Level.PERSON


@pytest.mark.parametrize("ahead_ms", [0, HOUR // 4, HOUR, 24 * HOUR])
def test_what_size_has_taken_of_producers_whose_clocks_are_ahead(ahead_ms: int) -> None:
    life = Life({"retention_ms": 168 * HOUR, "retention_bytes": 2 * SIZE})
    for _ in range(6):
        life.pass_by(HOUR // 60)
        life.copy(record_ms=life.now_ms - HOUR // 12 + ahead_ms)
    life.mass(4)
    assert life.level() is Level.NOTE
    for _ in range(20):
        life.pass_by(HOUR)
        life.copy(record_ms=life.now_ms - HOUR // 12 + ahead_ms)
        life.delete()
        life.reclaim()
        assert life.level() is Level.NOTE


def test_a_table_retention_of_days_loses_what_is_older_when_kafka_deletes_it() -> None:
    life = Life({"retention_ms": 30 * 24 * HOUR}, stays_ms=3 * 24 * HOUR)
    for _ in range(10):
        life.copy()
        life.pass_by(24 * HOUR)
    life.mass(10)
    assert life.level() is Level.PERSON
    life.stays_ms = 90 * 24 * HOUR
    assert life.level() is None


def test_undeleted_rows_that_leave_again() -> None:
    """With a mistake they are a matter for a person, by themselves (`--undo`) a note."""
    life = Life({"retention_ms": 168 * HOUR})
    life.copy(10)
    life.restored = {item.listed.key for item in life.segments}
    life.pass_by(48 * HOUR)
    life.copy(3)
    assert life.level() is None
    life.mass(10)
    assert life.level() is Level.NOTE
    life.delete()
    assert life.level() is Level.PERSON
