"""`catalog.layout: inside`: one folder of the store is the table's location and holds metadata and data files."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, segment_of


def inside_settings(folder: Path) -> Any:
    return test_settings(folder, catalog={"layout": "inside"})


def offsets(catalog: Catalog) -> list[int]:
    if not catalog.table_exists("kafka.orders"):
        return []
    return sorted(catalog.load_table("kafka.orders").scan().to_arrow()["_kafka_offset"].to_pylist())


def has_offsets(catalog: Catalog, expected: list[int]) -> bool:
    return offsets(catalog) == expected


def everything_named(table: Table) -> set[str]:
    """Data files, manifests, manifest lists and metadata of every kept snapshot."""
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return named


def test_all_a_table_names_lies_inside_its_location_until_kafka_deletes_it(tmp_path: Path) -> None:
    log = LogBuilder().fill(batches=20)
    catalog = open_catalog(embedded_settings(tmp_path))
    with bridge_thread(inside_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        segment = shim.copied(segment_of(log))
        expected = [record.offset for record in log.committed]
        eventually(lambda: offsets(catalog) == expected)
        table = catalog.load_table("kafka.orders")
        assert table.location() == f"file://{tmp_path}/store/data/{segment.topic_id.hex()}"
        assert table.properties["write.data.path"] == table.location()
        assert table.properties["gc.enabled"] == "false"
        assert all(name.startswith(f"{table.location()}/") for name in everything_named(table))
        head = LiveFiles().read(table)
        assert len(head.files) == 1
        assert head.foreign == ()
        assert shim.fetch(segment) == log.data

        shim.delete(segment)
        eventually(lambda: offsets(catalog) == [])
        folder = tmp_path / "store" / "data" / segment.topic_id.hex()
        eventually(lambda: not list(folder.rglob("*.parquet")))
        # The empty table stays, and can be read.
        assert catalog.load_table("kafka.orders").scan().to_arrow().num_rows == 0
        assert list((folder / "metadata").glob("*.metadata.json"))


def test_two_topic_ids_of_one_name_have_locations_of_their_own(tmp_path: Path) -> None:
    catalog = open_catalog(embedded_settings(tmp_path))
    with bridge_thread(inside_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        first = shim.copied(segment_of(LogBuilder().fill(batches=2)))
        eventually(lambda: len(catalog.list_tables("kafka")) == 1 if catalog.namespace_exists("kafka") else False)
        second = shim.copied(segment_of(LogBuilder().fill(batches=2)))
        eventually(lambda: len(catalog.list_tables("kafka")) == 2)
        locations = {catalog.load_table(name).location() for name in catalog.list_tables("kafka")}
    assert locations == {f"file://{tmp_path}/store/data/{one.topic_id.hex()}" for one in (first, second)}


@pytest.mark.parametrize("layouts", [("outside", "inside"), ("inside", "outside")])
def test_a_changed_setting_leaves_tables_where_they_are(tmp_path: Path, layouts: tuple[str, str]) -> None:
    """Keys of data files are the same in both: the setting decides about new tables only."""
    catalog = open_catalog(embedded_settings(tmp_path))
    log = LogBuilder().fill(batches=4)
    later = LogBuilder(next_offset=log.next_offset).fill(batches=4)
    segments: list[Segment] = []
    location = ""
    for layout, part in zip(layouts, (log, later), strict=True):
        settings = test_settings(tmp_path, catalog={"layout": layout})
        with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
            changes = {"topic_id": segments[0].topic_id} if segments else {}
            segments.append(shim.copied(segment_of(part, **changes)))
            expected = [record.offset for record in (*log.committed, *(later.committed if part is later else ()))]
            eventually(partial(has_offsets, catalog, expected))
        table = catalog.load_table("kafka.orders")
        location = location or table.location()
        assert table.location() == location
        assert LiveFiles().read(table).foreign == ()
    report = verify_store(_config(tmp_path), None, None)
    assert not report.damages


def _config(folder: Path) -> Path:
    path = folder / "tierberg.yaml"
    path.write_text(json.dumps({"data_dir": str(folder)}))
    return path


def test_the_danger_is_said_at_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with bridge_thread(inside_settings(tmp_path)):
        pass
    assert "orphan removal deletes history" in "".join(capfd.readouterr())
