"""Until when a snapshot was the head: a grace of readers counts from there, also after branches and rollbacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from iceberg_catalog.commit.retained import RetainedFiles, kept_since, last_as_head
from iceberg_catalog.plan.merge import MergeLimits
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.catalog_support import Place, make_place, make_rows
from tests.worlds.foreign_support import roll_back
from tests.worlds.maintain_support import DAY, World, make_world, published

LIMITS = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=0, span_ms=DAY * 1000)
CHANGED = 9_000


def history(folder: Path, snapshots: dict[int, tuple[int | None, int]], log: Sequence[tuple[int, int]]) -> Table:
    """A table with these snapshots: parent and time of each; and this log: snapshot and time of each entry."""
    table = make_place(folder).load()
    kept = [
        Snapshot.model_validate(
            {"snapshot-id": key, "parent-snapshot-id": parent, "timestamp-ms": made, "manifest-list": f"{key}.avro"}
        )
        for key, (parent, made) in snapshots.items()
    ]
    told = [SnapshotLogEntry.model_validate({"snapshot-id": key, "timestamp-ms": at}) for key, at in log]
    changes = {"snapshots": kept, "snapshot_log": told, "last_updated_ms": CHANGED, "refs": {}}
    head = log[-1][0] if log else next(reversed(snapshots))
    metadata = table.metadata.model_copy(update={**changes, "current_snapshot_id": head})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


LINE = {1: (None, 100), 2: (1, 200), 3: (2, 300)}


@pytest.mark.parametrize(
    ("snapshots", "log", "until", "since"),
    [
        pytest.param(LINE, [(1, 100), (2, 200), (3, 300)], {1: 200, 2: 300}, 100, id="one after the other"),
        pytest.param(LINE, [(1, 100), (3, 300)], {1: 300, 2: 300}, 100, id="one commit of two snapshots"),
        pytest.param(
            {1: (None, 100), 7: (1, 150), 2: (1, 600)},
            [(1, 100), (2, 600)],
            {1: 600, 7: CHANGED},
            100,
            id="a branch from below",
        ),
        pytest.param(
            {**LINE, 4: (1, 500)},
            [(1, 100), (2, 200), (3, 300), (1, 450), (4, 500)],
            {1: 500, 2: 300, 3: 450},
            450,
            id="put back, and on",
        ),
        pytest.param(LINE, [(1, 100), (2, 200), (3, 300), (2, 450)], {1: 200, 3: 450}, 450, id="put back"),
        pytest.param(
            {1: (None, 100), 8: (None, 800), 9: (8, 850)},
            [(1, 100), (8, 800), (9, 850)],
            {1: 800, 8: 850},
            800,
            id="a tag of long ago, and what lay between has expired",
        ),
        pytest.param(
            {1: (None, 100), 4: (1, 500)}, [(1, 100), (1, 450), (4, 500)], {1: 500}, 450, id="what was put back is gone"
        ),
        pytest.param({**LINE, 5: (2, 250)}, [(3, 300)], {1: 200, 2: 300, 5: CHANGED}, 300, id="a log that was cut"),
        pytest.param(LINE, [], {1: 200, 2: 300}, CHANGED, id="a catalog without a log"),
    ],
)
def test_until_when_a_snapshot_was_the_head(
    tmp_path: Path,
    snapshots: dict[int, tuple[int | None, int]],
    log: list[tuple[int, int]],
    until: dict[int, int],
    since: int,
) -> None:
    table = history(tmp_path, snapshots, log)
    found = last_as_head(table)
    current = table.current_snapshot()
    assert current is not None
    assert {key: at for key, at in found.items() if key != current.snapshot_id} == until
    assert kept_since(table) == since


def test_a_table_without_rows_has_no_head(tmp_path: Path) -> None:
    assert kept_since(make_place(tmp_path).load()) is None


class Hours:
    """Time passes, of the clocks that snapshots and reclaimers go by."""

    def __init__(self, world: World, patched: pytest.MonkeyPatch) -> None:
        self.world, self.seconds = world, 0.0
        real = time.time
        patched.setattr(time, "time", lambda: real() + self.seconds)

    def later(self, seconds: float) -> None:
        self.seconds += seconds

    def reads(self, snapshot_id: int) -> list[int]:
        """What a query sees that began on this snapshot."""
        rows = self.world.loaded().scan(snapshot_id=snapshot_id).to_arrow()
        return sorted(rows["_kafka_offset"].to_pylist())

    def head(self) -> int:
        current = self.world.loaded().current_snapshot()
        assert current is not None
        return current.snapshot_id


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, graces=Graces(600.0, 0.0), merging=LIMITS)


def branch(world: World, snapshot_id: int, *, dropped: bool) -> None:
    """An engine commits to a branch of its own."""
    world.loaded().manage_snapshots().create_branch(snapshot_id, "audit").commit()
    world.loaded().append(make_rows(range(1000, 1003), 0, "raw"), branch="audit")
    if dropped:
        world.loaded().manage_snapshots().remove_branch("audit").commit()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_query_has_the_grace_though_an_engine_once_wrote_to_a_branch(
    world: World, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    hours = Hours(world, monkeypatch)
    published(world, (3,))
    old = hours.head()
    segments = [world.copy() for _ in range(3)]
    world.publish()
    before = hours.head()
    branch(world, old, dropped=dropped)
    world.delete(segments[0])
    hours.later(3600)
    world.reclaim(world.publish())
    assert world.offsets() == list(range(6, 12))
    hours.later(590)
    world.reclaim(world.publish())
    assert hours.reads(before) == list(range(12))
    hours.later(20)
    assert world.reclaim(world.publish()).objects["data"] == 1
    assert world.loaded().snapshot_by_id(before) is None


def test_a_query_has_the_grace_after_a_merge_beside_a_branch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Hours(world, monkeypatch)
    published(world, (3,))
    old = hours.head()
    for _ in range(3):
        world.copy()
    world.publish()
    branch(world, old, dropped=False)
    hours.later(3 * 3600)
    before = hours.head()
    assert world.maintain().merged == 4
    for _ in range(2):
        hours.later(200)
        world.maintain()
        assert hours.reads(before) == list(range(12))
    hours.later(300)
    world.maintain()
    assert world.loaded().snapshot_by_id(before) is None


def test_a_query_has_the_grace_from_when_a_snapshot_was_the_head_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = Hours(world, monkeypatch)
    first, *_ = published(world, (3, 3, 3, 3))
    before = hours.head()
    world.delete(first)
    world.publish()
    hours.later(590)
    roll_back(Place(world.catalog, world.loaded(), Path("/unused")), before)
    hours.later(5)
    world.reclaim(world.publish())
    hours.later(590)
    world.reclaim(world.publish())
    assert hours.reads(before) == list(range(12))
    hours.later(20)
    assert world.reclaim(world.publish()).objects["data"] == 1


def test_a_tag_of_long_ago_takes_nothing_from_the_grace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots expire by number within seconds; a process that is new to the table goes by those that are left."""
    hours = Hours(world, monkeypatch)
    published(world, (3,))
    world.loaded().manage_snapshots().create_tag(hours.head(), "audit").commit()
    hours.later(DAY)
    for _ in range(25):
        world.copy(1)
        world.publish()
    head = world.observe().head
    assert head is not None
    found = RetainedFiles().read(head)
    snapshots = sorted(world.loaded().metadata.snapshots, key=lambda item: item.timestamp_ms)
    assert found.oldest_ms == snapshots[1].timestamp_ms
