"""A REST catalog whose entry names a metadata.json that is gone: said, dropped, made anew. Iceberg's own server."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.errors import CatalogError
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.opening import open_store
from tests.worlds.maintain_support import World, published
from tierberg.cli import app
from tierberg.stack.servers.rest_catalog import RestCatalogServer

# The first use of the catalog fetches its jars.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1000)]


def test_a_lost_metadata_file(tmp_path: Path) -> None:
    server = RestCatalogServer(tmp_path / "rest")
    server.start()
    try:
        config = tmp_path / "tierberg.yaml"
        config.write_text(
            f"data_dir: {tmp_path / 'data'}\ncatalog:\n  properties: {{type: rest, uri: '{server.uri}'}}\n"
        )

        def run(*arguments: str) -> Result:
            return CliRunner().invoke(app, [*arguments, "--config", str(config)])

        catalog = open_catalog(CatalogSettings("lake", server.client_properties()))
        world = World(open_store(load_settings(config, {})), catalog)
        published(world)
        Path(world.loaded().metadata_location.removeprefix("file:").replace("//", "/")).unlink()
        again = World(world.store, catalog, topic_id=world.topic_id, logs=world.logs)
        with pytest.raises(CatalogError, match=r"kafka\.orders") as failed:
            again.publish()
        assert failed.value.kind == "table_unreadable"
        for command in ("verify", "maintain"):
            assert run(command).exit_code == 1
        dropped = run("table", "drop", "orders", "--unreadable")
        assert dropped.exit_code == 0, dropped.output
        again.publish()
        assert again.offsets() == list(range(9))
        assert run("verify").exit_code == 0
    finally:
        server.stop()
