"""The turn for what a place cannot hold, in a real bridge: slow senders of large files beside honest copies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from crc32c import crc32c

from converter.index.model import Directory
from converter.types import IndexType
from rsm_bridge.limits import CONTENDED_SILENCE_SECONDS, MIB
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.copy import call
from rsm_bridge.serving.copy.attempt import CopyAttempt, store_segment
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.object_store import ObjectStore
from tests.faults.test_faults_memory import packed, record
from tests.faults.test_faults_peers import gauge, only_start, until
from tests.oracle.transactions import producer_snapshot
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import (
    HEADERS,
    Segment,
    ShimClient,
    ShimError,
    copy_messages,
    file_messages,
    frame_message,
    segment_of,
)

SNAPSHOT = producer_snapshot([(number, -1) for number in range(1000)])
#: What a silent peer may keep, once for its turn, and what an honest copy takes, on a busy machine.
HONEST_SECONDS_MAX = 3 * CONTENDED_SILENCE_SECONDS

Messages = Callable[[Segment, threading.Event], Iterator[bytes]]


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """One for which a snapshot of 1,000 producers is large."""
    monkeypatch.setattr(call, "COPY_FILES_BYTES_USUAL", 1000)
    with bridge_thread(test_settings(tmp_path / "data")) as running:
        with ShimClient(running.address) as shim:  # kernels are loaded before anything is timed
            shim.copy(segment_of(LogBuilder().fill(batches=1)))
        until(lambda: gauge(running, "copies_running") == 0)
        yield running


def large_files() -> Segment:
    return segment_of(LogBuilder().fill(batches=2), files={IndexType.PRODUCER_SNAPSHOT: SNAPSHOT})


def large_batch() -> Segment:
    plain = segment_of(LogBuilder().fill(batches=1))
    return replace(plain, data=packed(record(0, bytes(64 * MIB))), start_offset=0, end_offset=0)


def silent_after_the_files(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    yield next(copy_messages(segment))
    for kind, data in segment.files.items():
        yield from file_messages(kind, data)
    hold.wait(100)


def drops_of_a_file(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    """Its snapshot byte by byte, four a second, for hours."""
    yield next(copy_messages(segment))
    for at in range(len(SNAPSHOT)):
        data = SNAPSHOT[at : at + 1]
        piece = rsm_pb2.IndexFile(
            type=rsm_pb2.PRODUCER_SNAPSHOT, data=data, data_crc32c=crc32c(data), position=at, size_bytes=len(SNAPSHOT)
        )
        yield rsm_pb2.CopyRequest(file=piece).SerializeToString()
        if hold.wait(0.25):
            return


def drops_of_the_log(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    """The same with the log."""
    yield next(copy_messages(segment))
    for at in range(len(segment.data)):
        yield frame_message(at, segment.data[at : at + 1])
        if hold.wait(0.25):
            return


class Begun:
    """A copy on a connection of its own that goes on as its messages do; what it hears is kept."""

    def __init__(self, bridge: Running, segment: Segment, messages: Messages) -> None:
        self.hold = threading.Event()
        self.beats: list[rsm_pb2.Heartbeat] = []
        self.error: ShimError | None = None
        self.shim = ShimClient(bridge.address)
        self.call: Any = self.shim.stub("stream_stream", "CopySegment")(messages(segment, self.hold), metadata=HEADERS)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for data in self.call:
                self.beats.append(rsm_pb2.CopyResponse.FromString(data).heartbeat)
        except grpc.RpcError as error:
            self.error = ShimError(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self.call.cancel()
        self.thread.join(20)
        self.shim.channel.close()


def failed(copy: Begun) -> str:
    """The kind of its error; empty: it has none so far."""
    return "" if copy.error is None else str(copy.error.kind)


def has_failed(copy: Begun) -> bool:
    return bool(failed(copy))


def whole(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    yield from copy_messages(segment)
    hold.wait(100)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("messages", [silent_after_the_files, drops_of_a_file], ids=["silent", "drops"])
@pytest.mark.parametrize("honest", [large_files, large_batch], ids=["files", "batch"])
def test_a_slow_sender_of_large_files_loses_its_turn_to_who_waits_for_it(
    bridge: Running, honest: Callable[[], Segment], messages: Messages
) -> None:
    segment = honest()
    with Begun(bridge, large_files(), messages) as slow:
        until(lambda: gauge(bridge, "copies_running") == 1)
        time.sleep(1)
        started = time.monotonic()
        with Begun(bridge, segment, whole) as waits, ShimClient(bridge.address) as other:
            until(lambda: any(beat.stage == "waiting" and beat.copies_ahead == 1 for beat in waits.beats))
            other.copy(segment_of(LogBuilder().fill(batches=2)))
            assert not failed(slow), "who needs no turn waits for none"
            waits.thread.join(HONEST_SECONDS_MAX)
            until(lambda: gauge(bridge, "copies_running") == 0, HONEST_SECONDS_MAX)
            assert not failed(waits)
        assert time.monotonic() - started < HONEST_SECONDS_MAX
        assert failed(slow) == "deadline"
        assert "while other copies wait" in str(slow.error)


@pytest.mark.timeout(60)
def test_a_sender_of_large_files_keeps_its_turn_while_nobody_wants_it(bridge: Running) -> None:
    with Begun(bridge, large_files(), silent_after_the_files) as slow:
        time.sleep(CONTENDED_SILENCE_SECONDS + 2)
        assert not failed(slow)
        assert {beat.stage for beat in slow.beats} == {"receiving"}


@pytest.mark.timeout(60)
def test_the_turn_of_a_cancelled_copy_is_free_when_its_worker_has_ended(
    bridge: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, let_go, began = store_segment, threading.Event(), threading.Event()
    attempts: list[CopyAttempt] = []

    def slow_first(store: ObjectStore, attempt: CopyAttempt) -> Directory:
        attempts.append(attempt)
        if len(attempts) == 1:
            began.set()
            let_go.wait(40)
        return real(store, attempt)

    monkeypatch.setattr(call, "store_segment", slow_first)
    try:
        with Begun(bridge, large_files(), whole):
            assert began.wait(20)
        with Begun(bridge, large_files(), whole) as second:
            until(lambda: any(beat.stage == "waiting" for beat in second.beats))
            time.sleep(2)
            assert len(attempts) == 1, "the first one's files are still in memory"
            assert attempts[0].files
            let_go.set()
            until(lambda: len(attempts) == 2)
            assert not attempts[0].files
            until(lambda: gauge(bridge, "copies_running") == 0)
            assert not failed(second)
    finally:
        let_go.set()


@pytest.mark.timeout(60)
def test_a_copy_whose_sender_drips_ends_at_its_deadline(bridge: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "COPY_SECONDS_MAX", 3.0)

    for messages in (drops_of_the_log, drops_of_a_file):
        with Begun(bridge, large_files(), messages) as slow:
            until(lambda: slow.error is not None)
            assert slow.error is not None
            assert slow.error.kind == "deadline"
            assert "did not end within 3 s" in str(slow.error)
        until(lambda: gauge(bridge, "copies_running") == 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("messages", [only_start, silent_after_the_files], ids=["place", "turn"])
def test_a_copy_that_cannot_be_told_of_itself_ends(
    bridge: Running, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """Whatever gRPC says of a heartbeat: nobody waits for the copy."""
    real, beats = call.CopyCall._write, [0]

    async def write(self: call.CopyCall, response: rsm_pb2.CopyResponse) -> None:
        beats[0] += 1
        if beats[0] == 2:
            raise RuntimeError("the stream is broken")
        await real(self, response)

    monkeypatch.setattr(call.CopyCall, "_write", write)
    with Begun(bridge, large_files(), messages) as unheard:
        until(partial(has_failed, unheard))
        assert failed(unheard) == "cancelled"
        until(lambda: gauge(bridge, "copies_running") == 0)
