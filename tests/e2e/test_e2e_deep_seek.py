"""A seek far back into a large segment: the first record comes before the broker's own patience runs out.

A fetch that takes longer than `remote.fetch.max.wait.ms` (500 ms) is answered empty and asked again; a reader that is
too slow every time makes no progress, without an error. So each seek here has half a second, cold and warm. Cold is:
the bridge has just been started, the broker has to connect to it again and has none of the segment's indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_deep import MIB, SEGMENT, TOPIC_CONFIG, fill, seek_everywhere
from tests.e2e.e2e_support import Pair, wait_tiered
from tierberg.stack.servers.kafka import BrokerOptions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FIRST_RECORD_S = 0.5


@pytest.fixture
def roomy_pair(tmp_path: Path) -> Iterator[Pair]:
    """A broker that rolls and tiers large segments; all settings of remote reads are Kafka's defaults."""
    started = start_pair(tmp_path, BrokerOptions(heap="1g", properties={"remote.fetch.max.wait.ms": "500"}))
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.mark.parametrize("batch_bytes", [16_384, MIB], ids=["16-kb-batches", "1-mb-batches"])
def test_the_first_record_comes_in_half_a_second(roomy_pair: Pair, batch_bytes: int) -> None:
    pair = roomy_pair
    pair.admin.create_topic("deep", config=TOPIC_CONFIG)
    payload, count = fill(pair.broker, "deep", batch_bytes)
    pair.admin.set_topic_config("deep", {"local.retention.ms": "1000"})
    wait_tiered(pair, "deep", timeout_s=180)
    largest = max(path.stat().st_size for path in (pair.bridge.folder / "store" / "data").rglob("*.parquet"))
    assert largest > 0.9 * SEGMENT

    figures = seek_everywhere(pair, "deep", payload, count, f"{batch_bytes} byte batches")
    assert max(max(took.values()) for took in figures.values()) < FIRST_RECORD_S
