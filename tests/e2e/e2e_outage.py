"""Kafka, a bridge, an S3 server and a REST catalog, with a proxy before each of the last two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import Pair
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.footprint import Footprint, footprint
from tierberg.stack.lake import Lake
from tierberg.stack.servers.kafka import BrokerOptions
from tierberg.stack.servers.versitygw import can_be_had
from tierberg.stack.waiting import wait_for

#: Until a bridge has given back what an outage cost: the catalog's and store's clients drop idle connections late.
SETTLE_S = 60


@dataclass(frozen=True, slots=True)
class Stage:
    """`store` and `catalog` are what the bridge talks through; the test itself asks the servers behind them."""

    lake: Lake
    store: FaultProxy
    catalog: FaultProxy
    pair: Pair
    reader: Catalog

    def snapshots_can_be_read(self, table: str) -> int:
        """Reads every kept snapshot: no manifest of theirs was cleaned away. How many there are."""
        loaded = self.reader.load_table(f"kafka.{table}")
        for snapshot in loaded.metadata.snapshots:
            loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        return len(loaded.metadata.snapshots)

    def footprint(self) -> Footprint:
        """Of the bridge, now."""
        return footprint(self.pair.bridge.process.pid)

    def settles(self, before: Footprint) -> Footprint:
        """What the bridge uses once it is near what it used before; fails when it never is."""
        try:
            wait_for(
                "the bridge to give back what the outage cost",
                lambda: self.footprint().within(before, threads=8, rss_mib=64, files=16),
                SETTLE_S,
                1.0,
            )
        finally:
            after = self.footprint()
            print(f"bridge before: {before}; after: {after}")
        return after


@contextmanager
def stage(
    folder: Path, options: BrokerOptions | None = None, *, bridge_settings: Mapping[str, Any] | None = None
) -> Iterator[Stage]:
    """All of it, running; the bridge's store has the default time-outs."""
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    lake = Lake(folder / "lake")
    lake.start()
    try:
        with fault_proxy(lake.s3.port) as store, fault_proxy(lake.catalog.port) as catalog:
            settings = lake.bridge_settings()
            settings["store"]["options"]["endpoint"] = store.uri
            settings["catalog"]["properties"] |= {"uri": catalog.uri, "s3.endpoint": store.uri}
            settings["catalog"]["read_timeout"] = "5s"
            settings["freshness_target"] = "1h"
            pair = start_pair(folder / "pair", options, bridge_settings={**settings, **(bridge_settings or {})})
            try:
                with closing(open_catalog(CatalogSettings("reader", lake.catalog.client_properties()))) as reader:
                    yield Stage(lake, store, catalog, pair, reader)
            finally:
                pair.broker.stop()
                pair.bridge.stop()
    finally:
        lake.catalog.process.resume()
        lake.stop()
