"""What Kafka deletes leaves the table and the store: topics, records below a new start, and what retention ends."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from rsm_bridge.limits import STATE_SWEEP_COMMITS
from tests.e2e.e2e_support import (
    Pair,
    Rec,
    Sender,
    load_rows,
    read,
    row_count,
    rows_by_offset,
    same,
    state_objects,
    store_objects,
    wait_rows,
    wait_tiered,
)
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: Rows have left the table within it, counted from the delete.
GONE_S = 30
#: A tombstone without an index outlives every copy that may still be ending.
EMPTY_S = 60
REFUSALS = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


def some(seed: int, count: int) -> list[Rec]:
    draw = random.Random(seed)
    return [
        Rec(draw.choice([None, b"", b"key"]), draw.randbytes(1000), (("h", b"1"),), 1_700_000_000_000 + number)
        for number in range(count)
    ]


def filled(pair: Pair, topic: str, count: int = 5000, partitions: int = 1) -> list[Sender]:
    """A topic whose records are all tiered and in the table, with one sender per partition."""
    pair.admin.create_topic(topic, partitions)
    senders = [Sender(pair.broker, topic, number) for number in range(partitions)]
    for number, sender in enumerate(senders):
        sender.send(some(number, count))
    wait_tiered(pair, topic, range(partitions))
    wait_rows(pair, topic.replace("-", "_"), count * partitions)
    return senders


def seconds_until(what: str, done: Callable[[], bool], limit_s: float) -> float:
    started = time.monotonic()
    wait_for(what, done, limit_s, 0.25)
    took = time.monotonic() - started
    print(f"{what}: {took:.1f} s")
    return took


def refused(pair: Pair, topic: str, offset: int) -> None:
    """Fails unless a consumer is refused at an offset that is no more."""
    consumer = Consumer(
        {
            "bootstrap.servers": pair.broker.bootstrap,
            "group.id": "refused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            assert error is not None, f"offset {message.offset()} of {topic} is still served"
            if error.code() in REFUSALS:
                return
    finally:
        consumer.close()
    raise AssertionError(f"no answer about offset {offset} of {topic}")


@pytest.mark.smoke
def test_a_deleted_topic_leaves_nothing(pair: Pair) -> None:
    filled(pair, "doomed", 2500, partitions=2)
    topic_id = pair.admin.topic_id("doomed")
    assert store_objects(pair, topic_id)
    pair.admin.delete_topic("doomed")
    seconds_until("rows of a deleted topic to leave", lambda: row_count(pair, "doomed") == 0, GONE_S)
    seconds_until("its objects to leave the store", lambda: not store_objects(pair, topic_id), EMPTY_S)
    assert "doomed" not in pair.admin.topic_names()
    # What is left are states of snapshots that the table still has: offsets, no records.
    per_table = Counter(path.parent for path in state_objects(pair))
    assert max(per_table.values()) <= SNAPSHOTS_KEPT_MAX + STATE_SWEEP_COMMITS, per_table


def test_a_topic_made_again_has_its_own_rows_only(pair: Pair) -> None:
    filled(pair, "phoenix", 2500)
    old_id = pair.admin.topic_id("phoenix")
    pair.admin.delete_topic("phoenix")
    wait_for("the name to be free", lambda: "phoenix" not in pair.admin.topic_names(), 30)
    pair.admin.create_topic("phoenix")
    sender = Sender(pair.broker, "phoenix")
    sender.send(some(9, 1500))
    wait_tiered(pair, "phoenix")
    same(read(pair.broker, "phoenix"), sender.log.committed)
    wait_for("the old objects to leave", lambda: not store_objects(pair, old_id), EMPTY_S)
    tables = [name for name in table_names(pair) if name.startswith("phoenix")]
    rows = {name: row_count(pair, name) for name in tables}
    assert max(rows.values()) == 1500, rows
    assert sum(rows.values()) == 1500, rows
    holder = max(rows, key=lambda name: rows[name])
    same(rows_by_offset(load_rows(pair.bridge.folder, holder)), sender.log.committed)


def test_records_deleted_below_a_start_leave_with_their_segments(pair: Pair) -> None:
    (sender,) = filled(pair, "cut-short")
    before = 3000
    pair.admin.delete_records("cut-short", 0, before)
    refused(pair, "cut-short", 0)

    def lowest() -> int:
        return min(rows_by_offset(load_rows(pair.bridge.folder, "cut_short")))

    seconds_until("rows of whole segments below to leave", lambda: lowest() > 1000, GONE_S)
    settle(lambda: row_count(pair, "cut_short"))
    rows = rows_by_offset(load_rows(pair.bridge.folder, "cut_short"))
    # Whole segments go: what is left begins at the segment that holds the new start, and lacks nothing from there on.
    first = min(rows)
    assert 0 < first <= before
    assert before - first < 1200  # a segment of 1 MiB holds about a thousand of these records
    same(rows, {offset: record for offset, record in sender.log.committed.items() if offset >= first})
    left = read(pair.broker, "cut-short", start=before)
    same(left, {offset: record for offset, record in sender.log.committed.items() if offset >= before})


def test_retention_takes_rows_out(pair: Pair) -> None:
    (sender,) = filled(pair, "short-lived")
    pair.admin.set_topic_config("short-lived", {"retention.bytes": "2200000"})
    seconds_until("rows to leave by retention", lambda: pair.admin.start_offsets("short-lived", [0])[0] > 0, GONE_S)
    settle(lambda: pair.admin.start_offsets("short-lived", [0])[0])
    start = pair.admin.start_offsets("short-lived", [0])[0]
    assert start > 1000
    expected = {offset: record for offset, record in sender.log.committed.items() if offset >= start}
    wait_for("the table to follow", lambda: row_count(pair, "short_lived") == len(expected), GONE_S)
    same(rows_by_offset(load_rows(pair.bridge.folder, "short_lived")), expected)
    same(read(pair.broker, "short-lived", start=start), expected)
    refused(pair, "short-lived", start - 1)
    names = [path.name for path in store_objects(pair, pair.admin.topic_id("short-lived"))]
    # Of the five data files that stood there, two whole segments have gone with their rows.
    assert len([name for name in names if name.endswith(".parquet")]) <= 4, names


def test_everything_expired_empties_table_and_store(pair: Pair) -> None:
    filled(pair, "ephemeral", 2500)
    pair.admin.set_topic_config("ephemeral", {"retention.ms": "1000"})
    seconds_until("all rows to expire", lambda: row_count(pair, "ephemeral") == 0, GONE_S)
    topic_id = pair.admin.topic_id("ephemeral")
    seconds_until("all objects to expire", lambda: not store_objects(pair, topic_id), EMPTY_S)


@pytest.mark.parametrize("point", ["before-index", "after-index"])
def test_a_delete_during_the_last_steps_of_a_copy_wins(own_pair: Pair, point: str) -> None:
    pair = own_pair
    pair.bridge.stop()
    pair.bridge.process.env["TIERBERG_FAULT"] = f"{point}=sleep:8"
    pair.bridge.start()
    pair.admin.create_topic("raced")
    topic_id = pair.admin.topic_id("raced")
    Sender(pair.broker, "raced").send(some(3, 2500))

    def reached() -> bool:
        kinds = {"before-index": "data", "after-index": "index"}
        return any((pair.bridge.folder / "store" / kinds[point] / topic_id).rglob("0*"))

    wait_for(f"a copy to reach {point}", reached, 60, 0.05)
    time.sleep(0.5)
    pair.admin.delete_topic("raced")
    seconds_until(f"a topic deleted {point} to leave the store", lambda: not store_objects(pair, topic_id), EMPTY_S)
    # Long enough for a copy that slept to wake up and try to finish.
    time.sleep(10)
    assert store_objects(pair, topic_id) == []
    assert row_count(pair, "raced") == 0


def table_names(pair: Pair) -> list[str]:
    """Names of all tables in the embedded catalog."""
    with closing(open_catalog(embedded_settings(pair.bridge.folder))) as catalog:
        return [name for _, name in catalog.list_tables("kafka")]


def settle(value: Callable[[], int], quiet_s: float = 6, limit_s: float = 60) -> None:
    """Until the value has not changed for `quiet_s`: Kafka deletes segment by segment."""
    last, since = value(), time.monotonic()
    deadline = since + limit_s
    while time.monotonic() - since < quiet_s:
        assert time.monotonic() < deadline, f"still changing: {last}"
        time.sleep(0.5)
        now = value()
        if now != last:
            last, since = now, time.monotonic()
