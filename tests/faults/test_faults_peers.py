"""Clients that hold without doing: half-open copies, drops of bytes, fetches that nobody reads, beside honest ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from rsm_bridge.limits import CONTENDED_SILENCE_SECONDS, COPY_PAUSE_SECONDS_MAX
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority
from rsm_bridge.serving.service import Running
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, copy_messages, segment_of

HALF_OPEN = 256
UNREAD = 20
#: A place that a silent peer has is free after this; an honest copy waits for one turn of it, on a busy machine.
HONEST_SECONDS_MAX = 3 * CONTENDED_SILENCE_SECONDS


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path / "data")) as running:
        yield running


def only_start(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    yield next(copy_messages(segment))
    hold.wait(300)


def all_but_the_end(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    yield from list(copy_messages(segment))[:-1]
    hold.wait(300)


class HalfOpen:
    """Copies on one connection whose peer falls silent. Each needs a thread in this process: gRPC's sender."""

    def __init__(self, address: str, count: int, messages: Callable[[Segment, threading.Event], Iterator[bytes]]):
        self.hold = threading.Event()
        self.shim = ShimClient(address)
        segments = [segment_of(LogBuilder().fill(batches=2), topic="half-open") for _ in range(count)]
        copy = self.shim.stub("stream_stream", "CopySegment")
        self.calls: list[Any] = [copy(messages(one, self.hold), metadata=HEADERS) for one in segments]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        for call in self.calls:
            call.cancel()
        self.shim.channel.close()


def gauge(bridge: Running, name: str) -> float:
    return float(getattr(bridge.metrics, name)._value.get())


def until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("messages", [only_start, all_but_the_end], ids=["start", "no end"])
def test_half_open_copies_of_one_peer_beside_an_honest_one(
    bridge: Running, messages: Callable[[Segment, threading.Event], Iterator[bytes]]
) -> None:
    with HalfOpen(bridge.address, HALF_OPEN, messages), ShimClient(bridge.address) as honest:
        # One connection never has all there is: about half is left for others.
        until(lambda: gauge(bridge, "copies_running") + gauge(bridge, "copies_waiting") > HALF_OPEN / 3)
        assert gauge(bridge, "copies_running") + gauge(bridge, "copies_waiting") <= HALF_OPEN / 2 + 1
        for _ in range(3):
            segment = segment_of(LogBuilder().fill(batches=20, size=2_000))
            started = time.monotonic()
            answer = honest.copy(segment)
            assert time.monotonic() - started < HONEST_SECONDS_MAX
            assert honest.fetch(segment.finished(answer.custom_metadata)) == segment.data


def test_a_silent_peer_keeps_its_place_while_nobody_wants_it_and_is_told_when_it_loses_it(bridge: Running) -> None:
    with HalfOpen(bridge.address, 4, all_but_the_end) as silent, ShimClient(bridge.address) as honest:
        until(lambda: gauge(bridge, "copies_running") == 4)
        time.sleep(CONTENDED_SILENCE_SECONDS + 2)
        assert gauge(bridge, "copies_running") == 4
        assert ended(bridge, "deadline") == 0
        honest.copy(segment_of(LogBuilder().fill(batches=2)))
        until(lambda: ended(bridge, "deadline") > 0)
        time.sleep(1)
        assert ended(bridge, "deadline") == 1, "one place was wanted"
        lost: list[grpc.RpcError] = []

        def read(call: Any) -> None:
            try:
                list(call)
            except grpc.RpcError as error:
                lost.append(error)

        for call in silent.calls:
            threading.Thread(target=read, args=(call,), daemon=True).start()
        until(lambda: len(lost) > 0)
        assert lost[0].code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert ShimError(lost[0]).kind == "deadline"
        assert "while other copies wait" in str(lost[0])


def ended(bridge: Running, kind: str) -> float:
    return float(bridge.metrics.requests.labels("copy", kind)._value.get())


def test_a_waiting_copy_hears_of_its_place_in_the_queue(bridge: Running) -> None:
    with HalfOpen(bridge.address, 6, all_but_the_end), ShimClient(bridge.address) as honest:
        until(lambda: gauge(bridge, "copies_running") == 4)
        beats: list[rsm_pb2.Heartbeat] = []
        hold = threading.Event()
        call = honest.stub("stream_stream", "CopySegment")(
            only_start(segment_of(LogBuilder().fill(batches=1)), hold), metadata=HEADERS, timeout=20
        )
        for data in call:
            beats.append(rsm_pb2.CopyResponse.FromString(data).heartbeat)
            if beats[-1].stage == "receiving":
                break
        hold.set()
        call.cancel()
    # Two of the others' wait too; they are of one connection and so take turns with this one.
    assert (beats[0].stage, beats[0].copies_ahead) in (("waiting", 1), ("waiting", 2))
    assert beats[-1].copies_ahead == 0


def test_calls_that_never_start_go(bridge: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.copy.call.START_SECONDS_MAX", 0.5)
    hold = threading.Event()
    with ShimClient(bridge.address) as shim:
        call = shim.stub("stream_stream", "CopySegment")(iter(lambda: hold.wait(20) and None, None), metadata=HEADERS)
        with pytest.raises(grpc.RpcError) as failed:
            list(call)
        hold.set()
    assert ShimError(failed.value).kind == "deadline"
    assert "no `start`" in str(failed.value)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each time a copy gave way to a fetch."""
    seen: list[float] = []
    real = FetchPriority.yield_to_fetches

    def yield_to_fetches(self: FetchPriority) -> float:
        seen.append(real(self))
        return seen[-1]

    monkeypatch.setattr(FetchPriority, "yield_to_fetches", yield_to_fetches)
    return seen


def test_fetches_that_nobody_reads_do_not_slow_copies(pauses: list[float], bridge: Running) -> None:
    big = segment_of(LogBuilder().fill(batches=24, records=8, size=100_000))
    with ShimClient(bridge.address) as shim, ShimClient(bridge.address) as reader, ExitStack() as stack:
        copied = shim.copied(big)
        request = rsm_pb2.FetchSegmentRequest(segment=copied.message()).SerializeToString()
        for _ in range(UNREAD):
            call = reader.stub("unary_stream", "FetchSegment")(request, metadata=HEADERS)
            stack.callback(call.cancel)
        time.sleep(2)
        pauses.clear()
        shim.copy(segment_of(LogBuilder().fill(batches=24, records=8, size=100_000)))
        assert len(pauses) >= 3, "the copy has steps between which it could have paused"
        assert sum(pauses) < COPY_PAUSE_SECONDS_MAX / 2
        # The others are served all the same.
        assert shim.fetch(copied) == big.data


def test_a_fetch_that_nobody_reads_ends(bridge: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.fetch.claim.ANSWER_SECONDS_MAX", 0.5)
    with ShimClient(bridge.address) as shim:
        copied = shim.copied(segment_of(LogBuilder().fill(batches=24, records=8, size=100_000)))
        request = rsm_pb2.FetchSegmentRequest(segment=copied.message()).SerializeToString()
        call = shim.stub("unary_stream", "FetchSegment")(request, metadata=HEADERS)
        time.sleep(3)
        with pytest.raises(grpc.RpcError) as failed:
            list(call)
    assert ShimError(failed.value).kind == "deadline"
    assert "took nothing" in str(failed.value)
