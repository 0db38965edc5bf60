"""One writer whose schema cannot become columns costs its own rows their columns, and nobody else's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from converter.values.by_writer import MESSAGES_MAX, Writer, parted_by_id
from converter.values.json.decoder import json_decoder
from converter.values.json.schema.infer import infer_schema
from converter.values.model import Decoder, SchemaTextError
from iceberg_catalog.evolve.evolve import evolve
from iceberg_catalog.evolve.names import Sources
from iceberg_catalog.limits import COLUMNS_MAX
from iceberg_catalog.tables.schema import table_schema
from rsm_bridge.limits import COMPILER_TRIES_MAX
from rsm_bridge.serving.service import Running
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from rsm_bridge.values.registry.schemas import RegisteredSchema
from rsm_bridge.values.typed import schemas as value_schemas
from rsm_bridge.values.typed.decoder_shelf import DecoderShelf
from rsm_bridge.values.typed.schemas import ColumnsWaitError, SchemaRule, ValueSchemas
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


@pytest.mark.parametrize("case", HOSTILE)
def test_a_topic_that_begins_with_it_has_all_its_rows(bridge: Running, case: str) -> None:
    """There are no columns yet, not even the one that says why."""
    number = GOOD + 1 + list(HOSTILE).index(case)
    topic, bad = f"apart_first_{number}", framed(number, HOSTILE[case][2])
    log, segments = LogBuilder(), [[bad, bad], [bad], [framed(GOOD, b"\x02"), bad]]
    with ShimClient(bridge.address) as shim:
        for values in segments:
            log = LogBuilder(log.next_offset)
            log.batch(values)
            segment = segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16])
            assert shim.fetch(shim.copied(segment)) == log.data

    def rows() -> list[dict[str, Any]]:
        catalog = bridge.publisher.open_catalog()
        name = ("kafka", topic)
        if not catalog.table_exists(name) or (table := catalog.load_table(name)).current_snapshot() is None:
            return []
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["_kafka_offset"]))

    eventually(lambda: len(rows()) == 5)
    found = rows()
    assert [row["_kafka_value"] for row in found] == [bad, bad, bad, framed(GOOD, b"\x02"), bad]
    assert (found[3]["id"], found[3]["_kafka_error"]) == (1, None)
    for row in found[:3]:
        said = row["_kafka_error"]
        assert said is None or said.split(":")[0] in {"unusable_schema", "incompatible_schema", "undecodable"}


class _Panic(BaseException):
    """As those of libraries in Rust, which are no exceptions of Python's usual kind."""


class _Registry:
    """Has one schema of each kind."""

    def ask(self, schema_ids: Iterable[int]) -> None:
        pass

    def by_id(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, "avro", '"int"', {})

    def latest(self, subject: str) -> RegisteredSchema:
        raise NotImplementedError(subject)


