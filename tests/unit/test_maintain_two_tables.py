"""Two tables for one topic id, as while `catalog.namespace` changes bridge by bridge: neither's deletions cost rows."""

from __future__ import annotations

import os
from pathlib import Path

from iceberg_catalog.livefiles import normal_path
from iceberg_catalog.metadata_files import list_metadata
from iceberg_catalog.plan_merge import MergeLimits
from rsm_bridge.layout import derived_head
from rsm_bridge.sweep import COPY_IS_OVER_SECONDS
from tests.unit.maintain_support import DAY, World, make_world, published

MERGING = MergeLimits(2**20, 2**24, files_min=3, files_max=6, age_ms=0, span_ms=DAY * 1000)
LONG = 30.0 * COPY_IS_OVER_SECONDS


def second(world: World, namespace: str = "lakehouse") -> World:
    """The same topic by another bridge's rules."""
    made = World(
        world.store,
        world.catalog,
        world.topic,
        world.topic_id,
        world.logs,
        world.graces,
        merging=world.merging,
        namespace=namespace,
    )
    made.publisher.layout = world.publisher.layout
    made.publish()
    return made


def later(*worlds: World) -> None:
    for world in worlds:
        world.later(LONG)


def pair(folder: Path) -> tuple[World, World]:
    """Nine rows in files of three, in two tables; each has its own derived file of rows 6 to 11 too."""
    old = make_world(folder, merging=MERGING)
    published(old)
    old.log().write(3)
    old.copy_range(6, 11)
    new = second(old)
    old.publish()
    for world in (old, new):
        assert world.offsets() == list(range(12))
    return old, new


def age_metadata(world: World) -> None:
    for item in list_metadata(world.loaded()):
        path = Path(normal_path(item.location))
        then = path.stat().st_mtime - LONG
        os.utime(path, (then, then))


def whole(*worlds: World) -> None:
    for world in worlds:
        world.check()
        assert world.offsets() == list(range(12))


def test_a_derived_file_of_the_other_table_stays(tmp_path: Path) -> None:
    """Its head is none that this table ever had."""
    old, new = pair(tmp_path)
    new.maintenance.merger = None
    assert any(derived_head(key) is not None for key in old.stored("data"))
    later(old, new)
    new.maintain()
    whole(old, new)


def test_merged_away_files_stay_while_the_other_table_names_them(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    for world in (old, new, old, new):
        later(old, new)
        world.maintain()
        whole(old, new)


def test_deleted_segments_stay_while_the_other_table_names_them(tmp_path: Path) -> None:
    old = make_world(tmp_path)
    first, *_ = published(old)
    new = second(old)
    old.delete(first)
    old.publish()
    later(old, new)
    old.reclaim()
    old.maintain()
    new.check()
    assert new.offsets() == list(range(9))
    new.publish()
    assert new.offsets() == list(range(3, 9))


def test_metadata_of_the_other_table_in_the_same_folder_stays(tmp_path: Path) -> None:
    """`catalog.layout: inside` puts the metadata of both tables into the folder of the topic id."""
    old = make_world(tmp_path)
    old.publisher.layout = "inside"
    published(old)
    new = second(old)
    assert Path(old.loaded().metadata_location).parent == Path(new.loaded().metadata_location).parent
    age_metadata(old)
    later(old, new)
    old.copy(1)
    old.publish()
    old.maintain()
    new.check()
    assert new.offsets() == list(range(9))


def test_without_its_own_table_nothing_of_the_other_one_is_reclaimed(tmp_path: Path) -> None:
    """All segments are deleted, so rules for another name find no table and make none."""
    old = make_world(tmp_path)
    segments = published(old)
    old.delete(*segments)
    new = second(old)
    assert new.table() is None
    later(old, new)
    new.reclaim()
    new.maintain()
    old.check()
    assert old.offsets() == list(range(9))
