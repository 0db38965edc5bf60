"""How many requests to the store a first touch takes: far away, each is a round trip that a consumer waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from converter.types import IndexType
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.storage.opening import open_store
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.kafka_log import LogBuilder
from tests.support.s3_server import moto_server
from tests.support.shim_client import ShimClient, segment_of


@dataclass(frozen=True)
class Far:
    """`section`: of a store behind the proxy, which counts."""

    section: dict[str, Any]
    proxy: FaultProxy

    def requests(self) -> int:
        """Since the last time this was asked."""
        count = self.proxy.met.total()
        self.proxy.met.clear()
        return count

    def asks_no_more(self) -> bool:
        """Whether a while passed without a request."""
        self.requests()
        time.sleep(0.5)
        return self.requests() == 0


@pytest.fixture
def far() -> Iterator[Far]:
    with moto_server() as s3, fault_proxy(urlsplit(s3.endpoint).port or 0) as proxy:
        options = {**s3.store_options(), "endpoint": proxy.uri}
        yield Far({"url": f"s3://{s3.new_bucket('far')}/root", "options": options, "fetch_timeout": "10s"}, proxy)


def test_the_start_of_an_object_takes_one_request(far: Far) -> None:
    store = open_store(load_settings(None, {"store": far.section}))
    for key, body in (("long", b"0123456789"), ("short", b"012"), ("empty", b"")):
        store.put_if_absent(key, body)
        far.requests()
        assert bytes(store.head_bytes(key, 4)) == body[:4]
        assert far.requests() == (1 if body else 2)
    with pytest.raises(ObjectNotFoundError):
        store.head_bytes("none", 4)
    assert far.requests() == 1


def test_the_first_fetch_of_a_segment_takes_two(far: Far, tmp_path: Path) -> None:
    """One for the index, with directory, Kafka's indexes and batch table, and one for the pages."""
    segment = segment_of(LogBuilder().fill(batches=50, size=500))
    settings = test_settings(tmp_path, publish_interval="1h", store=far.section)
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        copied = shim.copied(segment)
        published = ("tierberg_publishes_total", {"outcome": "committed"})
        eventually(lambda: bridge.metrics.registry.get_sample_value(*published))
        eventually(far.asks_no_more)  # the publisher, which is idle for an hour now
        for kind in (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT):
            shim.fetch_index(copied, kind)
        assert far.requests() == 1
        assert shim.fetch(copied) == segment.data
        assert shim.fetch(copied) == segment.data
        # The pages, and a look for the segment that follows in the log.
        assert far.requests() <= 2
