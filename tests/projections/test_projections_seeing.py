"""Threads of a job beside each other: what a terminal is told of each, and whose catalogs each has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from repartition.run.target import quoted
from repartition.spark.internals import iceberg_table
from repartition.spark.session import beside, in_pool, running_tasks
from repartition.spark.targets import open_targets
from tests.projections.projection_support import PROJECTION, projection_world, some
from tests.support.eventually import eventually


def test_tasks_are_counted_while_they_run(spark: Any, tmp_path: Path) -> None:
    assert running_tasks("mine") is None
    go = str(tmp_path / "go")

    def wait(number: int) -> None:
        import time
        from pathlib import Path

        deadline = time.monotonic() + 60
        while number and not Path(go).exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:

        def work() -> None:
            in_pool(spark, "mine")
            spark.sparkContext.parallelize(range(3), 3).foreach(wait)

        job = pool.submit(work)
        eventually(lambda: running_tasks("mine") == (1, 3))
        assert running_tasks("another's") is None
        Path(go).touch()
        job.result(60)
    eventually(lambda: running_tasks("mine") is None)


def test_a_thread_of_its_own_meets_the_catalogs_of_its_session(spark: Any, tmp_path: Path) -> None:
    """What Java is asked without SQL goes by the thread's session: a projection in another catalog has no other way."""
    with projection_world(spark, tmp_path, {}) as world:
        some(world, 0, 3)
        world.run()
        _, conf = open_targets(world.backend, ())

        def lane() -> str:
            session = beside(spark, conf)
            in_pool(session, "mine")
            name = iceberg_table(session, quoted(world.settings.catalog.name, *PROJECTION)).name()
            return str(name)

        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lane).result(60)
        assert found == f"{world.settings.catalog.name}.{'.'.join(PROJECTION)}"
