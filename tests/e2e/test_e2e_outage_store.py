"""A store that takes two seconds for each request, refuses every tenth and loses answers: all is late, nothing is lost.

The bridge has the default time-outs of fetches, which no request here keeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.e2e_lake import PARTITIONS, check, count, merge, produce
from tests.e2e.e2e_outage import Stage, stage
from tests.e2e.e2e_status import status
from tests.e2e.e2e_support import Sender, read, same, wait_tiered
from tests.support.fault_proxy import Weather
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

TOPIC = "slow"
BAD = Weather(latency_s=2.0, refused=0.1, lost=0.01, cut=0.01)
TIERED_S = 300
PUBLISHED_S = 300


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as running:
        yield running


def read_all(outage: Stage, senders: dict[int, Sender]) -> dict[int, float]:
    """Reads every partition from its start, all at once; seconds that each took."""

    def one(number: int) -> float:
        began = time.monotonic()
        same(read(outage.pair.broker, TOPIC, number, failures=True), senders[number].log.committed)
        return time.monotonic() - began

    with ThreadPoolExecutor(len(senders)) as pool:
        return dict(zip(senders, pool.map(one, senders), strict=True))


def test_two_seconds_and_every_tenth_request_refused(outage: Stage) -> None:
    pair = outage.pair
    pair.admin.create_topic(TOPIC, partitions=len(PARTITIONS))
    senders = produce(pair, TOPIC, 300)
    wait_tiered(pair, TOPIC, PARTITIONS)
    check(pair, outage.reader, TOPIC, senders)
    read_all(outage, senders)
    before = outage.footprint()

    outage.store.weather = BAD
    outage.store.met.clear()
    merge(senders, produce(pair, TOPIC, 301))
    began = time.monotonic()
    wait_tiered(pair, TOPIC, PARTITIONS, TIERED_S)
    copied = time.monotonic() - began
    took = read_all(outage, senders)
    expected = sum(len(sender.log.committed) for sender in senders.values())
    wait_for("the rows of the storm", lambda: count(outage.reader, TOPIC) == expected, PUBLISHED_S, 1.0)
    print(
        f"copied in {copied:.0f} s, read in {[f'{seconds:.0f} s' for seconds in took.values()]}, "
        f"published {time.monotonic() - began:.0f} s after it was produced; {dict(outage.store.met)}"
    )
    check(pair, outage.reader, TOPIC, senders)
    assert outage.store.met["refused"] >= 10
    found = status(pair, TOPIC)
    assert not found["needs_person"], found

    outage.store.weather = Weather()
    merge(senders, produce(pair, TOPIC, 302))
    wait_tiered(pair, TOPIC, PARTITIONS)
    check(pair, outage.reader, TOPIC, senders)
    assert max(read_all(outage, senders).values()) < 60
    outage.settles(before)


def test_a_store_that_is_away_is_named_and_caught_up_with(outage: Stage) -> None:
    """Nothing can be copied then: records stay on the broker's disk until the store is back."""
    pair = outage.pair
    pair.admin.create_topic(TOPIC, partitions=len(PARTITIONS))
    senders = produce(pair, TOPIC, 310)
    wait_tiered(pair, TOPIC, PARTITIONS)
    check(pair, outage.reader, TOPIC, senders)
    before = outage.footprint()
    outage.lake.s3.process.freeze()
    try:
        merge(senders, produce(pair, TOPIC, 311))
        found = status(pair, TOPIC)
        assert "store_away" in {finding["code"] for finding in found["findings"]}
        assert found["needs_person"]
    finally:
        outage.lake.s3.process.resume()
    wait_tiered(pair, TOPIC, PARTITIONS, TIERED_S)
    check(pair, outage.reader, TOPIC, senders)
    assert not status(pair, TOPIC)["needs_person"]
    outage.settles(before)
