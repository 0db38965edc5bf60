"""What a terminal is told of Spark while it works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from repartition.spark.session import running_tasks
from tests.support.eventually import eventually


def test_tasks_are_counted_while_they_run(spark: Any, tmp_path: Path) -> None:
    assert running_tasks() is None
    go = str(tmp_path / "go")

    def wait(number: int) -> None:
        import time
        from pathlib import Path

        deadline = time.monotonic() + 60
        while number and not Path(go).exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: spark.sparkContext.parallelize(range(3), 3).foreach(wait))
        eventually(lambda: running_tasks() == (1, 3))
        Path(go).touch()
        job.result(60)
    eventually(lambda: running_tasks() is None)
