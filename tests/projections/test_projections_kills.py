"""SIGKILL for driver and executors, at any moment of one long run: the projections are exact afterwards.

On `local[*]` the executors are threads of the driver's Java process, which is killed with the driver's Python process.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.projections.job_support import PROJECTIONS, check, config_of, job, send
from tests.projections.projection_support import ProjectionWorld, projection_world
from tests.support.projection_job import STAGES

KILLS = 50


def _short(hits: Counter[str], kills: int) -> list[str]:
    """Stages hit less than twice, once there are few kills left: most jobs have no maintenance to do."""
    short = [stage for stage in STAGES if hits[stage] < 2]
    return short if kills - sum(hits.values()) <= 2 * len(short) else []


def killed(world: ProjectionWorld, folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kills at stages drawn at random, some milliseconds in; between them more is sent, and some jobs may end."""
    config, draw, hits, serial = config_of(world, folder), random.Random(seed), Counter[str](), 0
    while sum(hits.values()) < kills:
        send(world, serial)
        serial += 5
        wanted = draw.choice(_short(hits, kills) or STAGES)
        running = job(config)
        if running.reaches(wanted):
            time.sleep(draw.choice((0.0, 0.02, 0.1, 0.3)))
            hits[running.stage] += running.alive
            running.kill()
        else:
            running.end()
    job(config).end()
    check(world, serial)
    return hits


@pytest.mark.timeout(900)
def test_some_kills(spark: Any, tmp_path: Path) -> None:
    """What CI has time for: the stages around the commit."""
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        hits = killed(world, tmp_path, 3, 1)
    assert sum(hits.values()) == 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_kills(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        hits = killed(world, tmp_path, KILLS, 2)
    with capsys.disabled():
        print("\n" + "\n".join(f"{stage:14} {hits[stage]:3} {'#' * hits[stage]}" for stage in STAGES))
    assert min(hits[stage] for stage in STAGES) >= 2
