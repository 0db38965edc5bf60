"""What a peer, a producer or a registry may make the bridge hold or repeat: at the limit, and one beyond it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from converter import limits as converter_limits
from converter.batches import codecs
from converter.limits import VALUE_CELLS_MAX
from converter.values.by_writer import Writer
from iceberg_catalog.tables.schema import table_schema
from rsm_bridge import limits
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.config.settings import LimitSettings
from rsm_bridge.errors import StoreError
from rsm_bridge.metrics.board import ProgressBoard, _Row, _Topic
from rsm_bridge.serving.copy.frame_feed import FrameFeed
from rsm_bridge.serving.wire.messages import Frame
from rsm_bridge.storage.object_store import VersionedBytes
from rsm_bridge.storage.segments.deleter import Deleter
from rsm_bridge.storage.segments.reader import IndexHeads
from rsm_bridge.storage.tombstone import Tombstone
from rsm_bridge.values.registry.errors import SchemaUnknownError, SchemaUnusableError
from rsm_bridge.values.registry.registry import SchemaRegistry
from rsm_bridge.values.registry.schemas import RegisteredSchema
from rsm_bridge.values.typed.decoder_shelf import DecoderShelf, decoder_bytes
from rsm_bridge.values.typed.schemas import SchemaRule, ValueSchemas
from rsm_bridge.values.typed.table import Given, TypedTable
from tests.support.answering_server import answering
from tests.support.registry_answers import Schemas


def test_frames_of_one_copy_that_wait_for_its_worker() -> None:
    async def fed() -> None:
        feed = FrameFeed()
        for _ in range(limits.COPY_QUEUE_FRAMES_MAX):
            await asyncio.wait_for(feed.put(Frame(0, memoryview(b"x"), 0)), 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(feed.put(Frame(0, memoryview(b"x"), 0)), 0.1)

    asyncio.run(fed())


def test_beginnings_of_indexes_that_are_kept() -> None:
    heads, part = IndexHeads(), memoryview(b"bc")
    directories: list[Any] = [type("Directory", (), {})() for _ in range(limits.INDEX_HEADS_MAX + 1)]
    for directory in directories[:-1]:
        heads.keep(directory, memoryview(b"abc"))
    assert heads.part(directories[0], 1, 2) == part
    heads.keep(directories[-1], memoryview(b"abc"))
    assert heads.part(directories[0], 1, 2) is None
    assert heads.part(directories[1], 1, 2) == heads.part(directories[-1], 1, 2) == part


class Moving:
    """A store whose objects change under every swap but the last."""

    def __init__(self, swaps: int) -> None:
        self.swaps, self.tried = swaps, 0

    def read(self, _: str) -> VersionedBytes:
        return VersionedBytes(b"index", str(self.tried))

    def replace(self, *_: object) -> bool:
        self.tried += 1
        return self.tried == self.swaps


@pytest.mark.parametrize("beyond", [0, 1])
def test_swaps_of_one_tombstone(beyond: int) -> None:
    store: Any = Moving(limits.TOMBSTONE_SWAPS_MAX + beyond)
    stone = Tombstone(kind="deleted", time_ms=1, topic="t", cluster_name="c")
    if beyond:
        with pytest.raises(StoreError, match="changed"):
            Deleter(store).bury("index/x", stone)
    else:
        assert Deleter(store).bury("index/x", stone) == "replaced"
    assert store.tried == limits.TOMBSTONE_SWAPS_MAX


@pytest.mark.parametrize("beyond", [0, 1])
def test_one_answer_of_the_registry(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.REGISTRY_ANSWER_BYTES_MAX > 1000
    monkeypatch.setattr("rsm_bridge.values.registry.client.REGISTRY_ANSWER_BYTES_MAX", 1000)
    body = b'{"schema": "\\"long\\""}'
    with answering() as server:
        server.answers = lambda _: (200, body + b" " * (1000 + beyond - len(body)))
        registry = SchemaRegistry(SchemaRegistrySettings.model_validate({"url": server.uri, "request_timeout": "10s"}))
        try:
            if beyond:
                with pytest.raises(SchemaUnusableError, match="more than 1000 bytes"):
                    registry.by_id(1)
            else:
                assert registry.by_id(1).text == '"long"'
        finally:
            registry.close()


@pytest.mark.parametrize(
    ("name", "limit", "known"),
    [
        ("REGISTRY_SCHEMAS_MAX", 2, True),
        ("REGISTRY_CACHE_BYTES_MAX", 2 * len('"long"'), True),
        ("REGISTRY_MISSES_MAX", 2, False),
    ],
)
def test_what_is_remembered_of_the_registry(
    name: str, limit: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three ids the first is forgotten, two stay."""
    assert getattr(limits, name) > 1000
    monkeypatch.setattr(f"rsm_bridge.values.registry.registry.{name}", limit)
    schemas = Schemas()
    for number in (1, 2, 3) if known else ():
        schemas.add(number, f"s{number}", {"schema": '"long"'})
    with answering() as server:
        server.answers = schemas.answer
        registry = SchemaRegistry(SchemaRegistrySettings.model_validate({"url": server.uri, "request_timeout": "10s"}))

        def asked(number: int) -> int:
            before = len(server.seen)
            with nullcontext() if known else pytest.raises(SchemaUnknownError):
                registry.by_id(number)
            return len(server.seen) - before

        try:
            assert [asked(number) for number in (1, 2, 1, 2)] == [1, 1, 0, 0]
            assert [asked(number) for number in (3, 2, 3, 1)] == [1, 0, 0, 1]
        finally:
            registry.close()


