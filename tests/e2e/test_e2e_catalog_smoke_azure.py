"""Two bridges on Azure Blob Storage (Azurite), their catalog in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.catalog_smoke import Deployment, smoke
from tierberg.stack.servers.azurite import Azurite
from tierberg.stack.servers.postgres import PostgresServer

# The first use fetches the server.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1000)]


def test_copy_conflict_and_delete(tmp_path: Path) -> None:
    azure, database = Azurite(tmp_path / "azure"), PostgresServer(tmp_path / "postgres")
    try:
        azure.start()
        azure.make_container("lake")
        database.start()
        properties = {
            "type": "sql",
            "uri": database.uri(),
            "warehouse": f"{azure.url('lake')}/warehouse",
            **azure.catalog_properties(),
        }
        given = Deployment(
            {"url": f"{azure.url('lake')}/history", "options": azure.store_options(), "fetch_timeout": "10s"},
            {"properties": properties},
            lambda: {azure.key, database.password},
        )
        smoke(given, tmp_path)
    finally:
        azure.stop()
        database.remove()
