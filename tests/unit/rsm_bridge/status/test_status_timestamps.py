"""Timestamps that tell no time, and a store that was not read: `tierberg status` calls nobody for them."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_bridge.metrics.progress.facts import Facts, Problem
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.text import as_json, as_text
from tests.support.status_facts import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    facts,
    kafka,
    kafka_partition,
    kafka_topic,
    stored,
    stored_partition,
)


def codes(found: Facts) -> set[CauseCode]:
    """Whatever is found can be printed, too."""
    report = assess(found)
    assert json.loads(as_json(report))["needs_person"] == (report.level() is Level.PERSON)
    assert as_text(report)
    return {item.code for item in report.all_findings()}


def world(pending_ms: int, newest_ms: int, newest_offset: int, tiered_ms: int | None, **config: str) -> Facts:
    """40 small records wait from offset 100 on; below them nothing, or records up to `tiered_ms`."""
    start = 0 if tiered_ms is not None else 100
    part = kafka_partition(
        log_start=start,
        end=140,
        stable_end=140,
        pending_ms=pending_ms,
        newest_ms=newest_ms,
        newest_offset=newest_offset,
        record_bytes=20,
    )
    names = {"segment.ms": str(HOUR)} | {key.replace("_", "."): value for key, value in config.items()}
    asked = kafka(kafka_topic(part, config=names))
    if tiered_ms is None:
        return facts(stored={}, kafka=asked)
    kept = stored_partition(record_ms=tiered_ms, tiered_ms=NOW - 5 * HOUR, source_bytes=2000)
    return facts(stored(kept), kafka=asked)


def test_events_of_three_days_in_one_open_segment_call_nobody() -> None:
    found = codes(world(NOW - 3 * DAY, NOW, 139, None))
    assert CauseCode.NOTHING_CLOSED in found
    assert CauseCode.COPY_STUCK not in found


def test_a_future_timestamp_that_is_tiered_calls_nobody() -> None:
    found = codes(world(NOW - HOUR, NOW + 100_000 * DAY, 50, NOW + 100_000 * DAY))
    assert CauseCode.NOTHING_CLOSED in found
    found = codes(world(NOW - 5 * HOUR, NOW * 1000, 120, NOW - 6 * HOUR))
    assert CauseCode.COPY_STUCK not in found


@pytest.mark.parametrize("tiered", [True, False])
def test_segments_of_records_from_the_future_that_nobody_copies_call_somebody(tiered: bool) -> None:
    """Four segments by their size; how long they have waited their timestamps do not say, the last copy does."""
    later = NOW + 400 * DAY
    config = {"segment_bytes": "200" if tiered else "20"}
    found = codes(world(later, later + HOUR, 139, NOW - 6 * HOUR if tiered else None, **config))
    assert CauseCode.COPY_STUCK in found


def test_records_from_the_future_after_a_copy_of_this_minute_call_nobody() -> None:
    part = kafka_partition(end=140, stable_end=140, pending_ms=NOW + DAY, newest_ms=NOW + DAY, newest_offset=139)
    kept = stored(stored_partition(tiered_ms=NOW - MINUTE, source_bytes=2000))
    found = codes(facts(kept, kafka=kafka(kafka_topic(part, config={"segment.bytes": "200"}))))
    assert CauseCode.COPYING in found
    assert CauseCode.COPY_STUCK not in found


def test_timestamps_that_tell_the_time_still_call_somebody() -> None:
    assert CauseCode.COPY_STUCK in codes(world(NOW - 4 * HOUR, NOW, 139, NOW - 4 * HOUR - 1))
    assert CauseCode.COPY_STUCK in codes(world(NOW - 4 * HOUR, NOW, 139, None, message_timestamp_type="LogAppendTime"))


@pytest.mark.parametrize("stable_ms", [None, -1, 0, NOW - 13_140 * DAY, NOW + 40 * 365 * DAY])
@pytest.mark.parametrize("known", [True, False])
def test_a_transaction_of_events_is_open_and_nobody_knows_since_when(stable_ms: int | None, known: bool) -> None:
    """It may have begun a minute ago. What it holds back is no copy that stands."""
    part = kafka_partition(
        log_start=0 if known else 100,
        end=140,
        stable_end=100,
        stable_ms=stable_ms,
        pending_ms=stable_ms,
        newest_ms=stable_ms,
    )
    asked = kafka(kafka_topic(part, config={"segment.ms": str(HOUR), "local.retention.ms": "1000"}))
    given = facts(stored(stored_partition()), kafka=asked) if known else facts(stored={}, kafka=asked)
    found = codes(given)
    assert CauseCode.OPEN_TRANSACTION in found
    assert CauseCode.COPY_STUCK not in found
    report = assess(given)
    assert report.level() is Level.WAITS
    assert "do not tell since when" in as_text(report, every_partition=True)


@pytest.mark.parametrize("config", [{}, {"message.timestamp.type": "LogAppendTime"}])
def test_an_old_transaction_still_calls_somebody(config: dict[str, str]) -> None:
    old = NOW - 50 * MINUTE
    part = kafka_partition(end=140, stable_end=110, stable_ms=old, pending_ms=old - 1, newest_ms=NOW)
    report = assess(facts(kafka=kafka(kafka_topic(part, config=config))))
    assert report.level() is Level.PERSON
    assert "began at offset 110 50 min ago" in as_text(report, every_partition=True)


def test_two_records_never_close_many_segments() -> None:
    part = kafka_partition(end=102, stable_end=102, pending_ms=NOW - 9 * DAY, newest_ms=NOW, newest_offset=101)
    kept = stored(stored_partition(record_ms=NOW - 10 * DAY))
    found = assess(facts(kept, kafka=kafka(kafka_topic(part, config={"segment.ms": str(HOUR)}))))
    assert "about 1 segment closed" in " ".join(item.said for item in found.all_findings())


@given(seed=st.integers(0, 2**32), spread=st.integers(0, HOUR), batches=st.integers(1, 60))
def test_a_log_that_copies_at_once_is_never_stuck(seed: int, spread: int, batches: int) -> None:
    """Kafka's rule: a batch whose newest record is segment.ms after the newest of the segment's first batch rolls."""
    chance = random.Random(seed)
    tiered: list[int] = []
    waiting: list[int] = []
    first: int | None = None
    for _ in range(batches):
        at = NOW - chance.randrange(3 * DAY)
        batch = [at - chance.randrange(spread + 1) for _ in range(3)]
        if first is not None and max(batch) - first > HOUR:
            tiered, waiting, first = tiered + waiting, [], None
        first = max(batch) if first is None else first
        waiting += batch
    whole = tiered + waiting
    part = kafka_partition(
        end=len(whole),
        stable_end=len(whole),
        pending_ms=waiting[0],
        newest_ms=max(whole),
        newest_offset=whole.index(max(whole)),
        record_bytes=20,
    )
    topic = kafka(kafka_topic(part, config={"segment.ms": str(HOUR)}))
    if not tiered:
        assert CauseCode.COPY_STUCK not in codes(facts(stored={}, kafka=topic))
        return
    kept = stored_partition(tiered_end=len(tiered), record_ms=max(tiered), tiered_ms=NOW - DAY, source_bytes=2000)
    assert CauseCode.COPY_STUCK not in codes(facts(stored(kept, table=None), kafka=topic))


@pytest.mark.parametrize("end", [140, 40_100])
def test_a_store_that_was_not_read_says_nothing_of_copies(end: int) -> None:
    part = kafka_partition(end=end, stable_end=end, pending_ms=NOW - 30 * DAY, newest_ms=NOW - 20 * DAY)
    away = facts(stored={}, kafka=kafka(kafka_topic(part)), store_problem=Problem("unavailable", "403"))
    assert codes(away) == {CauseCode.STORE_AWAY, CauseCode.STORE_NOT_READ}
    open_since = kafka_partition(end=end, stable_end=110, stable_ms=NOW - 5 * MINUTE)
    away = facts(stored={}, kafka=kafka(kafka_topic(open_since)), store_problem=Problem("unavailable", "403"))
    assert codes(away) == {CauseCode.STORE_AWAY, CauseCode.OPEN_TRANSACTION}