def test_values_that_a_schema_is_inferred_from() -> None:
    schemas = ValueSchemas(rule=SchemaRule(kind="json", source="inferred"), registry=None)
    plain = [b'{"a": 1}'] * limits.INFERRED_VALUES_MAX
    within = schemas.infer(pa.array([*plain[1:], b'{"b": 1}'], pa.binary()))
    beyond = schemas.infer(pa.array([*plain, b'{"b": 1}'], pa.binary()))
    assert '"b"' in str(within)
    assert '"a"' in str(beyond)
    assert '"b"' not in str(beyond)


def test_what_large_work_may_take_is_the_sum_of_what_it_may_hold() -> None:
    """The page of settings promises it: a batch four times, 256 MiB for a value's cells, and 256 MiB for files."""
    assert limits.LARGE_VALUE_BYTES == 64 * VALUE_CELLS_MAX == 256 * limits.MIB
    assert limits.LARGE_FILES_BYTES == 2 * limits.COPY_FILES_BYTES_MAX == 256 * limits.MIB
    assert LimitSettings(decompressed_batch_mib=3).large_work_mib == 12 + 256 + 256


def test_what_a_data_file_may_take_that_is_written_anew_is_what_the_page_of_operations_says() -> None:
    assert LimitSettings().rewriting_mib * limits.MIB == limits.REWRITE_BYTES == 192 * limits.MIB
    assert (
        "592 MiB\n(400 for a bridge that is idle, 192 for a data file"
        in (Path(__file__).resolve().parents[5] / "docs/operations.md").read_text()
    )


class Longs:
    """A registry in which every id is an Avro long."""

    def ask(self, schema_ids: Iterable[int]) -> None:
        pass

    def by_id(self, number: int) -> RegisteredSchema:
        return RegisteredSchema(number, "avro", '"long"', {})


def test_decoders_that_are_kept() -> None:
    """Those of all topics together; the topic that has most makes room."""
    registry: Any = Longs()
    one = decoder_bytes(pa.struct([("value", pa.int64())]), '"long"')
    assert limits.DECODERS_BYTES_MAX > 100 * one
    shelf = DecoderShelf(4 * one)
    wide, narrow = (
        ValueSchemas(rule=SchemaRule(kind="avro", source="wire"), registry=registry, shelf=shelf) for _ in range(2)
    )
    other = narrow.decoder(Writer(1))
    first, second = (wide.decoder(Writer(number)) for number in (1, 2))
    assert wide.decoder(Writer(1)) is first
    for number in (3, 4):
        wide.decoder(Writer(number))
    assert wide.decoder(Writer(1)) is first, "used after the second"
    assert wide.decoder(Writer(2)) is not second
    for number in range(100):
        wide.decoder(Writer(number))
    assert narrow.decoder(Writer(1)) is other


