"""Offsets that a leader without the log had deleted, and that came back: the table lacks them, and it is said.

That leader made no copy, so nothing in the store shows it, and its deletions are what retention's are (R5).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from converter.types import IndexType
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.plan.types import PartState
from rsm_bridge.limits import BELOW_FLOOR_UNASKED_SECONDS, TOPIC_GONE_SECONDS
from rsm_bridge.metrics.progress.facts import StoredPartition
from rsm_bridge.metrics.progress.stored import stored_partitions
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.report import Finding
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.maintain.by_name import restore
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, checkpoint
from tests.support.shim_client import ShimClient, segment_of
from tests.support.status_facts import NOW, facts, kafka, kafka_partition, kafka_topic, stored, stored_partition
from tests.unit.rsm_bridge.metrics.progress.test_status_causes import found

NAMED: dict[str, Any] = {"topic": "orders", "topic_id": b"o" * 16}


def test_they_are_named_and_undelete_brings_them_back(tmp_path: Path) -> None:
    low, high = LogBuilder().fill(batches=1, records=7), LogBuilder(7, epoch=2).fill(batches=1, records=7)
    with bridge_thread(test_settings(tmp_path, reclaim_grace="10m")) as bridge, ShimClient(bridge.address) as shim:
        catalog = open_catalog(embedded_settings(tmp_path))
        first = shim.copied(segment_of(low, **NAMED))
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(low))
        shim.delete(first)  # by a leader of epoch 1 that has no log: its epochs are older than all that it knows
        eventually(lambda: rows_of(catalog, "orders") == [])
        shim.copied(segment_of(low, **NAMED))
        epochs = {IndexType.LEADER_EPOCH: checkpoint([(0, 0), (2, 7)])}
        shim.copied(segment_of(high, **NAMED, epochs=((2, 7),), files=epochs))
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(high))

        part = _stored_part(bridge.store, catalog)
        assert part.below_floor == (0, 6)

        assert [item.level for item in _said(part, 0)] == [Level.PERSON]
        assert _said(part, 0, age_s=5) == []  # a deletion takes its segments one after another
        assert _said(part, 7) == []  # what Kafka does not have any more it deletes

        restore(open_backend(None, tmp_path), "orders", None, undo=False)
        eventually(lambda: rows_of(catalog, "orders") == [*expected_rows(low), *expected_rows(high)])


def test_of_a_segment_that_lies_below_in_part_that_part_is_named_and_comes_back(tmp_path: Path) -> None:
    low = LogBuilder().fill(batches=2, records=3)
    long = deepcopy(low)
    long.epoch = 1
    long.fill(batches=1, records=3)
    with bridge_thread(test_settings(tmp_path, reclaim_grace="10m")) as bridge, ShimClient(bridge.address) as shim:
        catalog = open_catalog(embedded_settings(tmp_path))
        first = shim.copied(segment_of(low, **NAMED))
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(low))
        shim.delete(first)  # by retention, of a leader that dies before its followers hear of its log start
        eventually(lambda: rows_of(catalog, "orders") == [])
        epochs = {IndexType.LEADER_EPOCH: checkpoint([(0, 0), (1, 6)])}
        shim.copied(segment_of(long, **NAMED, epochs=((0, 0), (1, 6)), files=epochs))
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(long)[6:])

        part = _stored_part(bridge.store, catalog)
        assert part.below_floor == (0, 5)
        assert [item.said for item in _said(part, 0)] == ["offsets 0 to 5 are tiered, and the table has no row of them"]
        assert [item.said for item in _said(part, 4)] == ["offsets 4 to 5 are tiered, and the table has no row of them"]
        assert _said(part, 6) == _said(part, 8) == []  # Kafka has deleted them, in part of a segment

        restore(open_backend(None, tmp_path), "orders", None, undo=False)
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(long))
        assert _stored_part(bridge.store, catalog).below_floor is None


def test_rows_below_the_floor_that_are_still_in_the_table_are_not_missed(tmp_path: Path) -> None:
    low, long = LogBuilder().fill(batches=2, records=3), LogBuilder().fill(batches=3, records=3)
    with bridge_thread(test_settings(tmp_path, reclaim_grace="10m")) as bridge, ShimClient(bridge.address) as shim:
        catalog = open_catalog(embedded_settings(tmp_path))
        shim.copied(segment_of(long, **NAMED))
        eventually(lambda: rows_of(catalog, "orders") == expected_rows(long))
        shim.delete(shim.copied(segment_of(low, **NAMED)))
        eventually(lambda: _states(bridge.store, catalog)[0].floor == 6)
        assert rows_of(catalog, "orders") == expected_rows(long)  # they leave a file at a time
        assert _stored_part(bridge.store, catalog).below_floor is None


def test_rows_below_the_floor_are_told_without_kafka_once_it_had_time_to_delete_them() -> None:
    def asked_of_nobody(waits_s: float) -> list[Finding]:
        since_ms = NOW - int(waits_s * 1000)
        part = stored_partition(below_floor=(0, 9), below_floor_ms=since_ms)
        return found(assess(facts(stored(part), kafka=None)), CauseCode.ROWS_BELOW_FLOOR)

    assert not asked_of_nobody(BELOW_FLOOR_UNASKED_SECONDS - 5)
    (finding,) = asked_of_nobody(BELOW_FLOOR_UNASKED_SECONDS + 5)
    assert finding.level is Level.PERSON
    assert "Kafka, which was not asked" in finding.said


def _states(store: ObjectStore, catalog: Catalog) -> Mapping[int, PartState]:
    return recorded_parts(store, LiveFiles().read(catalog.load_table("kafka.orders")))


def _stored_part(store: ObjectStore, catalog: Catalog) -> StoredPartition:
    files = LiveFiles().read(catalog.load_table("kafka.orders")).files
    return stored_partitions(read_segments(store, NAMED["topic_id"]), _states(store, catalog), files)[0]


def _said(part: StoredPartition, log_start: int, age_s: float = TOPIC_GONE_SECONDS + 5) -> list[Finding]:
    """What a report says of it, when Kafka's log starts there and the newest copy is that old."""
    now_ms = int(time.time() * 1000)
    then = replace(part, below_floor_ms=None if part.below_floor is None else now_ms - int(age_s * 1000))
    told = kafka(kafka_topic(kafka_partition(log_start=log_start, end=14, stable_end=14)))
    return found(assess(replace(facts(stored(then), kafka=told), now_ms=now_ms)), CauseCode.ROWS_BELOW_FLOOR)
