"""A job for all topics: one that comes later is kept too, and projections with a backlog take turns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repartition.jobs.events import Ended, Event, ProjectionName
from repartition.jobs.rounds import Round, Tended
from repartition.maintain.due import Budget
from rsm_bridge.limits import PROJECTIONS_AT_ONCE_MAX
from tests.projections.job_support import config_of, job
from tests.projections.projection_support import TOPIC, ProjectionWorld, projection_world, some
from tests.support.eventually import eventually

PROJECTIONS: tuple[dict[str, Any], ...] = (
    {"table": "{topic}_all"},
    {"table": "{topic}_now", "mode": "upsert", "key": ["id"]},
)


def ids(world: ProjectionWorld, suffix: str) -> list[int]:
    """Of the projections of the world's topic."""
    return [row["id"] for row in world.rows((*world.source.name[:-1], f"{world.source.name[-1]}_{suffix}"))]


def has(world: ProjectionWorld, suffix: str, expected: list[int]) -> bool:
    return ids(world, suffix) == expected


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_topics_that_come_after_the_job_has_begun_are_kept(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        running = job(config_of(world, tmp_path, PROJECTIONS, interval="1s"), "--continuous", which="--all")
        try:
            eventually(lambda: bool(running.lines), 120)  # Spark's, which begins when the job has looked for topics
            some(world, 0, 3)
            eventually(partial(has, world, "now", [0, 1, 2]), 120)
            again = replace(world, topic_id=b"again".ljust(16, b"."), ends={}, lineage={})
            some(again, 10, 2)
            assert again.source.name != world.source.name
            some(world, 3, 1)
            for suffix in ("all", "now"):
                eventually(partial(has, again, suffix, [10, 11]), 120)
                eventually(partial(has, world, suffix, [0, 1, 2, 3]), 120)
            assert running.alive
        finally:
            running.kill()
    said = [line for line in running.lines if "topic" in line]
    assert [line.split(": ")[1] for line in said] == [
        f"topic {TOPIC} has come, and its projection is kept from now on"
    ] * 4


def test_projections_with_a_backlog_take_turns(spark: Any, tmp_path: Path) -> None:
    turns: list[str] = []

    def watch(projection: ProjectionName, event: Event) -> None:
        if isinstance(event, Ended):
            turns.append(projection.table.rpartition("_")[2])

    with projection_world(spark, tmp_path, *PROJECTIONS) as world:
        for first in (0, 2, 4):
            some(world, first, 2)
        projections = [Tended(world.job(number, max_bytes=1), Budget(0.0)) for number in range(2)]
        assert Round((watch,)).run(projections) == 0
        assert turns == ["all", "now"] * 3
        assert ids(world, "all") == ids(world, "now") == list(range(6))


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_projections_run_side_by_side(spark: Any, tmp_path: Path, side_by_side: int) -> None:
    assert side_by_side <= PROJECTIONS_AT_ONCE_MAX
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        some(world, 0, 500)
        running = job(config_of(world, tmp_path, PROJECTIONS, side_by_side=side_by_side))
        try:
            eventually(lambda: not running.alive, 300)
        finally:
            running.kill()
        assert ids(world, "all") == ids(world, "now") == list(range(500))
    steps = [line.partition(": ")[0] for line in running.lines if line.endswith((": read", ": publish"))]
    one, other = steps[0], next(table for table in steps if table != steps[0])
    turns = [one, one, other, other]
    assert (steps == turns) == (side_by_side == 1), running.lines
    assert sorted(steps) == sorted(turns)
