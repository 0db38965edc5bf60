"""`verify --topic` of a topic of which the store has no index any more."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import DAY, World, make_world, published
from tierberg.cli import app


def run(folder: Path, topic: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", f"--topic={topic}", "--data-dir", str(folder)])
    return done.exit_code, done.output


def test_its_table_with_rows_is_damage_and_anothers_is_not(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    other = World(world.store, world.catalog, topic="other")
    published(other)
    world.store.delete_many(world.stored("index"))
    code, said = run(tmp_path, "orders")
    assert code == 1
    assert f"table kafka.orders: 9 rows, and the store has nothing of topic id {world.topic_id.hex()}" in said
    assert run(tmp_path, "other")[0] == 0
    assert run(tmp_path, "payments") == (2, "tierberg: the store has nothing of a topic payments\n")


def test_the_lost_one_of_two_with_the_name_is_found(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    again = World(world.store, world.catalog)
    published(again)
    world.store.delete_many(world.stored("index"))
    code, said = run(tmp_path, "orders")
    assert code == 1
    assert world.topic_id.hex() in said
    assert again.topic_id.hex() not in said


def test_an_empty_table_that_is_left_is_none(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    assert world.stored() == []
    assert run(tmp_path, "orders")[0] == 0