@pytest.mark.parametrize(
    "error",
    [
        _Panic("at src/lib.rs"),
        RecursionError("too deep"),
        MemoryError(),
        UnicodeError("\ud800"),
        KeyError(1),
        OverflowError(),
    ],
)
def test_whatever_making_a_decoder_raises_is_its_writers_problem(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(*_: object) -> Decoder:
        raise error

    monkeypatch.setitem(value_schemas._MAKERS, "avro", fails)
    said = ValueSchemas(rule=SchemaRule(kind=None, source="wire"), registry=_Registry()).decoder(Writer(7))
    assert isinstance(said, str)
    assert said.startswith(f"unusable_schema: no decoder can be made of it: {type(error).__name__}")
    said.encode()


class _Messages:
    """A registry in which every id is one Protobuf file of two messages."""

    def ask(self, schema_ids: Iterable[int]) -> None:
        pass

    def by_id(self, number: int) -> RegisteredSchema:
        return RegisteredSchema(number, "protobuf", 'syntax = "proto3"; message A { int32 a = 1; } message B {}', {})


def _protobuf_schemas() -> ValueSchemas:
    registry: Any = _Messages()
    return ValueSchemas(rule=SchemaRule(kind=None, source="wire"), registry=registry)


@pytest.mark.parametrize("error", [ChildProcessError("ended by signal 9"), TimeoutError("took longer than 20 s")])
def test_a_compiler_that_never_ends_with_a_schema_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    calls = 0

    def fails(*_: object) -> bytes:
        nonlocal calls
        calls += 1
        raise error

    monkeypatch.setattr("rsm_bridge.values.registry.protobuf_compiler.protobuf_schema", fails)
    schemas = _protobuf_schemas()
    for _ in range(COMPILER_TRIES_MAX - 1):
        with pytest.raises(ColumnsWaitError, match="could not be compiled"):
            schemas.decoder(Writer(7, (0,)))
    for number in range(3):
        said = schemas.decoder(Writer(7, (number,)))
        assert str(said).startswith("unusable_schema: schema id 7 could not be compiled")
    assert calls == COMPILER_TRIES_MAX


def test_a_compiler_that_cannot_be_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bytes:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr("rsm_bridge.values.registry.protobuf_compiler.protobuf_schema", fails)
    schemas = _protobuf_schemas()
    for _ in range(COMPILER_TRIES_MAX + 1):
        with pytest.raises(ColumnsWaitError):
            schemas.decoder(Writer(7, (0,)))


def test_a_schema_is_compiled_once_however_many_messages_values_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each name was minutes for some kilobytes of a producer. Those it has not displace none it has."""
    calls = 0

    def counted(*given: Any) -> bytes:
        nonlocal calls
        calls += 1
        return protobuf_schema(*given)

    monkeypatch.setattr("rsm_bridge.values.registry.protobuf_compiler.protobuf_schema", counted)
    schemas = _protobuf_schemas()
    first, second = (schemas.decoder(Writer(7, (number,))) for number in range(2))
    assert not isinstance(first, str)
    assert not isinstance(second, str)
    for number in range(2, 2000):
        assert "no message at index path" in str(schemas.decoder(Writer(7, (number,))))
    assert schemas.decoder(Writer(7, (0,))) is first
    assert calls == 1


def test_a_refusal_of_a_message_that_a_schema_has_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find it out again takes as long as a message takes."""
    calls = 0

    def refuses(*_: object) -> Decoder:
        nonlocal calls
        calls += 1
        raise SchemaTextError("too many columns")

    monkeypatch.setattr("converter.values.protobuf.decoder.protobuf_decoder", refuses)
    schemas = _protobuf_schemas()
    for _ in range(3):
        assert "too many columns" in str(schemas.decoder(Writer(7, (1,))))
    assert calls == 1


def test_what_is_compiled_is_kept_where_decoders_are() -> None:
    registry: Any = _Messages()
    small, large = DecoderShelf(500), DecoderShelf()
    for shelf, same in ((small, False), (large, True)):
        schemas = ValueSchemas(rule=SchemaRule(kind=None, source="wire"), registry=registry, shelf=shelf)
        first = schemas._compiled(registry.by_id(7))
        assert (schemas._compiled(registry.by_id(7)) is first) == same


def test_of_many_messages_of_a_schema_the_most_frequent_are_looked_at() -> None:
    # One index each, as the two bytes of a zigzag number.
    paths = [bytes([2, 0x80 | (2 * number) & 0x7F, number >> 6]) for number in range(MESSAGES_MAX + 50)]
    values = [b"\0" + struct.pack(">I", 7) + path for path in (*paths, *[paths[5]] * 3)]
    given = parted_by_id(pa.array(values, pa.binary()), lambda ids: ids)
    ((rare, text),) = given.problems
    assert len(given.parts) == MESSAGES_MAX
    assert sum(len(part.rows) for part in given.parts) + len(rare) == len(values)
    assert max(given.parts, key=lambda part: len(part.rows)).rows.tolist() == [5, *range(len(paths), len(values))]
    assert "rare ones are left" in text


def test_an_inferred_schema_is_one_that_a_table_can_take() -> None:
    """One record with a name that no table takes, others with other names each: no reason to have no columns."""
    long = {"n" * 6_000: 1, "_kafka_value": 2, "inner": {"m" * 6_000: 1, "ok": 1}}
    others = [{f"k{n}": {f"i{m}": m for m in range(150)}, "id": n} for n in range(300)]
    texts = [json.dumps(value).encode() for value in (long, *others)]
    text = infer_schema(pa.array(texts, pa.binary()))
    assert text is not None
    decoder = json_decoder(text)
    raw = table_schema("raw")
    found = evolve(raw, Sources(), decoder.type, last_field_id=100, properties={}, incompatible="new-column")
    assert not found.incompatible
    assert {"id", "_kafka_value"} <= set(decoder.type.names)
    assert decoder.decode(pa.array(texts, pa.binary())).errors.null_count == len(texts)
