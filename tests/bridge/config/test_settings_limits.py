"""Each setting of the section `limits`, by what a running bridge does under two values of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.serving.service import Running
from rsm_bridge.storage.local import LocalObjectStore
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, copy_messages, segment_of


@contextmanager
def limited(folder: Path, **limits: int) -> Iterator[tuple[Running, ShimClient]]:
    """A bridge under these limits, and a client of it."""
    settings = test_settings(folder, limits=limits)
    with bridge_thread(settings) as running, ShimClient(running.address) as client:
        yield running, client


def gauge(running: Running, name: str) -> int:
    return int(getattr(running.metrics, name)._value.get())


@contextmanager
def open_copies(address: str, count: int) -> Iterator[list[Any]]:
    """Copies that have begun and send nothing more, each on a connection of its own."""
    hold = threading.Event()

    def messages() -> Iterator[bytes]:
        yield next(copy_messages(segment_of(LogBuilder().fill(1))))
        hold.wait(60)

    clients = [ShimClient(address) for _ in range(count)]
    try:
        # A call that nobody keeps is cancelled.
        calls = [
            shim.stub("stream_stream", "CopySegment")(messages(), metadata=HEADERS, timeout=60) for shim in clients
        ]
        yield calls
    finally:
        hold.set()
        for shim in clients:
            shim.channel.close()


@pytest.mark.parametrize(
    ("limits", "at_once"),
    [({"copy_workers": 1}, 1), ({"copy_workers": 2}, 2), ({"copy_memory_mib": 128}, 1), ({"copy_memory_mib": 384}, 3)],
    ids=str,
)
def test_copies_at_once(limits: dict[str, int], at_once: int, tmp_path: Path) -> None:
    with limited(tmp_path, **limits) as (running, _), open_copies(running.address, 5):
        eventually(
            lambda: (gauge(running, "copies_running"), gauge(running, "copies_waiting")) == (at_once, 5 - at_once)
        )


@pytest.mark.parametrize(("copies_max", "refused"), [(1, True), (16, False)])
def test_copies_running_and_waiting(copies_max: int, refused: bool, tmp_path: Path) -> None:
    with limited(tmp_path, copies_max=copies_max) as (running, shim), open_copies(running.address, 1):
        eventually(lambda: gauge(running, "copies_running") == 1)
        segment = segment_of(LogBuilder().fill(1))
        if refused:
            with pytest.raises(ShimError) as failed:
                shim.copy(segment)
            assert failed.value.kind == "overloaded"
        else:
            assert shim.fetch(shim.copied(segment)) == segment.data


@pytest.mark.parametrize(("fetches_max", "refused"), [(1, True), (16, False)])
def test_open_fetches(fetches_max: int, refused: bool, tmp_path: Path) -> None:
    with limited(tmp_path, fetches_max=fetches_max) as (running, shim), ShimClient(running.address) as slow:
        segment = shim.copied(segment_of(LogBuilder().fill(20, records=10, size=50_000)))
        request = fetch_request(segment)
        unread = slow.stub("unary_stream", "FetchSegment")(request, metadata=HEADERS, timeout=60)
        next(unread)  # the rest does not fit what is on its way at most
        if refused:
            with pytest.raises(ShimError) as failed:
                shim.fetch(segment)
            assert failed.value.kind == "overloaded"
        else:
            assert shim.fetch(segment) == segment.data
        unread.cancel()


def fetch_request(segment: Segment) -> bytes:
    from rsm_bridge.proto import rsm_pb2

    return rsm_pb2.FetchSegmentRequest(segment=segment.message(), start_position=0).SerializeToString()


class Crowd:
    """Counts how many are inside a method of the store at once, and keeps each there for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.most = self._now = 0
        self._lock = threading.Lock()
        plain = getattr(LocalObjectStore, method)

        def slow(store: LocalObjectStore, key: str, *given: Any, **named: Any) -> Any:
            if not key.startswith("index/") or threading.current_thread().name.startswith("publish"):
                return plain(store, key, *given, **named)
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            time.sleep(0.3)
            try:
                return plain(store, key, *given, **named)
            finally:
                with self._lock:
                    self._now -= 1

        monkeypatch.setattr(LocalObjectStore, method, slow)


def all_at_once(calls: list[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(call) for call in calls]:
            done.result(60)


@pytest.mark.parametrize("workers", [1, 3])
def test_fetches_that_read_at_once(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, fetch_workers=workers) as (_, shim):
        segments = [shim.copied(segment_of(LogBuilder().fill(1))) for _ in range(6)]
        crowd = Crowd(monkeypatch, "head_bytes")
        all_at_once([lambda one=one: shim.fetch(one) for one in segments])  # type: ignore[misc]
    assert crowd.most == workers


@pytest.mark.parametrize("workers", [1, 3])
def test_deletes_at_once(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, control_workers=workers) as (_, shim):
        crowd = Crowd(monkeypatch, "put_if_absent")
        segments = [segment_of(LogBuilder().fill(1), topic_id=uuid.uuid4().bytes) for _ in range(6)]
        all_at_once([lambda one=one: shim.delete(one) for one in segments])  # type: ignore[misc]
    assert crowd.most == workers


@pytest.mark.parametrize(
    ("cache", "limits", "kept"),
    [
        ("chunk", {"chunk_cache_mib": 8}, False),
        ("chunk", {"chunk_cache_mib": 64}, True),
        ("block", {"index_cache_mib": 1}, False),
        ("block", {"index_cache_mib": 64}, True),
    ],
)
def test_what_is_read_again_comes_from_the_cache_as_far_as_it_fits(
    cache: str, limits: dict[str, int], kept: bool, tmp_path: Path
) -> None:
    log = LogBuilder().fill(30, records=4, size=100_000) if cache == "chunk" else many_small_batches()
    with limited(tmp_path, **limits) as (running, shim):
        segment = shim.copied(segment_of(log))
        assert shim.fetch(segment) == log.data
        missed = running.metrics.cache_lookups.labels(cache, "miss")._value
        before = missed.get()
        assert shim.fetch(segment) == log.data
        assert (missed.get() == before) is kept


def many_small_batches() -> LogBuilder:
    log = LogBuilder()
    for _ in range(20_000):
        log.batches.append(batch_of_one(log.next_offset))
        log.next_offset += 1
    return log


def batch_of_one(offset: int) -> bytes:
    from tests.support.kafka_log import Record, encode_batch

    return encode_batch([Record(offset, 1_700_000_000_000, None, b"v")])
