"""A catalog that hangs for a minute and is then gone for two: the table waits, nothing else does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.e2e_lake import PARTITIONS, check, merge, produce
from tests.e2e.e2e_outage import Stage, stage
from tests.e2e.e2e_status import ask, causes, status
from tests.e2e.e2e_support import Sender, read, same, wait_tiered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use builds the S3 server and fetches jars

SILENT_S = 60
GONE_S = 120
TOPIC = "ledger"
#: Caches that a few rounds fill: what the bridge uses more after the outage is the outage's.
SMALL_CACHES = {"limits": {"chunk_cache_mib": 8, "index_cache_mib": 1}}
FILLING_ROUNDS = 4
SAID_MAX = 4  # lines of one outage: its causes, hanging and gone, and a commit that was under way


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, bridge_settings=SMALL_CACHES) as running:
        yield running


def published(outage: Stage) -> dict[int, float]:
    """What the table's rows end at, by the bridge's own page."""
    bridge = outage.pair.bridge
    return {
        number: bridge.metric("tierberg_partition_frontier_offset", topic=TOPIC, partition=str(number))
        for number in PARTITIONS
    }


def tiered(outage: Stage) -> dict[int, int]:
    """What the copies end at, by `tierberg status`; it names the catalog and asks for a person."""
    found = status(outage.pair, TOPIC)
    assert causes(found) == {"catalog_away"}
    assert found["needs_person"]
    (topic,) = found["topics"]
    assert all(partition["published_end"] is None for partition in topic["partitions"])
    return {partition["partition"]: partition["tiered_end"] for partition in topic["partitions"]}


def goes_on(outage: Stage, senders: dict[int, Sender], seeds: Iterator[int], seconds: float) -> int:
    """Produces, copies and reads for so long; returns the rounds. The table stands meanwhile."""
    pair, ends, before, rounds = outage.pair, time.monotonic() + seconds, published(outage), 0
    last = tiered(outage)
    while rounds == 0 or time.monotonic() < ends:
        merge(senders, produce(pair, TOPIC, next(seeds)))
        wait_tiered(pair, TOPIC, PARTITIONS)
        now = tiered(outage)
        assert all(now[number] > last[number] for number in PARTITIONS), f"{last} then {now}"
        for number, sender in senders.items():
            same(read(pair.broker, TOPIC, number), sender.log.committed)
        last, rounds = now, rounds + 1
    assert all(published(outage)[number] <= before[number] for number in PARTITIONS)
    return rounds


def test_two_minutes_without_a_catalog(outage: Stage) -> None:
    pair, catalog, seeds = outage.pair, outage.lake.catalog, iter(range(1, 1000))
    pair.admin.create_topic(TOPIC, partitions=len(PARTITIONS))
    senders = produce(pair, TOPIC, next(seeds))
    for _ in range(FILLING_ROUNDS):
        merge(senders, produce(pair, TOPIC, next(seeds)))
        wait_tiered(pair, TOPIC, PARTITIONS)
        check(pair, outage.reader, TOPIC, senders)
    before = outage.footprint()
    catalog.process.freeze()
    rounds = [goes_on(outage, senders, seeds, SILENT_S)]
    catalog.kill()
    down = time.monotonic()
    rounds.append(goes_on(outage, senders, seeds, GONE_S))
    code, text = ask(pair, TOPIC)
    assert code == 1
    assert "catalog_away" in text
    log = pair.bridge.process.output()
    assert 1 <= log.count('"publishing failed"') <= SAID_MAX

    away = time.monotonic() - down
    assert away >= GONE_S
    catalog.start()
    back = time.monotonic()
    check(pair, outage.reader, TOPIC, senders)
    print(
        f"{rounds[0]} rounds were copied while the catalog was silent, {rounds[1]} while it was down for {away:.0f} s; "
        f"the table had them {time.monotonic() - back:.0f} s after it was back"
    )
    outage.snapshots_can_be_read(TOPIC)
    code, text = ask(pair, TOPIC)
    assert code == 0, text
    assert pair.bridge.process.output().count('"publishing works again"') >= 1
    outage.settles(before)
    assert "Traceback" not in _calls(pair.bridge.process.output())

    # A bridge that starts without a catalog copies and serves all the same.
    catalog.kill()
    pair.bridge.kill()
    pair.bridge.start()
    goes_on(outage, senders, seeds, 0)
    catalog.start()
    check(pair, outage.reader, TOPIC, senders)


def _calls(log: str) -> str:
    """The log without the publisher's lines, which quote what the catalog's client raised."""
    return "\n".join(line for line in log.splitlines() if '"publishing failed"' not in line)
