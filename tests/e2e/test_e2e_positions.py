"""Served positions on a real broker: what a seek finds, which aborted records it is told of, what a timestamp names.

Small segments and batches, and half of all transactions aborted: a position that grows faster than the bytes served
makes the broker look for aborted transactions in too short a range, and aborted records leak to read_committed.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.e2e.e2e_seeks import check_seeks, check_times, interleaved, stored_sizes
from tests.e2e.e2e_support import Pair, Rec, Sender, wait_tiered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: Timestamps lie ahead of the broker's clock, so that local segments can only go by size.
SMALL_SEGMENTS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "0",
    "retention.ms": "-1",
}
VALUE_BYTES = 400


def stamped(seed: int, count: int, value_bytes: int = VALUE_BYTES, *, compressible: bool = True) -> list[Rec]:
    """Records with rising, slightly disordered timestamps over forty minutes from ten minutes ahead of now."""
    draw = random.Random(seed)
    start_ms = int(time.time() * 1000) + 600_000
    records = []
    for number in range(count):
        plain = value_bytes // 2 if compressible else 0
        value = draw.randbytes(value_bytes - plain) + bytes(plain)
        stamp = start_ms + number * 2_400_000 // count + draw.randrange(500)
        records.append(Rec(None, value, (), stamp))
    return records


def transactions(records: list[Rec], seed: int, largest: int) -> list[list[Rec]]:
    """The records cut into transactions of 2 to `largest`."""
    draw = random.Random(seed)
    found = []
    while records:
        size = draw.randint(2, largest)
        found.append(records[:size])
        records = records[size:]
    return found


def senders(pair: Pair, topic: str, codec: str, batch_records: int) -> list[Sender]:
    return [
        Sender(
            pair.broker,
            topic,
            transactional_id=f"{topic}-{number}",
            compression_type=codec,
            batch_num_messages=batch_records,
            linger_ms=5,
        )
        for number in range(3)
    ]


@pytest.mark.smoke
def test_seeks_and_timestamps_of_a_small_log(pair: Pair) -> None:
    pair.admin.create_topic("positions-smoke", config=SMALL_SEGMENTS)
    records = transactions(stamped(1, 9000), 1, 300)
    log = interleaved(senders(pair, "positions-smoke", "lz4", 12), records, 1)
    wait_tiered(pair, "positions-smoke")
    check_seeks(pair, "positions-smoke", log, 1, seeks=8)
    check_times(pair, "positions-smoke", log, 1, lookups=4)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip"])
def test_seeks_and_timestamps_with_half_of_all_transactions_aborted(pair: Pair, codec: str) -> None:
    topic = f"positions-{codec}"
    pair.admin.create_topic(topic, config=SMALL_SEGMENTS)
    records = transactions(stamped(2, 25_000), 2, 300)
    log = interleaved(senders(pair, topic, codec, 10), records, 2)
    wait_tiered(pair, topic)
    sizes = stored_sizes(pair, topic)
    print(f"{topic}: {sizes}")
    assert sizes.segments >= 3
    assert 0.3 < len(log.aborted) / len(log.everything) < 0.7
    check_seeks(pair, topic, log, 2)
    check_times(pair, topic, log, 2)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_of_one_record(pair: Pair, codec: str) -> None:
    topic = f"positions-single-{codec}"
    pair.admin.create_topic(topic, config=SMALL_SEGMENTS)
    # 61 bytes of batch header, 7 of record framing.
    records = transactions(stamped(3, 40_000, 20, compressible=False), 3, 1000)
    log = interleaved(senders(pair, topic, codec, 1), records, 3)
    wait_tiered(pair, topic)
    sizes = stored_sizes(pair, topic)
    print(f"{topic}: {len(log.everything)} records; {sizes}")
    if codec == "none":
        assert round(sizes.log / sizes.batches) == 88
    # Sparse: an entry each 16 KiB of position.
    assert sizes.offset_index <= 8 * (sizes.log // 16_384)
    check_seeks(pair, topic, log, 3)
    check_times(pair, topic, log, 3)
