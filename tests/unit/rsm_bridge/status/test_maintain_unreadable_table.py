"""A catalog's entry whose metadata is gone, as after a restored backup: said by every command, ended by one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ServerError
from pyiceberg.table import Table
from typer.testing import CliRunner, Result

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.sql import TimedSqlCatalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.names import Owner, fallback_name
from iceberg_catalog.tables.tables import ensure_table, find_table, load_existing
from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.status.store.facts import head_of, stored_topic
from rsm_bridge.storage.table_records import recorded_uuids
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import NAMESPACE, World, make_world, published
from tests.worlds.status_support import read_topics
from tierberg.cli import app

NAME = (NAMESPACE, "orders")
LOSSES = ("metadata", "denied", "manifests", "state")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "data")


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data-dir", str(folder / "data")])


def file_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def denying(monkeypatch: pytest.MonkeyPatch, error: Exception, name: str = "orders") -> None:
    """The catalog lists the table, and answers this when it is to load it."""
    load = TimedSqlCatalog.load_table

    def denied(self: TimedSqlCatalog, identifier: str | tuple[str, ...]) -> Table:
        if Catalog.table_name_from(identifier) == name:
            raise error
        return load(self, identifier)

    monkeypatch.setattr(TimedSqlCatalog, "load_table", denied)


def lose(world: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    table = world.loaded()
    snapshot = table.current_snapshot()
    state = LiveFiles().read(table).state
    assert snapshot is not None
    assert state is not None
    if what == "denied":
        denying(monkeypatch, NoSuchTableError("Table does not exist: kafka.orders"))
    elif what == "state":
        world.store.delete_many([state.key])
    else:
        file_of(table.metadata_location if what == "metadata" else snapshot.manifest_list).unlink()


@pytest.mark.parametrize("what", LOSSES)
def test_the_entry_is_dropped_and_the_table_made_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    published(world)
    with monkeypatch.context() as lost:
        lose(world, lost, what)
        refused = run(tmp_path, "table", "drop", "orders")
        assert refused.exit_code != 0
        assert "no table" not in refused.output
        dropped = run(tmp_path, "table", "drop", "orders", "--unreadable")
        assert dropped.exit_code == 0, dropped.output
        assert "the catalog's entry is dropped" in dropped.output
    assert load_existing(world.catalog, NAME) is None
    again = World(world.store, world.catalog, topic_id=world.topic_id, logs=world.logs)
    again.publish()
    assert len(recorded_uuids(world.store, world.topic_id)) == 1, "nothing waits for the table that was dropped"
    assert again.offsets() == list(range(9))
    again.copy(3)
    again.publish()
    assert again.offsets() == list(range(12))
    again.check()
    assert run(tmp_path, "verify").exit_code == 0


@pytest.mark.parametrize("what", ["metadata", "denied", "manifests"])
def test_every_command_says_it(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    published(world)
    other = World(world.store, world.catalog, topic="other")
    published(other)
    lose(world, monkeypatch, what)
    with pytest.raises(CatalogError, match="orders") as failed:
        World(world.store, world.catalog, topic_id=world.topic_id).publish()
    assert failed.value.kind == "table_unreadable"
    for command in (["verify"], ["maintain"], ["maintain", "orders"]):
        told = run(tmp_path, *command)
        assert told.exit_code == 1, told.output
        assert "orders" in told.output
        assert "--unreadable" in told.output
    assert "other\n" in run(tmp_path, "maintain").output
    assert " 9 rows in " in run(tmp_path, "verify").output
    settings = load_settings(None, {"data_dir": tmp_path / "data"})
    heads = head_of(world.catalog, NAMESPACE)
    topics = [stored_topic(read, heads, world.store, settings) for read in read_topics(world.store, None, math.inf)]
    problems = {topic.topic: topic.table_problem and topic.table_problem.kind for topic in topics}
    assert problems == {"orders": "table_unreadable", "other": None}
    assert [topic.table_problem.table for topic in topics if topic.table_problem] == ["kafka.orders"]


def test_a_catalog_that_fails_is_not_a_lost_table(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(world)
    denying(monkeypatch, ServerError("Internal error"))
    refused = run(tmp_path, "table", "drop", "orders", "--unreadable")
    assert refused.exit_code == 3, refused.output
    monkeypatch.undo()
    assert world.offsets() == list(range(9))


def test_a_table_that_can_be_read_is_not_dropped(world: World, tmp_path: Path) -> None:
    published(world)
    refused = run(tmp_path, "table", "drop", "kafka.orders", "--unreadable")
    assert refused.exit_code == 1
    assert "can be read" in refused.output
    assert world.offsets() == list(range(9))


def test_what_may_be_anybodys_is_not_dropped(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that no topic of the store would have; one whose stamp is another's; none at all."""
    published(world)
    absent = Owner("test", "elsewhere", bytes(16))
    table = ensure_table(world.catalog, absent, "raw", data_path="file:///data")
    file_of(table.metadata_location).unlink()
    refused = run(tmp_path, "table", "drop", "elsewhere", "--unreadable")
    assert refused.exit_code == 1
    assert "may be anybody's" in refused.output
    assert ("kafka", "elsewhere") in world.catalog.list_tables("kafka")
    assert run(tmp_path, "table", "drop", "nothing", "--unreadable").exit_code == 2
    assert run(tmp_path, "table", "drop", "nothing").exit_code == 2


