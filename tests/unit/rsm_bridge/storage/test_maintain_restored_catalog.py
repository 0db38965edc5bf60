"""A catalog restored from a backup: the head names files that retention and merges have deleted since."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.merge import MergeLimits
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import index_key, stored_key, stored_range
from rsm_bridge.storage.listed_keys import DeniedKeyError
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.tombstone import decode_tombstone
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain import missing_files
from rsm_bridge.tables.maintain.maintain import open_maintenance
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.worlds.catalog_support import Place
from tests.worlds.foreign_support import delete_by_position, roll_back
from tests.worlds.maintain_support import World, make_world, published

MERGES = MergeLimits(
    small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=60_000, span_ms=24 * 3_600_000
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, merging=MERGES)


def catalog_entry(folder: Path, location: str | None = None) -> str:
    """Which metadata.json the catalog has for the table; `location` puts back an older one, as a restored backup."""
    with sqlite3.connect(folder / "catalog.db") as db:
        if location is not None:
            db.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'orders'", [location])
        (found,) = db.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'orders'").fetchone()
    db.close()
    return str(found)


def maintained(world: World, folder: Path, *, dry_run: bool = False, retention: str = "follow-kafka") -> Tally:
    """A pass as bridges make it, in a new process."""
    config = folder / "maintain.yaml"
    rule = f"topics:\n  - {{pattern: '.*', table_retention: {retention}}}\n"
    config.write_text(f"data_dir: {folder}\nmerge: {{small_mib: 0}}\n{rule}")
    tally = Tally()
    settings = load_settings(config, {})
    context = table_context(settings, world.store, clock_ms=world.now_ms)
    open_maintenance(settings, world.store, world.catalog, world.topic_id, context).run(tally, dry_run=dry_run)
    return tally


def reclaimed(world: World, folder: Path) -> str:
    """Two of three segments deleted by retention and gone from the store; what the catalog had before."""
    first, second, _ = published(world)
    backup = catalog_entry(folder)
    world.delete(first, second)
    world.publish()
    world.later(world.graces.reclaim + 1)
    assert world.reclaim().objects["data"] == 2
    return backup


def merged_and_swept(world: World, folder: Path) -> str:
    """Three live segments in one merged file, the small ones gone; what the catalog had before."""
    published(world)
    backup = catalog_entry(folder)
    world.later(61)
    assert world.maintain().merged == 3
    world.later(world.graces.reclaim + 10)
    assert world.maintain().objects["snapshot"]
    world.later(COPY_IS_OVER_SECONDS)
    assert world.maintain().objects["data"] == 3
    return backup


def test_deleted_rows_of_a_restored_head_leave_it(world: World, tmp_path: Path) -> None:
    catalog_entry(tmp_path, reclaimed(world, tmp_path))
    with pytest.raises(FileNotFoundError):
        world.offsets()
    assert maintained(world, tmp_path, dry_run=True).missing == 2
    assert maintained(world, tmp_path).missing == 2
    assert world.offsets() == [6, 7, 8]
    world.publisher = World(world.store, world.catalog, topic_id=world.topic_id).publisher
    assert world.publish().files_added == 0
    assert maintained(world, tmp_path).missing == 0
    assert world.offsets() == [6, 7, 8]


def test_all_of_it_deleted_leaves_an_empty_table(world: World, tmp_path: Path) -> None:
    segments = published(world)
    backup = catalog_entry(tmp_path)
    world.delete(*segments)
    world.publish()
    world.later(world.graces.reclaim + 1)
    world.reclaim()
    assert not world.stored()
    catalog_entry(tmp_path, backup)
    assert maintained(world, tmp_path).missing == 3
    assert world.offsets() == []


def test_live_rows_of_a_restored_head_come_from_the_merged_file(world: World, tmp_path: Path) -> None:
    catalog_entry(tmp_path, merged_and_swept(world, tmp_path))
    with pytest.raises(FileNotFoundError):
        world.offsets()
    assert maintained(world, tmp_path).missing == 3
    assert world.offsets() == list(range(9))
    world.copy(3)
    world.publisher = World(world.store, world.catalog, topic_id=world.topic_id).publisher
    world.publish()
    assert world.offsets() == list(range(12))


def hidden(world: World, monkeypatch: pytest.MonkeyPatch, keys: set[str], listings: int) -> None:
    """The store says of these keys that they are not there; the first so many listings say so too."""
    size, listed, left = world.store.size, world.store.list_after, [listings]

    def denied(key: str) -> int:
        if key in keys:
            raise ObjectNotFoundError(key)
        return size(key)

    def short(prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        data = prefix.startswith("data/")
        left[0] -= data
        return (item for item in listed(prefix, after) if left[0] < 0 or not data or item.key not in keys)

    monkeypatch.setattr(world.store, "size", denied)
    monkeypatch.setattr(world.store, "list_after", short)


def half_reclaimed(world: World) -> set[str]:
    """The data file of a segment whose objects are about to go; the head still names it, as a restored one would."""
    first, *_ = published(world)
    before = set(world.stored("data"))
    world.delete(first)
    key = str(index_key(first))
    current = world.store.read(key)
    stone = replace(decode_tombstone(current.data), reclaiming=True)
    assert world.store.replace(key, stone.encode(), current.version)
    return {name for name in before if stored_range(name) == (0, 0, 2)}


def test_rows_that_an_engine_had_deleted_by_then_do_not_come_back(world: World, tmp_path: Path) -> None:
    """Until its commit, which the restored entry has, is put back there too."""
    published(world)
    ours = world.loaded().metadata.current_snapshot_id
    head = world.observe().head
    assert ours is not None
    assert head is not None
    place = Place(world.catalog, world.loaded(), tmp_path / "unused")
    delete_by_position(place, min(file.path for file in head.files), [1])
    backup = catalog_entry(tmp_path)
    roll_back(place, ours)
    world.publish()
    world.later(61)
    assert world.maintain().merged == 3
    world.later(world.graces.reclaim + 10)
    assert world.maintain().objects["snapshot"]
    world.later(COPY_IS_OVER_SECONDS)
    assert world.maintain().objects["data"] == 3
    catalog_entry(tmp_path, backup)
    done = maintained(world, tmp_path)
    assert (done.missing, done.missing_stay) == (0, 3)
    roll_back(place, ours)
    assert maintained(world, tmp_path).missing == 3
    assert world.offsets() == list(range(9))


def test_what_a_later_listing_has_stays(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = half_reclaimed(world)
    hidden(world, monkeypatch, keys, 1)
    with pytest.raises(DeniedKeyError):
        maintained(world, tmp_path)
    assert world.offsets() == list(range(9))


def test_what_only_a_listing_lacks_stays(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = half_reclaimed(world)
    size = world.store.size
    hidden(world, monkeypatch, keys, 1_000)
    monkeypatch.setattr(world.store, "size", size)
    assert maintained(world, tmp_path).missing == 0
    assert world.offsets() == list(range(9))


def test_a_removal_that_died_halfway_is_finished(world: World, tmp_path: Path) -> None:
    world.store.delete_many(sorted(half_reclaimed(world)))
    assert maintained(world, tmp_path).missing == 1
    assert world.offsets() == list(range(3, 9))


def test_a_store_that_is_partly_away_decides_nothing(world: World, tmp_path: Path) -> None:
    """Two files of deleted rows are gone, and one that a live index names: that is damage, and no restored catalog."""
    catalog_entry(tmp_path, reclaimed(world, tmp_path))
    before = catalog_entry(tmp_path)
    world.store.delete_many(world.stored("data"))
    with pytest.raises(BridgeError, match="until the store is whole again") as refused:
        maintained(world, tmp_path)
    assert refused.value.kind == "corrupt_object"
    assert catalog_entry(tmp_path) == before


def test_a_live_segment_without_its_file_is_damage(world: World, tmp_path: Path) -> None:
    published(world)
    before = catalog_entry(tmp_path)
    (lost,) = world.stored("data")[:1]
    world.store.delete_many([lost])
    done = maintained(world, tmp_path)
    assert (done.missing, done.lost) == (0, [world.store.uri(lost)])
    assert any("data files that live segments need are lost: 1" in line for line in done.lines())
    assert catalog_entry(tmp_path) == before


@pytest.mark.parametrize(("retention", "stays"), [("keep", 2), ("10000d", 2), ("1d", 0)])
def test_rows_that_retention_does_not_take_stay_named(world: World, tmp_path: Path, retention: str, stays: int) -> None:
    catalog_entry(tmp_path, reclaimed(world, tmp_path))
    done = maintained(world, tmp_path, retention=retention)
    assert (done.missing, done.missing_stay) == (2 - stays, stays)
    if stays:
        assert any("stay in it" in line for line in done.lines())
        with pytest.raises(FileNotFoundError):
            world.offsets()


def test_a_pass_asks_for_so_many_and_the_next_for_the_others(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_files, "MISSING_FILES_MAX", 1)
    catalog_entry(tmp_path, reclaimed(world, tmp_path))
    assert [maintained(world, tmp_path).missing for _ in range(3)] == [1, 1, 0]
    assert world.offsets() == [6, 7, 8]


def test_the_merged_file_of_an_archive_stays(world: World, tmp_path: Path) -> None:
    """Kafka has deleted the segments, nothing but the lost metadata named what they were merged into."""
    segments = published(world)
    backup = catalog_entry(tmp_path)
    world.later(61)
    assert world.maintain().merged == 3
    (merged,) = {stored_key(world.store, file.path) for file in LiveFiles().read(world.loaded()).files}
    world.delete(*segments)
    catalog_entry(tmp_path, backup)
    world.store.delete_many([str(index_key(segment)) for segment in segments])
    world.store.delete_many([key for key in world.stored("data") if key != merged])
    for _ in range(2):
        world.later(COPY_IS_OVER_SECONDS + world.graces.reclaim)
        assert maintained(world, tmp_path, retention="keep").missing_stay == 3
    assert world.stored("data") == [merged]
