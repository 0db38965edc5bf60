"""A table that keeps deleted rows has them again after a rollback to any snapshot it lists; what waits goes later."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from converter.types import SegmentMetadata
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow, Keep, KeepUntil, Policy
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import ROLLBACK_RECHECK_SECONDS, SNAPSHOT_AGE_SECONDS_MAX
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.storage.keys import index_key
from tests.support.bridge_process import publisher_of
from tests.worlds.foreign_support import set_head
from tests.worlds.maintain_support import DAY, World, make_world
from tests.worlds.requeue_support import run, segments
from tests.worlds.status_support import looked, of
from tierberg.cli import app

GRACE = 600.0
KEEPING = {"pattern": "orders", "table_retention": "keep"}
MERGING = MergeLimits(small_bytes=10**6, target_bytes=10**7, files_min=3, files_max=100, age_ms=0, span_ms=10**12)


def archive(folder: Path, policy: Policy | None = None, retention: str | float = "keep", **changes: Any) -> World:
    world = make_world(folder, policy=policy or Keep(), **changes)
    world.rule(retention=lambda _: retention)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return archive(tmp_path)


def head(world: World) -> int:
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def listed(world: World) -> set[int]:
    return {snapshot.snapshot_id for snapshot in world.loaded().metadata.snapshots}


def roll_back(world: World, snapshot_id: int) -> None:
    world.catalog.commit_table(world.loaded(), (), set_head(snapshot_id))
    world.publish()


def there(world: World, segment: SegmentMetadata) -> bool:
    return str(index_key(segment)) in world.stored("index")


def copied_twice(world: World) -> tuple[int, SegmentMetadata]:
    """Published from a copy whose reply was lost; the second copy, which Kafka has deleted, and the snapshot before."""
    first = world.copy()
    world.publish()
    before = head(world)
    lost = world.copy()
    world.publish()
    world.withdraw(lost)
    again = world.copy_range(lost.start_offset, lost.end_offset)
    world.copy()
    world.publish()
    world.delete(first, again)
    world.publish()
    world.later(2 * GRACE)
    world.reclaim(world.publish())
    return before, again


@pytest.mark.parametrize("retention", ["keep", "30d", "follow-kafka"])
def test_the_command_and_the_bridge_go_by_the_topics_rule(tmp_path: Path, retention: str) -> None:
    world = make_world(tmp_path / "data")
    world.rule(retention=lambda _: "keep")
    first = world.copy()
    world.publish()
    lost = world.copy()
    world.publish()
    world.withdraw(lost)
    again = world.copy_range(lost.start_offset, lost.end_offset)
    world.delete(first, again)
    world.publish()
    rule = f"{{pattern: orders, table_retention: {retention}}}"
    config = tmp_path / "tierberg.yaml"
    config.write_text(f"data_dir: {tmp_path / 'data'}\nreclaim_grace: 0s\ntopics: [{rule}]\n")
    done = CliRunner().invoke(app, ["maintain", "--config", str(config)])
    assert done.exit_code == 0, done.output
    kept = retention != "follow-kafka"
    assert there(world, again) is kept
    policy = {"keep": Keep(), "30d": KeepUntil(-30 * DAY * 1000), "follow-kafka": Follow()}[retention]
    assert publisher_of(load_settings(config, {}))._reclaimer(world.topic_id).policy("orders", 0) == policy


def test_a_second_copy_stays_while_a_snapshot_lacks_the_rows_of_the_first(world: World) -> None:
    before, again = copied_twice(world)
    assert before in listed(world), "a snapshot must not expire for what its rollback needs"
    assert there(world, again)
    roll_back(world, before)
    assert world.offsets() == list(range(9))
    world.check()


def test_without_a_grace_too(tmp_path: Path) -> None:
    world = archive(tmp_path)
    world.reclaimer.graces = replace(world.graces, reclaim=0.0)
    before, again = copied_twice(world)
    assert there(world, again)
    roll_back(world, before)
    assert world.offsets() == list(range(9))


def test_a_duration_keeps_it_likewise(tmp_path: Path) -> None:
    world = archive(tmp_path, KeepUntil(0), 36_500.0 * DAY)
    before, _ = copied_twice(world)
    roll_back(world, before)
    assert world.offsets() == list(range(9))


def test_where_rows_follow_kafka_nothing_waits(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    before, again = copied_twice(world)
    assert before not in listed(world)
    assert not there(world, again)
    roll_back(world, next(iter(listed(world))))
    assert world.offsets() == [6, 7, 8]
    tally = Tally()
    assert world.reclaimer.reclaim(world.observe(), tally) is None


def test_what_was_merged_stays_while_a_snapshot_is_from_before_it(tmp_path: Path) -> None:
    world = archive(tmp_path, merging=MERGING)
    world.copy(partition=1)
    world.publish()
    before = head(world)
    copies = []
    for _ in range(3):
        copies.append(world.copy())
        world.publish()
    world.delete(*copies)
    world.publish()
    assert world.maintain().merged == 3
    for _ in range(2):
        world.later(2 * GRACE)
        world.reclaim(world.publish())
    assert before in listed(world)
    roll_back(world, before)
    assert world.offsets() == list(range(9))
    world.check()


def test_the_marker_that_rows_of_an_old_snapshot_wait_for_stays(world: World) -> None:
    """It has no rows, and no snapshot names anything of it."""
    log = world.log()
    world.copy()
    log.write(3, producer_id=7)
    waiting = world.copy_range(3, 5)
    world.publish()
    before = head(world)
    log.end_transaction(7, commit=True)
    marker = world.copy_range(6, 6)
    world.publish()
    world.copy()
    world.publish()
    assert world.offsets() == [*range(6), 7, 8, 9]
    world.delete(waiting, marker)
    world.publish()
    world.later(2 * GRACE)
    world.reclaim(world.publish())
    roll_back(world, before)
    assert world.offsets() == [*range(6), 7, 8, 9]


def test_it_goes_with_the_last_snapshot_that_would_need_it_and_is_waited_for(world: World) -> None:
    before, again = copied_twice(world)
    tally = Tally()
    assert world.reclaimer.reclaim(world.observe(), tally) == ROLLBACK_RECHECK_SECONDS
    assert tally.waiting == 1
    for _ in range(SNAPSHOTS_KEPT_MAX):
        world.copy(1)
        world.publish()
    assert before not in listed(world)
    assert world.reclaimer.reclaim(world.observe(), Tally()) is None
    assert not there(world, again)
    assert len(world.offsets()) == 9 + SNAPSHOTS_KEPT_MAX
    world.check()


def test_a_table_that_rests_lets_it_go_when_its_snapshots_are_old(world: World) -> None:
    before, again = copied_twice(world)
    world.later(SNAPSHOT_AGE_SECONDS_MAX)
    world.maintain()
    assert before not in listed(world)
    world.reclaim()
    assert not there(world, again)
    assert world.offsets() == list(range(9))


@pytest.mark.parametrize("back", [True, False])
def test_a_tag_on_the_old_snapshot_holds_it_until_it_is_dropped(world: World, back: bool) -> None:
    before, again = copied_twice(world)
    world.loaded().manage_snapshots().create_tag(before, "audit").commit()
    for _ in range(SNAPSHOTS_KEPT_MAX):
        world.copy(1)
        world.publish()
    world.later(SNAPSHOT_AGE_SECONDS_MAX)
    world.maintain()
    world.reclaim()
    assert there(world, again)
    if back:
        roll_back(world, before)
        assert world.offsets() == list(range(9 + SNAPSHOTS_KEPT_MAX))
        world.check()
        return
    world.loaded().manage_snapshots().remove_tag("audit").commit()
    world.later(SNAPSHOT_AGE_SECONDS_MAX)
    world.maintain()
    world.reclaim()
    assert not there(world, again)


def test_a_snapshot_whose_state_is_gone_counts_as_one_that_lacks_everything(world: World) -> None:
    before, again = copied_twice(world)
    snapshot = world.loaded().metadata.snapshot_by_id(before)
    assert snapshot is not None
    assert snapshot.summary is not None
    world.store.delete_many([snapshot.summary.additional_properties["tierberg.state"]])
    world.reclaimer = world.new_reclaimer()
    assert world.reclaimer.reclaim(world.observe(), Tally()) == ROLLBACK_RECHECK_SECONDS
    assert there(world, again)


def test_each_state_is_read_once_and_none_where_nothing_is_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.copy()
    world.publish()
    read: list[str] = []
    original = world.store.read

    def counted(key: str) -> Any:
        read.append(key)
        return original(key)

    def states_read() -> int:
        found = sum(key.startswith("state/") for key in read)
        read.clear()
        return found

    result = world.publish()
    monkeypatch.setattr(type(world.store), "read", lambda _, key: counted(key))
    world.delete(first)
    world.reclaim(result)
    assert states_read() == 0
    _, again = copied_twice(world)
    assert there(world, again)
    result = world.observe()
    read.clear()
    world.reclaim(result)
    assert states_read() == 0, "an earlier pass had read them"
    world.new_reclaimer().reclaim(result, Tally())
    assert 0 < states_read() < len(listed(world)), "the head's is known"


@pytest.mark.parametrize("seed", range(8))
def test_rollbacks_of_an_archive_between_everything_else(tmp_path: Path, seed: int) -> None:
    """Every row that was ever published is there again, wherever the table was rolled back to."""
    chosen = random.Random(seed)
    world = archive(tmp_path / "data", merging=MERGING, single_process=False)
    live = [world.copy()]
    bare: list[SegmentMetadata] = []
    world.publish()
    # What no requeue has brought yet is not deleted: docs/reading.md.
    verbs = (
        "copy",
        "copy",
        "bare",
        "again",
        "requeue",
        "lost",
        "delete",
        "delete",
        "publish",
        "maintain",
        "reclaim",
        "back",
    )
    for _ in range(30):
        match chosen.choice(verbs):
            case "bare":
                bare.append(as_it_is(world, chosen.randint(1, 4)))
            case "again":
                lost = as_it_is(world, chosen.randint(1, 4))
                world.publish()
                world.withdraw(lost)
                bare.append(world.copy_range(lost.start_offset, lost.end_offset))
            case "requeue":
                world.publish()
                assert requeue(tmp_path) == 0
                live += bare
                bare.clear()
            case "copy":
                live.append(world.copy(chosen.randint(1, 4)))
            case "lost":
                lost = world.copy(chosen.randint(1, 4))
                world.publish()
                world.withdraw(lost)
                live.append(world.copy_range(lost.start_offset, lost.end_offset))
            case "delete" if live:
                world.delete(live.pop(chosen.randrange(len(live))))
            case "publish":
                world.publish()
            case "maintain":
                world.maintain()
            case "reclaim":
                world.publish()
                world.later(2 * GRACE)
                world.reclaim(world.publish())
            case "back":
                roll_back(world, chosen.choice(world.loaded().metadata.snapshots).snapshot_id)
            case _:
                pass
    assert requeue(tmp_path) == 0
    assert world.offsets() == list(range(world.log().end))
    world.check()


def test_a_tombstone_that_is_being_reclaimed_goes_all_the_same(world: World) -> None:
    """Its objects may be gone: no plan uses it any more."""
    _, again = copied_twice(world)
    key = str(index_key(again))
    assert world.reclaimer._mark(key)
    world.reclaim()
    with pytest.raises(ObjectNotFoundError):
        world.store.read(key)


def requeued_and_deleted(world: World, folder: Path, *, age: str = "keep") -> int:
    """Offsets 0 to 8; 3 to 5 got rows by a requeue, Kafka has deleted them since. Returns the snapshot before it."""
    first, late = world.copy(), as_it_is(world, 3)
    world.copy()
    world.publish()
    before = head(world)
    assert requeue(folder, age) == 0
    world.publish()
    assert world.offsets() == list(range(9))
    world.delete(first, late)
    world.publish()
    return before


def as_it_is(world: World, count: int) -> SegmentMetadata:
    log = world.log()
    log.write(count)
    return world.copy_range(log.end - count, log.end - 1, mode="verbatim")


def requeue(folder: Path, age: str = "keep") -> int:
    return run(folder, "orders", topics=f"[{{pattern: orders, table_retention: {age}}}]").exit_code


def reclaimed(world: World) -> None:
    for _ in range(2):
        world.later(2 * GRACE)
        world.reclaim(world.publish())


@pytest.mark.parametrize("graced", [True, False])
def test_rows_that_a_requeue_brought_come_again_after_a_rollback_to_before_it(tmp_path: Path, graced: bool) -> None:
    world = archive(tmp_path / "data", single_process=False)
    if not graced:
        world.reclaimer.graces = replace(world.graces, reclaim=0.0)
    before = requeued_and_deleted(world, tmp_path)
    roll_back(world, before)
    for _ in range(SNAPSHOTS_KEPT_MAX + 2):
        world.copy(1)
        world.publish()
    world.later(SNAPSHOT_AGE_SECONDS_MAX)
    world.maintain()
    reclaimed(world)
    lacks = [*range(3), *range(6, world.log().end)]
    assert world.offsets() == lacks
    assert lacking(tmp_path) == ["1 segment with rows that the table lacks; first partition 0 offset 3"]
    assert requeue(tmp_path) == 0
    assert world.offsets() == list(range(world.log().end))
    reclaimed(world)
    assert world.offsets() == list(range(world.log().end))
    world.check()


def test_a_duration_lets_such_a_segment_go_once_its_rows_are_that_old(tmp_path: Path) -> None:
    world = archive(tmp_path / "data", KeepUntil(0), 36_500.0 * DAY, single_process=False)
    before = requeued_and_deleted(world, tmp_path, age="36500d")
    roll_back(world, before)
    reclaimed(world)
    late = next(known for known in segments(world) if known.key.base == 3)
    assert late.segment is not None
    world.rule(retention=lambda _: 1.0)
    world.later(DAY)
    reclaimed(world)
    assert not [known for known in segments(world) if known.key.base == 3]


def test_where_rows_follow_kafka_such_a_segment_goes(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data", single_process=False)
    roll_back(world, requeued_and_deleted(world, tmp_path, age="follow-kafka"))
    reclaimed(world)
    assert world.offsets() == [6, 7, 8]
    assert {known.key.base for known in segments(world)} == {6}


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_a_requeue_took_from_a_copy_made_again_comes_again_too(tmp_path: Path, forgotten: bool) -> None:
    """It was never stored as it is; Kafka has deleted it, and the table was rolled back to before its rows came."""
    world = archive(tmp_path / "data", single_process=False)
    first, late = world.copy(), as_it_is(world, 3)
    world.copy()
    world.publish()
    world.withdraw(late)
    again = world.copy_range(3, 5)
    world.publish()
    before = head(world)
    assert requeue(tmp_path) == 0
    assert world.offsets() == list(range(9))
    world.delete(first, again)
    reclaimed(world)
    roll_back(world, before)
    for _ in range(SNAPSHOTS_KEPT_MAX + 2 if forgotten else 0):
        world.copy(1)
        world.publish()
    reclaimed(world)
    assert lacking(tmp_path) == ["1 segment with rows that the table lacks; first partition 0 offset 3"]
    assert requeue(tmp_path) == 0
    assert world.offsets() == list(range(world.log().end))
    assert lacking(tmp_path) == []
    world.check()


def test_the_marker_that_requeued_rows_wait_for_stays_with_them(tmp_path: Path) -> None:
    world = archive(tmp_path / "data", single_process=False)
    first, log = world.copy(), world.log()
    log.write(3, producer_id=5)
    late = world.copy_range(3, 5, mode="verbatim")
    log.end_transaction(5, commit=True)
    marker = world.copy_range(6, 6)
    world.copy()
    world.publish()
    before = head(world)
    assert requeue(tmp_path) == 0
    world.publish()
    world.delete(first, late, marker)
    reclaimed(world)
    roll_back(world, before)
    reclaimed(world)
    assert lacking(tmp_path) == ["1 segment with rows that the table lacks; first partition 0 offset 3"]
    assert requeue(tmp_path) == 0
    assert world.offsets() == [*range(6), 7, 8, 9]


def test_a_tagged_snapshot_holds_what_was_merged_since_its_requeue(tmp_path: Path) -> None:
    world = archive(tmp_path / "data", merging=MERGING, single_process=False)
    first, late = world.copy(), as_it_is(world, 3)
    last = world.copy()
    world.publish()
    before = head(world)
    world.loaded().manage_snapshots().create_tag(before, "audit").commit()
    assert requeue(tmp_path) == 0
    world.publish()
    world.later(2 * GRACE)
    assert world.maintain().merged == 3
    world.delete(first, late, last)
    for _ in range(SNAPSHOTS_KEPT_MAX):
        world.copy(1)
        world.publish()
    for _ in range(2):
        world.later(SNAPSHOT_AGE_SECONDS_MAX)
        world.maintain()
        reclaimed(world)
    roll_back(world, before)
    assert lacking(tmp_path) == ["1 segment with rows that the table lacks; first partition 0 offset 3"]
    assert requeue(tmp_path) == 0
    assert world.offsets() == list(range(world.log().end))


def test_rows_that_came_in_a_file_of_their_own_come_again(tmp_path: Path) -> None:
    """The table names no file of the segment, for others of its rows were aborted."""
    world = archive(tmp_path / "data", single_process=False)
    first, log = world.copy(), world.log()
    log.write(2, producer_id=5)
    log.write(2)
    late = world.copy_range(3, 6, mode="verbatim")
    log.end_transaction(5, commit=False)
    marker = world.copy_range(7, 7)
    world.copy()
    world.publish()
    before = head(world)
    assert requeue(tmp_path) == 0
    assert world.offsets() == [0, 1, 2, 5, 6, 8, 9, 10]
    world.delete(first, late, marker)
    reclaimed(world)
    roll_back(world, before)
    assert lacking(tmp_path) == ["1 segment with rows that the table lacks; first partition 0 offset 5"]
    assert requeue(tmp_path) == 0
    assert world.offsets() == [0, 1, 2, 5, 6, 8, 9, 10]


def lacking(folder: Path) -> list[str]:
    """What `tierberg status` says of rows that the table lacks."""
    found = of(looked(folder / "data", topics=[KEEPING]), CauseCode.ROWS_NOT_IN_TABLE)
    return [finding.said for finding in found]
