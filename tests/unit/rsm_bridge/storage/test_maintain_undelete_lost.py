"""`undelete` of segments whose objects are gone from the store: the table stays readable, and what is lost is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.tombstone import decode_tombstone, is_tombstone
from rsm_bridge.tables.maintain.undelete_lost import lost_of
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import DAY, World, make_world, published
from tierberg.cli import app

RUNNER = CliRunner()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, graces=Graces(600.0, float(DAY)))


def path_of(world: World, key: str) -> Path:
    return Path(world.store.uri(key).removeprefix("file://"))


def deleted(world: World) -> str:
    """Six segments, the first four deleted; returns the key of the second one's data file."""
    segments = published(world, (3,) * 6)
    world.delete(*segments[:4])
    world.publish()
    return sorted(world.stored("data"))[1]


def run(folder: Path, *options: str) -> tuple[int, str]:
    done = RUNNER.invoke(app, ["undelete", "orders", "--data-dir", str(folder), *options])
    return done.exit_code, done.output


@pytest.mark.parametrize("how", ["gone", "cut"])
def test_nothing_changes_while_an_object_is_lost_and_its_name_is_said(world: World, tmp_path: Path, how: str) -> None:
    lost = deleted(world)
    content = path_of(world, lost).read_bytes()
    if how == "gone":
        path_of(world, lost).unlink()
    else:
        path_of(world, lost).write_bytes(content[:-1])
    code, said = run(tmp_path)
    assert code == 1
    assert lost in said
    assert "offsets 3 to 5 of partition 0" in said
    assert "--without-lost" in said
    assert world.offsets() == list(range(12, 18))
    assert sum(is_tombstone(world.store.read(key).data) for key in world.stored("index")) == 4
    path_of(world, lost).write_bytes(content)
    assert run(tmp_path)[0] == 0
    assert world.offsets() == list(range(18))
    world.check()


def test_all_others_come_back_without_it_and_stay(world: World, tmp_path: Path) -> None:
    lost = deleted(world)
    path_of(world, lost).unlink()
    code, said = run(tmp_path, "--without-lost")
    assert code == 0, said
    assert "3 segments with 9 rows are back" in said
    assert lost in said
    wanted = [*range(3), *range(6, 18)]
    assert world.offsets() == wanted
    for _ in range(2):  # publishers and maintenance of later days
        world.publish()
        world.reclaim()
        world.maintain()
        assert world.offsets() == wanted
        world.later(2 * DAY)
    world.check()
    done = RUNNER.invoke(app, ["verify", "--data-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    world.copy(2)
    world.publish()
    assert world.offsets() == [*wanted, 18, 19]


def test_what_was_given_up_leaves_with_retention_like_the_rest(world: World, tmp_path: Path) -> None:
    lost = deleted(world)
    path_of(world, lost).unlink()
    run(tmp_path, "--without-lost")
    run(tmp_path, "--undo")
    world.publish()
    assert world.offsets() == list(range(12, 18))
    world.later(2 * DAY)
    world.reclaim()
    world.maintain()
    world.publish()
    assert world.offsets() == list(range(12, 18))
    assert len(world.stored("data")) == 2


def test_where_nothing_else_is_left_nothing_is_given_up(world: World, tmp_path: Path) -> None:
    segments = published(world)
    world.delete(segments[0])
    world.publish()
    path_of(world, min(world.stored("data"))).unlink()
    code, said = run(tmp_path, "--without-lost")
    assert code == 2, said
    assert decode_tombstone(world.store.read(str(index_key(segments[0]))).data).kind == "deleted"


def test_rows_come_back_where_only_kept_bytes_are_lost(world: World, tmp_path: Path) -> None:
    segments = []
    for first in (0, 3):
        world.log().write(2, producer_id=7)
        world.log().end_transaction(7, commit=True)  # a marker has no row: its bytes are kept
        segments.append(world.copy_range(first, first + 2))
    world.publish()
    assert world.offsets() == [0, 1, 3, 4]
    world.delete(*segments)
    world.publish()
    kept = min(world.stored("kept"))
    path_of(world, kept).unlink()
    code, said = run(tmp_path)
    assert code == 1
    assert kept in said
    code, said = run(tmp_path, "--without-lost")
    assert code == 0
    assert f"Kafka is not served from them without {kept}" in said
    assert world.offsets() == [0, 1, 3, 4]
    world.maintain()
    world.publish()
    assert world.offsets() == [0, 1, 3, 4]


def test_what_is_reclaimed_meanwhile_is_not_lost(world: World) -> None:
    lost = deleted(world)
    found = read_segments(world.store, world.topic_id)
    path_of(world, lost).unlink()
    key = next(known.listed.key for known in found if known.data is not None and known.data.key == lost)
    assert [item.keys for item in lost_of(world.store, world.topic_id, [k for k in found if not k.live])] == [(lost,)]
    current = world.store.read(key)
    stone = replace(decode_tombstone(current.data), reclaiming=True)
    assert world.store.replace(key, stone.encode(), current.version)
    assert lost_of(world.store, world.topic_id, [known for known in found if not known.live]) == []
