"""The table in Iceberg's own REST catalog: published, deleted from, and caught up with after the catalog was away."""

from __future__ import annotations

import random

import pytest
from pyiceberg.catalog.rest import RestCatalog

from stack.rest_catalog import RestCatalogServer
from stack.waiting import wait_for
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TABLE = "kafka.ledger"
PUBLISHED_S = 90
DELETED_S = 30


def records(seed: int) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(draw.choice([None, b"k"]), draw.randbytes(900), (("h", None),)) for _ in range(3000)]


def test_history_in_a_rest_catalog(rest_pair: Pair, catalog_server: RestCatalogServer) -> None:
    pair = rest_pair
    pair.admin.create_topic("ledger")
    sender = Sender(pair.broker, "ledger", compression_type="lz4")
    sender.send(records(1))
    wait_tiered(pair, "ledger")
    with RestCatalog("reader", uri=catalog_server.uri) as lake:

        def count() -> int:
            return lake.load_table(TABLE).scan().count() if lake.table_exists(TABLE) else 0

        wait_for("the first rows", lambda: count() == len(sender.log.committed), PUBLISHED_S, 0.5)

        # An outage of the catalog delays the table, never Kafka.
        catalog_server.kill()
        sender.send(records(2))
        wait_tiered(pair, "ledger")
        same(read(pair.broker, "ledger"), sender.log.committed)
        catalog_server.start()
        wait_for("the rows of the outage", lambda: count() == len(sender.log.committed), PUBLISHED_S, 0.5)
        rows = lake.load_table(TABLE).scan().to_arrow()
        same(rows_by_offset(rows), sender.log.committed)

        # The bridge made all of it here: its embedded catalog was not used.
        assert not (pair.bridge.folder / "catalog.db").exists()
        # Said once per cause, not once per retry, and when it is over.
        log = pair.bridge.process.output()
        assert 1 <= log.count('"publishing failed"') <= 3
        assert log.count('"publishing works again"') >= 1
        assert pair.bridge.metric("tierberg_publishes_total", outcome="failed") >= 1

        pair.admin.delete_topic("ledger")
        wait_for("rows to leave the table", lambda: count() == 0, DELETED_S, 0.5)
