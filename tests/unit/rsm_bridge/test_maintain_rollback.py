"""An operator rolls the table back, to any snapshot that is kept: the next runs bring what came after, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from converter.types import SegmentMetadata
from iceberg_catalog.plan.merge import MergeLimits
from tests.worlds.foreign_support import set_head
from tests.worlds.maintain_support import World, make_world


def roll_back(world: World, snapshot_id: int) -> None:
    world.catalog.commit_table(world.loaded(), (), set_head(snapshot_id))


def rows_of(live: list[SegmentMetadata]) -> list[int]:
    return [offset for segment in live for offset in range(segment.start_offset, segment.end_offset + 1)]


@pytest.mark.parametrize("kept", range(4))
def test_a_snapshot_within_a_commit_lacks_what_the_commit_brought_and_it_comes_again(tmp_path: Path, kept: int) -> None:
    world = make_world(tmp_path)
    first, *rest = [world.copy(), world.copy()]
    world.publish()
    rest.append(world.copy())
    world.delete(first)
    world.publish()
    snapshots = sorted(world.loaded().metadata.snapshots, key=lambda item: item.sequence_number or 0)
    operations = [item.summary.operation for item in snapshots if item.summary is not None]
    assert operations == [Operation.APPEND, Operation.DELETE, Operation.APPEND]
    roll_back(world, snapshots[min(kept, 2)].snapshot_id)
    if kept == 3:
        rest.append(world.copy())
    world.publish()
    assert world.offsets() == rows_of(rest)
    rest.append(world.copy())
    world.publish()
    assert world.offsets() == rows_of(rest)
    world.check()


@pytest.mark.parametrize("seed", range(6))
def test_rollbacks_between_everything_else(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    world = make_world(
        tmp_path,
        merging=MergeLimits(
            small_bytes=10**6, target_bytes=10**7, files_min=3, files_max=100, age_ms=0, span_ms=10**12
        ),
    )
    live = [world.copy()]
    world.publish()
    for _ in range(25):
        match chosen.choice(("copy", "copy", "delete", "publish", "publish", "maintain", "later", "back")):
            case "copy":
                live.append(world.copy(chosen.randint(1, 4)))
            case "delete" if len(live) > 1:
                world.delete(live.pop(0))
            case "publish":
                world.publish()
            case "maintain":
                world.maintain()
            case "later":
                world.later(700)
            case "back":
                snapshots = world.loaded().metadata.snapshots
                roll_back(world, chosen.choice(snapshots).snapshot_id)
            case _:
                pass
    world.publish()
    # Deleted rows stay while the file is needed that they were merged into.
    found, wanted = world.offsets(), rows_of(live)
    assert [offset for offset in found if offset >= wanted[0]] == wanted
    assert len(set(found)) == len(found)
    world.check()
