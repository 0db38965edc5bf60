"""A merge closes over no offsets whose rows are to come: they would be taken for there, and never come."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow, Keep, Policy
from rsm_bridge.status.causes import CauseCode
from tests.worlds.maintain_support import World, make_world
from tests.worlds.requeue_support import run
from tests.worlds.status_support import looked, of

MERGING = MergeLimits(small_bytes=10**6, target_bytes=10**7, files_min=2, files_max=100, age_ms=0, span_ms=10**12)
POLICIES = [pytest.param(Follow(), "follow-kafka", id="follow"), pytest.param(Keep(), "keep", id="keep")]


def make(folder: Path, policy: Policy, retention: str) -> World:
    world = make_world(folder / "data", merging=MERGING, policy=policy, single_process=False)
    world.rule(retention=lambda _: retention)
    world.copy()
    world.log().write(3)
    return world


def merged(world: World) -> None:
    """Often enough, and late enough for tombstones to go."""
    for _ in range(2):
        world.later(7200)
        world.maintain()
        world.publish()
        world.reclaim()


def named_and_cured(world: World, folder: Path) -> None:
    (finding,) = of(looked(folder / "data"), CauseCode.ROWS_NOT_IN_TABLE)
    assert finding.said == "1 segment with rows that the table lacks; first partition 0 offset 3"
    assert run(folder, "orders").exit_code == 0
    assert world.offsets() == list(range(9))
    world.later(7200)
    assert world.maintain().merged > 0
    assert world.offsets() == list(range(9))
    world.check()


@pytest.mark.parametrize(("policy", "retention"), POLICIES)
@pytest.mark.parametrize("first", ["merge", "copy"])
def test_a_copy_without_rows_that_is_made_again(tmp_path: Path, policy: Policy, retention: str, first: str) -> None:
    world = make(tmp_path, policy, retention)
    bare = world.copy_range(3, 5, mode="verbatim")
    world.copy()
    world.publish()
    world.withdraw(bare)
    world.publish()
    if first == "merge":
        merged(world)
    world.copy_range(3, 5)
    world.publish()
    merged(world)
    assert world.offsets() == [0, 1, 2, 6, 7, 8]
    named_and_cured(world, tmp_path)


@pytest.mark.parametrize(("policy", "retention"), POLICIES)
@pytest.mark.parametrize("first", ["merge", "copy"])
def test_a_hole_that_is_filled_late(tmp_path: Path, policy: Policy, retention: str, first: str) -> None:
    """As by an index that was lost, and is put back."""
    world = make(tmp_path, policy, retention)
    world.copy()
    world.publish()
    if first == "merge":
        merged(world)
    world.copy_range(3, 5)
    world.publish()
    merged(world)
    named_and_cured(world, tmp_path)


def test_offsets_that_a_live_segment_shows_to_have_no_rows_are_closed_over(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data", merging=MERGING, single_process=False)
    log = world.log()
    world.copy()
    log.write(3, producer_id=7)
    log.end_transaction(7, commit=False)
    world.copy_range(3, 6)
    world.copy()
    world.publish()
    assert world.offsets() == [0, 1, 2, 7, 8, 9]
    merged(world)
    assert len(world.observe().head.files) == 1  # type: ignore[union-attr]
    assert world.offsets() == [0, 1, 2, 7, 8, 9]
