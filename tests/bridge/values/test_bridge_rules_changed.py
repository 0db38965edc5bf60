"""Rules that change between two runs of a bridge, and keys whose schema changes."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType, NestedField, StructType

from converter.types import IndexType
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.tables.maintain.by_name import maintain
from tests.oracle.transactions import producer_snapshot, transaction_index
from tests.support.answering_server import answering
from tests.support.bridge_life import life_of
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.evolution_scenarios import avro, record
from tests.support.kafka_log import LogBuilder, encode_batch
from tests.support.registry_answers import Schemas
from tests.support.shim_client import Segment, ShimClient, segment_of

ORDER = avro(record(id="int"), {"id": 1})
NAMED = avro(record(id="long", who="string"), {"id": 2**40, "who": "a"})


@pytest.fixture
def registry() -> Iterator[str]:
    schemas = Schemas({number: dict(found.registered) for number, found in ((1, ORDER), (2, NAMED))})
    with answering() as server:
        server.answers = schemas.answer
        yield server.uri


def run(folder: Path, registry: str, rule: dict[str, Any], pairs: Sequence[tuple[bytes | None, bytes | None]]) -> Any:
    """One life of a bridge, in which one segment of these keys and values is tiered; the table's rows.

    rule: the topic's, and `first`: base offset of the segment, `generation` of the rules, both by default 0.
    """
    first = rule.pop("first", 0)
    log = LogBuilder(next_offset=first)
    made = [replace(item, key=key) for item, (key, _) in zip(log.records([v for _, v in pairs]), pairs, strict=True)]
    log.batches.append(encode_batch(made))
    log.next_offset += len(made)
    generation = rule.pop("generation", 0)
    rules = [{"pattern": "turn", **rule}]
    schema_registry = {"url": registry, "request_timeout": "5s"}
    settings = test_settings(folder, topics=rules, schema_registry=schema_registry, generation=generation)
    segment = segment_of(log, topic="turn", topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, "turn").bytes)
    found = life_of(settings, "turn", segment, log.next_offset)
    assert [row["_kafka_value"] for row in found[first:]] == [value for _, value in pairs]
    assert {row.get("_kafka_error") for row in found} == {None}
    return [{name: row[name] for name in row if not name.startswith("_kafka_")} for row in found]


def test_what_is_published_in_parts_has_the_columns_of_what_is_published_whole(tmp_path: Path, registry: str) -> None:
    """A segment came as bytes. Its tail waited for a transaction's end until the table was typed, then lost rows."""
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "turn").bytes
    value = ORDER.framed(1)
    txn: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}

    def life(rule: dict[str, Any], log: LogBuilder, files: dict[IndexType, bytes], count: int) -> list[dict[str, Any]]:
        settings = test_settings(tmp_path, topics=[{"pattern": "turn", **rule}], schema_registry={"url": registry})
        with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
            segment = shim.copied(segment_of(log, topic="turn", topic_id=topic_id, files=files))
            assert shim.fetch(segment) == log.data
            with closing(open_catalog(embedded_settings(tmp_path))) as catalog:

                def rows() -> list[dict[str, Any]]:
                    known = catalog.table_exists("kafka.turn")
                    found = catalog.load_table("kafka.turn").scan().to_arrow().to_pylist() if known else []
                    return sorted(found, key=lambda row: int(row["_kafka_offset"]))

                eventually(lambda: len(rows()) == count)
                return rows()

    log = LogBuilder()
    log.batch([value])
    log.batch([value] * 2, **txn)
    log.batch([value])
    opened = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 1)])}
    assert len(life({"value_format": "raw"}, log, opened, 1)) == 1
    rest = LogBuilder(next_offset=log.next_offset)
    rest.control(5, commit=False)
    rest.batch([value])
    aborted = {IndexType.TRANSACTION: transaction_index([(5, 1, log.next_offset)])}
    rows = life({"value_format": "avro"}, rest, aborted, 3)
    assert [(row["_kafka_offset"], row["id"]) for row in rows] == [(0, None), (3, 1), (5, 1)]


