"""Stock Kafka → the topic's table → projections of it, over S3 and a REST catalog, by the command as users run it.

What the projections must hold is computed from what a consumer reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import Catalog

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_projections import COMMAND_S, ended, spark_conf, tierberg, tiered
from tests.e2e.e2e_support import Pair, Rec, current_rows
from tests.e2e.engines import Trino, trino_on
from tests.support.projection_job import ProjectionJob
from tierberg.demo.events import PARTITION, flights
from tierberg.stack.lake import Lake
from tierberg.stack.ports import LOOPBACK
from tierberg.stack.servers.spark_cluster import SparkCluster, spark_home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

FLIGHTS = 30_000
EXECUTOR_KILLS = 8
EXECUTOR_STAGES = ("start", "write", "dead letters", "publish")
PROJECTIONS = {
    "flights": [
        {
            "table": "flights_by_day",
            "partition_by": ["day(_kafka_timestamp)", "bucket(4, carrier)"],
            "sort_by": ["dest", "flight desc"],
            "select": ["*", "air_time / 60.0 AS hours"],
        }
    ],
    "orders.*": [
        {
            "table": "{topic}_now",
            "mode": "upsert",
            "key": ["id"],
            "envelope": "debezium",
            "partition_by": ["bucket(4, id)"],
        },
        {"table": "{topic}_v3", "mode": "upsert", "key": ["id"], "envelope": "debezium", "format_version": 3},
    ],
}


@pytest.fixture(scope="module")
def pair(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    settings = lake.bridge_settings()
    settings["store"]["fetch_timeout"] = "10s"
    settings["topics"] = [
        {"pattern": topic, "value_format": "json", "copies": projections} for topic, projections in PROJECTIONS.items()
    ]
    settings["repartition"] = {"spark": spark_conf(folder)}
    started = start_pair(folder, bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def trino(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino_on(lake, tmp_path_factory.mktemp("trino")) as connection:
        yield connection


def repartition(pair: Pair, *arguments: str) -> str:
    return tierberg(pair, "repartition", *arguments)


def some_flights() -> dict[int, list[Rec]]:
    records: dict[int, list[Rec]] = {number: [] for number in PARTITION.values()}
    for flight in islice(flights(), FLIGHTS):
        records[flight.partition].append(Rec(flight.key, flight.json(), (), flight.timestamp_ms))
    return records


def flight_rows(consumed: dict[int, dict[int, Rec]]) -> set[tuple[Any, ...]]:
    rows = set()
    for partition, found in consumed.items():
        for offset, record in found.items():
            value = json.loads(record.value or b"")
            hours = None if value["air_time"] is None else round(value["air_time"] / 60.0, 6)
            at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            rows.add((partition, offset, at, value["carrier"], value["flight"], value["dest"], hours))
    return rows


def copied_flights(catalog: Catalog) -> set[tuple[Any, ...]]:
    table = current_rows(catalog, "kafka.flights_by_day")
    assert table is not None
    rows = set()
    for row in table.to_pylist():
        hours = None if row["hours"] is None else round(float(row["hours"]), 6)
        place = (row["_kafka_partition"], row["_kafka_offset"], row["_kafka_timestamp"])
        rows.add((*place, row["carrier"], row["flight"], row["dest"], hours))
    assert len(rows) == table.num_rows
    return rows


def test_flights_by_day_and_carrier(pair: Pair, catalog: Catalog, trino: Trino) -> None:
    pair.admin.create_topic("flights", partitions=3)
    records = some_flights()
    halves = [{number: given[part::2] for number, given in records.items()} for part in (0, 1)]
    consumed = tiered(pair, catalog, "flights", halves[0])
    assert "partitions" in repartition(pair, "flights")
    assert copied_flights(catalog) == flight_rows(consumed)
    consumed = tiered(pair, catalog, "flights", halves[1])
    repartition(pair, "flights", "--max-mib", "1")
    assert copied_flights(catalog) == flight_rows(consumed)
    assert "nothing new" in repartition(pair, "flights")
    files = list(catalog.load_table("kafka.flights_by_day").scan("carrier = 'UA'").plan_files())
    everything = list(catalog.load_table("kafka.flights_by_day").scan().plan_files())
    assert 0 < len(files) <= len(everything) / 2, "the layout lets a query skip files"
    assert int(trino.sql("SELECT count(*) FROM kafka.flights_by_day")[0][0]) == FLIGHTS


def order_stream(seed: int, count: int) -> dict[int, list[Rec]]:
    """Change events with tombstones; each key in one partition."""
    draw = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    records: dict[int, list[Rec]] = {number: [] for number in PARTITION.values()}
    for serial in range(count):
        key = draw.randrange(400)
        before = rows.get(key)
        gone = before is not None and draw.random() < 0.25
        after = None if gone else {"id": key, "amount": serial, "note": draw.choice([None, "größe", "x" * 50])}
        op = "d" if gone else "c" if before is None else "u"
        event = {"before": before if draw.random() < 0.8 or gone else None, "after": after, "op": op, "ts_ms": serial}
        target, name = records[key % 3], json.dumps({"id": key}).encode()
        target.append(Rec(name, json.dumps(event).encode()))
        if gone:
            del rows[key]
            target.append(Rec(name, None))
        elif after is not None:
            rows[key] = after
    return records


def latest(consumed: dict[int, dict[int, Rec]]) -> dict[int, tuple[Any, ...]]:
    state: dict[int, tuple[Any, ...]] = {}
    for found in consumed.values():
        for _, record in sorted(found.items()):
            if record.value is None:
                continue
            event = json.loads(record.value)
            if event["after"] is None:
                state.pop(event["before"]["id"], None)
            else:
                state[event["after"]["id"]] = (event["after"]["amount"], event["after"]["note"])
    return state


def copied_orders(catalog: Catalog, name: str) -> dict[int, tuple[Any, ...]]:
    table = current_rows(catalog, f"kafka.{name}")
    assert table is not None
    rows = table.to_pylist()
    found = {row["id"]: (row["amount"], row["note"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_latest_state_of_orders(pair: Pair, catalog: Catalog, trino: Trino) -> None:
    pair.admin.create_topic("orders", partitions=3)
    for part in range(3):
        consumed = tiered(pair, catalog, "orders", order_stream(part, 3_000))
        repartition(pair, "orders")
        expected = latest(consumed)
        assert copied_orders(catalog, "orders_now") == expected
        assert copied_orders(catalog, "orders_v3") == expected
        said = trino.sql("SELECT count(*), sum(amount) FROM kafka.orders_now")[0]
        assert [int(item) for item in said] == [len(expected), sum(amount for amount, _ in expected.values())]


def submitted(pair: Pair, folder: Path, cluster: SparkCluster, topic: str, *conf: str) -> list[str]:
    """The command line of the same job on a cluster; `conf`: more of Spark's, as `name=value`."""
    settings = yaml.safe_load((pair.bridge.folder / "tierberg.yaml").read_text())
    given = {**settings["repartition"].pop("spark"), "spark.driver.host": LOOPBACK, "spark.cores.max": "2"}
    config = folder / "tierberg.yaml"
    config.write_text(yaml.safe_dump(settings))
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url]
    for item in (*(f"{name}={value}" for name, value in given.items()), *conf):
        submit += ["--conf", item]
    job = Path(__file__).parents[2] / "tierberg" / "submit.py"
    return [*submit, str(job), topic, "--config", str(config)]


