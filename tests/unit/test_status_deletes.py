"""Which mass deletes are a matter for a person: not those that Kafka's retention makes by itself."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_bridge.progress_causes import Level
from rsm_bridge.progress_deletes import held_delete
from rsm_bridge.progress_facts import HeldDelete, HeldPart, KafkaTopic

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
MIB = 1024 * 1024
GIB = 1024 * MIB
NOW = 1_800_000_000_000

Part = tuple[int, int, int, int]


def level(
    ages: tuple[int, int] | None,
    *parts: Part,
    asked: bool = True,
    gone: bool = False,
    **config: int,
) -> Level:
    """Of a mass delete. parts: HeldPart of each partition. config: of the topic, with _ for the dots."""
    held = HeldDelete(3, 900, 1000, NOW - HOUR, NOW + 23 * HOUR, ages, tuple(HeldPart(*part) for part in parts))
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    kafka = KafkaTopic("t", "ab" * 16, internal=False, config=settings, partitions={}) if asked and not gone else None
    return held_delete(held, kafka, "t", NOW, asked=asked).level


ONE = (1, 100 * MIB, 100 * MIB, 0)
#: What a year brings: ages of the newest record of each segment that went, partitions, what Kafka says.
USUAL: dict[str, tuple[tuple[int, int], list[Part], dict[str, Any]]] = {
    "a segment a week, which goes after a week": ((WEEK + MINUTE, WEEK + 6 * MINUTE), [ONE], {"retention_ms": WEEK}),
    "a segment a week, Kafka is not asked": ((WEEK + MINUTE, WEEK + 6 * MINUTE), [ONE], {"asked": False}),
    "fifty partitions of one segment each, of one day": ((WEEK, 8 * WEEK), [ONE] * 50, {"asked": False}),
    "after two days of a broker that was away": (
        (WEEK, WEEK + 2 * DAY),
        [(9, GIB, GIB // 8, 0)],
        {"retention_ms": WEEK},
    ),
    "after two days away, Kafka is not asked": ((WEEK, WEEK + 2 * DAY), [(9, GIB, GIB // 8, 0)], {"asked": False}),
    "much traffic of which little may stay": (
        (5 * SECOND, MINUTE),
        [(0, 0, MIB, MIB)],
        {"retention_bytes": MIB, "segment_bytes": MIB, "retention_ms": WEEK},
    ),
    "much traffic, Kafka is not asked": ((5 * SECOND, MINUTE), [(0, 0, MIB, MIB)], {"asked": False}),
    "a burst in which all that was there went": (
        (HOUR, 30 * DAY),
        [(4, 4 * MIB, MIB, 4 * MIB)],
        {"retention_bytes": 4 * MIB, "segment_bytes": MIB, "retention_ms": -1},
    ),
    "one segment of a GiB where a GiB may stay": (
        (DAY, 2 * DAY),
        [(2, 2 * GIB, GIB, 0)],
        {"retention_bytes": GIB, "segment_bytes": GIB, "retention_ms": WEEK},
    ),
}
MISTAKES: dict[str, tuple[tuple[int, int] | None, list[Part], dict[str, Any]]] = {
    "retention lowered to an hour": ((2 * HOUR, WEEK), [(9, GIB, GIB // 8, 0)], {"retention_ms": HOUR}),
    "lowered, Kafka is not asked": ((2 * HOUR, WEEK), [(9, GIB, GIB // 8, 0)], {"asked": False}),
    "retention lowered to a GiB": (
        (HOUR, WEEK),
        [(99, 99 * GIB, GIB, GIB)],
        {"retention_bytes": GIB, "segment_bytes": GIB, "retention_ms": WEEK},
    ),
    "records deleted by hand": ((HOUR, 2 * HOUR), [ONE], {"retention_ms": WEEK, "retention_bytes": -1}),
    "the same, where much more may stay": (
        (HOUR, 2 * HOUR),
        [ONE],
        {"retention_ms": WEEK, "retention_bytes": 100 * GIB, "segment_bytes": GIB},
    ),
    "the topic was deleted": ((HOUR, 2 * HOUR), [ONE], {"gone": True}),
    "records without a time": (None, [(9, GIB, GIB // 8, 0)], {"retention_ms": WEEK}),
}


@pytest.mark.parametrize("name", USUAL)
def test_what_retention_takes_calls_nobody(name: str) -> None:
    ages, parts, how = USUAL[name]
    assert level(ages, *parts, **how) is Level.NOTE


@pytest.mark.parametrize("name", MISTAKES)
def test_what_it_would_not_take_does(name: str) -> None:
    ages, parts, how = MISTAKES[name]
    assert level(ages, *parts, **how) is Level.PERSON
