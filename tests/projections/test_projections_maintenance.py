"""Maintenance between runs: few files, sorted, old snapshots gone, every row still there."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from repartition import limits
from repartition.errors import RepartitionError
from repartition.maintain import due, maintain
from repartition.maintain.due import Budget
from repartition.run import write
from repartition.run.reporting import now_ms
from repartition.run.target import BRANCH, quoted
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.storage.projections.progress import read_one
from tests.projections.projection_support import LETTERS, PROJECTION, TOPIC_ID, ProjectionWorld, projection_world, sent

DAY_MS = 24 * 3_600_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if much more had been written."""
    monkeypatch.setattr(due, "COMPACTION_FILES_MIN", 4)
    monkeypatch.setattr(due, "MANIFESTS_MAX", 1)
    monkeypatch.setattr(maintain, "COMPACTION_INPUT_FILES_MIN", 2)
    monkeypatch.setattr(maintain, "SNAPSHOT_AGE_MS", -DAY_MS)
    monkeypatch.setattr(due, "SNAPSHOT_AGE_MS", -DAY_MS)


def rich() -> Budget:
    return Budget(0.5, working_s=3600)


def totals(world: ProjectionWorld) -> dict[str, str]:
    head = world.catalog.load_table(PROJECTION).current_snapshot()
    assert head is not None
    assert head.summary is not None
    return head.summary.additional_properties


def failed_chores(world: ProjectionWorld) -> list[str]:
    progress = read_one(world.backend.store, world.job().projection.key(TOPIC_ID))
    return [] if progress is None else sorted(progress.failed_chores)


def test_small_files_become_one_sorted_one_and_the_frontier_stays(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"sort_by": ["id desc"]}) as world:
        for n in range(6):
            world.send([sent(m, {"id": m}) for m in range(n * 5, n * 5 + 5)])
            world.run()
        done = [item.chore for item in maintain.maintain(world.job(), rich())]
        assert done[:1] == ["compaction"]
        assert {"expiry", "orphans"} <= set(done)
        table = world.catalog.load_table(PROJECTION)
        (task,) = table.scan().plan_files()
        stored = pq.read_table(task.file.file_path.removeprefix("file:")).column("id").to_pylist()
        assert stored == list(range(29, -1, -1))
        assert len(table.metadata.snapshots) == limits.SNAPSHOTS_KEPT
        assert world.run().ranges == 0
        world.send([sent(30, {"id": 30})])
        world.run()
        assert [row["id"] for row in world.rows()] == list(range(31))


