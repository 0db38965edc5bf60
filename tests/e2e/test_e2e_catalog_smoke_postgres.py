"""Two bridges whose catalog is in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.catalog_smoke import Deployment, smoke
from tests.support.gateway import gateway_server
from tierberg.stack.servers.postgres import PostgresServer

# The first use builds the S3 server.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


def test_copy_conflict_and_delete(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "postgres")
    with gateway_server(tmp_path / "s3") as s3:
        bucket = s3.new_bucket("smoke")
        try:
            server.start()
            properties = {
                "type": "sql",
                "uri": server.uri(),
                "warehouse": f"s3://{bucket}/warehouse",
                **s3.catalog_properties(),
            }
            given = Deployment(
                {"url": f"s3://{bucket}/history", "options": s3.store_options(), "fetch_timeout": "10s"},
                {"properties": properties},
                lambda: {server.password, s3.secret_key},
            )
            smoke(given, tmp_path)
        finally:
            server.remove()
