"""Spark and Trino on the REST catalog: they read what consumers read, take nothing, and what they write is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.foreign import TAG, foreign_commits
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.verify.store import verify_store
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import PARTITIONS, as_text, count, merge, produce, wait_published
from tests.e2e.e2e_support import PUBLISH_S, Pair, Rec, Sender, read, same, wait_tiered
from tests.e2e.engine_rows import Sum, kafka_sums
from tests.e2e.engines import Engine, EngineError, Spark, Trino, spark_on, trino_on
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tierberg.stack.admin import TIERED
from tierberg.stack.lake import BUCKET, Lake
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use fetches Trino and builds the S3 server

CREATE_TIME, LOG_APPEND_TIME = 0, 1
FAR = "TIMESTAMP '2100-01-01 00:00:00'"


@pytest.fixture(scope="module")
def pair(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    # Two cores for six servers: their time is not what is tested.
    settings["store"]["fetch_timeout"] = "10s"
    settings |= {"reclaim_grace": "10m", "freshness_target": "1h"}
    started = start_pair(tmp_path_factory.mktemp("pair"), bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def spark(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with spark_on(lake, tmp_path_factory.mktemp("spark") / "session") as session:
        yield session


@pytest.fixture(scope="module")
def trino(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino_on(lake, tmp_path_factory.mktemp("trino")) as connection:
        yield connection


def consumed(pair: Pair, topic: str) -> dict[int, dict[int, Rec]]:
    return {partition: read(pair.broker, topic, partition) for partition in PARTITIONS}


def served(pair: Pair, topic: str, senders: dict[int, Sender]) -> dict[int, Sum]:
    """Kafka serves what was committed, and no more; its sums by partition."""
    found = consumed(pair, topic)
    for partition, sender in senders.items():
        same(found[partition], sender.log.committed)
    return kafka_sums(found, CREATE_TIME, text=False)


def fill(pair: Pair, catalog: Catalog, topic: str, seed: int) -> dict[int, Sender]:
    """A topic whose partitions have two files each, at least."""
    pair.admin.create_topic(topic, partitions=len(PARTITIONS))
    senders = produce(pair, topic, seed)
    wait_tiered(pair, topic, PARTITIONS)
    merge(senders, produce(pair, topic, seed + 1))
    wait_tiered(pair, topic, PARTITIONS)
    wait_published(catalog, topic, senders)
    return senders


def codes(pair: Pair, topic: str) -> dict[str, str]:
    """What `tierberg status` says of the topic's table, by cause."""
    options = StatusOptions(config=pair.bridge.folder / "tierberg.yaml", topic=topic, bridge="none", json=True)
    document: dict[str, Any] = json.loads(status(options)[0])
    return {finding["code"]: finding["said"] for found in document["topics"] for finding in found["findings"]}


def test_checksums_over_all_columns_equal_kafkas(pair: Pair, catalog: Catalog, spark: Spark, trino: Trino) -> None:
    senders = fill(pair, catalog, "sums", 41)
    pair.admin.create_topic("text-sums", len(PARTITIONS), {**TIERED, "message.timestamp.type": "LogAppendTime"})
    texts = {partition: Sender(pair.broker, "text-sums", partition) for partition in PARTITIONS}
    for partition, sender in texts.items():
        sender.send(as_text(senders[partition].log.committed.values()))
    wait_tiered(pair, "text-sums", PARTITIONS)
    wait_published(catalog, "text-sums", texts)
    expected = {
        "kafka.sums": (False, served(pair, "sums", senders)),
        "kafka.text_sums": (True, kafka_sums(consumed(pair, "text-sums"), LOG_APPEND_TIME, text=True)),
    }
    engines: tuple[Engine, ...] = (spark, trino)
    for engine in engines:
        for table, (text, sums) in expected.items():
            assert engine.sums(table, text=text) == sums, (engine.name, table)
    errors = trino.sql("SELECT count(*), count(value), count(_kafka_error) FROM kafka.text_sums")[0]
    assert all(part > 0 for part in errors), "valid and invalid texts are both among them"


