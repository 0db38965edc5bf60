"""What goes by its age goes by the store's clock: a bridge whose own is wrong loses nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from iceberg_catalog.plan.types import PartState
from rsm_bridge.limits import CLOCK_FRESH_SECONDS, CLOCK_SKEW_SECONDS_MAX
from rsm_bridge.storage.clock import CLOCK_KEY, StoreClock, local_ms, taken_ms
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import StateObjects
from rsm_bridge.storage.tombstone import decode_tombstone
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.worlds.maintain_support import DAY, World, make_world, published


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = make_world(tmp_path)
    monkeypatch.setattr(type(made.store), "single_process", False)
    return made


@pytest.fixture
def day_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this bridge; files have the time of the file system."""
    right = local_ms()
    monkeypatch.setattr("time.time", lambda: (right + DAY * 1000) / 1000)


@dataclass
class Elapsed:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Asked:
    """How often the store's time was asked."""

    store: ObjectStore
    times: list[str] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stat = self.store.stat

        def noted(key: str) -> ListedObject:
            self.times.append(key)
            return stat(key)

        monkeypatch.setattr(self.store, "stat", noted)


def test_it_is_the_stores_time_whatever_this_machine_says(world: World, day_ahead: None) -> None:
    clock = StoreClock(world.store)
    stored = world.store.stat(CLOCK_KEY).modified_ms if clock.now_ms() else 0
    assert abs(clock.now_ms() - stored) < 60_000
    assert local_ms() - clock.now_ms() > (DAY - 60) * 1000


def test_between_two_looks_the_monotonic_clock_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, elapsed = Asked(world.store), Elapsed()
    asked.watch(monkeypatch)
    clock = StoreClock(world.store, elapsed)
    first = clock.now_ms()
    elapsed.seconds = CLOCK_FRESH_SECONDS - 1
    assert clock.now_ms() == first + int((CLOCK_FRESH_SECONDS - 1) * 1000)
    assert asked.times == [CLOCK_KEY]
    elapsed.seconds = CLOCK_FRESH_SECONDS
    assert clock.now_ms() < first + 60_000
    assert len(asked.times) == 2


def test_two_bridges_that_ask_at_once_both_get_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    StoreClock(world.store).now_ms()
    monkeypatch.setattr(world.store, "replace", lambda *_: False)
    assert abs(StoreClock(world.store).now_ms() - local_ms()) < 60_000


def test_a_store_of_one_process_is_not_asked(tmp_path: Path) -> None:
    store = make_world(tmp_path).store
    assert abs(StoreClock(store).now_ms() - local_ms()) < 1000
    assert list(store.list_after("clock/")) == []


@pytest.mark.parametrize("policy", ["duration", "follow-kafka"])
def test_rows_kept_for_a_duration_do_not_leave_early(world: World, day_ahead: None, policy: str) -> None:
    """The records are of 2023; by the store's clock their time is over in an hour, by this bridge's it long is."""
    oldest_ms = 1_700_000_000_000
    clock = StoreClock(world.store)
    left_seconds = (clock.now_ms() - oldest_ms) / 1000 + 3600
    retention = left_seconds if policy == "duration" else policy
    world.rule(retention=lambda _topic: retention, clock_ms=clock.now_ms)
    world.delete(published(world)[0])
    world.publish()
    assert world.offsets() == list(range(0 if policy == "duration" else 3, 9))


def test_the_sweep_takes_no_object_of_a_copy_that_runs_elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data file and kept bytes are there, the index is about to be put, and this bridge is a day ahead."""
    published(world)
    world.log().write(3)
    world.copy_range(9, 11, indexed=False)
    stored = world.stored()
    ahead_ms = local_ms() + DAY * 1000
    monkeypatch.setattr("time.time", lambda: ahead_ms / 1000)
    world.maintenance.context = replace(world.context, clock_ms=StoreClock(world.store).now_ms)
    world.maintain()
    assert world.stored() == stored


def test_nor_the_state_of_a_commit_under_way_when_the_last_committer_was_a_day_ahead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        right = local_ms()
        patch.setattr("time.time", lambda: (right + DAY * 1000) / 1000)
        published(world)
    under_way = StateObjects(world.store).put(world.loaded(), {0: PartState(frontier=9)}, "a" * 32)
    world.maintenance.context = replace(world.context, clock_ms=StoreClock(world.store).now_ms)
    world.maintain()
    assert world.store.read(under_way.key).data
    path = Path(world.store.uri(under_way.key).removeprefix("file://"))
    then = path.stat().st_mtime - COPY_IS_OVER_SECONDS - 60
    os.utime(path, (then, then))
    assert world.maintain().objects["state"] == 1


def test_a_delete_by_a_bridge_a_day_behind_has_its_grace_all_the_same(world: World) -> None:
    first, *_ = published(world)
    world.delete(first)
    key = str(index_key(first))
    current = world.store.read(key)
    behind = replace(decode_tombstone(current.data), time_ms=local_ms() - DAY * 1000)
    assert world.store.replace(key, behind.encode(), current.version)
    (known,) = [item for item in read_segments(world.store, world.topic_id) if item.deletion is not None]
    assert known.deletion is not None
    assert abs(known.deletion.time_ms - local_ms()) < 60_000


def test_small_differences_are_the_writers_word() -> None:
    skew = int(CLOCK_SKEW_SECONDS_MAX * 1000)
    assert taken_ms(1000, 1000 + skew) == 1000
    assert taken_ms(1000, 1001 + skew) == 1001 + skew
    assert taken_ms(5000, 1000) == 5000
    assert taken_ms(1001 + skew, 1000) == 1000
