"""`value_format: auto` on a stock broker, with a real registry: no rule names the topics, what records carry counts."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog import Catalog

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered
from tests.e2e.e2e_typed import columns_are, published, records, register
from tests.e2e.e2e_typed_stream import HEADER, stored
from tests.support.typed_avro import AVRO
from tests.support.typed_case import Kind
from tests.support.typed_json import JSON
from tests.support.typed_protobuf import protobuf
from tierberg.stack.admin import TIERED
from tierberg.stack.lake import Lake
from tierberg.stack.servers.registry import RegistryServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use fetches servers and builds one

KINDS: dict[str, Kind] = {"avro": AVRO, "json": JSON, "protobuf": protobuf(importing=False)}
#: No registry has so many schemas.
UNKNOWN = 1_000_000_007
BYTES = [b"", b"\0", b"\0\0\0\1", b"text", b'{"a": 1}', b"\xff\xfe", bytes(range(256)), *map(bytes, range(5, 12))]
#: As if in the wire format, with the id of a schema that nobody has.
ALIKE = [b"\0" + struct.pack(">I", UNKNOWN + number % 3) + b"payload" for number in range(40)]
#: One segment for all that is sent now; then it closes.
LARGE = {**TIERED, "segment.bytes": "104857600", "local.retention.ms": "3600000", "local.retention.bytes": "-1"}
CLOSING = {"local.retention.ms": "1000"}


@pytest.fixture(scope="module")
def pair(lake: Lake, registry: RegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    settings["store"]["fetch_timeout"] = "10s"  # two cores for six servers
    asked = {"url": registry.url, "request_timeout": "10s"}
    settings |= {"topics": [], "schema_registry": asked}
    started = start_pair(tmp_path_factory.mktemp("pair"), bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@pytest.fixture(scope="module")
def ids(registry: RegistryServer) -> dict[str, int]:
    """Of the schemas by kind, under subjects that no topic has."""
    with closing(SchemaRegistryClient({"url": registry.url, "timeout": 30})) as client:
        return {name: register(client, f"auto-of-{name}", kind) for name, kind in KINDS.items()}


def framed(ids: Mapping[str, int], name: str) -> list[Rec]:
    return records(KINDS[name].framed(ids[name], value) for value in KINDS[name].values)


def sent(pair: Pair, topic: str, *batches: list[Rec]) -> Sender:
    """The batches in one go, until all is on the remote tier alone and Kafka has given it back."""
    sender = Sender(pair.broker, topic)
    for batch in batches:
        sender.send(batch)
    wait_tiered(pair, topic)
    same(read(pair.broker, topic), sender.log.committed)
    return sender


def header_of(name: str) -> int:
    return HEADER + len(KINDS[name].indexes)


def columns(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if not name.startswith("_kafka_")]


def is_raw(table: pa.Table, log: Mapping[int, Rec]) -> None:
    """Bytes alone, and nobody calls that an error."""
    assert columns(table) == []
    assert "_kafka_error" not in table.column_names
    same(rows_by_offset(table), dict(log))


def is_typed(table: pa.Table, name: str, log: Mapping[int, Rec]) -> None:
    columns_are(table, KINDS[name], log, header_of(name))


@pytest.mark.parametrize("name", KINDS)
def test_the_wire_format_makes_a_topic_typed(pair: Pair, catalog: Catalog, ids: dict[str, int], name: str) -> None:
    topic = f"auto-{name}"
    pair.admin.create_topic(topic)
    log = sent(pair, topic, framed(ids, name)).log.committed
    is_typed(published(catalog, topic, len(log)), name, log)


@pytest.mark.parametrize("values", [BYTES, ALIKE], ids=["bytes", "alike"])
def test_without_the_wire_format_it_stays_raw(pair: Pair, catalog: Catalog, values: list[bytes]) -> None:
    """Bytes that look like it name schemas that the registry has not."""
    topic = f"auto-without-{len(values)}"
    pair.admin.create_topic(topic)
    log = sent(pair, topic, records(values * 20)).log.committed
    is_raw(published(catalog, topic, len(log)), log)


@pytest.mark.parametrize("name", KINDS)
def test_it_begins_raw_and_becomes_typed(pair: Pair, catalog: Catalog, ids: dict[str, int], name: str) -> None:
    """What is in the table already stays as it is; from then on bytes are dead letters beside columns."""
    topic = f"auto-late-{name}"
    pair.admin.create_topic(topic)
    first = sent(pair, topic, records(BYTES)).log.committed
    is_raw(published(catalog, topic, len(first)), first)

    second = Sender(pair.broker, topic)
    second.send(framed(ids, name))
    typed = dict(second.log.committed)
    second.send(records(BYTES))
    wait_tiered(pair, topic)
    everything = first | second.log.committed
    same(read(pair.broker, topic), everything)
    table = published(catalog, topic, len(everything))
    same(rows_by_offset(table), everything)

    before = table.slice(0, len(first))
    assert before.column("_kafka_error").null_count == len(first)
    middle = table.slice(len(first), len(typed))
    is_typed(middle, name, typed)
    after = table.slice(len(first) + len(typed))
    for error, record in zip(after.column("_kafka_error").to_pylist(), records(BYTES), strict=True):
        assert (error is None) == (record.value is None)
        assert error is None or error.startswith(("not_wire_format: ", "unknown_schema: "))
    for part in (before, after):
        assert all(part.column(column).null_count == part.num_rows for column in columns(table))
    loaded = catalog.load_table(f"kafka.{topic.replace('-', '_')}")
    assert len(loaded.schema().fields) == len(table.column_names)


def test_bytes_and_the_wire_format_in_one_segment(pair: Pair, catalog: Catalog, ids: dict[str, int]) -> None:
    """The segment's file was begun without columns: its rows wait for them, and have them."""
    topic = "auto-mixed"
    pair.admin.create_topic(topic, config=LARGE)
    now = int(time.time() * 1000)
    text = [Rec(None, b"t" * 900, (), now)] * 9000
    sender = Sender(pair.broker, topic)
    sender.send(text)
    typed = Sender(pair.broker, topic)
    typed.send(replace(record, timestamp_ms=now) for record in framed(ids, "avro"))
    pair.admin.set_topic_config(topic, CLOSING)
    wait_tiered(pair, topic)
    (segment,) = stored(pair, topic)
    assert "in the middle of the segment" in (segment.pending or "")
    everything = sender.log.committed | typed.log.committed
    same(read(pair.broker, topic), everything)
    table = published(catalog, topic, len(everything))
    is_typed(table.slice(len(text)), "avro", typed.log.committed)
    errors = set(table.slice(0, len(text)).column("_kafka_error").to_pylist())
    assert errors == {"not_wire_format: no magic byte 00 with a schema id behind it"}