def test_ours_is_found_beside_an_entry_that_cannot_be_read(world: World) -> None:
    """The plain name may be anybody's: a topic with a table of its own goes on."""
    first, second = Owner("test", "a_b", b"1" * 16), Owner("test", "a.b", b"2" * 16)
    lost = ensure_table(world.catalog, first, "raw", data_path="file:///data")
    ours = ensure_table(world.catalog, second, "raw", data_path="file:///data")
    assert ours.name()[-1] == fallback_name(second)
    file_of(lost.metadata_location).unlink()
    found = find_table(world.catalog, second)
    assert found is not None
    assert found.name() == ours.name()
    with pytest.raises(CatalogError, match="a_b"):
        find_table(world.catalog, first)


@pytest.mark.parametrize("what", ["metadata", "denied"])
def test_an_archive_without_live_segments_loses_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """`table_retention: keep`, and Kafka has deleted everything: the table alone keeps the rows."""
    config = tmp_path / "tierberg.yaml"
    rule = "{pattern: '.*', table_retention: keep}"
    config.write_text(f"data_dir: {tmp_path / 'data'}\nreclaim_grace: 0s\ntopics: [{rule}]\n")

    def told(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(config)])

    world.graces = Graces(0.0, 0.0)
    world.delete(*published(world))
    stored = world.stored()
    with monkeypatch.context() as lost:
        lose(world, lost, what)
        again = World(world.store, world.catalog, topic_id=world.topic_id, graces=Graces(0.0, 0.0), logs=world.logs)
        with pytest.raises(CatalogError):
            again.reclaim(again.publish())
        assert told("maintain").exit_code == 1
        assert world.stored() == stored
        refused = told("table", "drop", "orders", "--unreadable")
        assert refused.exit_code == 1
        assert "tierberg undelete orders" in refused.output
        assert told("undelete", "orders").exit_code == 1
        assert told("table", "drop", "orders", "--unreadable").exit_code == 0
    assert told("maintain").exit_code == 0
    again.publish()
    assert again.offsets() == list(range(9))


def test_deleted_rows_wait_for_the_table_of_live_ones(world: World) -> None:
    """Between the drop and the next run of a publisher nothing says which rows the table is to keep."""
    first, *_ = published(world)
    world.delete(first)
    world.graces = Graces(0.0, 0.0)
    world.catalog.drop_table(NAME)
    stored = world.stored()
    reclaimer = world.new_reclaimer()
    reclaimer.reclaim(world.observe(), Tally())
    assert world.stored() == stored
    archive = World(world.store, world.catalog, topic_id=world.topic_id, logs=world.logs)
    archive.rule(retention=lambda _topic: "keep")
    archive.publish()
    assert archive.offsets() == list(range(9))
