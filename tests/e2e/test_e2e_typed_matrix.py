"""Typed topics on a stock broker, with a real registry and real engines: every format, every source of schemas.

The values hold every type of docs/types.md. Kafka gets back what it was sent; the table's columns are what fastavro,
google.protobuf and json make of the same bytes; Spark, Trino and DuckDB read what PyIceberg reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog import Catalog

from iceberg_catalog.tables.names import table_name
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import rows
from tests.e2e.e2e_seeks import remote_bytes, require_remote
from tests.e2e.e2e_support import Pair, Rec, Sender, read, same, wait_tiered
from tests.e2e.e2e_typed import columns_are, published, records, register, values_of, without_empty
from tests.e2e.engine_rows import ZONE
from tests.e2e.engines import Spark, Trino, spark_on, trino_on
from tests.support.same_values import SPARK, TRINO, Dialect, of_text, ordered
from tests.support.typed_avro import AVRO
from tests.support.typed_case import Kind, Source
from tests.support.typed_json import INFERRED, JSON
from tests.support.typed_protobuf import protobuf
from tierberg.stack.lake import Lake
from tierberg.stack.servers.registry import RegistryServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use fetches Trino and builds the S3 server

RAW = Kind("raw", "", [b"", b"\xff\0", b"text"], lambda value: {})
STRING = Kind("string", "", [b"", "é".encode(), b"text"], lambda value: {"value": value.decode()})
ONE_FILE, TWO_FILES = protobuf(importing=False), protobuf(importing=True)
CASES: dict[str, tuple[Kind, Source]] = {
    **{f"typed-avro-{source}": (AVRO, source) for source in ("wire", "latest", "inline")},
    **{f"typed-json-{source}": (JSON, source) for source in ("wire", "latest", "inline")},
    "typed-json-inferred": (INFERRED, "inferred"),
    "typed-protobuf-wire": (TWO_FILES, "wire"),
    "typed-protobuf-latest": (TWO_FILES, "latest"),
    "typed-protobuf-inline": (ONE_FILE, "inline"),
    "typed-protobuf-whole": (ONE_FILE, "wire"),
    "typed-raw": (RAW, "none"),
    "typed-string": (STRING, "none"),
}
#: One of each format for the engines that take long.
SHOWN = [
    "typed-avro-wire",
    "typed-json-wire",
    "typed-protobuf-wire",
    "typed-json-inferred",
    "typed-raw",
    "typed-string",
]


@dataclass(frozen=True, slots=True)
class Filled:
    """What was sent to every topic; all of it is tiered."""

    pair: Pair
    sent: dict[str, dict[int, Rec]]


@pytest.fixture(scope="module")
def pair(lake: Lake, registry: RegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    # Two cores for seven servers: their time is not what is tested.
    settings["store"]["fetch_timeout"] = "10s"
    rules = [kind.rule(topic, source) for topic, (kind, source) in CASES.items()]
    settings |= {
        "reclaim_grace": "10m",
        "freshness_target": "1h",
        "topics": rules,
        "schema_registry": {"url": registry.url, "request_timeout": "10s"},
    }
    started = start_pair(tmp_path_factory.mktemp("pair"), bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def filled(pair: Pair, registry: RegistryServer) -> Filled:
    senders: dict[str, Sender] = {}
    with closing(SchemaRegistryClient({"url": registry.url, "timeout": 30})) as client:
        for topic, (kind, source) in CASES.items():
            number = register(client, f"{topic}-value", kind) if source in {"wire", "latest"} else -1
            values = [kind.framed(number, value) for value in kind.values] if source == "wire" else kind.values
            pair.admin.create_topic(topic)
            senders[topic] = Sender(pair.broker, topic)
            senders[topic].send(records(values))
    for topic in CASES:
        wait_tiered(pair, topic)
    return Filled(pair, {topic: sender.log.committed for topic, sender in senders.items()})


@pytest.fixture(scope="module")
def spark(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with spark_on(lake, tmp_path_factory.mktemp("spark") / "session") as session:
        yield session


@pytest.fixture(scope="module")
def trino(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino_on(lake, tmp_path_factory.mktemp("trino")) as connection:
        yield connection


def table_of(filled: Filled, catalog: Catalog, topic: str) -> pa.Table:
    return published(catalog, topic, len(filled.sent[topic]))


@pytest.mark.parametrize("topic", CASES)
def test_kafka_gets_every_byte_back_from_the_store(filled: Filled, topic: str) -> None:
    require_remote(filled.pair, topic)
    before = remote_bytes(filled.pair, topic)
    same(read(filled.pair.broker, topic), filled.sent[topic])
    assert remote_bytes(filled.pair, topic) > before


@pytest.mark.parametrize("topic", CASES)
def test_columns_are_what_an_independent_decoder_says(filled: Filled, catalog: Catalog, topic: str) -> None:
    kind, source = CASES[topic]
    header = len(kind.framed(0, b"")) if source == "wire" else 0
    columns_are(table_of(filled, catalog, topic), kind, filled.sent[topic], header)


@pytest.mark.parametrize("topic", CASES)
def test_pyiceberg_reads_the_same_values(filled: Filled, catalog: Catalog, topic: str) -> None:
    table = table_of(filled, catalog, topic)
    read_by_it = rows(catalog, topic)
    assert read_by_it is not None
    found = ordered(values_of(read_by_it))
    assert [without_empty(row) for row in found] == [without_empty(row) for row in values_of(table)]


def engine_rows(engine: Spark | Trino, dialect: Dialect, catalog: Catalog, topic: str) -> list[dict[str, Any]]:
    named = f"kafka.{table_name(topic)}"
    schema = catalog.load_table(named).schema()
    found = engine.sql(f"SELECT {dialect.row(schema)} FROM lake.{named}")
    return ordered([of_text(schema, row[0]) for row in found])


@pytest.mark.parametrize("topic", SHOWN)
def test_spark_reads_the_same_values(filled: Filled, catalog: Catalog, spark: Spark, topic: str) -> None:
    assert engine_rows(spark, SPARK, catalog, topic) == values_of(table_of(filled, catalog, topic))


@pytest.mark.parametrize("topic", SHOWN)
def test_trino_reads_the_same_values(filled: Filled, catalog: Catalog, trino: Trino, topic: str) -> None:
    assert engine_rows(trino, TRINO, catalog, topic) == values_of(table_of(filled, catalog, topic))


@pytest.mark.parametrize("topic", SHOWN)
def test_duckdb_reads_the_same_values(filled: Filled, catalog: Catalog, topic: str) -> None:
    table = table_of(filled, catalog, topic)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{ZONE}'")
        connection.register("given", table)
        shown = connection.sql("SELECT * FROM given ORDER BY _kafka_offset DESC").to_arrow_table()
    assert ordered(values_of(shown)) == values_of(table)
