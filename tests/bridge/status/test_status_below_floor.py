"""Offsets that a leader without the log had deleted, and that came back: the table lacks them, and it is said.

That leader made no copy, so nothing in the store shows it, and its deletions are what retention's are (R5).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from converter.types import IndexType
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.limits import TOPIC_GONE_SECONDS
from rsm_bridge.metrics.progress.stored import stored_partitions
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.maintain.by_name import restore
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, checkpoint
from tests.support.shim_client import ShimClient, segment_of
from tests.support.status_facts import facts, kafka, kafka_partition, kafka_topic, stored
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

        head = LiveFiles().read(catalog.load_table("kafka.orders"))
        states = recorded_parts(bridge.store, head)
        part = stored_partitions(read_segments(bridge.store, NAMED["topic_id"]), states, head.files)[0]
        assert part.below_floor == (0, 6)

        def level(log_start: int, age_s: float) -> list[Level]:
            at_ms = int((time.time() - age_s) * 1000)
            told = kafka(kafka_topic(kafka_partition(log_start=log_start, end=14, stable_end=14)))
            report = assess(
                replace(facts(stored(replace(part, below_floor_ms=at_ms)), kafka=told), now_ms=int(time.time() * 1000))
            )
            return [item.level for item in found(report, CauseCode.ROWS_BELOW_FLOOR)]

        assert level(0, TOPIC_GONE_SECONDS + 5) == [Level.PERSON]
        assert level(0, 5) == []  # a deletion takes its segments one after another
        assert level(7, TOPIC_GONE_SECONDS + 5) == []  # what Kafka does not have any more it deletes

        restore(open_backend(None, tmp_path), "orders", None, undo=False)
        eventually(lambda: rows_of(catalog, "orders") == [*expected_rows(low), *expected_rows(high)])
