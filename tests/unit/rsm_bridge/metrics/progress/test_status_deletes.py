"""Which mass deletes are a matter for a person: not those that Kafka's retention makes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rsm_bridge.limits import RETENTION_LATE_SECONDS
from rsm_bridge.metrics.progress.facts import DelayedDelete, DelayedPart, DelayedSegment, KafkaPartition, KafkaTopic
from rsm_bridge.status.causes import Level
from rsm_bridge.status.deletes import delayed_delete

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
MIB = 1024 * 1024
GIB = 1024 * MIB
NOW = 1_800_000_000_000


@dataclass
class Gone:
    """Segments of one partition that went at once.

    ages: of each one's newest record. tiered: for how long each had been; None: as long. config: of the topic, with _
    for dots; None: Kafka was not asked. untiered: bytes of what lies on the broker alone. pause: the
    longest between two copies.
    """

    ages: Sequence[int | None]
    config: dict[str, int] | None = field(default_factory=dict)
    tiered: Sequence[int] | None = None
    size: int = 100 * MIB
    live: int = 0
    untiered: int = 0
    pause: int = 0
    partitions: int = 1
    deleted: bool = False

    @property
    def level(self) -> Level:
        tiered = self.tiered or [age or HOUR for age in self.ages]
        went = tuple(
            DelayedSegment(self.size, age, since, old=since >= 10 * MINUTE)
            for age, since in zip(self.ages, tiered, strict=True)
        )
        per_offset = self.size / 100
        parts = tuple(
            DelayedPart(
                partition=n,
                segments=went,
                left_bytes=self.live,
                largest_bytes=self.size,
                tiered_end=2000,
                bytes_per_offset=per_offset,
                pause_ms=self.pause,
            )
            for n in range(self.partitions)
        )
        held = DelayedDelete(segments=len(went), rows=900, last_ms=NOW - HOUR, due_ms=NOW + 23 * HOUR, parts=parts)
        asked = self.config is not None
        settings = {name.replace("_", "."): str(value) for name, value in (self.config or {}).items()}
        end = 2000 + int(self.untiered / per_offset)
        there = {
            n: KafkaPartition(has_leader=True, log_start=2000 - bool(self.live), end=end)
            for n in range(self.partitions)
        }
        topic = KafkaTopic(topic="t", topic_id="ab" * 16, internal=False, config=settings, partitions=there)
        kafka = topic if asked and not self.deleted else None
        return delayed_delete(held, kafka, "t", NOW, asked=asked).level


#: What a year brings.
USUAL = {
    "a segment a week, which goes after a week": Gone([WEEK + 6 * MINUTE], {"retention_ms": WEEK}),
    "the same, and Kafka is not asked": Gone([WEEK + 6 * MINUTE], None),
    "fifty partitions of a segment each": Gone([WEEK + HOUR], None, partitions=50),
    "two clocks": Gone([WEEK - 5 * MINUTE] * 3, {"retention_ms": WEEK}),
    "after two days of a broker that was away": Gone([WEEK, WEEK + DAY, WEEK + 2 * DAY], {"retention_ms": WEEK}),
    "the same, and Kafka is not asked as well": Gone([WEEK, WEEK + DAY, WEEK + 2 * DAY], None),
    "an hour may stay, and the bridge was away for a weekend": Gone(
        [HOUR, 6 * HOUR, 60 * HOUR], {"retention_ms": HOUR}, pause=60 * HOUR
    ),
    "the same, and nobody asked Kafka": Gone([HOUR, 6 * HOUR, 60 * HOUR], None, pause=60 * HOUR),
    "a weekly batch that may stay for three days, tiered with the next": Gone(
        [WEEK] * 4, {"retention_ms": 3 * DAY}, tiered=[MINUTE] * 4
    ),
    "a daily batch, twelve hours": Gone([DAY] * 3, {"retention_ms": 12 * HOUR}, tiered=[MINUTE] * 3),
    "records of years ago are loaded": Gone([400 * DAY, 900 * DAY], {"retention_ms": WEEK}, tiered=[MINUTE] * 2),
    "much traffic of which little may stay": Gone(
        [5 * SECOND, MINUTE] * 5, {"retention_bytes": MIB, "retention_ms": WEEK}, size=MIB, live=MIB
    ),
    "the same without Kafka": Gone([5 * SECOND, MINUTE] * 5, None, size=MIB, live=MIB),
    "a burst in which all that was there went": Gone(
        [HOUR, DAY, WEEK, 30 * DAY], {"retention_bytes": 4 * MIB, "retention_ms": -1}, size=MIB, live=4 * MIB
    ),
    "a GiB may stay, in segments of a GiB": Gone(
        [DAY, 2 * DAY], {"retention_bytes": GIB, "retention_ms": WEEK}, size=GIB, untiered=GIB
    ),
    "by size, while a long backlog is not tiered yet": Gone(
        [DAY, 2 * DAY, 3 * DAY], {"retention_bytes": 300 * MIB, "retention_ms": WEEK}, untiered=10 * GIB
    ),
    "some by time, some by size": Gone(
        [DAY, WEEK + HOUR, WEEK + HOUR], {"retention_bytes": 150 * MIB, "retention_ms": WEEK}, live=150 * MIB
    ),
}
MISTAKES = {
    "retention lowered to an hour": Gone([2 * HOUR, DAY, 3 * DAY, WEEK], {"retention_ms": HOUR}),
    "the same, and Kafka is not asked": Gone([2 * HOUR, DAY, 3 * DAY, WEEK], None),
    "retention lowered to a second": Gone([HOUR, 2 * DAY], {"retention_ms": SECOND}),
    "the same, of half a day of segments": Gone([HOUR, 12 * HOUR], {"retention_ms": SECOND}, pause=HOUR),
    "retention lowered to a GiB": Gone(
        [HOUR] * 50 + [WEEK] * 49, {"retention_bytes": GIB, "retention_ms": 2 * WEEK}, size=GIB, live=GIB
    ),
    "records deleted by hand": Gone([HOUR, 2 * HOUR], {"retention_ms": WEEK, "retention_bytes": -1}),
    "the same, where much more may stay": Gone([HOUR, 2 * HOUR], {"retention_ms": WEEK, "retention_bytes": 100 * GIB}),
    "the same, where more may stay than was ever there": Gone(
        [HOUR] * 100, {"retention_ms": WEEK, "retention_bytes": GIB}, size=5 * MIB
    ),
    "the same, of two segments where two may stay": Gone(
        [HOUR, 2 * HOUR], {"retention_ms": WEEK, "retention_bytes": 2 * GIB}, size=GIB
    ),
    "retention lowered to an hour, where more may stay than was ever there": Gone(
        [2 * HOUR, 3 * DAY, WEEK], {"retention_ms": HOUR, "retention_bytes": 2 * GIB}, live=100 * MIB
    ),
    "the topic was deleted": Gone([HOUR, 2 * HOUR], {"retention_ms": WEEK}, deleted=True),
    "nothing goes by itself": Gone([WEEK], {"retention_ms": -1}),
    "records without a time": Gone([None, None], {"retention_ms": WEEK}),
}


@pytest.mark.parametrize("name", USUAL)
def test_what_retention_takes_calls_nobody(name: str) -> None:
    assert USUAL[name].level is Level.NOTE


@pytest.mark.parametrize("name", MISTAKES)
def test_what_it_would_not_take_does(name: str) -> None:
    assert MISTAKES[name].level is Level.PERSON


def test_a_segment_is_late_only_from_when_it_could_have_gone() -> None:
    late = HOUR + int(1000 * RETENTION_LATE_SECONDS)
    assert Gone([late, late], {"retention_ms": HOUR}).level is Level.NOTE
    assert Gone([late + 1, late], {"retention_ms": HOUR}).level is Level.PERSON
    assert Gone([late + DAY, late], {"retention_ms": HOUR}, tiered=[HOUR, HOUR]).level is Level.NOTE
