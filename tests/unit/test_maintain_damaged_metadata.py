"""Metadata of one table that is there and damaged: every command names it and goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.catalogs import embedded_settings, open_catalog
from iceberg_catalog.errors import CatalogError
from rsm_bridge.maintain_command import drop, maintain, open_place
from rsm_bridge.verification import verify_store
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tests.unit.test_bridge_roundtrip import expected_rows, rows_of

BENT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "end missing": lambda data: data[:-3],
    "zeros": lambda data: data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :],
    "garbage": lambda data: b"<html>not here</html>",
}
#: Of the head.
FILES: dict[str, Callable[[Table], str]] = {
    "metadata": lambda table: table.metadata_location,
    "manifest list": lambda table: head_of(table).manifest_list,
    "manifest": lambda table: head_of(table).manifests(table.io)[0].manifest_path,
}


def head_of(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("bent", BENT)
@pytest.mark.parametrize("file", FILES)
def test_one_table_whose_metadata_is_damaged(tmp_path: Path, file: str, bent: str) -> None:
    logs = {name: LogBuilder().fill(batches=2) for name in ("one", "two")}
    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        catalog = open_catalog(embedded_settings(tmp_path))
        for name, log in logs.items():
            shim.copied(segment_of(log, topic=name, topic_id=name.encode() * 5 + b"."))
        eventually(lambda: all(rows_of(catalog, name) == expected_rows(log) for name, log in logs.items()))
    table = catalog.load_table("kafka.one")
    damaged = Path(FILES[file](table).removeprefix("file://"))
    damaged.write_bytes(BENT[bent](damaged.read_bytes()))

    report = verify_store(None, tmp_path, None)
    assert report.tables == 1
    (damage,) = report.damages
    assert "one" in damage
    assert "damaged" in damage
    said: list[str] = []
    with pytest.raises(CatalogError, match="damaged"):
        maintain(open_place(None, tmp_path), None, dry_run=False, say=said.append)
    assert any("two" in line for line in said)
    drop(open_place(None, tmp_path), "kafka.one", unreadable=True)
    with bridge_thread(test_settings(tmp_path)):
        again = open_catalog(embedded_settings(tmp_path))
        eventually(lambda: again.table_exists("kafka.one"))
        eventually(lambda: rows_of(again, "one") == expected_rows(logs["one"]))
