"""What crashes leave behind is found and removed, and nothing that anybody could still name."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from converter.types import Mode
from iceberg_catalog.commit.head import normal_path
from iceberg_catalog.commit.metadata_files import list_metadata, named_metadata
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from iceberg_catalog.plan.types import PartState
from rsm_bridge.limits import SNAPSHOT_AGE_SECONDS_MAX
from rsm_bridge.storage.keys import DATA_ROOT, KEPT_ROOT, index_key
from rsm_bridge.storage.state_objects import StateObjects
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.unit.rsm_bridge.storage.test_maintain_reclaim import held
from tests.worlds.foreign_support import set_head
from tests.worlds.maintain_support import World, make_world, published


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def age(world: World, seconds: float, *keys: str) -> None:
    """Makes objects older than they are."""
    for key in keys:
        path = Path(world.store.uri(key).removeprefix("file://"))
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def put(world: World, key: str) -> str:
    assert world.store.put_if_absent(key, b"left behind")
    return key


def derived_key(world: World, head: int, number: int = 0, table: uuid.UUID | None = None) -> str:
    """Of this world's table if it has one."""
    found = world.table()
    owner = table or (uuid.uuid4() if found is None else found.metadata.table_uuid)
    name = f"{number:020d}-{number:020d}-d{head}-{owner.hex}-{uuid.uuid4().hex}.parquet"
    return f"{DATA_ROOT}{world.topic_id.hex()}/0/{name}"


def test_what_a_crashed_copy_left_goes_after_its_deadline(world: World) -> None:
    published(world)
    named = set(world.stored("data", "kept"))
    world.log().write(3)
    world.copy_range(9, 11, indexed=False)
    left = set(world.stored("data", "kept")) - named
    assert left
    world.later(COPY_IS_OVER_SECONDS - 60)
    assert not world.maintain().objects["data"]
    assert left <= set(world.stored("data", "kept"))
    world.later(120)
    assert world.maintain().objects["data"] == 1
    assert set(world.stored("data", "kept")) == named
    world.check()


@pytest.mark.parametrize("mode", ["table", "verbatim"])
def test_what_a_lost_index_named_stays_until_somebody_has_restored_it(world: World, mode: Mode) -> None:
    """Also where the table has none of its rows: those above it are published without it."""
    world.copy(3)
    world.log().write(3)
    index = str(index_key(world.copy_range(3, 5, mode=mode)))
    world.copy(3)
    whole = world.store.read(index).data
    world.store.delete_many([index])
    world.publish()
    had = set(world.stored("data", "kept"))
    age(world, 2 * COPY_IS_OVER_SECONDS, *had)
    world.later(2 * COPY_IS_OVER_SECONDS)
    world.maintain()
    assert set(world.stored("data", "kept")) == had
    assert world.store.put_if_absent(index, whole)
    assert world.served(index)


def test_what_a_tombstone_leads_to_is_left_to_the_reclaimer(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.publish()
    world.later(30 * COPY_IS_OVER_SECONDS)
    before = world.stored()
    world.maintain()
    assert world.stored() == before


def passed_head(world: World) -> int:
    head = world.loaded().metadata.current_snapshot_id
    assert head is not None
    return head


def expire(world: World, snapshot: int) -> None:
    """As engines do."""
    world.catalog.commit_table(
        world.loaded(), (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot]}),)
    )


def test_a_derived_file_goes_when_its_head_can_be_no_head_any_more(world: World) -> None:
    published(world)
    head = passed_head(world)
    on_the_way, lost = put(world, derived_key(world, head)), put(world, derived_key(world, 12345, 1))
    world.later(world.graces.reclaim + 5)
    assert world.maintain().objects["derived"] == 1
    assert lost not in world.stored("data")
    assert on_the_way in world.stored("data")
    world.copy(1)
    world.publish()
    world.later(world.graces.reclaim + 5)
    # Somebody may roll the table back to it and forward again, and then the commit that was planned on it lands.
    assert not world.maintain().objects["derived"]
    expire(world, head)
    world.later(world.graces.reclaim + 5)
    assert world.maintain().objects["derived"] == 1
    assert on_the_way not in world.stored("data")


def test_a_commit_that_lands_after_a_rollback_and_back_has_its_derived_file(world: World) -> None:
    published(world)
    before = passed_head(world)
    world.copy(1)
    world.publish()
    planned_on = passed_head(world)
    world.log().write(3)
    world.copy_range(9, 12)
    run = held(world)
    (derived,) = [key for key in world.stored("data") if f"-d{planned_on}-" in key]
    world.catalog.commit_table(world.loaded(), (), set_head(before))
    world.later(30 * COPY_IS_OVER_SECONDS)
    world.maintain()
    assert derived in world.stored("data")
    world.catalog.commit_table(world.loaded(), (), set_head(planned_on))
    run.land()
    assert world.offsets() == list(range(13))
    world.check()


def test_a_derived_file_of_a_kept_snapshot_stays(world: World) -> None:
    published(world)
    planned_on = passed_head(world)
    world.log().write(3)
    world.copy_range(6, 11)
    world.publish()
    world.copy(1)
    world.publish()
    expire(world, planned_on)
    world.later(30 * COPY_IS_OVER_SECONDS)
    assert not world.maintain().objects["derived"]
    world.check()


