"""Tables that share a folder of metadata: maintenance and a drop of one remove nothing of the others."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from iceberg_catalog.commit import metadata_files
from iceberg_catalog.commit.head import normal_path
from iceberg_catalog.commit.metadata_files import list_metadata, named_metadata, own_metadata
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.tables.maintain.drop_table import drop_table
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.worlds.maintain_support import World, make_world, published

LONG = 30.0 * COPY_IS_OVER_SECONDS
PUT_ASIDE = ("kafka", "orders_2025")


def files(table: Table) -> set[str]:
    return {normal_path(item.location) for item in list_metadata(table)}


def age(world: World) -> None:
    for name in files(world.loaded()):
        then = Path(name).stat().st_mtime - LONG
        os.utime(name, (then, then))
    world.later(1)


@pytest.fixture
def worlds(tmp_path: Path) -> tuple[World, World]:
    """A table that was put aside by its name, and the next one of the name, in the same folder."""
    old = make_world(tmp_path)
    published(old)
    old.catalog.rename_table(old.loaded().name(), PUT_ASIDE)
    new = World(old.store, old.catalog)
    published(new)
    assert old.catalog.load_table(PUT_ASIDE).location() == new.loaded().location()
    return old, new


def test_a_table_that_was_put_aside_is_there_still(worlds: tuple[World, World]) -> None:
    old, new = worlds
    for _ in range(SNAPSHOTS_KEPT_MAX + 5):
        new.copy(1)
        new.publish()
    new.maintain()  # it folds, which is a commit
    age(new)
    aside = old.catalog.load_table(PUT_ASIDE)
    theirs, before = named_metadata(aside), files(new.loaded())
    folder = Path(normal_path(aside.metadata_location)).parent
    of_an_engine = folder / f"{uuid.uuid4()}-m0.avro"
    of_an_engine.write_bytes(b"whose, nobody can tell")
    os.utime(of_an_engine, (0, 0))
    assert new.maintain().objects["metadata"] >= 5
    left = files(new.loaded())
    assert left == (before & named_metadata(new.loaded())) | theirs | {str(of_an_engine)}
    assert len(aside.scan().to_arrow()) == 9
    assert len(new.offsets()) == 9 + SNAPSHOTS_KEPT_MAX + 5


def test_a_drop_takes_its_own_files_alone(worlds: tuple[World, World]) -> None:
    old, new = worlds
    empty = World(old.store, old.catalog, topic="clicks")
    segment = empty.copy(3)
    empty.publish()
    empty.delete(segment)
    for _ in range(3):
        empty.publish()
        empty.later(LONG)
        empty.reclaim()
        empty.maintain()
    # As a second installation with the same warehouse has it.
    shared, own = new.loaded(), empty.loaded()
    for item in list_metadata(shared):
        shutil.copy(normal_path(item.location), Path(normal_path(own.metadata_location)).parent)
    theirs = {Path(normal_path(item.location)).name for item in list_metadata(shared)}
    drop_table(empty.store, empty.catalog, "kafka", "clicks", Tally())
    assert {Path(name).name for name in files(own)} == theirs


def test_what_lies_in_a_folder_that_a_property_names_may_be_anybodys(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    place = tmp_path / "metadata-of-all"
    with world.loaded().transaction() as change:
        change.set_properties({"write.metadata.path": f"file://{place}"})
    world.copy(1)
    world.publish()
    stranger = world.catalog.create_table(
        ("kafka", "facts"),
        Schema(NestedField(1, "n", LongType())),
        properties={"write.metadata.path": f"file://{place}"},
    )
    with stranger.transaction() as change:
        change.set_properties({"a": "b"})
    orphan = place / f"{uuid.uuid4()}-m0.avro"
    orphan.write_bytes(b"")
    own = {normal_path(item.location) for item in own_metadata(world.loaded())}
    assert own == files(world.loaded()) & named_metadata(world.loaded())
    age(world)
    world.maintain()
    assert world.catalog.load_table(("kafka", "facts")).properties["a"] == "b"
    assert orphan.exists()


def test_a_swap_that_was_lost_leaves_a_file_that_goes_unless_nobody_can_say_whose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    published(world)
    head = Path(normal_path(world.loaded().metadata_location))
    lost = head.with_name(f"00099-{uuid.uuid4()}.metadata.json")
    shutil.copy(head, lost)
    broken = head.with_name(f"00098-{uuid.uuid4()}.metadata.json")
    broken.write_text("{}")
    age(world)
    world.maintain()
    assert not lost.exists()
    assert broken.exists()
    shutil.copy(head, lost)
    monkeypatch.setattr(metadata_files, "METADATA_JSON_BYTES_MAX", 10)
    age(world)
    world.maintain()
    assert lost.exists()
    assert len(world.offsets()) == 9