@pytest.mark.parametrize("hostile", [False, True])
def test_a_z_order_keeps_files_narrow_in_each_of_its_columns(spark: Any, tmp_path: Path, hostile: bool) -> None:
    rule = {"sort_by": ["zorder(x, y)"], "target_file_mib": 1, "select": ["*", "x - 500 AS below", "y > 0 AS above"]}
    drawn = Random(7)
    with projection_world(spark, tmp_path, rule) as world:
        for _ in range(8):
            rows = [
                {"x": drawn.randrange(1000), "y": drawn.randrange(1000), "text": drawn.randbytes(150).hex()}
                for _ in range(3000)
            ]
            world.send([sent(None, {**row, **({"icezvalue": 1} if hostile else {})}) for row in rows])
            world.run()
        before = world.rows()
        assert [item.chore for item in maintain.maintain(world.job(), rich())][:1] == ["compaction"]
        assert world.rows() == before
        files = world.catalog.load_table(PROJECTION).inspect.files().to_pylist()
        assert len(files) >= 3
        widths = {}
        for name in ("x", "y"):
            bounds = [file["readable_metrics"][name] for file in files]
            widths[name] = sum(item["upper_bound"] - item["lower_bound"] for item in bounds) / len(bounds)
        # Sorted by x alone, each file has all of y.
        assert widths["x"] < 800
        assert (widths["y"] > 900) if hostile else (widths["y"] < 800)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"sort_by": ["zorder(pos.lat, pos.lon)"]}, r"takes no pos\.lat; give it a name of its own in `select`"),
        ({"sort_by": ["zorder(a, b)"], "partition_by": ["b", "day(t)", "a"]}, "all rows are alike in these columns"),
    ],
)
def test_z_orders_that_no_table_can_have(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ProjectionRule(table="t", **rule)


def test_a_chore_that_fails_keeps_no_other_from_its_turn(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        for first in range(0, 30, 5):
            world.send([sent(n, {"id": n}) for n in range(first, first + 5)])
            world.run()

        def fail(*_: Any) -> str:
            raise OSError("broken")

        seen: list[str] = []
        job = world.job()
        job.step = seen.append
        with monkeypatch.context() as patched:
            patched.setitem(maintain._CHORES, "compaction", fail)
            with pytest.raises(
                RepartitionError, match="compaction failed, the next round tries again: OSError: broken"
            ):
                maintain.maintain(job, rich())
        assert seen[0] == "compaction"
        assert len(seen) > 1
        world.run()
        assert failed_chores(world) == ["compaction"], "a run that goes well says nothing of it"
        assert "compaction" in [item.chore for item in maintain.maintain(world.job(), rich())]
        assert failed_chores(world) == []


def test_what_a_z_order_does_not_take_is_refused(spark: Any, tmp_path: Path) -> None:
    rule = {"sort_by": ["zorder(a, b)"], "select": ["cast(id AS decimal(9, 2)) AS a", "id AS b"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(1, {"id": 1})])
        with pytest.raises(RepartitionError, match="zorder takes no column of type decimal, as a is"):
            world.run()


def test_delete_files_of_an_upsert_are_merged_in(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"]}) as world:
        for n in range(6):
            world.send([sent(m, {"id": m, "n": n}) for m in range(3)])
            world.run()
        assert int(totals(world)["total-delete-files"]) >= 5
        assert "compaction" in [item.chore for item in maintain.maintain(world.job(), rich())]
        after = totals(world)
        assert (after["total-delete-files"], after["total-records"]) == ("0", "3")
        progress = read_one(world.backend.store, world.job().projection.key(TOPIC_ID))
        assert progress is not None
        size = progress.size
        assert size is not None
        assert [str(size.rows), str(size.files), str(size.bytes)] == [
            after[name] for name in ("total-records", "total-data-files", "total-files-size")
        ]
        assert [(row["id"], row["n"]) for row in world.rows()] == [(0, 5), (1, 5), (2, 5)]


@pytest.mark.parametrize("version", [2, 3])
def test_few_changes_write_no_data_file_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """40 changes had the whole table rewritten. Of each data file there is one delete file, or one vector."""
    monkeypatch.setattr(maintain, "tiers", lambda _target: [30_000])
    rule = {"mode": "upsert", "key": ["id"], "format_version": version}
    with projection_world(spark, tmp_path, rule) as world:
        noise = Random(5)
        world.send([sent(m, {"id": m, "n": 0, "text": noise.randbytes(100).hex()}) for m in range(1000)])
        world.run()
        large = {task.file.file_path for task in world.catalog.load_table(PROJECTION).scan().plan_files()}
        for n in range(1, 7):
            world.send([sent(m, {"id": m, "n": n}) for m in range(n * 5, n * 5 + 5)])
            world.run()
        (done,) = [item for item in maintain.maintain(world.job(), rich()) if item.chore == "compaction"]
        assert done.said == "6 files became 1"
        assert 5 / 500 < limits.COMPACTION_DELETED_SHARE_MIN
        files = {task.file.file_path for task in world.catalog.load_table(PROJECTION).scan().plan_files()}
        assert large < files
        assert len(files) == len(large) + 1
        assert int(totals(world)["total-delete-files"]) <= len(large)
        assert {row["id"]: row["n"] for row in world.rows()} == {m: m // 5 if 5 <= m < 35 else 0 for m in range(1000)}


@pytest.mark.parametrize(("mib", "found"), [(1, 1), (8, 1), (16, 2), (128, 3), (1024, 4)])
def test_tiers_end_below_the_size_that_files_are_made_for(mib: int, found: int) -> None:
    made = maintain.tiers(mib << 20)
    assert len(made) == found
    assert made[0] <= limits.COMPACTION_LOWEST_TIER_BYTES * limits.COMPACTION_TIERS_APART
    assert made[-1] == mib * 3 << 18
    assert all(low * limits.COMPACTION_TIERS_APART <= high for low, high in pairwise(made))


def test_rows_older_than_the_rule_s_retention_leave(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"retention": "1d"}) as world:
        world.send([sent(m, {"id": m}) for m in range(5)])  # of 2023
        world.run()
        at = 1_700_000_000_000 + DAY_MS + 3
        maintain.maintain(world.job(), rich(), lambda: at)
        assert [row["id"] for row in world.rows()] == [3, 4]
        assert world.run().ranges == 0


def test_nothing_is_done_without_budget_or_without_need(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        assert maintain.maintain(world.job(), Budget(0.2)) == []
        assert [item.chore for item in maintain.maintain(world.job(), rich())] == ["orphans"]
        assert maintain.maintain(world.job(), rich()) == []


def test_compaction_that_finds_nothing_to_do_is_not_tried_again(spark: Any, tmp_path: Path) -> None:
    """Many partitions with a file each."""
    with projection_world(spark, tmp_path, {"partition_by": ["id"]}) as world:
        world.send([sent(n, {"id": n}) for n in range(6)])
        world.run()
        head = world.catalog.load_table(PROJECTION).metadata.current_snapshot_id
        (done,) = [item for item in maintain.maintain(world.job(), rich()) if item.chore == "compaction"]
        assert done.said == "0 files became 0"
        assert world.catalog.load_table(PROJECTION).metadata.current_snapshot_id == head
        assert maintain.maintain(world.job(), rich()) == []
        world.send([sent(n, {"id": n}) for n in range(6)])
        world.run()
        assert "compaction" in [item.chore for item in maintain.maintain(world.job(), rich())]
        assert len(list(world.catalog.load_table(PROJECTION).scan().plan_files())) == 6


def test_a_run_that_publishes_while_a_compaction_ends_is_not_read_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = write.append

    def late(*given: Any) -> None:
        world.send([sent(99, {"id": 99})])
        world.run()
        real(*given)

    with projection_world(spark, tmp_path, {}) as world:
        for n in range(4):
            world.send([sent(n, {"id": n})])
            world.run()
        monkeypatch.setattr(maintain, "append", late)
        done = {item.chore: item.said for item in maintain.maintain(world.job(), rich())}
        assert done["compaction"] == "another job was faster; the next round tries again"
        assert world.run().ranges == 0
        assert [row["id"] for row in world.rows()] == [0, 1, 2, 3, 99]


def test_branches_of_dead_runs_are_dropped(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        full, now = quoted(world.settings.catalog.name, *PROJECTION), now_ms()
        dead, alive = f"{BRANCH}{now - limits.ORPHAN_AGE_MS - 1}_a", f"{BRANCH}{now - limits.ORPHAN_AGE_MS}_b"
        for name in (dead, alive):
            spark.sql(f"ALTER TABLE {full} CREATE BRANCH `{name}`")
        done = {item.chore: item.said for item in maintain.maintain(world.job(), rich(), lambda: now)}
        assert done["expiry"].startswith("1 branches of dead runs dropped")
        assert [name for name in world.catalog.load_table(PROJECTION).metadata.refs if name.startswith(BRANCH)] == [
            alive
        ]


def test_dead_letters_are_maintained_too(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"retention": "1d"}) as world:
        for n in range(4):
            world.send([(b"broken", b"{"), sent(n, {"id": n})])
            world.run()
        assert len(list(world.catalog.load_table(LETTERS).scan().plan_files())) == 4
        at = 1_700_000_000_000 + DAY_MS + 3
        done = [item.chore for item in maintain.maintain(world.job(), rich(), lambda: at) if "letters" in item.said]
        assert {"retention", "compaction", "orphans"} <= set(done)
        assert [row["_kafka_offset"] for row in world.rows(LETTERS)] == [4, 6]
        assert len(list(world.catalog.load_table(LETTERS).scan().plan_files())) == 1
        world.send([(b"broken", b"{")])
        world.run()
        assert [row["_kafka_offset"] for row in world.rows(LETTERS)] == [4, 6, 8]


class RefusedError(Exception):
    """As py4j tells of a commit that came too late."""

    def __init__(self) -> None:
        cause = {"getMessage.return_value": "too late", "getCause.return_value": None}
        self.java_exception = Mock(**cause)
        self.java_exception.getClass().getName.return_value = "org.apache.iceberg.exceptions.CommitFailedException"


def test_a_chore_that_another_job_beats_is_left_to_the_next_round(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = maintain._CHORES["orphans"]
    with projection_world(spark, tmp_path, {}) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        monkeypatch.setitem(maintain._CHORES, "orphans", Mock(side_effect=RefusedError))
        (done,) = maintain.maintain(world.job(), rich())
        assert (done.chore, done.said) == ("orphans", "another job was faster; the next round tries again")
        monkeypatch.setitem(maintain._CHORES, "orphans", real)
        (done,) = maintain.maintain(world.job(), rich())
        assert done.said == "0 files of nobody removed"
