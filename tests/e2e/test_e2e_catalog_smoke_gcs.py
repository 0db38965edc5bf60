"""Two bridges on Google Cloud Storage (fake-gcs-server, and a front for what it lacks), their catalog in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.opening import open_store
from tests.support.catalog_smoke import Deployment, smoke
from tests.support.gcs_xml import gcs_xml
from tierberg.stack.servers.fake_gcs import FakeGcs
from tierberg.stack.servers.postgres import PostgresServer

# The first use builds the emulator.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_copy_conflict_and_delete(tmp_path: Path) -> None:
    gcs, database = FakeGcs(tmp_path / "gcs"), PostgresServer(tmp_path / "postgres")
    try:
        gcs.start()
        gcs.make_bucket("lake")
        database.start()
        with gcs_xml(gcs.port) as front:
            properties = {
                "type": "sql",
                "uri": database.uri(),
                "warehouse": "gs://lake/warehouse",
                **gcs.catalog_properties(),
            }
            given = Deployment(
                {"url": "gs://lake/history", "options": front.store_options(), "fetch_timeout": "10s"},
                {"properties": properties},
                lambda: {database.password, gcs.catalog_properties()["gcs.oauth2.token"]},
            )
            smoke(given, tmp_path)
            # Indexes are put if absent and replaced by tombstones of the same generation.
            assert front.conditions > 4
    finally:
        gcs.stop()
        database.remove()


def test_conditional_writes_and_listings(tmp_path: Path) -> None:
    gcs = FakeGcs(tmp_path / "gcs")
    try:
        gcs.start()
        gcs.make_bucket("lake")
        with gcs_xml(gcs.port) as front:
            section = {"url": "gs://lake/history", "options": front.store_options(), "fetch_timeout": "10s"}
            store = open_store(load_settings(None, {"store": section}))
            assert store.put_if_absent("a/b", b"1")
            assert not store.put_if_absent("a/b", b"2")
            found = store.read("a/b")
            assert store.replace("a/b", b"3", found.version)
            assert not store.replace("a/b", b"4", found.version)
            assert store.read("a/b").data == b"3"
            assert front.refused == 2
            with store.open_upload("a/c") as upload:
                for number in range(3):
                    upload.write(bytes([number]) * (6 << 20))
                upload.commit()
            assert bytes(store.get_range("a/c", (6 << 20) - 1, 2)) == b"\0\1"
            assert [item.key for item in store.list_after("a/")] == ["a/b", "a/c"]
            assert [item.key for item in store.list_after("a/", "a/b")] == ["a/c"]
            assert store.list_folders("") == ["a"]
            store.delete_many(["a/b", "a/c", "a/never"])
            assert list(store.list_after("")) == []
    finally:
        gcs.stop()
