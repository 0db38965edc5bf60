"""R12 as a pure rule: when the plan, and requests on their way, need a tombstoned segment no more."""

from __future__ import annotations

import dataclasses

import pytest

from iceberg_catalog.plan.types import PartState, Segment, SegmentState
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, needed_after_rollback, verdict
from tests.worlds.plan_support import commit, gone, plain, seg, txn

SEEN = PartState(frontier=20, floor=20, lineage=((0, 0),), known_end=20)


def tombstoned(state: SegmentState, epoch: int = 0) -> Segment:
    return gone(seg("s", [plain(10, 19, epoch)]), state)


@pytest.mark.parametrize("state", [SegmentState.DELETED, SegmentState.WITHDRAWN])
def test_passed_in_full_is_free(state: SegmentState) -> None:
    assert verdict(tombstoned(state), SEEN) is TombstoneVerdict.FREE


@pytest.mark.parametrize("state", [SegmentState.DELETED, SegmentState.WITHDRAWN])
def test_a_state_that_has_not_seen_its_end_or_epoch_needs_it(state: SegmentState) -> None:
    shorter = dataclasses.replace(SEEN, known_end=19)
    assert verdict(tombstoned(state), shorter) is TombstoneVerdict.NEEDED
    assert verdict(tombstoned(state, epoch=1), SEEN) is TombstoneVerdict.NEEDED
    assert verdict(tombstoned(state), PartState()) is TombstoneVerdict.NEEDED


def test_a_deletion_the_floor_has_not_passed_is_needed() -> None:
    """Or a derived file with its rows would never leave: nobody would raise the floor."""
    assert verdict(tombstoned(SegmentState.DELETED), dataclasses.replace(SEEN, floor=19)) is TombstoneVerdict.NEEDED


def test_a_deletion_that_is_still_to_be_published_is_needed() -> None:
    """Under `keep` the floor is above rows that wait for their transaction."""
    assert verdict(tombstoned(SegmentState.DELETED), dataclasses.replace(SEEN, frontier=15)) is TombstoneVerdict.NEEDED


def test_a_withdrawal_that_was_never_published_waits_for_a_commit() -> None:
    assert verdict(tombstoned(SegmentState.WITHDRAWN), dataclasses.replace(SEEN, frontier=10)) is TombstoneVerdict.FENCE


def test_a_dead_branch_waits_for_a_commit() -> None:
    """C1: one planned on this head may have found it alive again, in a newer lineage."""
    later = PartState(frontier=5, floor=0, lineage=((0, 0), (2, 5)), known_end=30)
    assert verdict(tombstoned(SegmentState.DELETED, epoch=1), later) is TombstoneVerdict.FENCE


@pytest.mark.parametrize("state", [SegmentState.DELETED, SegmentState.WITHDRAWN])
def test_a_marker_at_or_above_the_frontier_is_needed(state: SegmentState) -> None:
    segment = gone(seg("s", [txn(10, 12, 7), commit(13, 7)]), state)
    at = dataclasses.replace(SEEN, frontier=13, floor=14)
    assert verdict(segment, at) is TombstoneVerdict.NEEDED
    assert verdict(segment, dataclasses.replace(at, frontier=14)) is TombstoneVerdict.FREE


@pytest.mark.parametrize("floor", [0, 20])
def test_a_snapshot_needs_what_its_frontier_has_not_passed(floor: int) -> None:
    """Its floor does not matter: rows that are kept stay below it."""
    segment = tombstoned(SegmentState.DELETED)
    assert not needed_after_rollback(segment, dataclasses.replace(SEEN, floor=floor), SEEN)
    assert needed_after_rollback(segment, dataclasses.replace(SEEN, floor=floor, frontier=19), SEEN)
    assert needed_after_rollback(segment, PartState(), SEEN)


def test_a_snapshot_of_a_branch_that_lost_needs_what_takes_its_place() -> None:
    """It names files of the same offsets, which go with the rewind."""
    lost = PartState(frontier=30, floor=0, lineage=((0, 0), (1, 10)), known_end=30)
    assert needed_after_rollback(tombstoned(SegmentState.DELETED, epoch=2), lost, lost)
    assert not needed_after_rollback(tombstoned(SegmentState.DELETED, epoch=1), lost, lost)
    assert not needed_after_rollback(tombstoned(SegmentState.DELETED, epoch=0), lost, lost)


def test_a_snapshot_needs_the_marker_that_its_rows_wait_for() -> None:
    marker = gone(seg("m", [commit(13, 7)]), SegmentState.DELETED)
    waits = PartState(frontier=10, floor=0, lineage=((0, 0),), known_end=14)
    assert needed_after_rollback(marker, waits, waits)
    assert not needed_after_rollback(marker, dataclasses.replace(waits, frontier=14), waits)