def test_without_a_table_data_files_stay(world: World) -> None:
    """Perhaps the settings name another catalog; then somebody's table may name them."""
    world.log().write(3)
    world.copy_range(0, 2, indexed=False)
    kept = put(world, f"{KEPT_ROOT}{world.topic_id.hex()}/0/{0:020d}-{2:020d}-{uuid.uuid4().hex}.kept")
    derived = put(world, derived_key(world, 12345))
    world.later(30 * COPY_IS_OVER_SECONDS)
    tally = world.maintain()
    assert tally.objects["kept"] >= 1
    assert kept not in world.stored("kept")
    assert derived in world.stored("data")
    assert len(world.stored("data")) == 2
    assert tally.waiting == 2


def test_objects_of_other_names_are_not_touched(world: World) -> None:
    published(world)
    foreign = put(world, f"{DATA_ROOT}{world.topic_id.hex()}/0/part-00000.parquet")
    world.later(30 * COPY_IS_OVER_SECONDS)
    world.maintain()
    assert foreign in world.stored("data")


def test_states_of_commits_that_never_landed_go(world: World) -> None:
    published(world)
    states = StateObjects(world.store)
    left = states.put(world.loaded(), {0: PartState(frontier=1)}, "a" * 32)
    young = states.put(world.loaded(), {0: PartState(frontier=2)}, "b" * 32)
    age(world, COPY_IS_OVER_SECONDS - 60, left.key)
    assert not world.maintain().objects["state"]  # the head's time is that of some bridge
    age(world, COPY_IS_OVER_SECONDS + 60, left.key)
    assert world.maintain().objects["state"] == 1
    stored = {listed.key for listed in world.store.list_after("state/")}
    assert left.key not in stored
    assert young.key in stored
    world.check()


def metadata_names(world: World) -> set[str]:
    return {normal_path(item.location) for item in list_metadata(world.loaded())}


def age_metadata(world: World, seconds: float) -> None:
    for name in metadata_names(world):
        then = Path(name).stat().st_mtime - seconds
        os.utime(name, (then, then))


def test_manifests_of_expired_snapshots_go_and_the_named_ones_stay(world: World) -> None:
    for _ in range(SNAPSHOTS_KEPT_MAX + 5):
        world.copy(1)
        world.publish()
    assert not world.maintain().objects["metadata"]  # it folds, which is a commit
    before = metadata_names(world)
    assert before > named_metadata(world.loaded())
    age_metadata(world, 2 * COPY_IS_OVER_SECONDS)
    world.later(1)
    tally = world.maintain()
    assert tally.objects["metadata"] >= 5
    assert metadata_names(world) == before & named_metadata(world.loaded())
    assert world.offsets() == list(range(SNAPSHOTS_KEPT_MAX + 5))
    world.check()


def test_what_was_written_after_the_head_may_be_on_its_way(world: World) -> None:
    published(world)
    folder = Path(normal_path(world.loaded().metadata_location)).parent
    young = folder / f"{uuid.uuid4()}-m0.avro"
    young.write_bytes(b"of a commit that hangs")
    world.later(30 * COPY_IS_OVER_SECONDS)
    assert not world.maintain().objects["metadata"]
    assert young.exists()


def test_snapshots_replaced_long_ago_expire(world: World) -> None:
    published(world)
    for _ in range(3):
        world.copy(1)
        world.publish()
    world.later(SNAPSHOT_AGE_SECONDS_MAX - 60)
    assert not world.maintain().objects["snapshot"]
    world.later(120)
    assert world.maintain().objects["snapshot"] == 3
    assert len(world.loaded().metadata.snapshots) == 1
    assert len(world.offsets()) == 12
    world.check()


def test_a_dry_run_changes_nothing_and_counts_the_same(world: World) -> None:
    published(world)
    world.log().write(3)
    world.copy_range(9, 11, indexed=False)
    world.later(2 * COPY_IS_OVER_SECONDS)
    before = world.stored(), metadata_names(world)
    told = world.maintain(dry_run=True)
    assert (world.stored(), metadata_names(world)) == before
    assert world.maintain().objects == told.objects


def test_what_is_named_meanwhile_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit lands between the listing of objects and the load of the table."""
    published(world)
    world.log().write(3)
    world.copy_range(6, 11)
    sweeper = world.maintenance._sweeper
    listing = sweeper.stored

    def slow() -> object:
        found = listing()
        world.publish()
        return found

    monkeypatch.setattr(type(sweeper), "stored", lambda _: slow())
    world.later(30 * COPY_IS_OVER_SECONDS)
    world.maintain()
    world.check()
    assert world.offsets() == list(range(12))


def test_small_manifests_of_a_table_that_rests_are_folded(world: World) -> None:
    for number in range(6):
        world.copy(2)
        world.publish()
        if number == 3:
            assert not world.maintain(dry_run=True).objects["folded"]
    assert world.maintain(dry_run=True).objects["folded"] == 6
    before = world.publisher._live.read(world.loaded())
    assert world.maintain().objects["folded"] == 6
    head = world.publisher._live.read(world.loaded())
    assert (len(before.manifests), len(head.manifests)) == (6, 1)
    assert set(head.files) == set(before.files)
    assert len(world.offsets()) == 12
    assert not world.maintain().objects["folded"]
    world.copy(2)
    world.publish()
    assert len(world.offsets()) == 14
    world.check()


def test_a_derived_file_of_a_table_that_is_recorded_nowhere_goes_when_it_is_old(world: World) -> None:
    published(world)
    left = put(world, derived_key(world, 12345, table=uuid.uuid4()))
    world.later(COPY_IS_OVER_SECONDS - 60)
    assert not world.maintain().objects["derived"]
    world.later(120)
    assert world.maintain().objects["derived"] == 1
    assert left not in world.stored("data")
