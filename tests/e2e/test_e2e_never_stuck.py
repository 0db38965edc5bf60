"""Whatever a segment holds, its partition goes on tiering, the disk is freed, and reads give what was there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import (
    Pair,
    Rec,
    Sender,
    load_rows,
    read,
    row_count,
    rows_by_offset,
    same,
    wait_rows,
    wait_tiered,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

MIB = 1 << 20


def some(seed: int, count: int = 3000) -> list[Rec]:
    draw = random.Random(seed)
    return [Rec(None, draw.randbytes(1000), (), 1_700_000_000_000 + number) for number in range(count)]


@pytest.fixture(scope="module")
def strict_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair whose bridge takes no batch above 16 MiB apart."""
    started = start_pair(tmp_path_factory.mktemp("strict"), bridge_settings={"limits": {"decompressed_batch_mib": 16}})
    yield started
    started.broker.stop()
    started.bridge.stop()


def flip_in_value(pair: Pair, topic: str, value: bytes) -> bytes:
    """Flips one bit of a value in a closed segment on the broker's disk; returns the value as it is now."""
    closed = sorted(pair.broker.local_segments(topic, 0))[:-1]
    logs = [pair.broker.data / f"{topic}-0" / f"{base:020d}.log" for base in closed]
    (log,) = [path for path in logs if value in path.read_bytes()]
    middle = len(value) // 2
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(value) + middle)
        file.write(bytes([value[middle] ^ 0x10]))
    return value[:middle] + bytes([value[middle] ^ 0x10]) + value[middle + 1 :]


def test_a_flipped_bit_on_the_brokers_disk(strict_pair: Pair) -> None:
    pair = strict_pair
    pair.bridge.stop()  # so that segments close and stay
    pair.admin.create_topic("flipped")
    sender = Sender(pair.broker, "flipped", linger_ms=5, batch_num_messages=10)
    sender.send(some(1))
    expected = dict(sender.log.committed)
    victim = 500
    original = expected[victim].value
    assert original is not None
    damaged = replace(expected[victim], value=flip_in_value(pair, "flipped", original))
    pair.bridge.start()
    wait_tiered(pair, "flipped")

    # Byte for byte what the broker had: the damage too, which only a client that skips checksums can see.
    same(read(pair.broker, "flipped", check_crcs=False), expected | {victim: damaged})
    # The rows of that batch alone are withheld, and it is said why.
    assert pair.bridge.metric("tierberg_quarantined_batches_total", cause="bad_crc") == 1
    rows = rows_by_offset(wait_rows(pair, "flipped", withheld(pair, "flipped", expected)))
    missing = sorted(expected.keys() - rows.keys())
    assert victim in missing
    assert len(missing) <= 10
    same(rows, {offset: record for offset, record in expected.items() if offset not in missing})


def withheld(pair: Pair, topic: str, expected: dict[int, Rec]) -> int:
    """How many rows there will be: all but those of the damaged batch."""
    copied = int(pair.bridge.metric("tierberg_copied_rows_total"))
    assert len(expected) - 10 <= copied < len(expected), topic
    return copied


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_unfolds_beyond_the_limit(strict_pair: Pair, codec: str) -> None:
    pair, topic = strict_pair, f"bomb-{codec}"
    pair.admin.create_topic(topic)
    pair.admin.set_topic_config(topic, {"max.message.bytes": str(8 * MIB), "segment.bytes": str(16 * MIB)})
    before = pair.bridge.metric("tierberg_quarantined_batches_total", cause="decompression_limit")
    sender = Sender(pair.broker, topic, compression_type=codec, message_max_bytes=64 * MIB)
    bomb = Rec(b"bomb", bytes(40 * MIB), (), 1_700_000_000_000)
    sender.send(some(2, 500))
    sender.send([bomb])
    sender.send(some(3, 500))
    wait_tiered(pair, topic)
    sizes: dict[str, Any] = {
        "fetch_message_max_bytes": 64 * MIB,
        "fetch_max_bytes": 64 * MIB,
        "receive_message_max_bytes": 128 * MIB,
    }
    same(read(pair.broker, topic, **sizes), sender.log.committed)
    assert pair.bridge.metric("tierberg_quarantined_batches_total", cause="decompression_limit") == before + 1
    rows = rows_by_offset(wait_rows(pair, topic.replace("-", "_"), 1000))
    same(rows, {offset: record for offset, record in sender.log.committed.items() if record is not bomb})


def test_random_bytes_where_text_was_promised(pair: Pair) -> None:
    pair.admin.create_topic("text-random")
    sender = Sender(pair.broker, "text-random", compression_type="lz4")
    sender.send(some(4))
    wait_tiered(pair, "text-random")
    same(read(pair.broker, "text-random"), sender.log.committed)
    table = wait_rows(pair, "text_random", 3000)
    same(rows_by_offset(table), sender.log.committed)
    assert set(table["_kafka_error"].to_pylist()) == {"invalid_utf8"}


def test_a_converter_that_raises(own_pair: Pair) -> None:
    pair = own_pair
    pair.bridge.stop()
    pair.bridge.process.env["TIERBERG_FAULT"] = "convert=raise"
    pair.bridge.start()
    pair.admin.create_topic("broken")
    sender = Sender(pair.broker, "broken", compression_type="zstd")
    sender.send(some(5))
    wait_tiered(pair, "broken")
    without_rows = len(sender.log.committed)
    same(read(pair.broker, "broken"), sender.log.committed)
    assert pair.bridge.metric("tierberg_verbatim_segments_total", reason="internal") >= 2
    assert row_count(pair, "broken") == 0
    assert "InjectedFaultError" in pair.bridge.process.output()

    # Mended, the partition goes on with rows.
    pair.bridge.stop()
    del pair.bridge.process.env["TIERBERG_FAULT"]
    pair.bridge.start()
    sender.send(some(6))
    wait_tiered(pair, "broken")
    same(read(pair.broker, "broken"), sender.log.committed)
    wait_rows(pair, "broken", len(sender.log.committed) - without_rows)
    rows = rows_by_offset(load_rows(pair.bridge.folder, "broken"))
    same(rows, {offset: record for offset, record in sender.log.committed.items() if offset >= without_rows})
