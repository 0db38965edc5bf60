"""Topics with projections: Spark's settings, records on their way into the topic's table, and the commands of users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyiceberg.catalog import Catalog

from iceberg_catalog.tables.names import table_name
from tests.e2e.e2e_support import PUBLISH_S, Pair, Rec, Sender, current_rows, read, wait_tiered
from tierberg.stack.jars import spark_jars, spark_s3_jars
from tierberg.stack.ports import LOOPBACK
from tierberg.stack.waiting import wait_for

COMMAND_S = 900


def spark_conf(folder: Path) -> dict[str, str]:
    jars = [*spark_jars().glob("*.jar"), *spark_s3_jars().glob("*.jar")]
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": "1g",
        "spark.executor.memory": "700m",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.shuffle.partitions": "4",
    }


def tiered(pair: Pair, catalog: Catalog, topic: str, records: Mapping[int, Sequence[Rec]]) -> dict[int, dict[int, Rec]]:
    """Sends, waits until all of it is in the topic's table, and returns what a consumer reads, by partition."""
    for partition, given in records.items():
        Sender(pair.broker, topic, partition).send(given)
    wait_tiered(pair, topic, sorted(records))
    found = {number: read(pair.broker, topic, number) for number in records}
    total = sum(len(item) for item in found.values())

    def published() -> bool:
        table = current_rows(catalog, f"kafka.{table_name(topic)}")
        return table is not None and table.num_rows == total

    wait_for(f"{total} rows of {topic}", published, PUBLISH_S, 1.0)
    return found


def tierberg(pair: Pair, *arguments: str) -> str:
    """What the command says, with the bridge's settings file."""
    config = str(pair.bridge.folder / "tierberg.yaml")
    return ended([sys.executable, "-m", "tierberg.cli", *arguments, "--config", config])


def ended(argv: Sequence[str]) -> str:
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "TZ": "America/New_York", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
