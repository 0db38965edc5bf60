"""A table whose columns or partitioning an engine changed: said by every command, nobody else's matter, and ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table
from typer.testing import CliRunner, Result

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.tables.tables import load_existing
from rsm_bridge.config.settings import load_settings
from rsm_bridge.status.store.facts import head_of, stored_topic
from tests.worlds.maintain_support import NAMESPACE, World, make_world, published
from tests.worlds.status_support import read_topics
from tierberg.cli import app


def drop_key(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("_kafka_key")


def rename_offset(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("_kafka_offset", "off")


def rename_partition(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("_kafka_partition", "part")


def made_anew(table: Table) -> None:
    rename_offset(table)
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("_kafka_offset", table.schema().find_type("_kafka_timestamp_type"))


def repartition(table: Table) -> None:
    with table.update_spec() as change:
        change.add_identity("_kafka_offset")


def spoil_format(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"tierberg.value-format": "xml"})


ALTERED = [drop_key, rename_offset, rename_partition, made_anew, repartition, spoil_format]
altered = pytest.mark.parametrize("alter", ALTERED)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path / "data")
    published(made)
    return made


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data-dir", str(folder / "data")])


@altered
def test_every_command_says_it_and_goes_on(world: World, tmp_path: Path, alter: Callable[[Table], None]) -> None:
    other = World(world.store, world.catalog, topic="other")
    published(other)
    alter(world.loaded())
    for command in (
        ["verify"],
        ["maintain"],
        ["maintain", "orders"],
        ["maintain", "--dry-run"],
        ["table", "drop", "orders"],
    ):
        told = run(tmp_path, *command)
        assert told.exit_code == 1, (command, told.output, told.exception)
        assert isinstance(told.exception, SystemExit), told.exception
        assert "orders" in told.output
    assert "other\n" in run(tmp_path, "maintain").output
    replayed = run(tmp_path, "replay-dead-letters")
    assert replayed.exit_code == 1
    assert "orders: stays as it is: table kafka.orders: " in replayed.output


@altered
def test_status_has_a_cause_for_it(world: World, tmp_path: Path, alter: Callable[[Table], None]) -> None:
    published(World(world.store, world.catalog, topic="other"))
    alter(world.loaded())
    settings = load_settings(None, {"data_dir": tmp_path / "data"})
    heads = head_of(world.catalog, NAMESPACE)
    topics = [stored_topic(read, heads, world.store, settings) for read in read_topics(world.store, None, math.inf)]
    problems = {topic.topic: topic.table_problem and topic.table_problem.kind for topic in topics}
    assert problems == {"orders": "schema_mismatch", "other": None}
    assert {topic.table_problem.table for topic in topics if topic.table_problem} == {"kafka.orders"}


@pytest.mark.parametrize("column", ["_kafka_partition", "_kafka_offset"])
def test_a_column_that_an_engine_lets_be_null_stays_as_it_is_in_files(tmp_path: Path, column: str) -> None:
    """Pages of merged files were read as if it could not be: no pass ever merged anything, and nothing said so."""
    limits = MergeLimits(
        small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=60_000, span_ms=24 * 3_600_000
    )
    world = make_world(tmp_path / "data", merging=limits)
    published(world)
    with world.loaded().update_schema(allow_incompatible_changes=True) as change:
        change.update_column(column, required=False)
    world.later(61)
    assert world.maintain().merged == 3
    world.check()
    assert run(tmp_path, "verify").exit_code == 0


@altered
def test_its_entry_is_dropped_and_the_table_made_anew(
    world: World, tmp_path: Path, alter: Callable[[Table], None]
) -> None:
    alter(world.loaded())
    dropped = run(tmp_path, "table", "drop", "orders", "--unreadable")
    assert dropped.exit_code == 0, dropped.output
    assert load_existing(world.catalog, (NAMESPACE, "orders")) is None
    again = World(world.store, world.catalog, topic_id=world.topic_id, logs=world.logs)
    again.publish()
    assert again.offsets() == list(range(9))
    assert run(tmp_path, "verify").exit_code == 0


@pytest.mark.parametrize("alter", [drop_key, rename_offset, rename_partition, made_anew, repartition])
def test_rows_are_known_by_field_ids(world: World, alter: Callable[[Table], None]) -> None:
    before = LiveFiles().read(world.loaded())
    alter(world.loaded())
    after = LiveFiles().read(world.loaded())
    assert after.files == before.files
    assert not after.foreign


def test_a_table_that_says_nothing_of_its_values_is_refused(world: World) -> None:
    spoil_format(world.loaded())
    with pytest.raises(CatalogError) as refused:
        LiveFiles().read(world.loaded())
    assert refused.value.kind == "schema_mismatch"
