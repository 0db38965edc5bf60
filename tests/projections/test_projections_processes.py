"""Several jobs of the same projections at once, each in a process, while the topic grows: exact, and none fails."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.projections.job_support import PROJECTIONS, check, config_of, job, send
from tests.projections.projection_support import ProjectionWorld, projection_world

#: A data file of five such orders alone fills the MiB that one run may read.
PAD_BYTES = 200_000


def raced(world: ProjectionWorld, folder: Path, jobs: int, rounds: int, sends: int) -> Counter[str]:
    """Rounds of jobs that start at once; how many races and runs they told of."""
    config, serial, told = config_of(world, folder, max_mib=1), 0, Counter[str]()
    for _ in range(rounds):
        for _ in range(sends):
            send(world, serial, PAD_BYTES)
            serial += 5
        running = [job(config) for _ in range(jobs)]
        while any(each.alive and each.stage == "start" for each in running):
            time.sleep(0.01)
        # In the middle of their runs.
        send(world, serial, PAD_BYTES)
        serial += 5
        for each in running:
            for line in each.end(900):
                told["races"] += line.endswith("another job was faster, once more")
                told["runs"] += " MiB read in " in line
        job(config).end()
        check(world, serial)
    return told


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_processes_at_once(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        told = raced(world, tmp_path, jobs=3, rounds=4, sends=4)
    with capsys.disabled():
        print(f"\n{told['runs']} runs, {told['races']} races")
    assert told["races"] > 0
