"""Data files that are there and are not what was written: nothing is made from them, and the file is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.tables.maintain.by_name import maintain
from tests.worlds.maintain_support import World, make_world

DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut": lambda data, _: data[: len(data) // 2],
    "one bit": lambda data, _: data[:600] + bytes([data[600] ^ 1]) + data[601:],
    "another's": lambda _, other: other,
    "empty": lambda *_: b"",
}


def path_of(world: World, key: str) -> Path:
    return Path(world.store.uri(key).removeprefix("file://"))


@pytest.mark.parametrize("damage", DAMAGE)
def test_rows_that_end_later_are_published_from_what_was_written_only(tmp_path: Path, damage: str) -> None:
    world = make_world(tmp_path)
    world.copy(3)
    (other,) = (path_of(world, key) for key in world.stored("data"))
    log = world.log()
    first = log.end
    log.write(3, 7)
    log.write(40)
    log.write(2, 8)
    world.copy_range(first, log.end - 1)
    (source,) = (path_of(world, key) for key in world.stored("data") if other.name not in key)
    world.publish()
    start = log.end
    log.end_transaction(7, commit=False)
    log.end_transaction(8, commit=True)
    log.write(2)
    world.copy_range(start, log.end - 1)
    plain, committed = log.outcome()
    whole = source.read_bytes()
    source.write_bytes(DAMAGE[damage](whole, other.read_bytes()))
    with pytest.raises(BridgeError, match=source.name) as raised:
        world.publish()
    assert raised.value.kind == "corrupt_object"
    source.write_bytes(whole)
    world.publish()
    assert world.offsets() == sorted(plain | committed)


def test_a_merge_of_a_cut_file_names_it_and_other_topics_are_maintained(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    two = World(world.store, world.catalog, topic="two")
    for each in (world, two):
        for _ in range(5):
            each.copy(3)
        each.publish()
    cut = path_of(world, sorted(world.stored("data"))[1])
    cut.write_bytes(cut.read_bytes()[:300])
    config = tmp_path / "bridge.yaml"
    config.write_text(f"data_dir: {tmp_path}\nmerge: {{files_min: 3, age: 0s}}\n")
    said: list[str] = []
    backend = open_backend(config, None)
    with pytest.raises(BridgeError, match=cut.name):
        maintain(backend, None, dry_run=False, say=said.append)
    backend.catalog.close()
    assert any(line.startswith("two") for line in said)
    assert any(cut.name in line for line in said)
