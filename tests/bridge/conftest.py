"""A bridge of a test module in this process, a shim that calls it, and the catalog it writes to.

A module that wants other settings defines a fixture `bridge_settings` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.serving.service import Running
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.shim_client import ShimClient


@pytest.fixture(scope="module")
def bridge_settings() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def bridge_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bridge")


@pytest.fixture(scope="module")
def bridge(bridge_folder: Path, bridge_settings: dict[str, Any]) -> Iterator[Running]:
    with bridge_thread(test_settings(bridge_folder, **bridge_settings)) as running:
        yield running


@pytest.fixture(scope="module")
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


@pytest.fixture(scope="module")
def catalog(bridge: Running, bridge_folder: Path) -> Catalog:
    return open_catalog(embedded_settings(bridge_folder))
