"""Served positions on a real broker: what a seek finds, which aborted records it is told of, what a timestamp names.

Small segments and batches, and half of all transactions aborted: a position that grows faster than the bytes served
makes the broker look for aborted transactions in too short a range, and aborted records leak to read_committed.
"""

from __future__ import annotations

import pytest

from tests.e2e.e2e_seeks import check_seeks, check_times, interleaved, stored_sizes
from tests.e2e.e2e_stamped import SMALL_SEGMENTS, senders, stamped, transactions
from tests.e2e.e2e_support import Pair, wait_tiered

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


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
