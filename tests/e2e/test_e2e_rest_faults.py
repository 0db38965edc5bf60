"""A whole bridge on S3 and a REST catalog, and every fault between the two: each commit loses its request or reply."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import PARTITIONS, check, merge, produce, wait_published
from tests.e2e.e2e_support import Pair, wait_tiered
from tests.support.fault_proxy import LANDED, NOT_LANDED, REPEATED, FaultProxy, fault_proxy
from tierberg.stack.lake import Lake

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use builds the S3 server and fetches jars


@pytest.fixture(scope="module")
def proxy(lake: Lake) -> Iterator[FaultProxy]:
    with fault_proxy(lake.catalog.port) as running:
        yield running


@pytest.fixture(scope="module")
def pair(lake: Lake, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    settings["catalog"]["properties"]["uri"] = proxy.uri
    settings["catalog"]["read_timeout"] = "3s"
    # Two cores for five servers: their time is not what is tested.
    settings["store"]["fetch_timeout"] = "10s"
    started = start_pair(tmp_path_factory.mktemp("pair"), bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


def test_main_job_while_commits_and_replies_get_lost(pair: Pair, catalog: Catalog, proxy: FaultProxy) -> None:
    faults = [*LANDED, *NOT_LANDED, REPEATED]
    random.Random(5).shuffle(faults)
    proxy.hit.clear()
    proxy.faults = deque(faults)
    pair.admin.create_topic("storm", partitions=len(PARTITIONS))
    senders = produce(pair, "storm", 21)
    seed = 22
    while proxy.faults:  # each round makes at least one commit, and each commit takes a fault
        assert seed < 22 + len(faults), f"only {proxy.hit} were hit"
        merge(senders, produce(pair, "storm", seed))
        wait_tiered(pair, "storm", PARTITIONS)
        wait_published(catalog, "storm", senders)
        seed += 1
    check(pair, catalog, "storm", senders)
    assert sorted(proxy.hit) == sorted(fault.name for fault in faults)
    # The head and every snapshot it keeps can be read: no manifest of theirs was cleaned away.
    table = catalog.load_table("kafka.storm")
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
