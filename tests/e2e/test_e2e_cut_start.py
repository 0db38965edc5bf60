"""deleteRecords into a segment that is not tiered yet: Kafka cuts its leader epochs there, and it tiers (C21)."""

from __future__ import annotations

import pytest

from tests.e2e.e2e_support import (
    Pair,
    Rec,
    Sender,
    load_rows,
    read,
    rows_by_offset,
    same,
    store_objects,
    wait_rows,
    wait_tiered,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def some(count: int, size: int) -> list[Rec]:
    return [Rec(b"key", bytes([number % 256]) * size, (), 1_700_000_000_000 + number) for number in range(count)]


@pytest.mark.smoke
def test_records_deleted_before_their_segment_is_tiered(pair: Pair) -> None:
    topic, start = "cut-before-roll", 50
    pair.admin.create_topic(topic)
    sender = Sender(pair.broker, topic)
    sender.send(some(100, 1000))
    pair.admin.delete_records(topic, 0, start)
    sender.send(some(2000, 1000))  # the segment rolls
    wait_tiered(pair, topic)
    names = [path.name for path in store_objects(pair, pair.admin.topic_id(topic)) if "index" in path.parts]
    assert any(f"-{0:020d}-" in name for name in names), names  # the segment from offset 0 on is tiered
    kept = {offset: record for offset, record in sender.log.committed.items() if offset >= start}
    same(read(pair.broker, topic, start=start), kept)
    wait_rows(pair, "cut_before_roll", len(sender.log.committed))
    rows = rows_by_offset(load_rows(pair.bridge.folder, "cut_before_roll"))
    same({offset: record for offset, record in rows.items() if offset >= start}, kept)
