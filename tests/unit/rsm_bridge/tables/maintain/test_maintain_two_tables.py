"""Two tables for one topic id, as while `catalog.namespace` changes bridge by bridge: neither's deletions cost rows."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from iceberg_catalog.commit.head import normal_path
from iceberg_catalog.commit.metadata_files import list_metadata
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.merge import MergeLimits
from rsm_bridge.config.settings import TableLayout
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import OTHER_TABLE_RECHECK_SECONDS
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import derived_head, state_prefix
from rsm_bridge.storage.table_records import recorded_uuids
from rsm_bridge.tables.maintain.drop_other import drop_other
from rsm_bridge.tables.maintain.drop_table import drop_table
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.support.killed import KilledError, die_at
from tests.worlds.maintain_support import DAY, World, make_world, published

MERGING = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=6, age_ms=0, span_ms=DAY * 1000)
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
    made.rule(layout=world.publisher.context.layout)
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
    old.rule(layout="inside")
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


def drop(world: World, table: uuid.UUID) -> str:
    """As `tierberg table drop UUID` with the settings of this world."""
    return drop_other(world.store, world.catalog, table, lambda _: world.table(), Tally())


@pytest.mark.parametrize("layout", ["outside", "inside"])
def test_the_old_table_is_dropped_and_its_leftovers_go(tmp_path: Path, layout: TableLayout) -> None:
    old = make_world(tmp_path)
    old.rule(layout=layout)
    first, *_ = published(old)
    new = second(old)
    new.delete(first)
    new.publish()
    later(new)
    new.reclaim()
    before = [key for key in new.stored("data") if key.endswith(".parquet")]
    gone = old.loaded().metadata.table_uuid
    old.publish()
    assert "lakehouse.orders" in drop(new, gone)
    assert old.table() is None
    assert not list(new.store.list_after(state_prefix(gone)))
    new.publish()
    new.reclaim()
    new.maintain()
    new.check()
    assert new.offsets() == list(range(3, 9))
    assert len([key for key in new.stored("data") if key.endswith(".parquet")]) == len(before) - 1


def test_a_table_with_rows_that_no_other_has_is_not_dropped(tmp_path: Path) -> None:
    old = make_world(tmp_path)
    first, *_ = published(old)
    new = second(old)
    new.delete(first)
    new.publish()
    with pytest.raises(BridgeError, match=r"offsets 0 to 8 of partition 0, .*lakehouse\.orders has 3 to 8"):
        drop(new, old.loaded().metadata.table_uuid)
    new.copy(1)
    old.publish()
    with pytest.raises(BridgeError, match=r"has offsets 3 to 9 .* 3 to 8"):
        drop(new, old.loaded().metadata.table_uuid)


def test_the_table_of_today_is_not_dropped_by_its_uuid_nor_beside_another_by_its_name(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    with pytest.raises(BridgeError, match="is what these settings name"):
        drop(new, new.loaded().metadata.table_uuid)
    with pytest.raises(BridgeError, match="has another table too"):
        drop_table(new.store, new.catalog, "lakehouse", "orders", Tally())
    with pytest.raises(BridgeError, match="knows of no table"):
        drop(new, uuid.uuid4())
    whole(old, new)


def test_a_table_that_the_catalog_has_lost_is_forgotten(tmp_path: Path) -> None:
    """Made anew, it has another uuid; until somebody says that the old one is gone its files stay."""
    world = make_world(tmp_path)
    first, *_ = published(world)
    lost = world.loaded().metadata.table_uuid
    world.catalog.drop_table(world.loaded().name())
    world.publish()
    world.delete(first)
    world.publish()
    later(world)
    tally = Tally()
    assert world.reclaimer.reclaim(world.observe(), tally) == OTHER_TABLE_RECHECK_SECONDS
    assert tally.waiting == 1
    assert "not in this catalog" in drop(world, lost)
    assert world.reclaim().objects["tombstone"] == 1
    world.check()


def test_a_table_whose_metadata_is_gone_is_not_forgotten(tmp_path: Path) -> None:
    """Its storage may only be away; whoever knows better drops the entry."""
    old = make_world(tmp_path)
    published(old)
    new = second(old)
    Path(normal_path(old.loaded().metadata_location)).unlink()
    with pytest.raises(CatalogError, match="--unreadable") as refused:
        drop(new, old_uuid := recorded(old, new))
    assert refused.value.kind == "table_unreadable"
    assert old_uuid in recorded_uuids(old.store, old.topic_id)


def recorded(old: World, new: World) -> uuid.UUID:
    """The one recorded table of the topic id that is not `new`'s."""
    (found,) = recorded_uuids(old.store, old.topic_id) - {new.loaded().metadata.table_uuid}
    return found


def test_a_drop_that_died_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = pair(tmp_path)
    gone = old.loaded().metadata.table_uuid
    with monkeypatch.context() as patched:
        die_at(patched, "after-drop", 1)
        with pytest.raises(KilledError):
            drop(new, gone)
    drop(new, gone)
    assert not list(new.store.list_after(state_prefix(gone)))
    whole(new)
