"""Clients that would use a bridge up: two copies of one id, silence in mid-copy, huge claims, bombs beyond a GiB."""

from __future__ import annotations

import gzip
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import lz4.frame
import psutil
import pytest
import zstandard

from rsm_bridge.limits import CONTENDED_SILENCE_SECONDS, COPY_MEMORY_BYTES, FRAME_WAIT_SECONDS_MAX, MIB
from rsm_bridge.proto import rsm_pb2
from tests.faults.test_faults_segments import batch, good, sent, xerial
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, copy_messages, frame_message, segment_of
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.waiting import wait_for

GIB = 1 << 30
BOMB_BYTES = GIB + 64 * MIB
LIMIT_BYTES = 256 * MIB  # decompressed_batch_mib by default
SLOTS = 4  # copy_workers by default


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    made = Bridge(tmp_path / "bridge", {"publish_interval": "200ms", "reclaim_grace": "0s"})
    made.start()
    yield made
    made.stop()


def stored(bridge: Bridge, kind: str, segment: Segment) -> list[Path]:
    folder = bridge.folder / "store" / kind / segment.topic_id.hex()
    return [path for path in folder.rglob("*") if path.is_file()]


def peak_bytes(bridge: Bridge) -> int:
    """The most memory the process has had at once: VmHWM."""
    for line in Path(f"/proc/{bridge.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def warmed(shim: ShimClient) -> None:
    """So that what is measured afterwards is not the first copy's and fetch's own."""
    segment = segment_of(LogBuilder().fill(batches=200, size=2_000))
    assert shim.fetch(shim.copied(segment)) == segment.data


def test_two_copies_of_one_id(bridge: Bridge) -> None:
    bridge.stop()
    bridge.process.env["TIERBERG_FAULT"] = "before-index=sleep:1"  # both are there before either has put its index
    bridge.start()
    segment = segment_of(LogBuilder().fill(batches=50, size=2_000))
    answers: list[bytes] = []

    def copy() -> None:
        with ShimClient(bridge.target) as shim:
            answers.append(shim.copy(segment).custom_metadata)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for("both to run", lambda: bridge.metric("tierberg_copies_running") == 2, 20, 0.02)
    for thread in threads:
        thread.join(30)
    assert len(answers) == 2, "the one that came second is a success too"
    assert answers[0] == answers[1]
    assert [len(stored(bridge, kind, segment)) for kind in ("index", "data", "kept")] == [1, 1, 0]
    with ShimClient(bridge.target) as shim:
        assert shim.fetch(segment.finished(answers[0])) == segment.data
    assert "Traceback" not in bridge.process.output()


def silent(segment: Segment, hold: threading.Event) -> Iterator[bytes]:
    """All but the end, then nothing for as long as the call lives."""
    yield from list(copy_messages(segment))[:-1]
    hold.wait(300)


@pytest.mark.parametrize(
    "deadline_s", [3.0, pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(240)])], ids=["theirs", "ours"]
)
def test_clients_that_stop_sending_give_their_place_back(bridge: Bridge, deadline_s: float | None) -> None:
    """Ended by the client's deadline, or without one by ours; copies that waited behind them then go through.

    Ours is short for the one place that is waited for, and FRAME_WAIT_SECONDS_MAX for the others.
    """
    limit_s = CONTENDED_SILENCE_SECONDS if deadline_s is None else deadline_s
    hold = threading.Event()
    stuck = [segment_of(LogBuilder().fill(batches=300, size=2_000)) for _ in range(SLOTS)]
    waited = segment_of(LogBuilder().fill(batches=20, size=2_000))
    with ShimClient(bridge.target) as shim, ShimClient(bridge.target, timeout=FRAME_WAIT_SECONDS_MAX + 30) as other:
        started = time.monotonic()
        calls = [
            shim.stub("stream_stream", "CopySegment")(silent(one, hold), metadata=HEADERS, timeout=deadline_s)
            for one in stuck
        ]
        try:
            wait_for("all places to be taken", lambda: bridge.metric("tierberg_copies_running") == SLOTS, 20)
            answer = other.copy(waited)
            seconds = time.monotonic() - started
            assert "waiting" in answer.stages
            assert limit_s - 1 < seconds < limit_s + 15, f"waited {seconds:.0f} s"
            assert other.fetch(waited.finished(answer.custom_metadata)) == waited.data
            for call in calls:
                with pytest.raises(grpc.RpcError):
                    list(call)
                assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if deadline_s is None:
                    assert dict(call.trailing_metadata())["tierberg-error"] == "deadline"
                    assert "no message for " in call.details()
        finally:
            hold.set()
        wait_for("every place to be free", lambda: bridge.metric("tierberg_copies_running") == 0, 20)
        for one in stuck:
            assert not any(stored(bridge, kind, one) for kind in ("index", "data", "kept"))
        again = stuck[0]
        assert other.fetch(other.copied(again)) == again.data
    kind = "deadline" if deadline_s is None else "cancelled"
    assert bridge.metric("tierberg_requests_total", method="copy", kind=kind) == SLOTS
    assert bridge.metric("tierberg_requests_total", method="copy", kind="internal") == 0
    assert "Traceback" not in bridge.process.output()


