"""Metadata of one table that is there and damaged: every command names it and goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.errors import CatalogError
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.tables.maintain.by_name import drop, maintain
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, segment_of

BENT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "end missing": lambda data: data[:-3],
    "zeros": lambda data: data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :],
    "garbage": lambda data: b"<html>not here</html>",
}
#: These read well.
READABLE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "no block": lambda data, other: data[: header_size(data)],
    "blocks twice": lambda data, other: data + data[header_size(data) :],
    "another's": lambda data, other: other,
}
#: Of the head.
FILES: dict[str, Callable[[Table], str]] = {
    "metadata": lambda table: table.metadata_location,
    "manifest list": lambda table: head_of(table).manifest_list,
    "manifest": lambda table: head_of(table).manifests(table.io)[0].manifest_path,
}


def header_size(data: bytes) -> int:
    """Of an Avro file: it ends with its first sync marker, which also ends the file."""
    return data.index(data[-16:]) + 16


def head_of(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("bent", BENT)
@pytest.mark.parametrize("file", FILES)
def test_one_table_whose_metadata_is_damaged(tmp_path: Path, file: str, bent: str) -> None:
    check_damage(tmp_path, file, lambda data, _: BENT[bent](data))


@pytest.mark.parametrize("bent", READABLE)
@pytest.mark.parametrize("file", ["manifest list", "manifest"])
def test_metadata_that_reads_well_and_is_not_what_was_written(tmp_path: Path, file: str, bent: str) -> None:
    check_damage(tmp_path, file, READABLE[bent])


def check_damage(tmp_path: Path, file: str, bent: Callable[[bytes, bytes], bytes]) -> None:
    """Of two tables one is damaged: it is named, the other one is maintained, and it can be made anew."""
    logs = {name: LogBuilder().fill(batches=2) for name in ("one", "two")}
    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        catalog = open_catalog(embedded_settings(tmp_path))
        for name, log in logs.items():
            shim.copied(segment_of(log, topic=name, topic_id=name.encode() * 5 + b"."))
        eventually(lambda: all(rows_of(catalog, name) == expected_rows(log) for name, log in logs.items()))
    table = catalog.load_table("kafka.one")
    damaged = local(FILES[file](table))
    other = local(FILES[file](catalog.load_table("kafka.two")))
    damaged.write_bytes(bent(damaged.read_bytes(), other.read_bytes()))

    report = verify_store(None, tmp_path, None)
    assert report.tables == 1
    (damage,) = report.damages
    assert "one" in damage
    assert "damaged" in damage
    assert damaged.name in damage
    said: list[str] = []
    with pytest.raises(CatalogError, match="damaged"):
        maintain(open_backend(None, tmp_path), None, dry_run=False, say=said.append)
    assert any("two" in line for line in said)
    drop(open_backend(None, tmp_path), "kafka.one", unreadable=True)
    with bridge_thread(test_settings(tmp_path)):
        again = open_catalog(embedded_settings(tmp_path))
        eventually(lambda: again.table_exists("kafka.one"))
        eventually(lambda: rows_of(again, "one") == expected_rows(logs["one"]))


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


OLDER: dict[str, Callable[[Table], str]] = {
    "list": lambda table: oldest_of(table).manifest_list,
    "manifest": lambda table: oldest_of(table).manifests(table.io)[0].manifest_path,
}


def oldest_of(table: Table) -> Snapshot:
    return min(table.metadata.snapshots, key=lambda item: item.sequence_number or 0)


@pytest.mark.parametrize("bent", ["half", "gone"])
@pytest.mark.parametrize("file", OLDER)
def test_an_older_snapshot_that_cannot_be_read_keeps_what_it_may_hold_until_it_is_expired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, bent: str
) -> None:
    logs = {name: [LogBuilder(20 * n).fill(batches=2) for n in range(4)] for name in ("one", "two")}
    catalog = open_catalog(embedded_settings(tmp_path))

    def copy(shim: ShimClient, name: str, number: int) -> Segment:
        copied = shim.copied(segment_of(logs[name][number], topic=name, topic_id=name.encode() * 5 + b"."))
        wanted = [row for log in logs[name][number // 3 : number + 1] for row in expected_rows(log)]
        eventually(lambda: catalog.table_exists(f"kafka.{name}") and rows_of(catalog, name) == wanted)
        return copied

    def left(name: str, rows: int) -> bool:
        return len(rows_of(catalog, name)) == rows

    with bridge_thread(test_settings(tmp_path, reclaim_grace="1h")) as bridge, ShimClient(bridge.address) as shim:
        for name in logs:
            first, *_ = [copy(shim, name, number) for number in range(3)]
            shim.delete(first)
            eventually(partial(left, name, 40))
    table = catalog.load_table("kafka.one")
    oldest = oldest_of(table)
    path = OLDER[file](table)
    assert path not in {item.manifest_path for item in head_of(table).manifests(table.io)}
    damaged = local(path)
    whole = damaged.read_bytes()
    damaged.unlink() if bent == "gone" else damaged.write_bytes(BENT[bent](whole))

    (damage,) = verify_store(None, tmp_path, None).damages
    assert str(oldest.snapshot_id) in damage
    assert damaged.name in damage
    capsys.readouterr()
    with bridge_thread(test_settings(tmp_path, reclaim_grace="1h")) as bridge, ShimClient(bridge.address) as shim:
        for name in logs:
            copy(shim, name, 3)
    said = capsys.readouterr().out
    assert said.count("nothing is reclaimed") == 1
    assert "publishing failed" not in said

    lines: list[str] = []
    with pytest.raises(CatalogError, match=str(oldest.snapshot_id)):
        maintain(open_backend(None, tmp_path), None, dry_run=True, say=lines.append)
    assert any(line.startswith("two") for line in lines)
    maintain(open_backend(None, tmp_path), None, dry_run=False, say=lines.append)
    assert any("snapshot" in line for line in lines)
    assert catalog.load_table("kafka.one").metadata.snapshot_by_id(oldest.snapshot_id) is None
    assert not verify_store(None, tmp_path, None).damages


def test_an_older_snapshot_that_a_tag_holds_is_restored_by_a_person(tmp_path: Path) -> None:
    catalog = open_catalog(embedded_settings(tmp_path))

    def has(rows: int) -> bool:
        return catalog.table_exists("kafka.one") and len(rows_of(catalog, "one")) == rows

    with bridge_thread(test_settings(tmp_path, reclaim_grace="1h")) as bridge, ShimClient(bridge.address) as shim:
        for number in range(3):
            shim.copied(segment_of(LogBuilder(20 * number).fill(batches=2), topic="one", topic_id=b"one." * 4))
            eventually(partial(has, 20 * (number + 1)))
    table = catalog.load_table("kafka.one")
    oldest = oldest_of(table)
    table.manage_snapshots().create_tag(oldest.snapshot_id, "report").commit()
    damaged = local(oldest.manifest_list)
    whole = damaged.read_bytes()
    damaged.unlink()
    with pytest.raises(CatalogError, match=r"Restore the file"):
        maintain(open_backend(None, tmp_path), None, dry_run=False, say=lambda line: None)
    damaged.write_bytes(whole)
    maintain(open_backend(None, tmp_path), None, dry_run=False, say=lambda line: None)
    assert catalog.load_table("kafka.one").metadata.snapshot_by_id(oldest.snapshot_id) is not None
