"""A job whose driver's Java dies: it ends, so that whoever supervises it starts it again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.projections.job_support import PROJECTIONS, check, config_of, job, send
from tests.projections.projection_support import projection_world


def java_of(process: int) -> int:
    """The child of Python that runs Spark."""
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(process)], capture_output=True, check=True)
    (pid,) = [line.split()[0] for line in found.stdout.decode().splitlines() if line.split()[1] == "java"]
    return int(pid)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_continuous_job_ends_with_its_java(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path / "world", *PROJECTIONS) as world:
        send(world, 0)
        config = config_of(world, tmp_path, interval="1s")
        running = job(config, "--continuous")
        try:
            assert running.reaches("write")
            os.kill(java_of(running.process.pid), signal.SIGKILL)
            assert running.ended(120) == 1
        finally:
            if running.alive:
                running.kill()
        assert running.lines[-1].startswith("tierberg: Spark's driver has ended"), running.lines[-3:]
        job(config).end()
        check(world, 5)
