"""Copy, fetch, index, delete through a real server with a client that behaves like the shim."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import IndexType
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.keys import INDEX_ROOT
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, aborted_transaction
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of


def table_of(catalog: Catalog, topic: str) -> Table | None:
    name = ("kafka", topic.lower().replace("-", "_").replace(".", "_"))
    return catalog.load_table(name) if catalog.table_exists(name) else None


def rows_of(catalog: Catalog, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    table = table_of(catalog, topic)
    if table is None or table.current_snapshot() is None:
        return []
    found = table.scan(selected_fields=("_kafka_offset", "_kafka_key", "_kafka_value")).to_arrow().to_pylist()
    return sorted((row["_kafka_offset"], row["_kafka_key"], row["_kafka_value"]) for row in found)


def expected_rows(log: LogBuilder) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.committed]


def test_a_copied_segment_comes_back_byte_for_byte_and_as_rows(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder().fill(batches=300, records=20, size=500)
    segment = shim.copied(segment_of(log, topic="whole"))
    assert 0 < len(segment.custom_metadata) <= 128
    assert shim.fetch(segment) == log.data
    eventually(lambda: rows_of(catalog, "whole") == expected_rows(log))


def test_a_fetch_starts_at_the_batch_that_contains_the_position(shim: ShimClient) -> None:
    log = LogBuilder().fill(batches=200, records=7, size=900)
    segment = shim.copied(segment_of(log))
    pick = random.Random(7)
    for _ in range(25):
        number = pick.randrange(len(log.batches))
        position = log.starts[number] + pick.randrange(len(log.batches[number]))
        assert shim.fetch(segment, position) == log.data[log.starts[number] :]
        # The end is inclusive, and inside of the last batch it cuts.
        end = pick.randrange(position, len(log.data))
        assert shim.fetch(segment, position, end) == log.data[log.starts[number] : end + 1]


def test_positions_beyond_the_end_and_empty_ranges(shim: ShimClient) -> None:
    log = LogBuilder().fill(batches=5)
    segment = shim.copied(segment_of(log))
    # A stream may start earlier than asked, never later.
    assert shim.fetch(segment, len(log.data) + 100) == log.batches[-1]
    assert shim.fetch(segment, 0, len(log.data) + 100) == log.data
    with pytest.raises(ShimError) as refused:
        shim.fetch(segment, 10, 5)
    assert refused.value.kind == "bad_request"


def test_a_segment_of_no_bytes_is_read_as_none(shim: ShimClient) -> None:
    plain = segment_of(LogBuilder().fill(batches=1))
    segment = shim.copied(replace(plain, data=b""))
    assert shim.fetch(segment) == b""
    assert shim.fetch(segment, 0, 10) == b""
    assert shim.fetch(segment, 5) == b""


def test_index_files_come_back_byte_for_byte(shim: ShimClient) -> None:
    log = LogBuilder().fill(batches=3)
    files = {
        IndexType.TIMESTAMP: bytes(range(240)),
        IndexType.TRANSACTION: aborted_transaction(9, 0, 5, 6),
    }
    sent = segment_of(log, files=files)
    segment = shim.copied(sent)
    for kind, data in sent.files.items():
        assert shim.fetch_index(segment, kind) == data
    offsets = shim.fetch_index(segment, IndexType.OFFSET)
    assert len(offsets) % 8 == 0


def test_a_segment_without_aborts_has_no_transaction_index(shim: ShimClient) -> None:
    segment = shim.copied(segment_of(LogBuilder().fill(batches=2)))
    with pytest.raises(ShimError) as missing:
        shim.fetch_index(segment, IndexType.TRANSACTION)
    assert missing.value.code is grpc.StatusCode.NOT_FOUND
    assert missing.value.kind == "no_index"


def test_aborted_records_and_markers_are_served_and_are_no_rows(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder()
    log.batch([b"plain"] * 3)
    log.batch([b"committed"] * 4, producer_id=5, producer_epoch=0, base_sequence=0, attributes=0x10)
    log.control(5, commit=True)
    aborted = log.batch(
        [b"aborted"] * 4, producer_id=6, producer_epoch=0, base_sequence=0, attributes=0x10, visible=False
    )
    log.control(6, commit=False)
    files = {IndexType.TRANSACTION: aborted_transaction(6, aborted[0].offset, log.next_offset - 1, log.next_offset)}
    segment = shim.copied(segment_of(log, topic="txn", files=files))
    assert shim.fetch(segment) == log.data
    eventually(lambda: rows_of(catalog, "txn") == expected_rows(log))


def test_compressed_batches_come_back_with_the_same_records(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder()
    for _ in range(20):
        log.batch([b"value " * 50] * 10, compressed=True)
    segment = shim.copied(segment_of(log, topic="gzip"))
    served = shim.fetch(segment)
    assert len(served) > len(log.data)  # uncompressed, within the bound of 1 MiB
    eventually(lambda: rows_of(catalog, "gzip") == expected_rows(log))


def test_a_batch_that_is_broken_at_its_source_is_kept_and_served(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder()
    log.batch([b"good"] * 3)
    log.batch([b"broken"] * 3, bad_crc=True, visible=False)
    log.batch([b"good again"] * 3)
    segment = shim.copied(segment_of(log, topic="broken"))
    assert shim.fetch(segment) == log.data
    eventually(lambda: rows_of(catalog, "broken") == expected_rows(log))


def test_deleted_segments_leave_table_store_and_fetch(
    shim: ShimClient, catalog: Catalog, bridge: Running, bridge_folder: Path
) -> None:
    first = LogBuilder().fill(batches=5)
    second = LogBuilder(next_offset=first.next_offset).fill(batches=5)
    one = shim.copied(segment_of(first, topic="gone"))
    two = shim.copied(segment_of(second, topic="gone", topic_id=one.topic_id))
    eventually(lambda: rows_of(catalog, "gone") == expected_rows(first) + expected_rows(second))
    shim.delete(one)
    with pytest.raises(ShimError) as deleted:
        shim.fetch(one)
    assert deleted.value.kind == "segment_deleted"

    def now() -> list[tuple[int, bytes | None, bytes | None]] | None:
        """None: with no grace at all, a reader's files can go while it reads."""
        try:
            return rows_of(catalog, "gone")
        except FileNotFoundError:
            return None

    eventually(lambda: now() == expected_rows(second))
    shim.delete(one)  # again: nothing to say
    shim.delete(two)
    eventually(lambda: now() == [])

    def empty() -> bool:
        return not [
            listed
            for root in ("index", "data", "kept")
            for listed in bridge.store.list_after(f"{root}/{one.topic_id.hex()}/")
        ]

    eventually(empty)