def said(engine: Engine, statement: str) -> str:
    """What the engine refused with; empty when it obeyed."""
    try:
        engine.sql(statement)
    except EngineError as error:
        return str(error)
    return ""


def test_cleaning_up_is_refused_or_takes_nothing(
    pair: Pair, lake: Lake, catalog: Catalog, spark: Spark, trino: Trino
) -> None:
    senders = fill(pair, catalog, "clean", 51)
    topic_id = pair.admin.topic_id("clean")
    unpublished = plant_unpublished(lake, topic_id)
    before = stored(lake, topic_id)
    for procedure in ("expire_snapshots", "remove_orphan_files"):
        arguments = f"table => 'kafka.clean', older_than => {FAR}"
        assert "GC is disabled" in said(spark, f"CALL lake.system.{procedure}({arguments})")
    assert "GC is disabled" in said(spark, "DROP TABLE lake.kafka.clean PURGE")
    refused = said(trino, "ALTER TABLE kafka.clean EXECUTE expire_snapshots(retention_threshold => '0s')")
    assert "gc.enabled" in refused or "GC is disabled" in refused, refused
    # Trino does not ask: it removes what no snapshot names, in `data` and `metadata` under the table's location.
    assert said(trino, "ALTER TABLE kafka.clean EXECUTE remove_orphan_files(retention_threshold => '0s')") == ""
    assert stored(lake, topic_id) == before
    assert unpublished in before
    # Nothing anybody needs is gone: every fetch by a bridge that has nothing cached, every object, the next commit.
    pair.bridge.stop()
    pair.bridge.start()
    merge(senders, produce(pair, "clean", 53))
    wait_tiered(pair, "clean", PARTITIONS)
    wait_published(catalog, "clean", senders)
    sums = served(pair, "clean", senders)
    assert spark.sums("kafka.clean", text=False) == trino.sums("kafka.clean", text=False) == sums
    assert "foreign_commits" not in codes(pair, "clean")
    assert verify_store(pair.bridge.folder / "tierberg.yaml", None, "clean").damages == []


def stored(lake: Lake, topic_id: str) -> set[str]:
    """What Kafka's history is made of."""
    return {key for kind in ("data", "index", "kept") for key in lake.keys(f"tierberg/{kind}/{topic_id}/")}


def plant_unpublished(lake: Lake, topic_id: str) -> str:
    """A data file of this topic that no snapshot names, as one has been copied and not yet published."""
    source = next(key for key in lake.keys(f"tierberg/data/{topic_id}/") if key.endswith(".parquet"))
    key = source[: -len("0.parquet")] + ("1" if source[-9] != "1" else "2") + ".parquet"
    with closing(lake.client()) as client:
        client.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": source})
    return key


