"""The topic's table loses what a projection had not read, or a snapshot while it is read, or itself: exact, or said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import repartition.run.run
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.run.source import Source, find_source
from rsm_bridge.storage.projections import hold
from rsm_bridge.storage.projections.progress import read_one
from rsm_bridge.tables.maintain.requeue_topics import requeue
from tests.projections.projection_support import TOPIC, TOPIC_ID, ProjectionWorld, projection_world, some
from tests.support.eventually import eventually

MODES: list[dict[str, Any]] = [{"select": ["id"]}, {"select": ["id"], "mode": "upsert", "key": ["id"]}]
BOTH = pytest.mark.parametrize("rule", MODES, ids=["append", "upsert"])
TABLE = ("kafka", TOPIC)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge looks at once how far a projection is."""
    monkeypatch.setattr(hold, "PROJECTION_PROGRESS_FRESH_SECONDS", 0.0)


def ids(world: ProjectionWorld) -> list[int]:
    return [row["id"] for row in world.rows()]


def lost(world: ProjectionWorld) -> dict[int, tuple[int, int]]:
    progress = read_one(world.backend.store, world.job().projection.key(TOPIC_ID))
    assert progress is not None
    return {number: (item.offsets, item.end) for number, item in progress.lost.items()}


@BOTH
def test_rows_beyond_the_hold_are_lost_and_that_is_said(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    with projection_world(spark, tmp_path, {**rule, "hold": "0s"}) as world:
        some(world, 0, 3)
        world.run()
        gone = [some(world, 3, 4), some(world, 7, 1)]
        some(world, 8, 2)
        world.shim.delete(gone[0])
        eventually(lambda: world.state(0).floor == 7)
        ran = world.run()
        assert ran.reading.lost == {0: (3, 7)}
        assert ids(world) == [0, 1, 2, 7, 8, 9]
        assert lost(world) == {0: (4, 7)}
        world.shim.delete(gone[1])
        some(world, 10, 1)
        assert world.run().reading.lost == {}, "that one had been read"
        assert (ids(world), lost(world)) == ([0, 1, 2, 7, 8, 9, 10], {0: (4, 7)})


def test_what_is_lost_is_said_by_the_next_run_where_a_job_dies_after_its_commit(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with projection_world(spark, tmp_path, {"select": ["id"], "hold": "0s"}) as world:
        some(world, 0, 3)
        world.run()
        gone = some(world, 3, 4)
        some(world, 7, 2)
        world.shim.delete(gone)
        eventually(lambda: world.state(0).floor == 7)
        with monkeypatch.context() as patched:
            patched.setattr(repartition.run.run, "report_run", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                world.run()
        assert (ids(world), lost(world)) == ([0, 1, 2, 7, 8], {})
        assert world.run().ranges == 0
        assert lost(world) == {0: (4, 7)}


def test_rows_stay_until_they_were_read_and_go_then(spark: Any, tmp_path: Path) -> None:
    """The hold, by a bridge and a job: `tierberg repartition` lets go what Kafka deleted before."""
    with projection_world(spark, tmp_path, {"select": ["id"]}) as world:
        gone = some(world, 0, 3)
        world.shim.delete(gone)
        some(world, 3, 2)
        assert (world.state(0).floor, world.count(TABLE)) == (3, 5), "deleted, and held"
        assert world.run().reading.lost == {}
        assert ids(world) == list(range(5))
        some(world, 5, 1)
        eventually(lambda: world.count(TABLE) == 3)
        world.run()
        assert (ids(world), lost(world)) == (list(range(6)), {})


def test_a_projection_that_is_younger_than_the_topic_says_where_it_begins(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"hold": "0s"}) as world:
        gone = some(world, 0, 3)
        some(world, 3, 2)
        world.shim.delete(gone)
        eventually(lambda: world.state(0).floor == 3)
        world.run()
        assert (ids(world), lost(world)) == ([3, 4], {0: (3, 3)})


def test_late_rows_cut_back_no_more_of_a_projection_than_can_be_read_again(spark: Any, tmp_path: Path) -> None:
    """What Kafka has deleted since is in the projection alone."""
    with projection_world(spark, tmp_path, {"hold": "0s"}) as world:
        some(world, 0, 2)
        gone = [some(world, 2, 2, shown=False), some(world, 4, 2)]
        some(world, 6, 2)
        world.run()
        assert ids(world) == [0, 1, 4, 5, 6, 7]
        requeue(world.backend, None, dry_run=False, say=print)
        for segment in gone:
            world.shim.delete(segment)
        eventually(lambda: world.state(0).floor == 6)
        world.run()
        assert ids(world) == [0, 1, 4, 5, 6, 7]
        assert world.run().ranges == 0


@BOTH
def test_a_merge_between_two_portions_of_a_backfill(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    """A merged file that was read in part already is read on from there."""
    with projection_world(spark, tmp_path, rule) as world:
        for n in range(6):
            some(world, n * 5, 5)
        portions = [world.job(max_bytes=1).run() for _ in range(2)]
        assert (ids(world), portions[-1].complete) == (list(range(10)), False)
        assert world.merge() == 6
        assert world.job(max_bytes=1).run().complete
        assert ids(world) == list(range(30))
        some(world, 30, 5)
        some(world, 35, 5)
        world.run()
        some(world, 40, 5)
        world.merge()
        assert world.run().ranges == 1
        assert ids(world) == list(range(45))


def _during(world: ProjectionWorld, step: str, act: Callable[[], Any]) -> Any:
    job = world.job()
    job.step = lambda now: act() if now == step else None
    return job


def _files(world: ProjectionWorld) -> set[str]:
    return {task.file.file_path for task in world.catalog.load_table(TABLE).scan().plan_files()}


def _expire(world: ProjectionWorld) -> None:
    """Twenty snapshots later the one that a run has pinned is gone, and a file with it that was merged meanwhile."""
    pinned, files = world.catalog.load_table(TABLE).metadata.current_snapshot_id, _files(world)
    for n in range(20, 22):
        some(world, n, 1)
    assert world.merge() == 3
    for n in range(22, 42):
        some(world, n, 1)
    eventually(lambda: world.catalog.load_table(TABLE).snapshot_by_id(pinned or 0) is None)
    (gone,) = files - _files(world)
    Path(gone.removeprefix("file://")).unlink()


@BOTH
def test_a_snapshot_that_expires_while_it_is_read(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        for n in range(4):
            some(world, n * 5, 5)
        assert world.merge() == 4
        with pytest.raises(RepartitionError, match="expired while it was read") as raised:
            _during(world, "write", lambda: _expire(world)).run()
        assert raised.value.kind == "raced", "it is run again at once"
        assert ids(world) == []
        world.run()
        assert ids(world) == list(range(42))


@BOTH
def test_a_table_that_is_dropped_is_made_anew_and_the_projection_goes_on(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    """By an engine; the bridge publishes what its indexes say once more."""
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 5)
        some(world, 5, 5, shown=False)
        some(world, 10, 5)
        requeue(world.backend, None, dry_run=False, say=print)
        world.run()
        world.catalog.drop_table(TABLE)
        some(world, 15, 5)
        eventually(lambda: world.count(TABLE) == 20)
        world.run()
        assert ids(world) == list(range(20))


def test_a_topic_that_was_created_again_needs_a_projection_of_its_own(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        some(world, 0, 5)
        world.run()
        old, job = world.topic_id, world.job()
        world.topic_id, world.ends = b"again".ljust(16, b"."), {}
        some(world, 100, 3)
        with pytest.raises(RepartitionError, match="choose one by --topic-id") as raised:
            find_source(world.backend, TOPIC)
        assert raised.value.kind == "no_source"
        with pytest.raises(RepartitionError, match="needs a projection of its own") as raised:
            world.run()
        assert raised.value.kind == "not_ours"
        assert job.run().ranges == 0, "of the old one nothing is new"
        for source in (
            Source(world.backend, Owner("test", TOPIC, old), ("kafka", "dropped")),
            Source(world.backend, Owner("test", TOPIC, b"?" * 16), TABLE),
        ):
            job.source = source
            with pytest.raises(RepartitionError, match="is gone") as raised:
                job.run()
            assert raised.value.kind == "no_source", "records of another topic never come into the projection"
        assert ids(world) == list(range(5))
