"""Whatever fails because a stored index, or what lies behind it, is damaged names the object's key."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.keys import parse_index_key
from rsm_bridge.storage.segments.known import read_footer, read_known
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.tombstone import tombstone_at
from tests.worlds.maintain_support import World, make_world, published
from tierberg.cli import app

RUNNER = CliRunner()
COMMANDS = (
    "undelete orders",
    "maintain --dry-run",
    "maintain orders",
    "leader-epochs orders 0",
    "requeue orders",
    "replay-dead-letters --topic orders",
    "verify --topic orders",
    "verify",
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def path_of(world: World, key: str) -> Path:
    return Path(world.store.uri(key).removeprefix("file://"))


def bend(world: World, key: str, at: int) -> None:
    content = bytearray(path_of(world, key).read_bytes())
    content[at] ^= 0xFF
    path_of(world, key).write_bytes(content)


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_index(world: World, tmp_path: Path, command: str, deleted: bool) -> None:
    segments = published(world, (3,) * 6)
    if deleted:
        world.delete(*segments[:4])
        world.publish()
    key = sorted(world.stored("index"))[2]
    bend(world, key, 200 if deleted else 40)
    done = RUNNER.invoke(app, [*shlex.split(command), "--data-dir", str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert done.output.count(key) >= 1, done.output
    assert f"{key}: {key}" not in done.output


@pytest.mark.parametrize("place", [0, 2, -1])
def test_verify_of_a_topic_says_nothing_of_anothers_index(world: World, tmp_path: Path, place: int) -> None:
    """But of one that nobody can tell whose it is."""
    other = World(world.store, world.catalog, topic="other")
    for each in (world, other):
        published(each, (3,) * 3)
    key = sorted(other.stored("index"))[place]
    bend(world, key, 40)
    assert any(key in line for line in verify_store(None, tmp_path, "other").damages)
    assert not verify_store(None, tmp_path, "orders").damages
    for name in other.stored("index"):
        if name != key:
            path_of(world, name).unlink()
    assert any(key in line for line in verify_store(None, tmp_path, "orders").damages)


def test_every_byte_of_an_index_that_is_bent_is_told_with_its_key(world: World) -> None:
    published(world, (3,))
    (key,) = world.stored("index")
    content = path_of(world, key).read_bytes()
    parsed = parse_index_key(key)
    assert parsed is not None
    said: list[str] = []
    for at in range(0, len(content), 5):
        bend(world, key, at)
        try:
            with ThreadPoolExecutor(1) as helpers:
                reader = SegmentReader(world.store, helpers)
                known = read_known(world.store, parsed, world.store.stat(key))
                assert known.segment is not None
                known.segment.load()
                read_footer(world.store, known)
                directory = reader.directory_at(key, 1)
                for kind in directory.files:
                    reader.check_file(directory, kind)
                block = reader.block(directory, 0)
                reader.chunk(directory, block, 0, 0)
        except (SegmentError, BridgeError) as error:
            said.append(str(error))
        path_of(world, key).write_bytes(content)
    assert len(said) > 50
    assert [text for text in said if not text.startswith(key)] == []


def test_a_batch_that_does_not_come_back_names_its_index(world: World) -> None:
    published(world, (3,))
    (key,), (data,) = world.stored("index"), world.stored("data")
    said: list[str] = []
    for at in range(4, path_of(world, data).stat().st_size, 7):
        bend(world, data, at)
        try:
            world.served(key)
        except SegmentError as error:
            said.append(str(error))
        bend(world, data, at)
    assert any("does not come back (batch 0)" in text for text in said)
    assert [text for text in said if not text.startswith(f"{key}: ")] == []


def test_a_tombstone_that_takes_the_place_of_a_large_index_while_it_is_read_is_no_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segment,) = published(world, (3,))
    (key,) = world.stored("index")
    parsed = parse_index_key(key)
    assert parsed is not None
    monkeypatch.setattr("rsm_bridge.storage.segments.known.INDEX_HEAD_BYTES", 100)
    ranged = world.store.get_range
    raced: list[str] = []

    def deleted_first(name: str, start: int, length: int) -> memoryview:
        if not raced:
            raced.append(name)
            world.delete(segment)
        return ranged(name, start, length)

    monkeypatch.setattr(world.store, "get_range", deleted_first)
    known = read_known(world.store, parsed, world.store.stat(key))
    assert raced == [key]
    assert known.deletion is not None


def test_an_index_that_its_tombstone_has_no_more_is_gone_and_not_damaged(world: World) -> None:
    (segment,) = published(world, (3,))
    (key,) = world.stored("index")
    parsed = parse_index_key(key)
    assert parsed is not None
    known = read_known(world.store, parsed, world.store.stat(key))
    world.delete(segment)
    current = world.store.read(key)
    bare = replace(tombstone_at(key, current.data), index=b"")
    assert world.store.replace(key, bare.encode(), current.version)
    with pytest.raises(ObjectNotFoundError, match=key):
        read_footer(world.store, known)
