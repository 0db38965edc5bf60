"""A store slower than every time-out of a fetch, that refuses and loses answers: all is copied, served, published.

No broker: a client that does what Kafka does with a copy that failed. Kafka itself, with more of everything, is in
tests/e2e/test_e2e_outage_store.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy, Weather, fault_proxy
from tests.support.footprint import footprint
from tests.support.kafka_log import LogBuilder
from tests.support.s3_server import S3Server, moto_server
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of
from tierberg.stack.servers.bridge import Bridge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = (0, 1, 2)
SEGMENTS = 3
ATTEMPTS_MAX = 8
PUBLISH_S = 90
#: Slower than `fetch_timeout`, whose default the bridge here has; the rest is a bad day of a store, ten times over.
STORM = Weather(latency_s=0.6, refused=0.1, lost=0.03, cut=0.03)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with moto_server() as running:
        yield running


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(urlsplit(s3.endpoint).port or 0) as running:
        yield running


@pytest.fixture
def bridge(s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> Iterator[Bridge]:
    store = {"url": f"s3://{s3.new_bucket('weather')}/root", "options": {**s3.store_options(), "endpoint": proxy.uri}}
    made = Bridge(tmp_path / "bridge", {"publish_interval": "200ms", "store": store})
    made.start()
    yield made
    made.stop()


@dataclass
class Partition:
    """One partition as its leader sees it: its log, and what was tiered of it."""

    number: int
    topic_id: bytes = b"weather-" * 2
    next_offset: int = 0
    tiered: list[Segment] = field(default_factory=list)
    failures: int = 0

    def tier(self, shim: ShimClient, seed: int) -> None:
        """The next segment; after a failure, as Kafka does: a delete without custom metadata, then a new id."""
        log = LogBuilder(base_offset=self.next_offset, next_offset=self.next_offset).fill(batches=20, size=400 + seed)
        segment = segment_of(log, topic="weather", topic_id=self.topic_id, partition=self.number)
        for _ in range(ATTEMPTS_MAX):
            try:
                self.tiered.append(shim.copied(segment))
            except ShimError as error:
                if error.kind != "store_unavailable":
                    raise
                self.failures += 1
                self._withdraw(shim, segment)
                segment = replace(segment, segment_id=segment_of(log).segment_id)
            else:
                self.next_offset = log.next_offset
                return
        raise AssertionError(f"not tiered after {ATTEMPTS_MAX} attempts")

    def _withdraw(self, shim: ShimClient, segment: Segment) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                shim.delete(segment)
            except ShimError:
                continue
            return
        raise AssertionError(f"not withdrawn after {ATTEMPTS_MAX} attempts")


def rows(bridge: Bridge, s3: S3Server) -> list[tuple[int, int]]:
    """Partition and offset of every row, as another process reads them."""
    folder = bridge.folder
    properties = {
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": (folder / "warehouse").as_uri(),
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
        "s3.region": "us-east-1",
    }
    with closing(SqlCatalog("tierberg", **properties)) as catalog:
        if not catalog.table_exists("kafka.weather"):
            return []
        found = catalog.load_table("kafka.weather").scan().to_arrow()
    columns = (found[name].to_pylist() for name in ("_kafka_partition", "_kafka_offset"))
    return sorted(zip(*columns, strict=True))


def everything(partitions: list[Partition]) -> list[tuple[int, int]]:
    return [(partition.number, offset) for partition in partitions for offset in range(partition.next_offset)]


def fetched(bridge: Bridge, partition: Partition) -> int:
    """Reads every segment as a broker does that comes back after a failure; returns how often it had to."""
    failures = 0
    with ShimClient(bridge.target) as shim:
        for segment in partition.tiered:
            for _ in range(ATTEMPTS_MAX):
                try:
                    assert shim.fetch(segment) == segment.data
                except ShimError as error:
                    if error.kind != "store_unavailable":
                        raise
                    failures += 1
                else:
                    break
            else:
                raise AssertionError(f"not read after {ATTEMPTS_MAX} attempts")
    return failures


def tier_all(bridge: Bridge, partition: Partition) -> None:
    with ShimClient(bridge.target) as shim:
        for seed in range(SEGMENTS):
            partition.tier(shim, seed)


def test_a_bad_day_of_the_store(bridge: Bridge, s3: S3Server, proxy: FaultProxy) -> None:
    partitions = [Partition(number) for number in PARTITIONS]
    with ThreadPoolExecutor(len(PARTITIONS)) as pool:
        list(pool.map(lambda partition: tier_all(bridge, partition), partitions))
        list(pool.map(lambda partition: fetched(bridge, partition), partitions))
        eventually(lambda: rows(bridge, s3) == everything(partitions), PUBLISH_S)
        before = footprint(bridge.process.pid)

        proxy.weather = STORM
        proxy.met.clear()
        list(pool.map(lambda partition: tier_all(bridge, partition), partitions))
        again = sum(pool.map(lambda partition: fetched(bridge, partition), partitions))
        eventually(lambda: rows(bridge, s3) == everything(partitions), PUBLISH_S)
        failed = sum(partition.failures for partition in partitions)
        print(f"{dict(proxy.met)}; {failed} copies and {again} reads had to be repeated")
        assert proxy.met["refused"] > 10
        assert proxy.met["lost"] + proxy.met["cut"] > 3

        proxy.weather = Weather()
        assert sum(pool.map(lambda partition: fetched(bridge, partition), partitions)) == 0
    after = footprint(bridge.process.pid)
    print(f"before: {before}; after: {after}")
    assert after.within(before, threads=8, rss_mib=100, files=20)
    assert "Traceback" not in bridge.process.output()
