"""Chunks that are read ahead in a row: fewer reads, the same bytes, and damage in one is the others' no matter."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.limits import FETCH_CHUNK_BYTES, READ_AHEAD_BYTES
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.segments.chunks import split
from rsm_bridge.storage.segments.reader import SegmentReader, StoredChunk
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

BATCH_RECORDS, VALUE_BYTES, BATCHES = 16, 4000, 280  # 280 batches of 64 KB: 17 chunks


READ_CHUNK = SegmentReader.read_chunk


@dataclass
class Reads:
    """What the bridge reads from its store: first and last batch of each read. Long ones take `pause_s` longer."""

    pause_s: float = 0.0
    ranges: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads()

    def noted(reader: SegmentReader, directory: Any, block: Any, first: int, last: int) -> StoredChunk:
        reads.ranges.append((first, last))
        time.sleep(reads.pause_s if last - first > 20 else 0.0)
        return READ_CHUNK(reader, directory, block, first, last)

    monkeypatch.setattr(SegmentReader, "read_chunk", noted)
    return reads


@pytest.fixture
def bridge(tmp_path: Path, reads: Reads) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path)) as running:
        yield running


@pytest.fixture
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


@pytest.fixture(scope="module")
def log() -> LogBuilder:
    return LogBuilder().fill(batches=BATCHES, records=BATCH_RECORDS, size=VALUE_BYTES)


def piece(shim: ShimClient, log: LogBuilder, segment: Segment, batch: int, batches: int) -> None:
    """Fetches `batches` batches from one on and compares them with what was copied."""
    last = min(batch + batches, BATCHES) - 1
    end = log.starts[last] + len(log.batches[last]) - 1
    assert shim.fetch(segment, log.starts[batch], end) == log.data[log.starts[batch] : end + 1]


def settled(reads: Reads) -> None:
    """Waits until nothing more is read ahead."""
    deadline, seen = time.monotonic() + 20, -1
    while seen != len(reads.ranges):
        assert time.monotonic() < deadline
        seen = len(reads.ranges)
        time.sleep(0.3)


def test_a_sequential_reader_costs_few_reads_and_no_batch_is_read_twice(
    shim: ShimClient, log: LogBuilder, reads: Reads
) -> None:
    segment = shim.copied(segment_of(log))
    for batch in range(0, BATCHES, 16):
        piece(shim, log, segment, batch, 16)
        settled(reads)
    numbers = [number for first, last in reads.ranges for number in range(first, last + 1)]
    assert sorted(numbers) == list(range(BATCHES))
    # The first chunk alone, the rest four at a time.
    assert len(reads.ranges) <= 2 + len(log.data) // (READ_AHEAD_BYTES - FETCH_CHUNK_BYTES)


def test_a_reader_that_jumps_reads_what_it_asked_for_only(shim: ShimClient, log: LogBuilder, reads: Reads) -> None:
    segment = shim.copied(segment_of(log))
    for batch in (200, 40, 120):
        reads.ranges.clear()
        piece(shim, log, segment, batch, 4)
        settled(reads)
        assert sum(last - first + 1 for first, last in reads.ranges) <= 2 * (FETCH_CHUNK_BYTES // 64_000 + 2)


def test_damage_fails_the_reads_that_need_it_and_no_other(
    bridge: Running, shim: ShimClient, log: LogBuilder, reads: Reads, tmp_path: Path
) -> None:
    segment = shim.copied(segment_of(log))
    (listed,) = bridge.store.list_after(f"data/{segment.topic_id.hex()}/")
    path = tmp_path / "store" / listed.key
    stored = bytearray(path.read_bytes())
    damaged = 145  # in the last of four chunks; random values are stored as they are, so that it can be found
    at = stored.index(log.committed[damaged * BATCH_RECORDS + 3].value or b"?")
    stored[at + 1000] ^= 0x10
    path.write_bytes(stored)
    kinds: dict[int, str | None] = {}
    # So long that the fetch of each chunk finds it on its way, and waits.
    reads.pause_s = 0.5
    for batch in range(0, BATCHES, 4):
        try:
            piece(shim, log, segment, batch, 4)
        except ShimError as error:
            kinds[batch] = error.kind
    assert set(kinds.values()) == {"corrupt_object"}
    # Its own chunk of 17 batches, and a page that batches at its border share.
    assert min(kinds) >= damaged - 24, kinds
    assert max(kinds) <= damaged + 24, kinds


def test_parts_own_their_bytes() -> None:
    data = memoryview(random.Random(1).randbytes(100))
    parts = split(data, [0, 40, 40, 100])
    assert [bytes(part) for part in parts] == [bytes(data[:40]), b"", bytes(data[40:])]
    assert all(part.obj is not data.obj for part in parts)
    assert split(data, [0, 100]) == [data]
