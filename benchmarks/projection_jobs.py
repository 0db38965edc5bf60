"""Runs of projections, measured: all in one Spark application on this machine's cores, as users run them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.meters import Spent, median, tree_cpu_s
from benchmarks.orders import ARROW
from benchmarks.projection_world import TOPIC
from repartition.run.run import ProjectionJob
from repartition.run.source import Source, find_source
from repartition.spark.session import spark_session
from repartition.spark.targets import Target, open_targets
from rsm_bridge.config.secrets import revealed
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.projections.hold import DeclaredProjection, declared_projections
from tierberg.stack.jars import spark_jars

#: The value's columns and the record's timestamp; partition and offset come with them.
COLUMNS = [*ARROW.names, "_kafka_timestamp"]


@dataclass(frozen=True, slots=True)
class Files:
    """Of a table: how many, the median of their sizes in bytes, and its rows as Arrow."""

    count: int
    median_bytes: float
    rows: int
    arrow_bytes: int

    @property
    def row_bytes(self) -> float:
        """Of one row as Arrow, in the mean."""
        return self.arrow_bytes / max(self.rows, 1)


@dataclass(slots=True)
class Jobs:
    """A session with every declared projection, by table name. Not for several threads."""

    session: Any
    source: Source
    targets: Mapping[str, Target]
    projections: Mapping[str, DeclaredProjection]

    @property
    def own(self) -> Target:
        """Where the topic's table is."""
        return self.targets[self.source.backend.settings.catalog.name]

    def run(self, table: str) -> Spent:
        """One run of a projection: CPU of this process and of Spark's."""
        projection = self.projections[table]
        job = ProjectionJob(
            session=self.session,
            source=self.source,
            source_catalog=self.own.spark_name,
            projection=projection,
            target=self.targets[projection.catalog],
        )
        cpu, wall = tree_cpu_s(os.getpid()), time.perf_counter()
        job.run()
        return Spent(tree_cpu_s(os.getpid()) - cpu, time.perf_counter() - wall)

    def files(self, table: str) -> Files:
        """What a projection's table consists of; its rows are read once, batch after batch."""
        found = self.own.catalog.load_table(("kafka", table))
        sizes = [task.file.file_size_in_bytes for task in found.scan().plan_files()]
        rows = size = 0
        for batch in found.scan().to_arrow_batch_reader():
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return Files(len(sizes), median(sizes), rows, size)


def write_config(path: Path, data_dir: Path, projections: Sequence[Mapping[str, Any]], scratch: Path) -> Path:
    """A settings file for jobs."""
    spark = {
        "spark.jars": ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar"))),
        "spark.driver.memory": "4g",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    settings = {
        "data_dir": str(data_dir),
        "topics": [{"pattern": TOPIC, "value_format": "json", "copies": list(projections)}],
        "repartition": {"spark": spark},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@contextmanager
def jobs(config: Path) -> Iterator[Jobs]:
    """Spark with the projections of a settings file."""
    backend = open_backend(config, None)
    source = find_source(backend, TOPIC)
    projections = declared_projections(backend.settings, TOPIC, source.name[-1])
    targets, conf = open_targets(backend, (projection.rule for projection in projections))
    with spark_session(conf, revealed(backend.settings.repartition.spark)) as session:
        yield Jobs(
            session, source, targets, {projection.table.rpartition(".")[2]: projection for projection in projections}
        )
