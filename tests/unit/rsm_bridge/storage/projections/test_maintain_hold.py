"""Rows that wait for a projection, in store and catalog: publisher, reclaimer, maintenance, undelete and proof."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.hold import ReadTo
from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.status.verify.table import check_table
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import ProjectionReaders, WaitingProjection
from rsm_bridge.storage.projections.progress import ProjectionProgress, progress_key
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.segments.listing import Notices, SegmentListing
from rsm_bridge.tables.maintain.drop_table import drop_table
from rsm_bridge.tables.maintain.maintain import observe
from rsm_bridge.tables.maintain.undelete import undelete
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.projection_progress import put_progress
from tests.worlds.maintain_support import DAY, NAMESPACE, World, make_world, published

HOLD = 7 * DAY


def waiting(world: World, *projections: WaitingProjection) -> None:
    """The bridge's rules declare these projections."""
    world.rule(projections=lambda _owner, _plain: projections)


def projection(read: Mapping[int, int] | None = None) -> WaitingProjection:
    return WaitingProjection(
        "kafka.projection", HOLD * 1000, {number: ReadTo(end) for number, end in (read or {}).items()}
    )


def held(folder: Path, **changes: Any) -> World:
    """A table of three segments, of which Kafka deleted two, and a projection that has read nothing."""
    world = make_world(folder, **changes)
    segments = published(world)
    waiting(world, projection())
    world.delete(*segments[:2])
    return world


def found_by(world: World) -> Any:
    return observe(world.store, world.catalog, world.topic_id, world.publisher.context)


def test_rows_stay_until_they_are_read_and_then_go_with_their_objects(tmp_path: Path) -> None:
    world = held(tmp_path, graces=Graces(0.0, 0.0))
    result = world.publish()
    assert world.offsets() == list(range(9))
    assert {number: start for number, (start, _) in result.waiting.items()} == {0: 0}
    world.later(6 * DAY)
    assert not world.reclaim(result).objects
    waiting(world, projection({0: 3}))
    result = world.publish()
    assert world.offsets() == [3, 4, 5, 6, 7, 8]
    world.reclaim(result)
    waiting(world, projection({0: 9}))
    result = world.publish()
    assert (world.offsets(), result.waiting) == ([6, 7, 8], {})
    world.reclaim(result)
    assert len(world.stored("index")) == 1
    world.check()


