"""Writers that change their schema, through a real bridge: each kind of change, in segments of their own and mixed.

Of each scenario two topics are written. In one each version has a segment of its own, and the first version comes
again behind the last, as old writers do; in the other all versions take turns within one batch. Both tables must have
the same columns and rows, the bytes beside them, and Kafka gets its segments back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from rsm_bridge.serving.service import Running
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.evolution_avro import AVRO
from tests.support.evolution_others import OTHERS
from tests.support.evolution_scenarios import Scenario, Version
from tests.support.evolving import check_step
from tests.support.kafka_log import LogBuilder
from tests.support.registry_answers import Schemas
from tests.support.shim_client import ShimClient, segment_of

RULES: list[dict[str, Any]] = [
    {"pattern": "avro_.*", "value_format": "avro"},
    {"pattern": "strict_.*", "value_format": "avro", "incompatible": "dead-letter"},
    {"pattern": "proto_.*", "value_format": "protobuf"},
    {"pattern": "json_.*", "value_format": "json", "value_schema": {"from": "registry-id"}},
]


@pytest.fixture(scope="module")
def bridge_folder(tmp_path_factory: pytest.TempPathFactory, policy: str) -> Path:
    return tmp_path_factory.mktemp(policy)


@pytest.fixture(scope="module")
def schemas(policy: str) -> Schemas:
    return Schemas()


@pytest.fixture(scope="module")
def bridge(schemas: Schemas, bridge_folder: Path, policy: str) -> Iterator[Running]:
    rules = [{**rule, "value_bytes": policy} for rule in RULES]
    with answering() as server:
        server.answers = schemas.answer
        registry = {"url": server.uri, "request_timeout": "5s"}
        with bridge_thread(
            test_settings(bridge_folder, publish_interval="1s", topics=rules, schema_registry=registry)
        ) as running:
            yield running


def register(schemas: Schemas, version: Version) -> int:
    number = len(schemas.by_id) + 1
    schemas.by_id[number] = dict(version.registered)
    return number


def write(shim: ShimClient, topic: str, segments: Sequence[Sequence[bytes]]) -> None:
    """Copies one segment of one batch each; every one comes back as it was."""
    log = LogBuilder()
    for values in segments:
        log = LogBuilder(next_offset=log.next_offset)
        log.batch(values)
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes
        copied = shim.copied(segment_of(log, topic=topic, topic_id=topic_id))
        assert shim.fetch(copied) == log.data


def rows_of(catalog: Catalog, topic: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def there() -> bool:
        name = ("kafka", topic)
        if not catalog.table_exists(name) or (table := catalog.load_table(name)).current_snapshot() is None:
            return False
        found[:] = table.scan().to_arrow().to_pylist()
        return len(found) == count

    eventually(there)
    return sorted(found, key=lambda row: int(row["_kafka_offset"]))


def shown(row: dict[str, Any]) -> dict[str, Any] | str:
    """The value's columns that are not null, at any depth; else the code of the row's error."""
    columns = {name: value for name, value in row.items() if not name.startswith("_kafka_")}
    if row["_kafka_error"] is None:
        filled: dict[str, Any] = without_nulls(columns)
        return filled
    assert set(columns.values()) == {None} or not columns
    return str(row["_kafka_error"]).partition(":")[0]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def columns_of(table: Table) -> str:
    """The value's columns in their order: `name: type, …`."""
    fields = [field for field in table.schema().fields if not field.name.startswith("_kafka_")]
    return ", ".join(f"{field.name}: {brief(field.field_type)}" for field in fields)


def brief(kind: IcebergType) -> str:
    """A type without field ids."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{field.name}: {brief(field.field_type)}' for field in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"list<{brief(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{brief(kind.key_type)}, {brief(kind.value_type)}>"
    return str(kind)


def check(
    catalog: Catalog, topic: str, given: Scenario, written: Sequence[Version], values: Sequence[bytes], *, always: bool
) -> None:
    """Columns, rows and bytes, or `always` not; and no column ever went, narrowed or changed its id."""
    rows = rows_of(catalog, topic, len(written))
    assert [shown(row) for row in rows] == [
        version.row if isinstance(version.row, str) else without_nulls(version.row) for version in written
    ]
    for row, value in zip(rows, values, strict=True):
        assert row["_kafka_value_size"] == len(value)
        assert row["_kafka_value"] in ((value,) if always else (value, None))
    table = catalog.load_table(("kafka", topic))
    assert columns_of(table) == given.columns
    states = sorted(table.metadata.schemas, key=lambda schema: schema.schema_id)
    for before, after in pairwise(states):
        check_step(before, after, before.highest_field_id)


@dataclass(frozen=True)
class Written:
    """One scenario as it was sent: `topic` in segments of their own, `<topic>_mixed` in one batch."""

    topic: str
    versions: list[Version]
    values: list[bytes]


@pytest.fixture(scope="module")
def written(shim: ShimClient, schemas: Schemas) -> Iterator[dict[str, Future[Written]]]:
    """All scenarios are sent at once, so that the publisher has many tables to do in each of its rounds."""

    def send(given: Scenario, ids: Sequence[int]) -> Written:
        framed = [version.framed(number) for version, number in zip(given.versions, ids, strict=True)]
        # Old writers go on behind the newest version, as well as before it.
        versions, values = [*given.versions, given.versions[0]], [*framed, framed[0]]
        write(shim, given.name, [[value] for value in values])
        write(shim, f"{given.name}_mixed", [[*values, *values]])
        return Written(given.name, versions, values)

    with ThreadPoolExecutor(4) as pool:
        yield {
            given.name: pool.submit(send, given, [register(schemas, version) for version in given.versions])
            for given in (*AVRO, *OTHERS)
        }


@pytest.mark.parametrize("given", [*AVRO, *OTHERS], ids=lambda given: given.name)
def test_a_change(catalog: Catalog, written: dict[str, Future[Written]], given: Scenario, policy: str) -> None:
    sent, always = written[given.name].result(120), policy == "always"
    check(catalog, sent.topic, given, sent.versions, sent.values, always=always)
    check(catalog, f"{sent.topic}_mixed", given, sent.versions * 2, sent.values * 2, always=always)


def test_there_are_thirty_and_each_is_another() -> None:
    names = [given.name for given in (*AVRO, *OTHERS)]
    assert len(set(names)) == len(names) >= 30
