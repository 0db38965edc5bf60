"""Nessie numbers fields its own way (docs/decisions/nessie.md): its table is refused in words, Kafka goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.bridge_process import BridgeProcess
from tests.support.eventually import eventually
from tests.support.gateway import gateway_server
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tierberg.stack.servers.nessie import NessieServer
from tierberg.stack.servers.rest_catalog import S3Warehouse

# The first use builds the S3 server and fetches the catalog's jar.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_the_table_is_refused_and_copies_and_fetches_go_on(tmp_path: Path) -> None:
    with gateway_server(tmp_path / "s3") as s3:
        bucket = s3.new_bucket("nessie")
        warehouse = S3Warehouse(
            uri=f"s3://{bucket}/warehouse", endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key
        )
        server = NessieServer(tmp_path / "nessie", warehouse)
        config = tmp_path / "tierberg.yaml"
        store = {"url": f"s3://{bucket}/history", "options": s3.store_options(), "fetch_timeout": "10s"}
        catalog = {"name": "lake", "properties": server.client_properties()}
        config.write_text(yaml.safe_dump({"publish_interval": "200ms", "store": store, "catalog": catalog}))
        try:
            server.start()
            arguments = ("--config", str(config), "--data-dir", str(tmp_path / "bridge"), "--listen", "127.0.0.1:0")
            with BridgeProcess(*arguments) as bridge, ShimClient(bridge.address) as shim:
                segment = shim.copied(segment_of(LogBuilder().fill(batches=3)))
                eventually(lambda: "has field ids" in bridge.errors(), 60)
                assert shim.fetch(segment) == segment.data
                assert bridge.stop() == 0
        finally:
            server.stop()