@pytest.mark.parametrize("layout", ["outside", "inside"])
def test_orphan_removal_and_where_the_table_is(layout: str, lake: Lake, trino: Trino, tmp_path: Path) -> None:
    """A new leader's segment overlaps the one before: its own file is in no snapshot, and Kafka reads from it."""
    given = lake.bridge_settings()
    store = given["store"] | {"url": f"s3://{BUCKET}/{layout}"}
    settings = test_settings(tmp_path, store=store, catalog=given["catalog"] | {"layout": layout})
    topic = f"layout_{layout}"
    logs = [LogBuilder(next_offset=start).fill(batches=1, records=10) for start in (0, 5)]
    catalog = open_catalog(CatalogSettings("reader", lake.catalog.client_properties()))
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        first = shim.copied(segment_of(logs[0], topic=topic))
        second = shim.copied(segment_of(logs[1], topic=topic, topic_id=first.topic_id))
        wait_for("the rows of both", lambda: count(catalog, topic) == 15, PUBLISH_S, 0.5)
        table = catalog.load_table(f"kafka.{topic}")
        before = {key for key in lake.keys(f"{layout}/data/") if key.endswith(".parquet")}
        named = {task.file.file_path.removeprefix(f"s3://{BUCKET}/") for task in table.scan().plan_files()}
        assert len(before - named) == 1
        orphan = f"{table.location()}/data/orphan.parquet".removeprefix(f"s3://{BUCKET}/")
        with closing(lake.client()) as client:
            client.put_object(Bucket=BUCKET, Key=orphan, Body=b"no snapshot names it")
        time.sleep(1.5)  # what is as old as the call, by a clock of whole seconds, is not removed
        trino.sql(f"ALTER TABLE kafka.{topic} EXECUTE remove_orphan_files(retention_threshold => '0s')")
        assert lake.keys(orphan) == [], "it did run"
        # Trino looks into `data` and `metadata` under the location; ours lie in folders named by partition.
        assert before <= set(lake.keys(f"{layout}/data/"))
        for segment, log in zip((first, second), logs, strict=True):
            assert shim.fetch(segment) == log.data
    catalog.close()


#: By name: the statement on a table `{t}` and an offset `{o}` of partition 0, and what it does to the rows of each
#: partition, given how many they are.
Effect = Callable[[dict[int, int]], dict[int, int]]


def one_less(rows: dict[int, int]) -> dict[int, int]:
    return {**rows, 0: rows[0] - 1}


def one_more(rows: dict[int, int]) -> dict[int, int]:
    return {**rows, 0: rows[0] + 1}


def without_1(rows: dict[int, int]) -> dict[int, int]:
    return {partition: found for partition, found in rows.items() if partition != 1}


WRITES: dict[str, tuple[str, Effect]] = {
    "INSERT": (
        """INSERT INTO {t} SELECT _kafka_partition, _kafka_offset + 1000000, _kafka_timestamp, _kafka_timestamp_type,
                  _kafka_key, _kafka_headers, _kafka_value, _kafka_value_size
           FROM {t} WHERE _kafka_partition = 0 AND _kafka_offset = {o}""",
        one_more,
    ),
    "DELETE of a row": ("DELETE FROM {t} WHERE _kafka_partition = 0 AND _kafka_offset = {o}", one_less),
    "DELETE of a partition": ("DELETE FROM {t} WHERE _kafka_partition = 1", without_1),
    "UPDATE": ("UPDATE {t} SET _kafka_key = NULL WHERE _kafka_partition = 0 AND _kafka_offset = {o}", dict),
    "MERGE": (
        """MERGE INTO {t} t USING (SELECT 0 AS p, CAST({o} AS bigint) AS o) s
           ON t._kafka_partition = s.p AND t._kafka_offset = s.o WHEN MATCHED THEN DELETE""",
        one_less,
    ),
}
REWRITES = {
    "Spark": "CALL lake.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))",
    "Trino": "ALTER TABLE {t} EXECUTE optimize(file_size_threshold => '1GB')",
}
ROLL_BACKS = {
    "Spark": "CALL lake.system.rollback_to_snapshot('{n}', {id})",
    "Trino": "ALTER TABLE {t} EXECUTE rollback_to_snapshot(snapshot_id => {id})",
}


