"""What Prometheus is told of a real job."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from repartition.jobs.metrics import ProjectionMetrics, served
from repartition.jobs.rounds import Round, Tended
from repartition.maintain.due import Budget
from tests.projections.projection_support import TOPIC, projection_world, sent


def test_the_page_has_the_figures_of_the_runs(spark: Any, tmp_path: Path) -> None:
    metrics, said = ProjectionMetrics(), list[str]()
    with projection_world(spark, tmp_path, {}) as world, served(metrics, "127.0.0.1:0", said.append):
        for first in (0, 4):
            world.send([*(sent(n, {"id": n}) for n in range(first, first + 4)), (b"broken", b"{")])
        assert Round((metrics,)).run([Tended(world.job(max_bytes=1), Budget(0.5, working_s=3600))]) == 0
        with urlopen(said[0].removeprefix("metrics: "), timeout=10) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
    names = {"topic": TOPIC, "table": "kafka.orders_projection"}
    found = {
        (sample.name.removeprefix("tierberg_copy_"), *(sample.labels[key] for key in sample.labels.keys() - names)): (
            sample.value
        )
        for family in families
        for sample in family.samples
        if names.items() <= sample.labels.items()
    }
    assert found["runs_total", "ok"] == 2
    assert (found["read_records_total",], found["dead_letters_total",], found["lag_offsets",]) == (10, 2, 0)
    assert found["read_bytes_total",] > 1000
    assert found["step_seconds_total", "write"] > 0
    assert found["maintenance_seconds_total", "orphans"] > 0
    assert found["last_success_timestamp_seconds",] > 1_700_000_000
