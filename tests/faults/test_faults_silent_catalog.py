"""A catalog that takes requests and says nothing: copies and fetches go on, and the bridge ends when it is told to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from rsm_bridge.limits import STOP_SECONDS_MAX
from tests.support.answering_server import answering
from tests.support.bridge_process import BridgeProcess
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of


@pytest.mark.slow
def test_a_bridge_stops_though_its_catalog_is_silent(tmp_path: Path) -> None:
    config = tmp_path / "tierberg.yaml"
    segment = segment_of(LogBuilder().fill(batches=20))
    with answering() as catalog:
        catalog.answers = lambda _: None
        settings = {
            "data_dir": str(tmp_path / "data"),
            "listen": "127.0.0.1:0",
            "publish_interval": "50ms",
            "catalog": {"properties": {"type": "rest", "uri": catalog.uri}, "read_timeout": "60s"},
        }
        config.write_text(yaml.safe_dump(settings))
        with BridgeProcess("--config", str(config)) as bridge, ShimClient(bridge.address) as shim:
            copied = shim.copied(segment)
            eventually(lambda: catalog.seen)
            assert shim.fetch(copied) == segment.data
            began = time.monotonic()
            assert bridge.stop() == 0
            took = time.monotonic() - began
        assert took < STOP_SECONDS_MAX + 5
        assert "requests that hang" in bridge.errors()
