"""The main job with nothing embedded: history in an S3 bucket, the table in a REST catalog, faults between them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.catalogs import CatalogSettings, open_catalog
from stack.jars import spark_jars, spark_s3_jars
from stack.lake import BUCKET, Lake
from stack.ports import LOOPBACK
from stack.versitygw import can_be_had
from stack.waiting import wait_for
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import PARTITIONS, check, count, merge, produce, wait_published
from tests.e2e.e2e_support import Pair, Rec, same, wait_tiered
from tests.support.fault_proxy import LANDED, NOT_LANDED, REPEATED, FaultProxy, fault_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use builds the S3 server and fetches jars

DELETED_S = 60
SPARK_S = 300
TOMBSTONE = b"TBTS"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    started = Lake(tmp_path_factory.mktemp("lake"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def proxy(lake: Lake) -> Iterator[FaultProxy]:
    with fault_proxy(lake.catalog.port) as running:
        yield running


@pytest.fixture(scope="module")
def rest_pair(lake: Lake, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    settings["catalog"]["properties"]["uri"] = proxy.uri
    settings["catalog"]["read_timeout"] = "3s"
    # Two cores for five servers: their time is not what is tested.
    settings["store"]["fetch_timeout"] = "10s"
    started = start_pair(tmp_path_factory.mktemp("pair"), bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def catalog(lake: Lake) -> Iterator[Catalog]:
    opened = open_catalog(CatalogSettings("reader", lake.catalog.client_properties()))
    yield opened
    opened.close()


def objects(lake: Lake, topic_id: str) -> list[str]:
    """All but the tombstones of copies that failed while the bridge was gone: another bridge's might still finish."""
    with closing(lake.client()) as client:

        def is_tombstone(key: str) -> bool:
            return bool(client.get_object(Bucket=BUCKET, Key=key)["Body"].read(4) == TOMBSTONE)

        found = [key for kind in ("data", "kept") for key in lake.keys(f"tierberg/{kind}/{topic_id}/")]
        return found or [key for key in lake.keys(f"tierberg/index/{topic_id}/") if not is_tombstone(key)]


def test_main_job(rest_pair: Pair, lake: Lake, catalog: Catalog) -> None:
    pair = rest_pair
    pair.admin.create_topic("ledger", partitions=len(PARTITIONS))
    senders = produce(pair, "ledger", seed=11)
    wait_tiered(pair, "ledger", PARTITIONS)
    assert all(sender.log.aborted for sender in senders.values())
    check(pair, catalog, "ledger", senders)
    topic_id = pair.admin.topic_id("ledger")
    assert lake.keys(f"tierberg/index/{topic_id}/")
    table = catalog.load_table("kafka.ledger")
    assert table.metadata_location.startswith("s3://lake/warehouse/kafka/ledger/metadata/")
    assert table.properties["write.data.path"] == "s3://lake/tierberg/data"
    # Nothing on the bridge's own disk: another bridge could take over.
    assert not any((pair.bridge.folder / name).exists() for name in ("store", "warehouse", "catalog.db"))

    # Killed, started, more: the history goes on where it was.
    pair.bridge.kill()
    merge(senders, produce(pair, "ledger", seed=12))
    pair.bridge.start()
    wait_tiered(pair, "ledger", PARTITIONS)
    check(pair, catalog, "ledger", senders)

    pair.admin.delete_topic("ledger")
    wait_for("rows to leave", lambda: count(catalog, "ledger") == 0, DELETED_S, 0.5)
    wait_for("objects to leave", lambda: not objects(lake, topic_id), DELETED_S, 0.5)
    assert catalog.load_table("kafka.ledger").scan().to_arrow().num_rows == 0


def test_main_job_while_commits_and_replies_get_lost(rest_pair: Pair, catalog: Catalog, proxy: FaultProxy) -> None:
    pair = rest_pair
    faults = [*LANDED, *NOT_LANDED, REPEATED]
    random.Random(5).shuffle(faults)
    proxy.hit.clear()
    proxy.faults = deque(faults)
    pair.admin.create_topic("storm", partitions=len(PARTITIONS))
    senders = produce(pair, "storm", 21)
    seed = 22
    while proxy.faults:  # each round makes at least one commit, and each commit takes a fault
        assert seed < 22 + len(faults), f"only {proxy.hit} were hit"
        merge(senders, produce(pair, "storm", seed))
        wait_tiered(pair, "storm", PARTITIONS)
        wait_published(catalog, "storm", senders)
        seed += 1
    check(pair, catalog, "storm", senders)
    assert sorted(proxy.hit) == sorted(fault.name for fault in faults)
    # The head and every snapshot it keeps can be read: no manifest of theirs was cleaned away.
    table = catalog.load_table("kafka.storm")
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()


def ask_spark(lake: Lake, table: str, folder: Path) -> dict[str, Any]:
    """Rows and refusals of a Spark session in a zone that is not UTC, through the REST catalog."""
    jars = [*spark_jars().glob("iceberg-spark-runtime-*.jar"), *spark_s3_jars().glob("*.jar")]
    catalog = "spark.sql.catalog.lake"
    given = lake.catalog.client_properties() | {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
    }
    conf = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{name}": value for name, value in given.items()},
    }
    settings, answer = folder / "settings.json", folder / "answer.json"
    settings.write_text(json.dumps({"conf": conf, "catalog": "lake", "table": f"kafka.{table}"}))
    program = Path(__file__).with_name("spark_reader.py")
    done = subprocess.run(
        [sys.executable, str(program), str(settings), str(answer)],
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(answer.read_text()))


def test_spark_reads_what_consumers_read_and_may_not_clean_up(
    rest_pair: Pair, lake: Lake, catalog: Catalog, tmp_path: Path
) -> None:
    pair = rest_pair
    pair.admin.create_topic("engines", partitions=len(PARTITIONS))
    senders = produce(pair, "engines", 31)
    wait_tiered(pair, "engines", PARTITIONS)
    check(pair, catalog, "engines", senders)
    answer = ask_spark(lake, "engines", tmp_path)

    def unhex(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    found: dict[int, dict[int, Rec]] = {partition: {} for partition in PARTITIONS}
    for partition, offset, timestamp_ms, key, value, size, headers in answer["rows"]:
        assert offset not in found[partition], f"offset {offset} is there twice"
        record_headers = tuple((name, unhex(content)) for name, content in headers or ())
        found[partition][offset] = Rec(unhex(key), unhex(value), record_headers, timestamp_ms)
        assert size == (None if value is None else len(value) // 2)
    for partition, sender in senders.items():
        same(found[partition], sender.log.committed)
    # Kafka owns these files: Spark's clean-up says no, and nothing is gone.
    assert all("GC is disabled" in said for said in answer["refused"].values()), answer["refused"]
    check(pair, catalog, "engines", senders)