def test_the_same_job_on_a_spark_cluster(pair: Pair, catalog: Catalog, tmp_path: Path) -> None:
    """Master and two workers as processes; the job is what it was, and `spark-submit` says where it runs."""
    pair.admin.create_topic("orders-far", partitions=3)
    consumed = tiered(pair, catalog, "orders-far", order_stream(7, 2_000))
    cluster = SparkCluster(tmp_path / "cluster")
    cluster.start()
    try:
        said = ended(submitted(pair, tmp_path, cluster, "orders-far"))
    finally:
        cluster.stop()
    assert "orders_far_now" in said
    assert copied_orders(catalog, "orders_far_now") == latest(consumed)


def test_executors_of_the_cluster_are_killed(
    pair: Pair, catalog: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL at any moment. Spark runs their tasks again; a job that gives up is started again."""
    pair.admin.create_topic("orders-hit", partitions=3)
    draw, hits, gave_up, part = random.Random(5), Counter[str](), 0, 0
    cluster = SparkCluster(tmp_path / "cluster")
    cluster.start()
    try:
        argv = submitted(pair, tmp_path, cluster, "orders-hit")
        while sum(hits.values()) < EXECUTOR_KILLS:
            consumed = tiered(pair, catalog, "orders-hit", order_stream(part := part + 1, 500))
            job = ProjectionJob(argv)
            for _ in range(2):
                if job.reaches(min(EXECUTOR_STAGES, key=lambda stage: (hits[stage], draw.random()))):
                    time.sleep(draw.uniform(0, 2))
                    killed = killed_executor(cluster, job, draw)
                    hits[job.stage] += killed
            if job.ended(COMMAND_S):
                gave_up += 1
                ProjectionJob(argv).end(COMMAND_S)
            assert copied_orders(catalog, "orders_hit_now") == latest(consumed)
            assert copied_orders(catalog, "orders_hit_v3") == latest(consumed)
    finally:
        cluster.stop()
    with capsys.disabled():
        print(f"\nexecutors killed: {dict(hits)}; jobs that gave up: {gave_up} of {part}")


def killed_executor(cluster: SparkCluster, job: ProjectionJob, draw: random.Random) -> bool:
    """Kills one, if there is one before the job ends."""
    while job.alive:
        if found := cluster.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(found), signal.SIGKILL)
                return True
        time.sleep(0.05)
    return False