def test_what_one_decoder_takes_is_never_more_than_all_may() -> None:
    shelf = DecoderShelf(10)
    shelf.put("topic", 1, "too large", 11)
    assert shelf.get("topic", 1) is None
    shelf.put("topic", 1, "small", 10)
    shelf.put("topic", 1, "again", 9)
    assert shelf.get("topic", 1) == "again"


def test_columns_of_decoders_for_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a schema may have the columns of a whole table; the most frequent ones are decoded."""
    assert limits.WRITERS_COLUMNS_MAX > 2
    monkeypatch.setattr("rsm_bridge.values.typed.table.WRITERS_COLUMNS_MAX", 1)
    registry: Any = Longs()
    schemas = ValueSchemas(rule=SchemaRule(kind="avro", source="wire"), registry=registry)
    table = TypedTable(schemas={"value": schemas}, evolve=_no_catalog, executor=ThreadPoolExecutor(1))
    value = b"\0\0\0\0%c\2"
    rows = pa.record_batch({"_kafka_value": pa.array([value % number for number in (1, 2, 2, 3, 3, 3)], pa.binary())})
    found = table._decoders(table.given(rows))
    said = {writer.schema_id: made for (_, writer), made in found.items()}
    assert not isinstance(said[3], str)
    assert not isinstance(said[2], str), "one beyond the limit: it is seen when its columns are known"
    assert said[1] == "unusable_schema: schemas of these values have over 10000 columns together; rare ones are left"


def test_writers_that_a_table_does_not_take_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many at most; the catalog is asked again for others."""
    assert limits.REFUSED_MAX > 1
    monkeypatch.setattr("rsm_bridge.values.typed.table.REFUSED_MAX", 1)
    asked = 0
    registry: Any = Longs()
    table = _catalog_table()

    def refuses(*_: object) -> Any:
        nonlocal asked
        asked += 1
        return table

    schemas = (
        ValueSchemas(rule=SchemaRule(kind="avro", source="wire"), registry=registry),
        ValueSchemas(rule=SchemaRule(kind="avro", source="wire"), registry=registry),
    )
    with ThreadPoolExecutor(1) as pool:
        typed = TypedTable(schemas={"value": schemas[0], "key": schemas[1]}, evolve=refuses, executor=pool)
        values = pa.array([b"\0\0\0\0\1\2"], pa.binary())
        for part, seen in (("value", 1), ("value", 1), ("key", 2), ("key", 2), ("value", 3)):
            parted: Any = {part: schemas[0].parted(values)}
            typed.routes(Given(parted))
            assert asked == seen


def _no_catalog(*_: object) -> Any:
    raise AssertionError("nobody asked for columns")


def _catalog_table() -> Any:
    """As PyIceberg's: a table with Kafka's columns alone."""
    schema = table_schema("raw")
    metadata = SimpleNamespace(table_uuid=uuid.UUID(int=1))
    return SimpleNamespace(schema=lambda: schema, properties={"tierberg.value-format": "raw"}, metadata=metadata)


def test_a_decompressor_that_a_wide_window_made_large_is_dropped() -> None:
    """45 KB of a producer were 136 MiB of each worker, for as long as the bridge ran."""
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=26))
    made = wide.compressobj()
    data = made.compress(bytes(70 * limits.MIB)) + made.flush()
    out = codecs.PlainBuffer()
    assert codecs.decompress(codecs.ZSTD, memoryview(data), out, 80 * limits.MIB) == 70 * limits.MIB
    assert codecs._ZSTD.decompressor.memory_size() <= converter_limits.ZSTD_CONTEXT_BYTES_MAX
    before = codecs._ZSTD.decompressor
    out.reset()
    codecs.decompress(codecs.ZSTD, memoryview(zstandard.compress(b"small")), out, 100)
    assert codecs._ZSTD.decompressor is before, "making one costs as much as a small batch"


def test_partitions_with_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those furthest behind."""
    assert limits.METRICS_PARTITIONS_MAX > 2
    monkeypatch.setattr("rsm_bridge.metrics.board.METRICS_PARTITIONS_MAX", 2)
    board = ProgressBoard()
    rows = {number: _Row(10, 5, number or None, None) for number in range(4)}
    board._topics[bytes(16)] = _Topic(name="t", rows=rows)
    named = {
        sample.labels["partition"]
        for family in board.collect()
        for sample in family.samples
        if family.name.startswith("tierberg_partition_")
    }
    assert named == {"1", "2"}
