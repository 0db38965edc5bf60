"""One writer whose schema cannot become columns costs its own rows their columns, and nobody else's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.limits import COLUMNS_MAX
from rsm_bridge.service import Running
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.registry_answers import Schemas
from tests.support.shim_client import ShimClient, segment_of

GOOD = 1
HALF = "\ud800"


def record(*fields: dict[str, Any], name: str = "Bad") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def properties(**members: Any) -> str:
    return json.dumps({"type": "object", "properties": members})


def within(levels: int) -> str:
    kind: Any = "int"
    for level in range(levels):
        kind = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": kind}]}
    return json.dumps(kind)


#: Schemas that a registry takes, or may one day take: its kind, its text, and a value of it.
HOSTILE: dict[str, tuple[str, str, bytes]] = {
    "avro name half a surrogate": ("AVRO", record({"name": f"a{HALF}", "type": "int"}), b"\x02"),
    "avro doc half a surrogate": ("AVRO", record({"name": "a", "type": "int", "doc": HALF}), b"\x02"),
    "avro alias half a surrogate": ("AVRO", record({"name": "b", "type": "int", "aliases": [HALF]}), b"\x02"),
    "avro symbol half a surrogate": (
        "AVRO",
        record({"name": "e", "type": {"type": "enum", "name": "E", "symbols": [f"s{HALF}"]}}),
        b"\x00",
    ),
    "avro long name": ("AVRO", record({"name": "n" * 6_000, "type": "int"}), b"\x02"),
    "avro long name beside ours": (
        "AVRO",
        record({"name": "_kafka_value", "type": "int"}, {"name": "n" * 6_000, "type": "int"}),
        b"\x02\x02",
    ),
    "avro wide name": ("AVRO", record({"name": "\U0001f600" * 1000, "type": "int"}), b"\x02"),
    "avro nul in name": ("AVRO", record({"name": "a\0", "type": "int"}), b"\x02"),
    "avro many columns": (
        "AVRO",
        record(*({"name": f"c{n}", "type": "boolean"} for n in range(COLUMNS_MAX + 1))),
        bytes(COLUMNS_MAX + 1),
    ),
    "avro deep": ("AVRO", within(60), b"\x02"),
    "avro bytes that are no type": ("AVRO", "[" * 5_000, b"\x02"),
    "avro digits": (
        "AVRO",
        record({"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10**6, "scale": 10**6}}),
        b"\x02\x01",
    ),
    "json name half a surrogate": ("JSON", properties(**{f"a{HALF}": {"type": "integer"}}), b"{}"),
    "json description half a surrogate": ("JSON", properties(a={"type": "integer", "description": HALF}), b'{"a":1}'),
    "json long name": ("JSON", properties(_kafka_value={}, **{"n" * 6_000: {"type": "integer"}}), b"{}"),
    "json nested too deep": ("JSON", '{"items":' * 5_000 + "1" + "}" * 5_000, b"{}"),
    "protobuf long name": ("PROTOBUF", f'syntax = "proto3"; message A {{ int32 {"n" * 6_000} = 1; }}', b"\0\x08\x01"),
    "protobuf nonsense": ("PROTOBUF", "message \0", b"\0\x08\x01"),
}


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", number) + payload


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    found = Schemas()
    found.add(GOOD, "good-value", {"schema": record({"name": "id", "type": "int"}, name="Good")}, version=1)
    for number, (kind, text, _) in enumerate(HOSTILE.values(), start=GOOD + 1):
        found.add(number, f"bad-{number}", {"schema": text, "schemaType": kind}, version=1)
    return found


@pytest.fixture(scope="module")
def bridge(schemas: Schemas, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    topics = [{"pattern": "apart.*", "value_format": "auto"}]
    with answering() as server:
        server.answers = schemas.answer
        registry = {"url": server.uri, "request_timeout": "5s"}
        folder: Path = tmp_path_factory.mktemp("apart")
        with bridge_thread(test_settings(folder, topics=topics, schema_registry=registry)) as running:
            yield running


@pytest.mark.parametrize("case", HOSTILE)
def test_a_schema_that_cannot_become_columns_costs_its_writers_rows_only(bridge: Running, case: str) -> None:
    number = GOOD + 1 + list(HOSTILE).index(case)
    topic = f"apart_{number}"
    values = [framed(GOOD, b"\x02"), framed(number, HOSTILE[case][2]), framed(GOOD, b"\x04")]
    log = LogBuilder()
    log.batch(values)
    with ShimClient(bridge.address) as shim:
        segment = shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16]))
        assert shim.fetch(segment) == log.data

    def rows() -> list[dict[str, Any]]:
        catalog = bridge.publisher.open_catalog()
        name = ("kafka", topic)
        if not catalog.table_exists(name) or (table := catalog.load_table(name)).current_snapshot() is None:
            return []
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["_kafka_offset"]))

    eventually(lambda: len(rows()) == len(values))
    found = rows()
    assert [row["id"] for row in found][::2] == [1, 2]
    assert [row["_kafka_error"] for row in found][::2] == [None, None]
    assert [row["_kafka_value"] for row in found] == values
    said = found[1]["_kafka_error"]
    assert said is None or said.split(":")[0] in {"unusable_schema", "incompatible_schema", "undecodable"}
