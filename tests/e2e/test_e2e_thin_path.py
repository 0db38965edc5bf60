"""Records of every content and codec leave the broker, become rows, and come back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.e2e.e2e_support import Pair, Rec, Sender, read, row_count, rows_by_offset, same, wait_rows, wait_tiered
from tierberg.stack.jmx import JmxReader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def varied(seed: int, count: int) -> list[Rec]:
    """Records with every absence, emptiness and oddity a client can send."""
    draw = random.Random(seed)
    keys = [None, b"", b"k", bytes(range(256))]
    headers = [(), (("a", b"1"), ("a", None), ("", b"")), (("snow \N{SNOWMAN}", bytes(300)),)]
    records = []
    for number in range(count):
        value = draw.choice([None, b"", b"\xff\xfe", f"text {number}".encode(), draw.randbytes(draw.randrange(2000))])
        records.append(Rec(draw.choice(keys), value, draw.choice(headers), 1_600_000_000_000 + draw.randrange(10**9)))
    return records


@pytest.mark.smoke
def test_every_codec_comes_back_and_becomes_rows(pair: Pair) -> None:
    senders = {}
    for number, codec in enumerate(CODECS):
        topic = f"raw-{codec}"
        pair.admin.create_topic(topic)
        senders[topic] = Sender(pair.broker, topic, compression_type=codec)
        senders[topic].send(varied(number, 4000))
    pair.admin.create_topic("text-zstd")
    senders["text-zstd"] = Sender(pair.broker, "text-zstd", compression_type="zstd")
    senders["text-zstd"].send(varied(99, 4000))

    for topic, sender in senders.items():
        wait_tiered(pair, topic)
        same(read(pair.broker, topic), sender.log.committed)
    for topic, sender in senders.items():
        rows = wait_rows(pair, topic.replace("-", "_"), 4000)
        same(rows_by_offset(rows), sender.log.committed)
    with JmxReader(pair.broker.jmx_port) as jmx:
        for topic in senders:
            assert jmx.topic_total("RemoteFetchBytesPerSec", topic) > 0


@pytest.mark.smoke
def test_transactions_show_only_what_was_committed(pair: Pair) -> None:
    pair.admin.create_topic("payments")
    sender = Sender(pair.broker, "payments", transactional_id="payments", compression_type="lz4")
    for number in range(30):
        sender.transaction(varied(number, 150), commit=number % 3 != 1)
    wait_tiered(pair, "payments")
    same(read(pair.broker, "payments"), sender.log.committed)
    same(read(pair.broker, "payments", isolation="read_uncommitted"), dict(sorted(sender.log.everything.items())))
    same(rows_by_offset(wait_rows(pair, "payments", len(sender.log.committed))), sender.log.committed)


def test_a_verbatim_topic_comes_back_without_a_table(pair: Pair) -> None:
    pair.admin.create_topic("verbatim-1")
    sender = Sender(pair.broker, "verbatim-1", compression_type="gzip")
    sender.send(varied(5, 6000))
    wait_tiered(pair, "verbatim-1")
    same(read(pair.broker, "verbatim-1"), sender.log.committed)
    assert row_count(pair, "verbatim_1") == 0


def test_several_partitions_share_a_table(pair: Pair) -> None:
    pair.admin.create_topic("wide", 4)
    senders = [Sender(pair.broker, "wide", number) for number in range(4)]
    for number, sender in enumerate(senders):
        sender.send(varied(number, 2000))
    wait_tiered(pair, "wide", range(4))
    rows = wait_rows(pair, "wide", 8000)
    for number, sender in enumerate(senders):
        same(rows_by_offset(rows, number), sender.log.committed)
        same(read(pair.broker, "wide", number), sender.log.committed)


def test_log_append_time_is_what_consumers_and_queries_see(pair: Pair) -> None:
    pair.admin.create_topic("stamped")
    pair.admin.set_topic_config("stamped", {"message.timestamp.type": "LogAppendTime"})
    sender = Sender(pair.broker, "stamped", compression_type="zstd")
    sender.send(varied(7, 3000))
    before = read(pair.broker, "stamped")
    assert all(record.timestamp_ms > 1_700_000_000_000 for record in before.values())
    wait_tiered(pair, "stamped")
    same(read(pair.broker, "stamped"), before)
    same(rows_by_offset(wait_rows(pair, "stamped", 3000)), before)


def test_a_huge_value_is_no_different(pair: Pair) -> None:
    pair.admin.create_topic("huge")
    pair.admin.set_topic_config("huge", {"max.message.bytes": "20000000", "segment.bytes": "33554432"})
    sender = Sender(pair.broker, "huge", message_max_bytes=20_000_000)
    sender.send([Rec(b"k", random.Random(1).randbytes(9_000_000)), Rec(b"k", bytes(9_500_000)), Rec(None, b"small")])
    wait_tiered(pair, "huge")
    settings: dict[str, Any] = {
        "fetch_message_max_bytes": 20_000_000,
        "fetch_max_bytes": 50_000_000,
        "receive_message_max_bytes": 60_000_000,
    }
    same(read(pair.broker, "huge", **settings), sender.log.committed)
    same(rows_by_offset(wait_rows(pair, "huge", 3)), sender.log.committed)
