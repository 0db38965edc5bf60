"""Fetches while segments are merged: what a bridge has cached may lead to an index and a data file that are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from converter.types import IndexType
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import find_table
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving.fetch import fetcher
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.maintain.merge import Merger
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

LIMITS = MergeLimits(small_bytes=2**28, target_bytes=2**29, files_min=3, files_max=100, age_ms=0, span_ms=2**40)
FILES = {IndexType.TIMESTAMP: bytes(range(120))}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path)) as running:
        yield running


@pytest.fixture
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


@pytest.fixture
def merge(bridge: Running, tmp_path: Path) -> Callable[[Segment, int], None]:
    """Merges the topic's files once so many are in the table; the small ones leave the store at once."""

    def run(segment: Segment, count: int) -> None:
        catalog = open_catalog(embedded_settings(tmp_path))
        owner = Owner(segment.cluster, segment.topic, segment.topic_id)
        live = LiveFiles()
        end = time.monotonic() + 20
        while True:
            table = find_table(catalog, owner)
            head = None if table is None else live.read(table)
            if head is not None and len(head.files) == count:
                break
            assert time.monotonic() < end
            time.sleep(0.05)
        before = [listed.key for listed in bridge.store.list_after(f"data/{segment.topic_id.hex()}/")]
        merger = Merger(
            store=bridge.store,
            catalog=catalog,
            topic_id=segment.topic_id,
            limits=LIMITS,
            policy=lambda _topic, _now_ms: Follow(),
        )
        segments = read_segments(bridge.store, segment.topic_id)
        states = recorded_parts(bridge.store, head)
        listed = list(bridge.store.list_after(f"data/{segment.topic_id.hex()}/"))
        planned = merger.planned(head, listed, segments, states, int(time.time() * 1000) + 1000)
        tally = Tally()
        merger.run(live, head, planned, segments, tally)
        assert tally.merged == count
        bridge.store.delete_many(before)

    return run


def copied(shim: ShimClient) -> tuple[LogBuilder, Segment, Segment]:
    """Three segments of one partition: the log of the last, the first, the last."""
    log = LogBuilder().fill(batches=200, records=16, size=4000)
    segments = [shim.copied(segment_of(log, files=FILES))]
    for _ in range(2):
        log = LogBuilder(next_offset=log.next_offset).fill(batches=200, records=16, size=4000)
        part = segment_of(log, topic=segments[0].topic, topic_id=segments[0].topic_id, files=FILES)
        segments.append(shim.copied(part))
    return log, segments[0], segments[-1]


def test_a_directory_read_before_the_merge_does_not_fail_the_fetch(
    shim: ShimClient, merge: Callable[[Segment, int], None]
) -> None:
    log, _, segment = copied(shim)
    assert shim.fetch_index(segment, IndexType.TIMESTAMP) == FILES[IndexType.TIMESTAMP]
    merge(segment, 3)
    assert shim.fetch(segment) == log.data
    assert shim.fetch_index(segment, IndexType.TIMESTAMP) == FILES[IndexType.TIMESTAMP]


def test_a_block_read_before_the_merge_does_not_fail_the_fetch(
    shim: ShimClient, merge: Callable[[Segment, int], None]
) -> None:
    log, one, segment = copied(shim)
    assert shim.fetch(segment, 0, 1000) == log.data[:1001]
    merge(segment, 3)
    at = log.starts[150]
    assert shim.fetch(segment, at) == log.data[at:]
    assert shim.fetch(one)
    with pytest.raises(ShimError, match="no TRANSACTION") as missing:
        shim.fetch_index(segment, IndexType.TRANSACTION)
    assert missing.value.kind == "no_index"


def test_index_files_cached_before_the_merge_are_read_from_the_new_index(
    shim: ShimClient, merge: Callable[[Segment, int], None]
) -> None:
    _, _, segment = copied(shim)
    offsets = shim.fetch_index(segment, IndexType.OFFSET)
    merge(segment, 3)
    assert shim.fetch_index(segment, IndexType.OFFSET) == offsets
    assert shim.fetch_index(segment, IndexType.TIMESTAMP) == FILES[IndexType.TIMESTAMP]


def test_a_directory_is_read_anew_when_it_is_looked_at_again(
    shim: ShimClient, merge: Callable[[Segment, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _, segment = copied(shim)
    shim.fetch(segment, 0, 100)
    merge(segment, 3)
    monkeypatch.setattr(fetcher, "DIRECTORY_FRESH_SECONDS", -1.0)
    at = log.starts[150]
    assert shim.fetch(segment, at) == log.data[at:]


def test_damage_stays_damage(bridge: Running, shim: ShimClient) -> None:
    """There is no newer index: the fetch says what is wrong, and does not try for ever."""
    _, _, segment = copied(shim)
    shim.fetch_index(segment, IndexType.TIMESTAMP)
    bridge.store.delete_many([listed.key for listed in bridge.store.list_after(f"data/{segment.topic_id.hex()}/")])
    with pytest.raises(ShimError) as refused:
        shim.fetch(segment)
    assert refused.value.kind == "not_found"
