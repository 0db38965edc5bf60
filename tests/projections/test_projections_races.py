"""Several jobs of one projection, jobs that die, and tables that change from underneath: exact, or a clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run import run, target
from repartition.run.run import ProjectionJob
from repartition.run.target import BRANCH, TAG, quoted
from repartition.spark.internals import branch_to_main
from rsm_bridge.tables.maintain.requeue_topics import requeue
from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, projection_world, sent, some
from tests.support.killed import KilledError

MODES: list[dict[str, Any]] = [{}, {"mode": "upsert", "key": ["id"]}]
BOTH = pytest.mark.parametrize("rule", MODES, ids=["append", "upsert"])


class DiedError(Exception):
    """Stands for SIGKILL: nothing after it runs."""


def interrupted(world: ProjectionWorld, step: str, act: Callable[[], Any]) -> ProjectionJob:
    """A job in which `act` happens right before a step."""
    made = world.job()

    def reached(now: str) -> None:
        if now == step:
            act()

    made.step = reached
    return made


def die() -> None:
    raise DiedError


def ids(world: ProjectionWorld) -> list[int]:
    return sorted(row["id"] for row in world.rows())


def branches(world: ProjectionWorld) -> list[str]:
    return [name for name in world.catalog.load_table(PROJECTION).metadata.refs if name.startswith(BRANCH)]


def call(world: ProjectionWorld, procedure: str, arguments: str) -> None:
    """By somebody else than a job."""
    catalog = quoted(world.settings.catalog.name)
    world.spark.sql(f"CALL {catalog}.system.{procedure}(table => '{'.'.join(PROJECTION)}', {arguments})")


def compact(world: ProjectionWorld) -> None:
    call(world, "rewrite_data_files", "options => map('rewrite-all','true')")


def expire(world: ProjectionWorld) -> None:
    """All snapshots but the last one and those that are kept by name."""
    call(world, "expire_snapshots", "retain_last => 1, older_than => timestamp'2999-01-01'")


@BOTH
def test_of_two_jobs_at_once_one_starts_over(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 10)
        with pytest.raises(RepartitionError) as raised:
            interrupted(world, "publish", world.run).run()
        assert raised.value.kind == "raced"
        assert ids(world) == list(range(10))
        some(world, 10, 5)
        assert world.run().ranges == 1
        assert ids(world) == list(range(15))
        assert branches(world) == []


@BOTH
@pytest.mark.parametrize("grown", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("branch", [1, 2], ids=["rows", "dead letters"])
def test_another_job_is_done_before_a_branch_is_made(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], grown: bool, branch: int
) -> None:
    """The narrowest moment: the run was planned on a head that is another by then, or on none."""
    made, real = 0, target.staged

    def staged(*given: Any) -> Any:
        nonlocal made
        made += 1
        if made == branch:
            world.run()
        return real(*given)

    with projection_world(spark, tmp_path, rule) as world:
        count = 0
        for before in range(1 + grown):
            if before:
                world.run()
            world.send([sent(n, {"id": n}) for n in range(count, count + 5)])
            world.send([(b"broken", b"{")], partition=1)
            count += 5
        monkeypatch.setattr(run, "staged", staged)
        with pytest.raises(RepartitionError) as raised:
            world.run()
        assert raised.value.kind == "raced"
        world.run()
        assert ids(world) == list(range(count))
        letters = world.rows(LETTERS)
        assert [row["_kafka_offset"] for row in letters] == list(range(1 + grown))


@BOTH
def test_a_job_that_dies_before_its_commit_is_visible_leaves_nothing(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 10)
        world.run()
        some(world, 10, 10)
        with pytest.raises(RepartitionError, match="DiedError"):
            interrupted(world, "publish", die).run()
        assert ids(world) == list(range(10))
        world.run()
        assert ids(world) == list(range(20))


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_job_that_dies_between_the_two_tables_doubles_no_dead_letter(spark: Any, tmp_path: Path, first: bool) -> None:
    with projection_world(spark, tmp_path, {"select": ["100 / id AS share"]}) as world:
        some(world, 1, 1)
        if not first:
            world.run()
        some(world, 0, 3)
        with pytest.raises(RepartitionError, match="DiedError"):
            interrupted(world, "publish", die).run()
        assert (world.count(LETTERS), world.count(PROJECTION)) == (1, 0 if first else 1)
        some(world, 0, 2)
        world.run()
        assert [row["_kafka_offset"] for row in world.rows(LETTERS)] == [1, 4]
        assert [row["_kafka_offset"] for row in world.rows()] == [0, 2, 3, 5]


def test_compaction_and_expiry_by_others_do_not_lose_the_frontier(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        for n in range(3):
            some(world, n * 5, 5)
            world.run()
        compact(world)
        some(world, 15, 5)
        world.run()
        assert ids(world) == list(range(20))
        compact(world)
        expire(world)
        assert len(world.catalog.load_table(PROJECTION).metadata.snapshots) == 2, "the tagged one stays"
        assert TAG in world.catalog.load_table(PROJECTION).metadata.refs
        some(world, 20, 5)
        world.run()
        assert ids(world) == list(range(25))


@BOTH
def test_rows_without_a_frontier_are_an_error_until_they_tell_it(
    spark: Any, tmp_path: Path, rule: dict[str, Any]
) -> None:
    """The rows of an append projection can."""
    with projection_world(spark, tmp_path, {**rule, "where": "id % 5 <> 4"}) as world:
        some(world, 0, 5)
        world.run()
        full = quoted(world.settings.catalog.name, *PROJECTION)
        spark.sql(f"ALTER TABLE {full} DROP TAG {TAG}")
        spark.sql(f"INSERT OVERWRITE {full} SELECT * FROM {full}")
        expire(world)
        some(world, 5, 5, partition=1)
        upsert = rule.get("mode") == "upsert"
        with pytest.raises(RepartitionError, match="drop the table" if upsert else "--repair` works it out") as raised:
            world.job(repair=upsert).run()
        assert raised.value.kind == "no_frontier"
        if not upsert:
            world.job(repair=True).run()
            some(world, 10, 5)
            world.run()
            assert ids(world) == [n for n in range(15) if n % 5 != 4]


@BOTH
def test_a_job_that_dies_behind_its_commit_loses_no_frontier(
    spark: Any, tmp_path: Path, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever others do with the table before the next run."""

    def published(*arguments: Any) -> None:
        branch_to_main(*arguments)
        raise KilledError

    with projection_world(spark, tmp_path, rule) as world:
        for first in (0, 10):
            some(world, first, 10, partition=first // 10)
            with monkeypatch.context() as patched:
                patched.setattr("repartition.run.target.branch_to_main", published)
                with pytest.raises(KilledError):
                    world.job().run()
            compact(world)
            expire(world)
        some(world, 20, 5)
        assert world.run().ranges == 1
        assert ids(world) == list(range(25))


def test_a_partition_that_the_tag_does_not_know_is_not_read_again(spark: Any, tmp_path: Path) -> None:
    """Somebody has put the tag back, and expiry took what came after it."""
    with projection_world(spark, tmp_path, {}) as world:
        some(world, 0, 5)
        world.run()
        before = world.catalog.load_table(PROJECTION).metadata.refs[TAG].snapshot_id
        some(world, 5, 5, partition=1)
        world.run()
        full = quoted(world.settings.catalog.name, *PROJECTION)
        spark.sql(f"ALTER TABLE {full} REPLACE TAG {TAG} AS OF VERSION {before}")
        compact(world)
        expire(world)
        with pytest.raises(RepartitionError, match="were expired with what they said") as raised:
            world.run()
        assert raised.value.kind == "no_frontier"


def test_a_publish_that_fails_while_nobody_was_faster_is_no_race(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        some(world, 0, 5)
        world.run()
        some(world, 5, 5)
        full = quoted(world.settings.catalog.name, *PROJECTION)

        def fail() -> None:
            (branch,) = branches(world)
            spark.sql(f"ALTER TABLE {full} DROP BRANCH `{branch}`")

        with pytest.raises(RepartitionError) as raised:
            interrupted(world, "publish", fail).run()
        assert raised.value.kind == "spark"


def test_a_projection_that_was_dropped_gets_its_dead_letters_again(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        for partition in (0, 1):
            some(world, 0, 3, partition=partition)
            world.send([(b"broken", b"{")], partition=partition)
            some(world, 4, 3, partition=partition)
        world.run()
        world.change({"select": ["100 / (id - 1) AS share", "id"]})
        world.catalog.drop_table(PROJECTION)
        while not world.job(max_bytes=1).run().complete:
            pass
        found = [(row["_kafka_partition"], row["_kafka_offset"]) for row in world.rows(LETTERS)]
        assert found == [(0, 1), (0, 3), (1, 1), (1, 3)]
        assert world.count(PROJECTION) == 10


def test_somebody_elses_table_is_not_touched(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        some(world, 0, 5)
        full = quoted(world.settings.catalog.name, *PROJECTION)
        spark.sql(f"CREATE TABLE {full} (id int) USING iceberg")
        with pytest.raises(RepartitionError, match="choose another `table`") as raised:
            world.run()
        assert raised.value.kind == "not_ours"


def test_a_key_in_two_partitions_stops_the_projection(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"]}) as world:
        some(world, 0, 3)
        some(world, 2, 2, partition=1)
        with pytest.raises(RepartitionError, match=r'several partitions.*"id":2') as raised:
            world.run()
        assert raised.value.kind == "key_moved"


def test_a_key_that_moves_between_runs_stops_the_projection_too(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"]}) as world:
        some(world, 0, 3)
        world.run()
        some(world, 2, 2, partition=1)
        with pytest.raises(RepartitionError, match=r'several partitions.*"id":2') as raised:
            world.run()
        assert raised.value.kind == "key_moved"
        assert ids(world) == [0, 1, 2]


def test_keys_may_move_where_timestamps_order_them(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"], "key_order": "timestamp"}) as world:
        some(world, 0, 3)  # timestamps follow offsets
        world.run()
        world.send([sent(n, {"id": n, "who": "moved"}) for n in (7, 8, 9, 1, 0)], partition=1)
        world.run()
        assert {row["id"]: row["who"] for row in world.rows()} == {
            0: "moved", 1: "moved", 2: "w2", 7: "moved", 8: "moved", 9: "moved",
        }  # fmt: skip


@BOTH
def test_dead_letters_of_a_run_that_died(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    """They stay once, and change with the topic's table, which the projection itself reads for the first time."""
    broken = (b"broken", b"{")

    def died() -> None:
        with pytest.raises(RepartitionError):
            interrupted(world, "publish", die).run()

    def letters() -> list[int]:
        return [row["_kafka_offset"] for row in world.rows(LETTERS)]

    with projection_world(spark, tmp_path, rule) as world:
        some(world, 0, 3)
        world.send([broken])
        world.send([broken])
        died()
        world.run()
        assert letters() == [3, 4]
        world.send([broken])
        world.send([broken])
        died()
        while not world.job(max_bytes=1).run().complete:
            pass
        assert letters() == [3, 4, 5, 6]
        world.send([broken])
        world.send([broken])
        died()
        world.send([sent(8, {"id": 8}), broken], at=8, epoch=1)
        world.run()
        assert letters() == [3, 4, 5, 6, 7, 9]
        world.send([broken], shown=False)
        world.send([broken])
        died()
        requeue(world.backend, None, dry_run=False, say=print)
        world.run()
        assert letters() == [3, 4, 5, 6, 7, 9, 10, 11]
        assert ids(world) == [0, 1, 2, 8]
