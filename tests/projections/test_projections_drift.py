"""What the topic's table changes below a projection's frontier: retention, merges, rewinds, rows that come late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from rsm_bridge.storage.projections import hold
from rsm_bridge.tables.maintain.requeue_topics import requeue
from tests.projections.projection_support import LETTERS, TOPIC, ProjectionWorld, projection_world, sent, some
from tests.support.eventually import eventually

MODES: list[dict[str, Any]] = [{"select": ["id"]}, {"select": ["id"], "mode": "upsert", "key": ["id"]}]
BOTH = pytest.mark.parametrize("rule", MODES, ids=["append", "upsert"])


#: A value that is no JSON.
BROKEN = (b"broken", b"{")


def ids(world: ProjectionWorld) -> list[int]:
    return [row["id"] for row in world.rows()]


def letters(world: ProjectionWorld) -> list[int]:
    """Offsets."""
    return [row["_kafka_offset"] for row in world.rows(LETTERS)]


@BOTH
def test_an_unclean_election_is_an_error_and_a_repair_makes_it_exact(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 10)
        world.run()
        some(world, 100, 6, at=5, epoch=1)
        with pytest.raises(RepartitionError, match=r"partition 0 from offset 5.*--repair") as raised:
            world.run()
        assert raised.value.kind == "rewound"
        assert ids(world) == list(range(10))
        world.job(repair=True).run()
        assert ids(world) == [*range(5), *range(100, 106)]
        assert world.run().ranges == 0


@BOTH
def test_kafka_s_retention_takes_nothing_from_a_projection(
    spark: Any, tmp_path: Path, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "PROJECTION_PROGRESS_FRESH_SECONDS", 0.0)
    with projection_world(spark, tmp_path, rule) as world:
        gone = some(world, 0, 10)
        some(world, 10, 5)
        world.run()
        world.shim.delete(gone)
        eventually(lambda: world.count(("kafka", TOPIC)) == 5)
        world.run()
        assert ids(world) == list(range(15))


@BOTH
def test_rows_that_come_late_are_read_late(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    """A segment was stored as it is, the projection went on, and a requeue gave it rows."""
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 5)
        some(world, 5, 5, shown=False)
        some(world, 10, 5)
        world.run()
        assert ids(world) == [*range(5), *range(10, 15)]
        requeue(world.backend, None, dry_run=False, say=print)
        assert world.count(("kafka", TOPIC)) == 15
        world.run()
        assert ids(world) == list(range(15))
        assert world.run().ranges == 0


@BOTH
def test_dead_letters_follow_what_is_read_again(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    """Those of records that were taken back leave, those of records that come late or instead of them are added."""
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 3)
        world.send([BROKEN])
        world.send([BROKEN], shown=False)
        some(world, 5, 2)
        world.run()
        assert letters(world) == [3]
        requeue(world.backend, None, dry_run=False, say=print)
        world.run()
        assert letters(world) == [3, 4]
        world.send([sent(7, {"id": 7}), BROKEN], at=4, epoch=1)
        world.job(repair=True).run()
        assert letters(world) == [3, 5]
        assert ids(world) == [0, 1, 2, 7]


@BOTH
def test_a_repair_keeps_what_kafka_has_deleted_of_another_partition(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    """Rows that came late there are gone as well."""
    with projection_world(spark, tmp_path, {**rule, "hold": "0s"}) as world:
        some(world, 0, 5)
        some(world, 10, 2, partition=1)
        gone = [some(world, 12, 2, partition=1, shown=False), some(world, 14, 2, partition=1)]
        some(world, 16, 1, partition=1)
        world.run()
        requeue(world.backend, None, dry_run=False, say=print)
        for segment in gone:
            world.shim.delete(segment)
        eventually(lambda: world.state(1).floor == 6)
        some(world, 100, 2, at=3, epoch=1)
        ran = world.job(repair=True).run()
        assert ids(world) == [0, 1, 2, 100, 101, 10, 11, 14, 15, 16]
        assert ran.reading.lost == {}


@pytest.mark.parametrize(
    "rule",
    [MODES[0], {"select": ["cast(_kafka_key AS string) AS k", "id"], "mode": "upsert", "key": ["k"]}],
    ids=["append", "upsert"],
)
def test_what_is_read_again_is_never_missing_nor_back_in_between(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    """Though a run reads one file at a time."""
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 2)
        some(world, 2, 2, shown=False)
        for first in (4, 6, 8):
            some(world, first, 2)
        world.send([sent(2, None), sent(9, {"id": 9, "who": "last"})])
        world.run()
        requeue(world.backend, None, dry_run=False, say=print)
        some(world, 20, 1)
        assert not world.job(max_bytes=1).run().complete
        found = ids(world)
        if "key" in rule:
            assert found == [0, 1, 3, 4, 5, 6, 7, 8, 9], "key 2 was deleted since"
        else:
            assert found[:10] == list(range(10))
            assert len(found) == 12
        world.run()
        assert ids(world)[-1] == 20
