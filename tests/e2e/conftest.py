"""Real servers for the tests: one stock broker with our plugin and one bridge for the whole session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from tests.e2e.e2e_cluster import ThreeBrokers
from tests.e2e.e2e_support import Pair
from tierberg.stack.admin import Admin
from tierberg.stack.jars import KAFKA_VERSION
from tierberg.stack.lake import Lake
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.servers.registry import RegistryServer
from tierberg.stack.servers.rest_catalog import RestCatalogServer
from tierberg.stack.servers.versitygw import can_be_had
from tierberg.stack.tiering import tierberg

BRIDGE_SETTINGS = {
    "publish_interval": "500ms",
    "reclaim_grace": "0s",
    "topics": [
        {"pattern": "text-.*", "value_format": "string"},
        {"pattern": "verbatim-.*", "mode": "verbatim"},
    ],
}


def start_pair(
    folder: Path, options: BrokerOptions | None = None, *, bridge_settings: Mapping[str, Any] | None = None
) -> Pair:
    """A bridge and a broker, running; `bridge_settings` win over those all tests share."""
    bridge = Bridge(folder / "bridge", {**BRIDGE_SETTINGS, **(bridge_settings or {})})
    options = options or BrokerOptions(version=os.environ.get("KAFKA_VERSION", KAFKA_VERSION))
    broker = KafkaBroker(folder / "broker", tierberg(bridge.target, cluster_name="e2e"), options)
    try:
        bridge.start()
        broker.start()
    except BaseException:
        # Also the one that was not ready in time.
        broker.stop()
        bridge.stop()
        raise
    return Pair(broker, bridge, Admin(broker.bootstrap))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Shared by all tests that leave it as they found it: running, with more topics."""
    started = start_pair(tmp_path_factory.mktemp("pair"))
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[Pair]:
    """For a test that kills or freezes its servers."""
    started = start_pair(tmp_path)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A schema registry for the whole session; every test has subjects of its own."""
    server = RegistryServer(tmp_path_factory.mktemp("registry"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def catalog_server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    """A REST catalog that a test may kill."""
    server = RestCatalogServer(tmp_path / "catalog")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def rest_pair(catalog_server: RestCatalogServer, tmp_path: Path) -> Iterator[Pair]:
    """A pair whose tables are in that catalog; `status` finds nothing late on a slow machine."""
    catalog = {"name": "lake", "properties": {"type": "rest", "uri": catalog_server.uri}}
    started = start_pair(tmp_path, bridge_settings={"catalog": catalog, "freshness_target": "1h"})
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """An S3 server and a REST catalog, shared by the tests of a file."""
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    started = Lake(tmp_path_factory.mktemp("lake"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def catalog(lake: Lake) -> Iterator[Catalog]:
    """That lake's tables, for a reader of its own."""
    with closing(open_catalog(CatalogSettings("reader", lake.catalog.client_properties()))) as opened:
        yield opened


@pytest.fixture(scope="session")
def _three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    started = ThreeBrokers.start(tmp_path_factory.mktemp("three"), os.environ.get("KAFKA_VERSION", KAFKA_VERSION))
    yield started
    started.stop()


@pytest.fixture
def three(_three: ThreeBrokers) -> ThreeBrokers:
    """Three brokers and three bridges, shared by tests that each have topics of their own; healed before each."""
    _three.heal()
    return _three
