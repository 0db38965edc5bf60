"""A seek far back into a large segment of a store that takes 50 ms for each request.

As test_e2e_deep_seek.py, which has its store on the same disk. What the broker gives up waiting for after 500 ms must
be there when it asks again: a consumer that is too slow every time makes no progress, without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.e2e_deep import MIB, SEGMENT, TOPIC_CONFIG, fill, seek_everywhere
from tests.e2e.e2e_outage import Stage, stage
from tests.e2e.e2e_support import wait_tiered
from tests.support.fault_proxy import Weather
from tierberg.stack.servers.kafka import BrokerOptions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

FAR = Weather(latency_s=0.05)
WARM_S = 0.5
#: Connections of broker and bridge are new as well, and none of the segment's indexes is on the broker.
COLD_S = 1.5


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Stage]:
    """A broker that rolls and tiers large segments; all settings of remote reads are Kafka's defaults."""
    options = BrokerOptions(heap="1g", properties={"remote.fetch.max.wait.ms": "500"})
    with stage(tmp_path, options) as running:
        yield running


@pytest.mark.parametrize("batch_bytes", [16_384, MIB], ids=["16-kb-batches", "1-mb-batches"])
def test_the_first_record_from_a_store_far_away(roomy: Stage, batch_bytes: int) -> None:
    pair = roomy.pair
    pair.admin.create_topic("deep", config=TOPIC_CONFIG)
    payload, count = fill(pair.broker, "deep", batch_bytes)
    pair.admin.set_topic_config("deep", {"local.retention.ms": "1000"})
    wait_tiered(pair, "deep", timeout_s=300)
    with_client = roomy.lake.client()
    try:
        pages = with_client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix="tierberg/data/")
        assert max(entry["Size"] for page in pages for entry in page["Contents"]) > 0.9 * SEGMENT
    finally:
        with_client.close()

    roomy.store.weather = FAR
    figures = seek_everywhere(pair, "deep", payload, count, f"{batch_bytes} byte batches, 50 ms per request")
    assert max(figures["warm"].values()) < WARM_S
    assert max(figures["cold"].values()) < COLD_S
