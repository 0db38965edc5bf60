"""What a peer, a producer or a registry may make the bridge hold or repeat: at the limit, and one beyond it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest

from converter.limits import VALUE_CELLS_MAX
from converter.values.typed import Writer
from rsm_bridge import limits
from rsm_bridge.deletes import Deleter
from rsm_bridge.errors import StoreError
from rsm_bridge.frame_feed import FrameFeed
from rsm_bridge.index_heads import IndexHeads
from rsm_bridge.progress_board import ProgressBoard, _Row, _Topic
from rsm_bridge.registry_errors import SchemaUnknownError, SchemaUnusableError
from rsm_bridge.registry_schemas import RegisteredSchema
from rsm_bridge.registry_settings import SchemaRegistrySettings
from rsm_bridge.schema_registry import SchemaRegistry
from rsm_bridge.settings import LimitSettings
from rsm_bridge.store import VersionedBytes
from rsm_bridge.tombstone import Tombstone
from rsm_bridge.value_schemas import SchemaRule, ValueSchemas
from rsm_bridge.wire import Frame
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
    stone = Tombstone("deleted", 1, "t", "c")
    if beyond:
        with pytest.raises(StoreError, match="changed"):
            Deleter(store).bury("index/x", stone)
    else:
        assert Deleter(store).bury("index/x", stone) == "replaced"
    assert store.tried == limits.TOMBSTONE_SWAPS_MAX


@pytest.mark.parametrize("beyond", [0, 1])
def test_one_answer_of_the_registry(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.REGISTRY_ANSWER_BYTES_MAX > 1000
    monkeypatch.setattr("rsm_bridge.registry_answer_limit.REGISTRY_ANSWER_BYTES_MAX", 1000)
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
    monkeypatch.setattr(f"rsm_bridge.schema_registry.{name}", limit)
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
    schemas = ValueSchemas(SchemaRule("json", "inferred"), None)
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


class Longs:
    """A registry in which every id is an Avro long."""

    def by_id(self, number: int) -> RegisteredSchema:
        return RegisteredSchema(number, "avro", '"long"', {})


def test_decoders_of_one_topic_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.DECODERS_MAX > 2
    monkeypatch.setattr("rsm_bridge.value_schemas.DECODERS_MAX", 2)
    registry: Any = Longs()
    schemas = ValueSchemas(SchemaRule("avro", "wire"), registry)
    first, second = (schemas.decoder(Writer(number)) for number in (1, 2))
    assert schemas.decoder(Writer(1)) is first
    schemas.decoder(Writer(3))
    assert schemas.decoder(Writer(2)) is second
    assert schemas.decoder(Writer(1)) is not first


def test_partitions_with_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those furthest behind."""
    assert limits.METRICS_PARTITIONS_MAX > 2
    monkeypatch.setattr("rsm_bridge.progress_board.METRICS_PARTITIONS_MAX", 2)
    board = ProgressBoard()
    rows = {number: _Row(10, 5, number or None, None) for number in range(4)}
    board._topics[bytes(16)] = _Topic("t", rows)
    named = {
        sample.labels["partition"]
        for family in board.collect()
        for sample in family.samples
        if family.name.startswith("tierberg_partition_")
    }
    assert named == {"1", "2"}