def claiming(segment: Segment, size: int) -> bytes:
    """The first message of a copy whose metadata claims `size` bytes."""
    message = segment.message()
    message.segment_size_bytes = size
    return rsm_pb2.CopyRequest(start=rsm_pb2.CopyStart(segment=message)).SerializeToString()


def ended(shim: ShimClient, messages: list[bytes]) -> ShimError:
    call = shim.stub("stream_stream", "CopySegment")(iter(messages), metadata=HEADERS, timeout=30)
    with pytest.raises(grpc.RpcError) as failed:
        list(call)
    return ShimError(failed.value)


def test_sizes_no_segment_can_have_are_refused(bridge: Bridge) -> None:
    segment = segment_of(LogBuilder().fill(batches=3))
    with ShimClient(bridge.target) as shim:
        warmed(shim)
        before = peak_bytes(bridge)
        for size in (2**31, 2**40, 2**63 - 1, -1):
            failed = ended(shim, [claiming(segment, size), *list(copy_messages(segment))[1:]])
            assert failed.kind == "bad_request"
            assert "segment_size_bytes is out of range" in (failed.details or "")
        assert peak_bytes(bridge) - before < 16 * MIB
        assert not stored(bridge, "index", segment)
        warmed(shim)


def test_the_largest_size_that_can_be_claimed_allocates_nothing(bridge: Bridge) -> None:
    """Neither for the segment nor for one batch that fills it by its own word."""
    segment = segment_of(LogBuilder().fill(batches=3))
    size = 2**31 - 1
    start, *files_and_log = copy_messages(segment)
    start = claiming(segment, size)
    lying = struct.pack(">qi", 0, size - 12) + segment.data[12:]
    end = rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=size)).SerializeToString()
    with ShimClient(bridge.target) as shim:
        warmed(shim)
        before = peak_bytes(bridge)
        for log in ([*files_and_log], [*files_and_log[:-2], frame_message(0, lying), end]):
            failed = ended(shim, [start, *log])
            assert failed.kind == "invalid_segment"
            assert f"{len(segment.data)} bytes arrived" in (failed.details or "")
            assert f"{size} are in the metadata" in (failed.details or "")
        assert peak_bytes(bridge) - before < 16 * MIB
        assert not any(stored(bridge, kind, segment) for kind in ("index", "data", "kept"))
        warmed(shim)


def bomb(codec: str) -> bytes:
    """More than a GiB of zeros, packed piece by piece."""
    piece, pieces = bytes(MIB), BOMB_BYTES // MIB
    match codec:
        case "gzip":
            member = gzip.compress(piece, 9)
            return member * pieces
        case "snappy":
            block = xerial(piece)
            return block[:16] + block[16:] * pieces
        case "lz4":
            with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB) as frame:
                head = frame.begin()
                packed = b"".join(frame.compress(piece) for _ in range(pieces))
                return bytes(head + packed + frame.flush())
        case _:
            packer = zstandard.ZstdCompressor(3).compressobj()
            return b"".join(packer.compress(piece) for _ in range(pieces)) + packer.flush()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_beyond_a_gib_at_the_default_limit(bridge: Bridge, codec: str) -> None:
    """What is decompressed in vain is never more than the limit; while it grows, the buffer is there twice."""
    payload = bomb(codec)
    bad = batch(codec, payload, offset=1)
    segment = replace(sent(good(codec, 0) + bad + good(codec, 2), 2), topic=f"bomb-{codec}")
    with ShimClient(bridge.target, timeout=120) as shim:
        warmed(shim)
        before = peak_bytes(bridge)
        copied = shim.copied(segment)
        peak = peak_bytes(bridge) - before
        served = shim.fetch(copied)
    print(f"{codec}: {len(payload) / MIB:.1f} MiB of payload, peak {peak / MIB:.0f} MiB above idle")
    assert bad in served
    assert served.startswith(good("none", 0)[:12])
    assert served.endswith(good("none", 2)[61:])
    assert bridge.metric("tierberg_quarantined_batches_total", cause="decompression_limit") == 1
    assert bridge.metric("tierberg_quarantined_batches_total") == 1
    assert bridge.metric("tierberg_copied_rows_total") == 2000 + 2
    assert peak <= 2 * LIMIT_BYTES + COPY_MEMORY_BYTES
    rest = psutil.Process(bridge.process.pid).memory_info().rss
    assert rest - before <= COPY_MEMORY_BYTES, "what the bomb took was not given back"
