"""R4: a copy that Kafka withdrew is made again, whenever that is: no age turns the withdrawal into a deletion."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.worlds.maintain_support import DAY, World, make_world, published


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def withdrawn_two_days_ago(world: World, count: int = 3) -> tuple[int, int]:
    """A copy whose reply is lost; the publisher has taken its rows when Kafka withdraws it. Its offsets."""
    lost_reply = world.copy(count)
    world.publish()
    world.later(-2 * DAY)
    world.withdraw(lost_reply)
    world.later(2 * DAY)
    return lost_reply.start_offset, lost_reply.end_offset


def test_c16_a_withdrawal_of_long_ago_does_not_lift_the_floor_over_the_copy_made_again(world: World) -> None:
    published(world)
    first, _ = withdrawn_two_days_ago(world)
    world.log().write(3)
    world.copy_range(first, world.log().end - 1)
    result = world.publish()
    assert result.states[0].floor == 0
    assert world.offsets() == list(range(15))
    world.later(30 * DAY)
    world.reclaim(result)
    world.check()


def test_nor_when_the_publisher_was_away_all_the_time(world: World) -> None:
    published(world)
    world.later(-2 * DAY)
    lost_reply = world.copy(3)
    world.withdraw(lost_reply)
    world.later(2 * DAY)
    world.copy_range(lost_reply.start_offset, lost_reply.end_offset)
    world.publish()
    assert world.offsets() == list(range(12))


def test_nor_when_its_rows_wait_for_their_marker_for_a_day(world: World) -> None:
    published(world)
    world.log().write(3, producer_id=7)
    world.later(-2 * DAY)
    lost_reply = world.copy_range(9, 11)
    world.publish()
    world.withdraw(lost_reply)
    world.later(2 * DAY)
    world.copy_range(9, 11)
    world.publish()
    world.log().end_transaction(7, commit=True)
    world.copy_range(12, 12)
    assert world.publish().states[0].floor == 0
    assert world.offsets() == list(range(12))


@pytest.mark.parametrize("ahead", [2 * DAY, -2 * DAY])
def test_nor_for_a_bridge_whose_clock_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    published(world)
    lost_reply = world.copy(3)
    world.publish()
    world.withdraw(lost_reply)
    world.copy_range(9, 11)
    right = time.time
    monkeypatch.setattr("time.time", lambda: right() + ahead)
    assert world.publish().states[0].floor == 0
    assert world.offsets() == list(range(12))


def test_nor_while_no_live_segment_is_left(world: World) -> None:
    """The topic may be going, or its store was away until retention had deleted all that was tiered before."""
    deleted = published(world)
    withdrawn_two_days_ago(world)
    world.delete(*deleted)
    assert world.publish().states[0].floor == 9
    assert world.offsets() == [9, 10, 11]
    world.copy_range(9, 11)
    world.copy(3)
    world.publish()
    assert world.offsets() == list(range(9, 15))


def test_a_deletion_above_it_ends_what_is_left_of_a_withdrawn_copy(world: World) -> None:
    """Kafka raises the log start before it deletes: that says what no age can."""
    published(world)
    withdrawn_two_days_ago(world)
    world.copy_range(9, 11)
    later = world.copy(3)
    world.publish()
    world.delete(later)
    world.publish()
    assert world.offsets() == []
    world.later(DAY)
    assert world.reclaim().objects["tombstone"] == 2
    world.check()
