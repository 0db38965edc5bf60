"""A table that keeps rows after Kafka has deleted them, through store and catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.tombstone import decode_tombstone
from tests.worlds.maintain_support import DAY, make_world


@pytest.mark.parametrize("retention", ["keep", 100 * 365 * 24 * 3600.0])
def test_a_segment_deleted_before_it_was_published_is_published(tmp_path: Path, retention: str | float) -> None:
    """Its data file as it is: the footer lies in the index inside the tombstone."""
    world = make_world(tmp_path)
    world.rule(retention=lambda _topic: retention)
    world.copy(2)
    world.publish()
    world.delete(world.copy(3))
    result = world.publish()
    assert (result.files_added, result.files_derived) == (1, 0)
    assert world.offsets() == [0, 1, 2, 3, 4]


def test_a_withdrawn_copy_that_is_being_reclaimed_is_no_deletion_a_day_later(tmp_path: Path) -> None:
    """The bridge died between the data file and the tombstone, and was away for a day."""
    world = make_world(tmp_path)
    world.rule(retention=lambda _topic: "keep")
    world.copy(2)
    world.publish()
    failed = world.copy(3)
    world.later(-2 * DAY)
    world.withdraw(failed)
    world.later(2 * DAY)
    key = str(index_key(failed))
    current = world.store.read(key)
    stone = replace(decode_tombstone(current.data), reclaiming=True)
    assert world.store.replace(key, stone.encode(), current.version)
    result = world.publish()
    assert (result.files_added, world.offsets()) == (0, [0, 1])
    world.later(world.graces.reclaim + 1)
    world.reclaim(result)
    assert len(world.stored("index")) == 1
    world.check()
