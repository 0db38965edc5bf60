"""SIGKILL for driver and executors, at any moment of one long run: the copies are exact afterwards.

On `local[*]` the executors are threads of the driver's Java process, which is killed with the driver's Python process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack.jars import spark_jars
from stack.ports import LOOPBACK
from tests.copies.copy_support import TOPIC, CopyWorld, copy_world, sent

KILLS = 50
STAGES = ("start", "read", "write", "dead letters", "publish", "record", "maintenance")
COPIES = (
    {"table": "all_orders", "partition_by": ["bucket(2, id)"], "sort_by": ["id"]},
    {"table": "orders_now", "mode": "upsert", "key": ["k"], "partition_by": ["bucket(2, k)"]},
)


class Job:
    """`tierberg repartition` in a session of its own, with the stage it is in."""

    def __init__(self, config: Path) -> None:
        argv = [sys.executable, "-u", "-m", "rsm_bridge.cli", "repartition", TOPIC, "--config", str(config)]
        self.process = subprocess.Popen(
            [*argv, "--maintenance-budget", "0.5"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK},
        )
        self.stage, self.lines = "start", list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            said = line.strip().partition(": ")[2]
            if said in STAGES:
                self.stage = said
            elif said in {"compaction", "manifests", "expiry", "orphans", "retention"}:
                self.stage = "maintenance"

    def reaches(self, stage: str, timeout_s: float = 240) -> bool:
        """Whether it came to the stage before it ended."""
        end = time.monotonic() + timeout_s
        while self.stage != stage and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        return self.stage == stage

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._close()

    def _close(self) -> None:
        self._reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> str:
        code = self.process.wait(400)
        self._close()
        assert code == 0, "\n".join(self.lines[-30:])
        return "\n".join(self.lines)


def config_of(world: CopyWorld, folder: Path) -> Path:
    jars = ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar")))
    given = world.settings.catalog
    settings: dict[str, Any] = {
        "data_dir": str(world.settings.data_dir),
        "catalog": {"name": given.name, "properties": {key: _plain(value) for key, value in given.properties.items()}},
        "topics": [{"pattern": TOPIC, "value_format": "json", "copies": list(COPIES)}],
        "repartition": {
            "spark": {
                "spark.jars": jars,
                "spark.driver.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                "spark.local.dir": str(folder / "scratch"),
            }
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def _plain(value: Any) -> str:
    return str(value.get_secret_value())


def send(world: CopyWorld, serial: int) -> None:
    world.send([sent(n % 7, {"id": n, "k": n % 7, "n": serial}) for n in range(serial, serial + 5)])
    world.send([(b"broken", b"{")], partition=1)


def check(world: CopyWorld, serial: int) -> None:
    everything = [row["id"] for row in world.rows(("kafka", "all_orders"))]
    assert everything == list(range(serial))
    now = {row["k"]: row["id"] for row in world.rows(("kafka", "orders_now"))}
    assert now == {key: max(n for n in range(serial) if n % 7 == key) for key in range(min(serial, 7))}
    letters = world.rows(("kafka", "all_orders__dead_letters"))
    assert [row["_kafka_offset"] for row in letters] == list(range(serial // 5))


def killed(world: CopyWorld, folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kills at each stage in turn, some milliseconds in; between them more is sent, and now and then a job may end."""
    config, draw, hits, serial = config_of(world, folder), random.Random(seed), Counter[str](), 0
    while sum(hits.values()) < kills:
        send(world, serial)
        serial += 5
        wanted = min(STAGES, key=lambda stage: (hits[stage], draw.random()))
        job = Job(config)
        if job.reaches(wanted):
            time.sleep(draw.choice((0.0, 0.02, 0.1, 0.3)))
            hits[job.stage] += job.process.poll() is None
            job.kill()
        else:
            job.end()
    Job(config).end()
    check(world, serial)
    return hits


@pytest.mark.timeout(900)
def test_some_kills(spark: Any, tmp_path: Path) -> None:
    """What CI has time for: the stages around the commit."""
    with copy_world(spark, tmp_path / "world", *COPIES) as world:
        hits = killed(world, tmp_path, 3, 1)
    assert sum(hits.values()) == 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_kills(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copy_world(spark, tmp_path / "world", *COPIES) as world:
        hits = killed(world, tmp_path, KILLS, 2)
    with capsys.disabled():
        print("\n" + "\n".join(f"{stage:14} {hits[stage]:3} {'#' * hits[stage]}" for stage in STAGES))
    assert min(hits[stage] for stage in STAGES) >= 2
