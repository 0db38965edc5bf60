"""When a notice makes a topic due: an early one is never held up by one that may wait."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rsm_bridge.limits import LATE_COPY_SECONDS
from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.tombstone import Tombstone
from tests.support.bridge_process import publisher_of, test_settings

TOPIC = b"t" * 16


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return publisher_of(test_settings(tmp_path, publish_interval="5s", reclaim_grace="0s"))


def due_in(publisher: Publisher) -> float:
    return publisher._topics[TOPIC].due - time.monotonic()


def test_a_notice_that_may_wait_waits_longer(publisher: Publisher) -> None:
    publisher.notify(TOPIC, later=15.0)
    assert 14 < due_in(publisher) <= 15


def test_a_later_notice_does_not_put_off_an_earlier_one(publisher: Publisher) -> None:
    publisher.notify(TOPIC)
    publisher.notify(TOPIC, later=15.0)
    assert due_in(publisher) <= 5


def test_an_urgent_notice_overtakes_one_that_may_wait(publisher: Publisher) -> None:
    publisher.notify(TOPIC, later=15.0)
    publisher.notify(TOPIC)
    assert due_in(publisher) <= 5
    assert publisher._topics[TOPIC].waiting_since <= time.monotonic()


def test_tombstones_that_come_due_one_by_one_are_reclaimed_together(publisher: Publisher) -> None:
    ages = (LATE_COPY_SECONDS + 1, LATE_COPY_SECONDS - 2.0, LATE_COPY_SECONDS - 2.2)
    for number, age in enumerate(ages):
        stone = Tombstone(
            kind="withdrawn", time_ms=int((time.time() - age) * 1000), topic="orders", cluster_name="test"
        )
        assert publisher.store.put_if_absent(
            str(IndexKey(topic_id=TOPIC, partition=0, last=9, base=0, segment_id=b"%016d" % number)), stone.encode()
        )
    publisher.notify(TOPIC)
    topic = publisher._topics[TOPIC]
    topic.due = float("inf")
    publisher._run(TOPIC, topic)
    assert topic.failures == 0
    assert len(list(publisher.store.list_after("index/"))) == 2
    assert 4 < due_in(publisher) <= 5


def test_running_copies_are_counted_by_segment() -> None:
    copies = RunningCopies()
    with copies.of(b"a"):
        with copies.of(b"a"):
            assert b"a" in copies
        assert b"a" in copies
        assert b"b" not in copies
    assert b"a" not in copies