@pytest.mark.parametrize("rule", [{}, {"value_bytes": "proven"}], ids=["always", "proven"])
def test_a_column_that_an_engine_drops_comes_back_while_the_bridge_runs(
    tmp_path: Path, registry: str, rule: dict[str, Any]
) -> None:
    """Rows of the time before have it no more. The bridge remembered it, and published nothing until a restart."""
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "turn").bytes
    topics = [{"pattern": "turn", "value_format": "avro", **rule}]
    settings = test_settings(tmp_path, topics=topics, schema_registry={"url": registry})
    segments: list[Segment] = []
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim, ExitStack() as stack:
        catalog = stack.enter_context(closing(open_catalog(embedded_settings(tmp_path))))

        def tiered(number: int) -> list[dict[str, Any]]:
            later = LogBuilder(next_offset=number)
            later.batch([NAMED.framed(2)])
            segments.append(shim.copied(segment_of(later, topic="turn", topic_id=topic_id)))
            assert shim.fetch(segments[-1]) == later.data
            rows: list[dict[str, Any]] = []

            def there() -> bool:
                known = catalog.table_exists("kafka.turn")
                rows[:] = catalog.load_table("kafka.turn").scan().to_arrow().to_pylist() if known else []
                return len(rows) == number + 1

            eventually(there)
            return sorted(rows, key=lambda row: int(row["_kafka_offset"]))

        tiered(0)
        with catalog.load_table("kafka.turn").update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("who")
        tiered(1)
        assert [row.get("who") for row in tiered(2)] == [None, "a", "a"]
    config = tmp_path / "tierberg.yaml"
    merge = {"small_mib": 16, "files_min": 3, "age": "0s"}
    config.write_text(json.dumps({"topics": topics, "schema_registry": {"url": registry}, "merge": merge}))
    said: list[str] = []
    maintain(open_backend(config, tmp_path), None, dry_run=False, say=said.append)
    assert any("merged" in line for line in said), said
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        # What is columns alone, one of which the table has lost, is served from its own file still.
        assert [shim.fetch(segment) for segment in segments] == [segment.data for segment in segments]
    assert verify_store(None, tmp_path, None).damages == []


def test_columns_that_an_engine_says_must_be_given_may_be_null_in_our_rows(tmp_path: Path, registry: str) -> None:
    """One of its own within a struct, and one of ours, of which a tombstone has no value."""
    typed = {"value_format": "avro"}
    value = ORDER.framed(1)
    run(tmp_path, registry, {**typed}, [(b"k", value)])
    with closing(open_catalog(embedded_settings(tmp_path))) as catalog:
        table = catalog.load_table("kafka.turn")
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.add_column("extra", StructType(NestedField(1, "a", IntegerType(), required=True)))
            change.update_column("id", required=True)
    lives = [run(tmp_path, registry, {**typed, "first": first}, [(b"k", value), (b"k", None)]) for first in (1, 3, 5)]
    rows = lives[-1]
    assert [row["id"] for row in rows] == [1, 1, None, 1, None, 1, None]
    assert {row["extra"] for row in rows} == {None}
    config = tmp_path / "tierberg.yaml"
    merge = {"small_mib": 16, "files_min": 3, "age": "0s"}
    topics = [{"pattern": "turn", **typed}]
    config.write_text(json.dumps({"topics": topics, "schema_registry": {"url": registry}, "merge": merge}))
    said: list[str] = []
    maintain(open_backend(config, tmp_path), None, dry_run=False, say=said.append)
    assert any("merged" in line for line in said), said
    assert verify_store(None, tmp_path, None).damages == []


def test_bytes_become_typed_and_bytes_again(tmp_path: Path, registry: str) -> None:
    """What was published before keeps its rows: null columns for what came as bytes, columns for the rest."""
    one, two = ORDER.framed(1), NAMED.framed(2)
    raw, typed = {"value_format": "raw"}, {"value_format": "avro"}
    assert run(tmp_path, registry, {**raw}, [(None, one)]) == [{}]
    rows = [{"id": None, "who": None}, {"id": 1, "who": None}, {"id": 2**40, "who": "a"}]
    assert run(tmp_path, registry, {**typed, "first": 1}, [(None, one), (None, two)]) == rows
    rows.append({"id": None, "who": None})
    assert run(tmp_path, registry, {**raw, "first": 3}, [(None, two)]) == rows
    rows.append({"id": 1, "who": None})
    assert run(tmp_path, registry, {**typed, "first": 4}, [(None, one)]) == rows


def test_a_bridge_with_older_rules_for_bytes_is_held_back(tmp_path: Path, registry: str) -> None:
    """Its rows come with their columns once a bridge with the newer rules runs again, and in no snapshot without."""
    one = ORDER.framed(1)
    typed = {"value_format": "avro", "generation": 1}
    assert run(tmp_path, registry, {**typed}, [(None, one)]) == [{"id": 1}]
    log = LogBuilder(next_offset=1)
    log.batch([one])
    settings = test_settings(tmp_path, topics=[{"pattern": "turn", "value_format": "raw"}])
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim:
        shim.copied(segment_of(log, topic="turn", topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, "turn").bytes))
        time.sleep(1.0)
        with closing(open_catalog(embedded_settings(tmp_path))) as catalog:
            assert catalog.load_table("kafka.turn").scan().to_arrow().num_rows == 1
    assert run(tmp_path, registry, {**typed, "first": 2}, [(None, one)]) == [{"id": 1}] * 3


def test_a_key_gains_a_field(tmp_path: Path, registry: str) -> None:
    pairs = [(ORDER.framed(1), b"a"), (NAMED.framed(2), b"b"), (None, b"c"), (ORDER.framed(1), None)]
    assert run(tmp_path, registry, {"key_format": "avro"}, pairs) == [
        {"_key": {"id": 1, "who": None}},
        {"_key": {"id": 2**40, "who": "a"}},
        {"_key": None},
        {"_key": {"id": 1, "who": None}},
    ]
