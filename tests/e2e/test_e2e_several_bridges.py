"""Three bridges on one store and one catalog: who serves what, and what a consumer notices when one is killed."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.e2e.e2e_follower import CLOSE_HANDED, Follower
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered
from tierberg.stack.admin import Admin
from tierberg.stack.jars import KAFKA_VERSION
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import tierberg
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "spread"
PARTITIONS = (0, 1, 2)
RECORDS = 8000  # of 1 KB, in each partition: eight segments
STALL_S = 2.0
BUCKET = "history"
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """One broker, its three bridges, and what they share."""

    pair: Pair
    bridges: list[Bridge]
    endpoint: str
    catalog: dict[str, str]

    def rows(self, topic: str) -> Any:
        """The table as another process sees it."""
        s3 = {"s3.endpoint": self.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
        lake = SqlCatalog("tierberg", **self.catalog, **s3, **{"s3.region": "us-east-1"})
        try:
            return lake.load_table(f"kafka.{topic}").scan().to_arrow()
        finally:
            lake.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The endpoint of an S3 server with one bucket: a process of its own, so that it shares no lock with consumers."""
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    server = ServerProcess("moto", argv, tmp_path / "moto.log", cwd=tmp_path)
    server.start()
    wait_for("the S3 server", lambda: accepts(port), 30)
    endpoint = f"http://{LOOPBACK}:{port}"
    boto3.client("s3", endpoint_url=endpoint, **CREDENTIALS).create_bucket(Bucket=BUCKET)
    yield endpoint
    server.stop()


@pytest.fixture
def cluster(tmp_path: Path, store: str) -> Iterator[Cluster]:
    shared = tmp_path / "shared"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{shared / 'catalog.db'}",
        "warehouse": (shared / "warehouse").as_uri(),
    }
    settings = {
        "publish_interval": "500ms",
        "catalog": {"properties": catalog},
        "store": {
            "url": f"s3://{BUCKET}/tierberg",
            "options": {
                "endpoint": store,
                "region": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "test",
                "allow_http": "true",
                "virtual_hosted_style_request": "false",
            },
            # The test server is slow and shares two cores with everything else; its time is not what is tested.
            "fetch_timeout": "10s",
        },
    }
    bridges = [Bridge(tmp_path / f"bridge-{number}", settings) for number in range(3)]
    plugin = tierberg(",".join(bridge.target for bridge in bridges), cluster_name="e2e")
    broker = KafkaBroker(
        tmp_path / "broker", plugin, BrokerOptions(version=os.environ.get("KAFKA_VERSION", KAFKA_VERSION))
    )
    try:
        for bridge in bridges:
            bridge.start()
        broker.start()
        yield Cluster(Pair(broker, bridges[0], Admin(broker.bootstrap)), bridges, store, catalog)
    finally:
        broker.stop()
        for bridge in bridges:
            bridge.stop()


def some(seed: int, count: int) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(b"key %d" % number, draw.randbytes(1000)) for number in range(count)]


def filled(cluster: Cluster) -> dict[int, Sender]:
    """The topic, with its history in the store only."""
    cluster.pair.admin.create_topic(TOPIC, len(PARTITIONS))
    senders = {number: Sender(cluster.pair.broker, TOPIC, number) for number in PARTITIONS}
    for number, sender in senders.items():
        sender.send(some(number, RECORDS))
    wait_tiered(cluster.pair, TOPIC, PARTITIONS)
    return senders


def fetches(bridge: Bridge) -> list[str]:
    """Segment ids of the fetches a bridge has logged since its start, of segments and indexes."""
    lines = [json.loads(line) for line in bridge.process.output().splitlines() if line.startswith("{")]
    return [line["segment"] for line in lines if line.get("event") in ("fetch", "fetch_index") and "segment" in line]


def serving(cluster: Cluster) -> Bridge:
    """The bridge that has just served something, in the middle of doing so."""

    def served(bridge: Bridge) -> float:
        return bridge.metric("tierberg_served_bytes_total")

    before = [served(bridge) for bridge in cluster.bridges]

    def busy() -> Bridge | None:
        pairs = zip(cluster.bridges, before, strict=True)
        return next((bridge for bridge, bytes_before in pairs if served(bridge) > bytes_before), None)

    return wait_for("a bridge that serves", busy, 30, 0.01)


def table_is(cluster: Cluster, senders: dict[int, Sender]) -> None:
    """Every record is a row once, whichever bridge copied its segment and whichever published it."""
    expected = sum(len(sender.log.committed) for sender in senders.values())
    wait_for("all rows to be published", lambda: cluster.rows(TOPIC).num_rows == expected, 120, 1.0)
    rows = cluster.rows(TOPIC)
    for number, sender in senders.items():
        same(rows_by_offset(rows, number), sender.log.committed)


def test_a_bridge_killed_in_mid_fetch(cluster: Cluster) -> None:
    senders = filled(cluster)
    copied = [bridge.metric("tierberg_copied_bytes_total") for bridge in cluster.bridges]
    assert all(copied), f"copies are spread: {copied}"
    table_is(cluster, senders)

    bootstrap = cluster.pair.broker.bootstrap
    followers = [
        Follower(bootstrap, TOPIC, number, config=CLOSE_HANDED, at_once=100, pause_s=0.03) for number in PARTITIONS
    ]
    with followers[0], followers[1], followers[2]:
        wait_for("all consumers to be on their way", lambda: all(follower.has(1500) for follower in followers), 60)
        victim = serving(cluster)
        asked = {id(bridge): fetches(bridge) for bridge in cluster.bridges}
        killed = time.monotonic()
        victim.kill()
        assert not all(follower.has(RECORDS - 1000) for follower in followers)
        wait_for("all consumers to be through", lambda: all(follower.has(RECORDS) for follower in followers), 120)
    waits = [follower.longest_wait_s(killed) for follower in followers]
    print(f"longest waits after the kill: {[f'{wait:.2f} s' for wait in waits]}")
    for number, follower in enumerate(followers):
        same(follower.found, senders[number].log.committed)
    assert max(waits) <= STALL_S

    owners: dict[str, set[int]] = defaultdict(set)
    for bridge, segments in asked.items():
        for segment in segments:
            owners[segment].add(bridge)
    shared = [segment for segment, by in owners.items() if len(by) > 1]
    assert not shared, f"{len(shared)} of {len(owners)} segments were asked for at several bridges"

    # Two bridges are enough to copy, publish and serve.
    for number, sender in senders.items():
        sender.send(some(10 + number, 1500))
    wait_tiered(cluster.pair, TOPIC, PARTITIONS)
    table_is(cluster, senders)

    victim.start()
    wait_for("the bridge to be used again", lambda: _serves_again(cluster, victim, senders), 60, 0.5)
    for number, sender in senders.items():
        same(read(cluster.pair.broker, TOPIC, number), sender.log.committed)
    assert all(fetches(bridge) for bridge in cluster.bridges), "fetches are spread"


def _serves_again(cluster: Cluster, victim: Bridge, senders: dict[int, Sender]) -> bool:
    number = random.choice(PARTITIONS)
    same(read(cluster.pair.broker, TOPIC, number), senders[number].log.committed)
    return bool(fetches(victim))
