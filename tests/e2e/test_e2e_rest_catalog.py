"""The table in Iceberg's own REST catalog: published, deleted from, and caught up with after the catalog was away."""

from __future__ import annotations

import random

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.e2e.e2e_lake import count, rows
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered
from tierberg.stack.servers.rest_catalog import RestCatalogServer
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TOPIC = "ledger"
PUBLISHED_S = 90
DELETED_S = 30


def records(seed: int) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(draw.choice([None, b"k"]), draw.randbytes(900), (("h", None),)) for _ in range(3000)]


def test_history_in_a_rest_catalog(rest_pair: Pair, catalog_server: RestCatalogServer) -> None:
    pair = rest_pair
    pair.admin.create_topic(TOPIC)
    sender = Sender(pair.broker, TOPIC, compression_type="lz4")
    sender.send(records(1))
    wait_tiered(pair, TOPIC)
    with RestCatalog("reader", uri=catalog_server.uri) as lake:
        wait_for("the first rows", lambda: count(lake, TOPIC) == len(sender.log.committed), PUBLISHED_S, 0.5)

        # An outage of the catalog delays the table, never Kafka.
        catalog_server.kill()
        sender.send(records(2))
        wait_tiered(pair, TOPIC)
        same(read(pair.broker, TOPIC), sender.log.committed)
        catalog_server.start()
        wait_for("the rows of the outage", lambda: count(lake, TOPIC) == len(sender.log.committed), PUBLISHED_S, 0.5)
        same(rows_by_offset(rows(lake, TOPIC)), sender.log.committed)

        # The bridge made all of it here: its embedded catalog was not used.
        assert not (pair.bridge.folder / "catalog.db").exists()
        # Said once per cause, not once per retry, and when it is over.
        log = pair.bridge.process.output()
        assert 1 <= log.count('"publishing failed"') <= 3
        assert log.count('"publishing works again"') >= 1
        assert pair.bridge.metric("tierberg_publishes_total", outcome="failed") >= 1

        pair.admin.delete_topic(TOPIC)
        wait_for("rows to leave the table", lambda: count(lake, TOPIC) == 0, DELETED_S, 0.5)
