"""What is damaged of one topic is no matter of the others: neither of one that is named, nor where all are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from iceberg_catalog.errors import CatalogError
from rsm_bridge.tables.context import TableContext
from tests.worlds.maintain_support import World, make_world, published
from tests.worlds.requeue_support import gap_of_three
from tierberg.cli import app

#: Below any random one: the damaged topic comes first.
FIRST = bytes(16)
NAMED = (
    ["requeue", "orders"],
    ["requeue", "orders", "--dry-run"],
    ["replay-dead-letters", "--topic", "orders"],
    ["maintain", "orders"],
    ["leader-epochs", "orders", "0"],
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path / "data")
    gap_of_three(made)
    return made


def damaged(world: World, every: bool = False) -> World:
    other = World(world.store, world.catalog, topic="broken", topic_id=FIRST)
    published(other)
    keys = sorted(other.stored("index"))
    for key in keys if every else keys[1:2]:
        path = Path(world.store.uri(key).removeprefix("file://"))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return other


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data-dir", str(folder / "data")])


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_a_named_topic_is_not_held_up(world: World, tmp_path: Path, command: list[str], every: bool) -> None:
    damaged(world, every)
    done = run(tmp_path, *command)
    assert done.exit_code == 0, done.output
    assert "index/" not in done.output


@pytest.mark.parametrize("every", [False, True])
def test_a_requeue_of_all_does_the_others_and_says_it(world: World, tmp_path: Path, every: bool) -> None:
    other = damaged(world, every)
    done = run(tmp_path, "requeue")
    assert done.exit_code == 1, done.output
    name = FIRST.hex() if every else "broken"
    assert f"{name}: stays as it is: {min(other.stored('index')) if every else 'index/'}" in done.output
    assert "orders: 1 segments have 3 rows" in done.output
    assert world.offsets() == list(range(9))


def test_a_replay_of_all_does_the_others_and_says_it(world: World, tmp_path: Path) -> None:
    damaged(world)
    done = run(tmp_path, "replay-dead-letters")
    assert done.exit_code == 1, done.output
    assert "broken: stays as it is: index/" in done.output


def test_a_table_that_cannot_be_read_holds_up_no_other_topic(world: World, tmp_path: Path) -> None:
    other = World(world.store, world.catalog, topic="broken", topic_id=FIRST)
    gap_of_three(other)
    table = other.loaded()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    done = run(tmp_path, "requeue")
    assert done.exit_code == 1, done.output
    assert "broken: stays as it is: table kafka.broken" in done.output
    assert world.offsets() == list(range(9))


def test_a_catalog_that_is_away_ends_it_at_once(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(_: TableContext, __: object, owner: object) -> None:
        asked.append(str(owner))
        raise CatalogError("unavailable", "the catalog does not answer")

    gap_of_three(World(world.store, world.catalog, topic="broken", topic_id=FIRST))
    monkeypatch.setattr(TableContext, "table", away)
    done = run(tmp_path, "requeue")
    assert done.exit_code == 3, done.output
    assert len(asked) == 1


def test_a_topic_that_is_not_there_is_a_usage_error(world: World, tmp_path: Path) -> None:
    damaged(world)
    for command in (["requeue", "none"], ["replay-dead-letters", "--topic", "none"]):
        assert run(tmp_path, *command).exit_code == 2
