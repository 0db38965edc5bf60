"""The stack itself, proven with Kafka's own LocalTieredStorage, so that a failure elsewhere is a failure of ours."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.e2e.e2e_support import wait_off_disk
from tierberg.demo.consume import read_back
from tierberg.demo.events import flights
from tierberg.demo.ledger import Ledger
from tierberg.demo.produce import Producers
from tierberg.stack.admin import TIERED, Admin
from tierberg.stack.jmx import JmxReader
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.tiering import local_tier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = (0, 1, 2)


def test_records_leave_the_disk_and_come_back(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "broker", local_tier(tmp_path / "tier"), None)
    broker.start()
    try:
        admin = Admin(broker.bootstrap)
        admin.create_topic("flights", 3, {**TIERED, "segment.ms": "630720000000"})
        ledger = Ledger()
        producers = Producers(broker.bootstrap, "flights", ledger)
        for flight in islice(flights(), 40_000):
            producers.send(flight.event(flight.json()))
        producers.close()
        assert ledger.committed_count() == 40_000
        assert ledger.aborted_count() > 0

        wait_off_disk(broker, admin, "flights", PARTITIONS)
        committed = read_back(broker.bootstrap, "flights", ledger, "read_committed", lambda _: None)
        assert (committed.records, committed.differing) == (40_000, 0), committed.differences
        everything = read_back(broker.bootstrap, "flights", ledger, "read_uncommitted", lambda _: None)
        assert everything.records == 40_000 + ledger.aborted_count()
        assert everything.differing == 0, everything.differences
        with JmxReader(broker.jmx_port) as jmx:
            copied = jmx.topic_total("RemoteCopyBytesPerSec", "flights")
            assert jmx.topic_total("RemoteFetchBytesPerSec", "flights") >= copied > 0
            assert jmx.topic_total("RemoteFetchBytesPerSec", "nobody") == 0
    finally:
        broker.stop()
    assert not broker.process.alive