def test_unknown_segments(shim: ShimClient) -> None:
    segment = segment_of(LogBuilder().fill(batches=1))
    with pytest.raises(ShimError) as foreign:
        shim.fetch(segment)
    assert foreign.value.kind == "foreign_segment"
    shim.delete(segment)
    with pytest.raises(ShimError) as late:
        shim.copy(segment)
    assert late.value.kind == "segment_deleted"


def test_a_segment_of_another_plugin_is_named_as_such(shim: ShimClient, bridge: Running) -> None:
    segment = segment_of(LogBuilder().fill(batches=1)).finished(b"something else")
    for call in (shim.fetch, shim.delete):
        with pytest.raises(ShimError) as foreign:
            call(segment)
        assert foreign.value.kind == "foreign_segment"
        assert foreign.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert bridge.metrics.foreign_segments.labels("delete")._value.get() == 1


def test_custom_metadata_of_an_index_that_is_not_there(shim: ShimClient) -> None:
    segment = shim.copied(segment_of(LogBuilder().fill(batches=1)))
    other = Segment(b"x", 0, 0, custom_metadata=segment.custom_metadata)
    with pytest.raises(ShimError) as missing:
        shim.fetch(other)
    assert missing.value.kind == "not_found"


def test_only_a_segment_that_is_there_has_no_transaction_index(shim: ShimClient, bridge: Running) -> None:
    """Kafka takes "no such index" for "no aborted transactions": a deleted segment or a lost index must not say it."""
    aborts = {IndexType.TRANSACTION: aborted_transaction(9, 0, 5, 6)}
    deleted, lost = (shim.copied(segment_of(LogBuilder().fill(batches=1), files=aborts)) for _ in range(2))
    shim.delete(deleted)
    bridge.store.delete_many([found.key for found in bridge.store.list_after(f"{INDEX_ROOT}{lost.topic_id.hex()}/")])
    for segment, kind in ((deleted, "segment_deleted"), (lost, "not_found")):
        with pytest.raises(ShimError) as missing:
            shim.fetch_index(segment, IndexType.TRANSACTION)
        assert missing.value.kind == kind
