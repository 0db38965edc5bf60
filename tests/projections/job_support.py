"""Processes of `tierberg repartition` over a history with known projections: an append, an upsert, dead letters."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.projections.projection_support import TOPIC, ProjectionWorld, sent
from tests.support.projection_job import ProjectionJob
from tierberg.stack.jars import spark_jars

PROJECTIONS = (
    {"table": "all_orders", "partition_by": ["bucket(2, id)"], "sort_by": ["id"]},
    {"table": "orders_now", "mode": "upsert", "key": ["k"], "partition_by": ["bucket(2, k)"]},
)


def job(config: Path, *more: str, which: str = TOPIC) -> ProjectionJob:
    """The command on its own session. `more`: of its arguments. `which`: topic, or `--all`."""
    argv = [sys.executable, "-u", "-m", "tierberg.cli", "repartition", which, "--config", str(config)]
    return ProjectionJob([*argv, "--maintenance-budget", "0.5", *more])


def config_of(
    world: ProjectionWorld, folder: Path, projections: Sequence[dict[str, Any]] = PROJECTIONS, **more: Any
) -> Path:
    """A settings file of projections. `more`: keys of `repartition`."""
    jars = ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar")))
    given = world.settings.catalog
    settings: dict[str, Any] = {
        "data_dir": str(world.settings.data_dir),
        "catalog": {"name": given.name, "properties": {key: _plain(value) for key, value in given.properties.items()}},
        "topics": [{"pattern": TOPIC, "value_format": "json", "copies": list(projections)}],
        "repartition": {
            "spark": {
                "spark.jars": jars,
                "spark.driver.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                "spark.local.dir": str(folder / "scratch"),
            },
            **more,
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def _plain(value: Any) -> str:
    return str(value.get_secret_value())


def send(world: ProjectionWorld, serial: int, pad_bytes: int = 0) -> None:
    """Five orders from `serial` on, of seven keys, and one that does not decode. `pad_bytes`: more, in each order."""
    pad = random.Random(serial).randbytes(pad_bytes // 2).hex()
    world.send([sent(n % 7, {"id": n, "k": n % 7, "n": serial, "pad": pad}) for n in range(serial, serial + 5)])
    world.send([(b"broken", b"{")], partition=1)


def check(world: ProjectionWorld, serial: int) -> None:
    """The projections have exactly what was sent below `serial`."""
    everything = [row["id"] for row in world.rows(("kafka", "all_orders"))]
    assert everything == list(range(serial))
    now = {row["k"]: row["id"] for row in world.rows(("kafka", "orders_now"))}
    assert now == {key: max(n for n in range(serial) if n % 7 == key) for key in range(min(serial, 7))}
    for table in ("all_orders", "orders_now"):
        letters = world.rows(("kafka", f"{table}__dead_letters"))
        assert [row["_kafka_offset"] for row in letters] == list(range(serial // 5))
