"""R12 and R13 over a real small table: what goes, when, and what must stay until then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import COPY_SECONDS_MAX, LATE_COPY_SECONDS, LATE_PUT_SECONDS
from rsm_bridge.storage.keys import derived_head, index_key
from rsm_bridge.storage.tombstone import decode_tombstone
from rsm_bridge.tables.publish.table_run import RetryRunError, TableRun
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import World, make_world, published

GRACE = 600.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def snapshots(world: World) -> int:
    return len(world.loaded().metadata.snapshots)


def test_a_file_stays_while_an_older_snapshot_that_is_kept_names_it(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    result = world.publish()
    assert world.offsets() == [3, 4, 5, 6, 7, 8]
    world.later(GRACE - 5)
    assert not world.reclaim(result).objects
    world.check()
    before = world.loaded().scan(snapshot_id=world.loaded().metadata.snapshots[0].snapshot_id)
    assert before.count() == 9


def test_after_the_grace_the_snapshots_expire_first_and_then_the_objects_go(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    result = world.publish()
    kept = snapshots(world)
    world.later(GRACE + 5)
    tally = world.reclaim(result)
    assert tally.objects == {"snapshot": 1, "data": 1, "tombstone": 1}
    assert tally.bytes["data"] > 0
    assert snapshots(world) == kept - 1
    assert len(world.stored()) == 4
    world.check()
    assert world.offsets() == [3, 4, 5, 6, 7, 8]


def test_without_a_grace_the_store_holds_nothing_of_the_topic(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 86400.0))
    world.delete(*published(world))
    world.reclaim(world.publish())
    assert world.stored() == []
    assert world.offsets() == []
    world.check()


def test_a_snapshot_that_a_tag_names_keeps_its_files(world: World) -> None:
    first, *_ = published(world)
    table = world.loaded()
    (snapshot,) = table.metadata.snapshots
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    world.delete(first)
    world.publish()
    world.later(30 * GRACE)
    assert not world.reclaim().objects
    world.check()
    world.loaded().manage_snapshots().remove_tag("audit").commit()
    assert world.reclaim().objects["data"] == 1
    world.check()


def test_the_grace_counts_from_when_the_rows_left_not_from_the_delete(world: World) -> None:
    """The catalog was away: the delete is old, but a query may have begun a second ago."""
    first, *_ = published(world)
    world.delete(first)
    key = str(index_key(first))
    current = world.store.read(key)
    stone = decode_tombstone(current.data)
    old = replace(stone, time_ms=stone.time_ms - 10 * 3600 * 1000)
    assert world.store.replace(key, old.encode(), current.version)
    assert not world.reclaim(world.publish()).objects
    world.later(GRACE + 5)
    assert world.reclaim().objects["data"] == 1


def test_the_grace_holds_when_many_commits_push_the_snapshots_out(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.reclaim(world.publish())
    for _ in range(SNAPSHOTS_KEPT_MAX + 2):
        world.copy(1)
        world.reclaim(world.publish())
    assert snapshots(world) == SNAPSHOTS_KEPT_MAX
    assert str(index_key(first)) in world.stored()
    world.later(GRACE + 5)
    assert world.reclaim(world.publish()).objects["tombstone"] == 1


def test_a_delete_the_state_has_not_seen_reclaims_nothing(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.later(30 * GRACE)
    assert not world.reclaim(world.observe()).objects
    world.check()


def test_a_swap_that_is_lost_reclaims_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = published(world)
    world.delete(first)
    result = world.publish()
    world.copy(1)
    world.publish()
    world.later(GRACE + 5)
    tally = world.reclaim(result)  # on a head that has passed
    assert not tally.objects
    assert len(world.stored("data")) == 4
    world.check()


def test_a_crash_between_objects_and_tombstone_is_finished(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.publish()
    world.later(GRACE + 5)
    delete = world.store.delete_many
    calls: list[Any] = []

    def once(keys: Any) -> None:
        calls.append(keys)
        if len(calls) == 2:
            raise StoreError("killed")
        delete(keys)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "delete_many", once)
        with pytest.raises(StoreError):
            world.reclaim()
    assert decode_tombstone(world.store.read(str(index_key(first))).data).reclaiming
    assert world.reclaim().objects["tombstone"] == 1
    assert str(index_key(first)) not in world.stored()
    world.check()


class Held(TableRun):
    """A publisher whose commit request hangs on its way."""

    def _commit(self, *request: Any) -> Any:
        self.request = request
        raise RetryRunError("on its way")

    def land(self) -> None:
        TableRun._commit(self, *self.request)


def held(world: World) -> Held:
    run = Held(store=world.store, catalog=world.catalog, topic_id=world.topic_id, context=world.context)
    with pytest.raises(RetryRunError):
        run.run()
    return run


def test_c10_a_withdrawn_copy_waits_for_one_more_commit(world: World) -> None:
    """Another bridge planned on this head, with the copy still live in its listing."""
    published(world)
    log = world.log()
    log.write(3, producer_id=7)
    lost_reply = world.copy_range(9, 11)
    world.publish()  # waits for the marker; the state has seen it
    log.end_transaction(7, commit=True)
    world.copy_range(12, 12)
    late = held(world)
    world.withdraw(lost_reply)
    world.later(GRACE + 5)
    before = snapshots(world)
    assert world.reclaim().objects["data"] == 1
    assert snapshots(world) == before + 1
    with pytest.raises(RetryRunError):
        late.land()
    world.check()
    assert world.offsets() == list(range(9))
    world.copy_range(9, 11)
    world.publish()
    assert world.offsets() == list(range(12))


def test_a_withdrawn_copy_that_was_uploaded_again_needs_no_fence(world: World) -> None:
    published(world)
    lost_reply = world.copy(3)
    world.withdraw(lost_reply)
    world.publish()
    world.copy_range(9, 11)
    world.publish()
    before = snapshots(world)
    world.later(GRACE + 5)
    assert world.reclaim().objects["data"] == 1
    assert snapshots(world) == before
    assert world.offsets() == list(range(12))


def test_a_withdrawn_copy_whose_rows_are_published_keeps_its_file(world: World) -> None:
    *_, last = published(world)
    world.withdraw(last)
    world.publish()
    world.later(30 * GRACE)
    assert not world.reclaim().objects
    assert world.offsets() == list(range(9))
    world.check()


def test_a_derived_file_goes_after_it_has_left_the_table(world: World) -> None:
    published(world)
    world.log().write(3)
    wide = world.copy_range(6, 11)  # another leader's segment begins lower: 9 to 11 come in a derived file
    world.publish()
    (derived,) = [key for key in world.stored("data") if derived_head(key) is not None]
    world.copy(2)
    world.publish()
    world.delete(wide)
    world.publish()
    assert world.offsets() == [12, 13]
    assert not world.reclaim().objects["derived"]
    assert derived in world.stored("data")
    world.later(GRACE + 5)
    assert world.reclaim().objects["derived"] == 1
    assert derived not in world.stored("data")
    world.check()


def test_a_tombstone_without_an_index_outlives_copies_that_may_still_end(world: World) -> None:
    published(world)
    never = world.copy_range(0, 2, indexed=False)
    world.withdraw(never)
    world.graces = Graces(0.0, 0.0)
    world.reclaimer = world.new_reclaimer()
    assert not world.reclaim().objects
    world.later(LATE_COPY_SECONDS + 1)
    assert world.reclaim().objects == {"tombstone": 1}


def test_another_bridges_copy_may_last_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    published(world)
    never = world.copy_range(0, 2, indexed=False)
    world.withdraw(never)
    monkeypatch.setattr(type(world.store), "single_process", False)
    world.later(max(GRACE, LATE_COPY_SECONDS) + 60)
    assert not world.reclaim().objects
    world.later(COPY_SECONDS_MAX + LATE_PUT_SECONDS)
    assert world.reclaim().objects == {"tombstone": 1}


def test_a_marker_at_the_frontier_keeps_a_withdrawn_segment(world: World) -> None:
    """C5: it is what decides the rows before it, until its copy has been uploaded again."""
    log = world.log()
    log.write(2)
    log.write(2, producer_id=7)
    world.copy_range(0, 3)
    world.publish()
    log.end_transaction(7, commit=True)
    world.withdraw(world.copy_range(4, 4))
    world.publish()
    assert world.offsets() == [0, 1, 2, 3]
    world.later(30 * GRACE)
    assert not world.reclaim().objects
    world.copy_range(4, 4)
    world.publish()
    assert world.reclaim().objects["tombstone"] == 1


def test_a_dry_run_changes_nothing_and_counts_the_same(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.publish()
    world.later(GRACE + 5)
    before, kept = world.stored(), snapshots(world)
    world.reclaimer = world.new_reclaimer(dry_run=True)
    told = world.reclaim()
    assert (world.stored(), snapshots(world)) == (before, kept)
    world.reclaimer = world.new_reclaimer()
    assert world.reclaim().objects == told.objects


def test_an_archive_keeps_the_objects_of_what_kafka_deleted(world: World) -> None:
    world.rule(retention=lambda _: "keep")
    world.delete(*published(world))
    world.publish()
    world.later(30 * GRACE)
    assert not world.reclaim().objects
    assert world.offsets() == list(range(9))
    world.check()


def test_an_archive_whose_time_has_come_is_reclaimed_like_any_table(world: World) -> None:
    world.rule(retention=lambda _: "keep")
    world.delete(*published(world))
    world.publish()
    world.rule(retention=lambda _: 24 * 3600.0)  # the records are of 2023
    world.publish()
    assert world.offsets() == []
    world.later(GRACE + 5)
    assert world.reclaim(world.publish()).objects["tombstone"] == 3
    world.check()
