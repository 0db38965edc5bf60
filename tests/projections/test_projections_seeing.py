"""What a terminal is told of Spark while it works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from repartition.spark.session import in_pool, running_tasks
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
