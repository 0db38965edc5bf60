"""A table of which no snapshot has a recorded state any more: an engine wrote to it, and then expired ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent, ManifestWriterV2, read_manifest_list
from pyiceberg.table.snapshots import Operation, Summary
from typer.testing import CliRunner

from iceberg_catalog.errors import CatalogError
from rsm_bridge.tables.publish.table_run import TableRun
from tests.worlds.catalog_support import make_rows
from tests.worlds.foreign_support import commit_manifests
from tests.worlds.maintain_support import World, make_world, published
from tierberg.cli import app

RUNNER = CliRunner()
FOREIGN = (1000, 1001, 1002)


def rewrite_manifests(world: World) -> None:
    """As Spark's procedure: the same entries in a manifest of its own; no property of our snapshots."""
    table = world.loaded()
    head = table.current_snapshot()
    assert head is not None
    number, folder = table.metadata.new_snapshot_id(), f"{table.location()}/metadata"
    manifests = list(read_manifest_list(table.io.new_input(head.manifest_list)))
    assert all(item.content == ManifestContent.DATA for item in manifests)
    made = table.io.new_output(f"{folder}/{uuid.uuid4()}-m0.avro")
    with ManifestWriterV2(table.spec(), table.schema(), made, number, "deflate") as writer:
        for item in manifests:
            for entry in item.fetch_manifest_entry(table.io):
                writer.existing(entry)
    commit_manifests(world.catalog, table, number, [writer.to_manifest_file()], Summary(Operation.REPLACE))


def append_rows(world: World) -> None:
    world.loaded().append(make_rows(range(FOREIGN[0], FOREIGN[-1] + 1), 0, "raw"))


@pytest.fixture(params=[rewrite_manifests, append_rows])
def write(request: pytest.FixtureRequest) -> Callable[[World], None]:
    return request.param  # type: ignore[no-any-return]


def expire_ours(world: World) -> None:
    world.loaded().maintenance.expire_snapshots().older_than(
        datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    ).commit()
    (left,) = world.loaded().metadata.snapshots
    assert left.summary is not None
    assert "tierberg.state" not in left.summary.additional_properties


def bridge(world: World, keep: bool = False) -> TableRun:
    """A bridge that has just started."""
    retention: Callable[[str], str | float] = (lambda _: "keep") if keep else (lambda _: "follow-kafka")
    return world.new_publisher(retention=retention)


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    done = RUNNER.invoke(app, [*arguments, "--data-dir", str(folder)])
    return done.exit_code, done.output


def test_dropping_its_entry_has_it_made_anew_whole(tmp_path: Path, write: Callable[[World], None]) -> None:
    """Rows of deleted segments stay away, and so do those of the other engine."""
    world = make_world(tmp_path)
    segments = published(world, (3,) * 4)
    world.delete(segments[0])
    world.publish()
    write(world)
    expire_ours(world)
    world.copy(3)
    with pytest.raises(CatalogError) as failed:
        bridge(world).run()
    assert (failed.value.kind, failed.value.table) == ("state_missing", "kafka.orders")
    code, said = run(tmp_path, "table", "drop", "kafka.orders", "--unreadable")
    assert code == 0, said
    bridge(world).run()
    assert world.offsets() == list(range(3, 15))
    assert bridge(world).run().files_added == 0
    world.later(2 * 24 * 3600)
    world.reclaim()
    world.maintain()
    assert world.offsets() == list(range(3, 15))
    world.check()
    assert run(tmp_path, "verify")[0] == 0


def test_an_archive_has_its_deleted_rows_again(tmp_path: Path, write: Callable[[World], None]) -> None:
    world = make_world(tmp_path)
    segments = [world.copy(3) for _ in range(4)]
    bridge(world, keep=True).run()
    world.delete(*segments[:2])
    bridge(world, keep=True).run()
    assert world.offsets() == list(range(12))
    write(world)
    expire_ours(world)
    config = tmp_path / "keep.yaml"
    config.write_text("topics: [{pattern: .*, table_retention: keep}]\n")
    code, said = run(tmp_path, "table", "drop", "kafka.orders", "--unreadable", "--config", str(config))
    assert code == 0, said
    bridge(world, keep=True).run()
    assert world.offsets() == list(range(12))