@pytest.mark.parametrize("name", ["Trino", "Spark"])
def test_what_engines_write_is_said_and_can_be_taken_back(
    name: str, pair: Pair, catalog: Catalog, request: pytest.FixtureRequest
) -> None:
    engine: Engine = request.getfixturevalue(name.lower())
    topic = f"writes_{name.lower()}"
    table, named = f"lake.kafka.{topic}", f"kafka.{topic}"
    senders = fill(pair, catalog, topic, 61 if name == "Spark" else 71)
    sums = served(pair, topic, senders)
    offset = next(key for key, record in senders[0].log.committed.items() if record.key is not None)
    rows = {partition: found.rows for partition, found in sums.items()}
    for write, (statement, effect) in {**WRITES, "rewrite": (REWRITES[name], dict)}.items():
        ours = catalog.load_table(named).metadata.current_snapshot_id
        engine.sql(statement.format(t=table, n=named, o=offset))
        found = engine.sums(named, text=False)
        assert {partition: part.rows for partition, part in found.items()} == effect(rows), write
        assert (found == sums) == (write == "rewrite"), write
        said = codes(pair, topic)
        assert f"after snapshot {ours}" in said["foreign_commits"], write
        assert ("foreign_files" in said) == (write != "DELETE of a partition"), write
        assert served(pair, topic, senders) == sums, write
        engine.sql(ROLL_BACKS[name].format(t=table, n=named, id=ours))
        assert engine.sums(named, text=False) == sums, write
        assert not {"foreign_commits", "foreign_files"} & codes(pair, topic).keys(), write


@pytest.mark.parametrize("name", ["Trino", "Spark"])
def test_publishing_goes_on_above_what_an_engine_did(
    name: str, pair: Pair, catalog: Catalog, request: pytest.FixtureRequest
) -> None:
    """One partition rewritten and another deleted: no row comes twice, none comes back, until the table is put back."""
    engine: Engine = request.getfixturevalue(name.lower())
    topic = f"above_{name.lower()}"
    table, named = f"lake.kafka.{topic}", f"kafka.{topic}"
    senders = fill(pair, catalog, topic, 81 if name == "Spark" else 91)
    ours = catalog.load_table(named).metadata.current_snapshot_id
    engine.sql(f"DELETE FROM {table} WHERE _kafka_partition = 1")
    engine.sql(REWRITES[name].format(t=table, n=named))
    later = produce(pair, topic, 101)
    expected = {
        partition: len(later[partition].log.committed) + (0 if partition == 1 else len(sender.log.committed))
        for partition, sender in senders.items()
    }
    merge(senders, later)
    wait_tiered(pair, topic, PARTITIONS)
    wait_for("the new rows", lambda: count(catalog, topic) == sum(expected.values()), PUBLISH_S, 0.5)
    distinct = f"SELECT _kafka_partition, count(*), count(DISTINCT _kafka_offset) FROM {table} GROUP BY 1"
    assert {row[0]: (row[1], row[2]) for row in engine.sql(distinct)} == {
        partition: (rows, rows) for partition, rows in expected.items()
    }
    sums = served(pair, topic, senders)
    assert catalog.load_table(named).metadata.refs[TAG].snapshot_id == ours
    assert pair.bridge.metric("tierberg_table_foreign_commits", topic=topic) == 1
    engine.sql(ROLL_BACKS[name].format(t=table, n=named, id=ours))
    wait_published(catalog, topic, senders)
    assert engine.sums(named, text=False) == sums
    loaded = catalog.load_table(named)
    assert (foreign_commits(loaded), TAG in loaded.metadata.refs) == (None, False)
    assert verify_store(pair.bridge.folder / "tierberg.yaml", None, topic).damages == []


def test_a_dropped_table_is_made_anew(pair: Pair, lake: Lake, catalog: Catalog, trino: Trino) -> None:
    senders = fill(pair, catalog, "dropped", 111)
    sums = served(pair, "dropped", senders)
    topic_id = pair.admin.topic_id("dropped")
    before = stored(lake, topic_id)
    uuid = catalog.load_table("kafka.dropped").metadata.table_uuid
    trino.sql("DROP TABLE kafka.dropped")
    assert stored(lake, topic_id) == before
    assert served(pair, "dropped", senders) == sums
    wait_published(catalog, "dropped", senders)
    assert catalog.load_table("kafka.dropped").metadata.table_uuid != uuid
    assert trino.sums("kafka.dropped", text=False) == sums