def test_rows_go_when_the_hold_has_ended(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    segments = published(world)
    waiting(world, projection())
    world.ahead_ms = -(HOLD - 60) * 1000
    world.delete(segments[0])
    world.ahead_ms = -(HOLD + 60) * 1000
    world.delete(segments[1])
    world.ahead_ms = 0
    world.publish()
    assert world.offsets() == [6, 7, 8]


@pytest.mark.parametrize("late_s", [60, -60])
def test_the_limit_counts_from_the_delete(tmp_path: Path, late_s: int) -> None:
    world = make_world(tmp_path)
    segments = published(world)
    waiting(world, projection())
    world.ahead_ms = -(HOLD + late_s) * 1000
    world.delete(segments[0])
    world.ahead_ms = 0
    world.publish()
    assert world.offsets() == list(range(3 if late_s > 0 else 0, 9))


def test_a_run_by_notice_holds_too_and_a_whole_listing_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = held(tmp_path)
    keys = frozenset(known.key for known in read_segments(world.store, world.topic_id))
    run = world.new_publisher(projections=world.publisher.context.projections)
    monkeypatch.setattr(SegmentListing, "wants_whole", lambda *_: False)
    result = run.run(Notices(keys))
    assert (result.complete, result.states[0].floor) == (False, 6)
    assert world.offsets() == list(range(9))
    waiting(world, projection({0: 9}))
    monkeypatch.undo()
    world.publish()
    assert world.offsets() == [6, 7, 8]


def test_held_rows_are_no_damage(tmp_path: Path) -> None:
    world = held(tmp_path)
    world.publish()
    rows, damages = check_table(world.store, world.loaded(), read_segments(world.store, world.topic_id))
    assert (rows, damages) == (9, [])


def test_a_bit_of_a_deleted_segment_s_rows_is_damage(tmp_path: Path) -> None:
    """Nothing but its tombstone tells what the file was, and engines read what is there."""
    world = held(tmp_path)
    world.publish()
    path = Path(LiveFiles().read(world.loaded()).files[0].path.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    _, damages = check_table(world.store, world.loaded(), read_segments(world.store, world.topic_id))
    assert len(damages) == 1
    assert str(path) in damages[0]


def test_a_topic_that_was_deleted_is_held_as_well(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    segments = published(world)
    waiting(world, projection())
    world.delete(*segments)
    world.later(DAY)
    world.reclaim(world.publish())
    assert world.offsets() == list(range(9))
    world.maintain()
    waiting(world, projection({0: 9}))
    world.reclaim(world.publish())
    assert world.offsets() == []
    assert world.stored() == []


def test_a_tombstone_stays_while_rows_of_a_derived_file_wait_for_its_time(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    log = world.log()
    log.write(2, 7)
    log.write(2)
    log.end_transaction(7, commit=False)
    segment = world.copy_range(0, 4)
    assert world.publish().files_derived == 1
    waiting(world, projection())
    world.delete(segment)
    result = world.publish()
    world.later(DAY)
    assert not world.reclaim(result).objects
    # Without it nobody would know since when they wait, and they would go.
    assert world.reclaim(world.observe()).objects["tombstone"] == 1
    world.publish()
    assert world.offsets() == []


def test_what_maintenance_sees_holds_as_well(tmp_path: Path) -> None:
    world = held(tmp_path)
    world.publish()
    assert found_by(world).waiting.keys() == {0}
    assert world.observe().waiting == {}


def test_a_withdrawn_copy_tells_since_when_nothing_waits(tmp_path: Path) -> None:
    """Only retention does; the withdrawn copy's rows wait with those below the deletion above them."""
    world = make_world(tmp_path)
    segments = published(world)
    waiting(world, projection())
    world.ahead_ms = -2 * DAY * 1000
    world.withdraw(segments[0])
    world.ahead_ms = 0
    world.publish()
    assert world.offsets() == list(range(9))
    waiting(world, projection({0: 6}))
    world.publish()
    assert world.offsets() == list(range(9))
    world.delete(segments[1])
    world.publish()
    assert world.offsets() == [6, 7, 8]


def test_what_was_deleted_before_it_was_published_comes_for_the_projection(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    first = published(world, (3,))
    second = world.copy(3)
    world.delete(*first, second)
    waiting(world, projection())
    world.reclaim(world.publish())
    assert world.offsets() == list(range(6))
    world.check()


def test_an_undelete_loses_no_row_that_waits(tmp_path: Path) -> None:
    world = held(tmp_path)
    world.publish()
    undelete(world.store, world.catalog, world.topic_id, world.publisher.context)
    assert world.offsets() == list(range(9))
    world.publish()
    assert world.offsets() == list(range(9))
    world.check()


def test_a_dropped_table_leaves_no_progress(tmp_path: Path) -> None:
    world = make_world(tmp_path, graces=Graces(0.0, 0.0))
    segments = published(world)
    put_progress(world.store, ProjectionProgress(topic_id=world.topic_id, catalog="tierberg", table="kafka.projection"))
    world.delete(*segments)
    world.reclaim(world.publish())
    drop_table(world.store, world.catalog, NAMESPACE, "orders", Tally())
    assert list(world.store.list_after("copies/")) == []


class Counting:
    """A store that counts reads of progress."""

    def __init__(self, store: ObjectStore) -> None:
        self.store, self.asked = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def head_bytes(self, key: str, length: int) -> memoryview:
        self.asked += key.startswith("copies/")
        return self.store.head_bytes(key, length)


@pytest.mark.parametrize(("pattern", "asked"), [("orders", 1), ("others", 0)])
def test_runs_of_topics_with_projections_ask_once_for_some_seconds_and_others_never(
    tmp_path: Path, pattern: str, asked: int
) -> None:
    world = make_world(tmp_path)
    published(world)
    topics = [{"pattern": pattern, "copies": [{"table": "projection"}]}]
    store = Counting(world.store)
    readers = ProjectionReaders(load_settings(None, {"data_dir": tmp_path, "topics": topics}), store)  # type: ignore[arg-type]
    world.rule(projections=readers.waiting)
    for _ in range(3):
        world.publish()
    assert store.asked == asked


def test_damaged_progress_makes_no_row_go(tmp_path: Path) -> None:
    world = held(tmp_path)
    topics = [{"pattern": "orders", "copies": [{"table": "projection"}]}]
    readers = ProjectionReaders(load_settings(None, {"data_dir": tmp_path, "topics": topics}), world.store)
    world.rule(projections=readers.waiting)
    assert world.store.put_if_absent(progress_key(world.topic_id, "tierberg", "kafka.projection"), b'{"crc32c": 1}')
    world.publish()
    assert world.offsets() == list(range(9))
