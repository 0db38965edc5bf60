"""What the bridge does when something breaks: its own code, its process, its store, its clients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import converter.parquet.page_table
import converter.segment.writer
from converter.types import IndexType
from iceberg_catalog import failpoints
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.service import Running
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import (
    HEADERS,
    Segment,
    ShimClient,
    ShimError,
    copy_messages,
    frame_message,
    segment_of,
)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path / "data")) as running:
        yield running


@pytest.fixture
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


@contextmanager
def fault(text: str) -> Iterator[None]:
    before = dict(failpoints._faults)
    failpoints._faults.update(failpoints.parse(text))
    try:
        yield
    finally:
        failpoints._faults.clear()
        failpoints._faults.update(before)


def stored(bridge: Running, segment: Segment) -> list[str]:
    return [
        listed.key
        for root in ("index", "data", "kept")
        for listed in bridge.store.list_after(f"{root}/{segment.topic_id.hex()}/")
    ]


def raw_copy(shim: ShimClient, messages: list[bytes], headers: tuple[tuple[str, str], ...] = HEADERS) -> ShimError:
    """Sends the messages as they are; returns how the call failed."""
    call = shim.stub("stream_stream", "CopySegment")(iter(messages), metadata=headers, timeout=20)
    with pytest.raises(grpc.RpcError) as failed:
        list(call)
    return ShimError(failed.value)


def test_an_error_of_ours_stores_the_segment_verbatim(shim: ShimClient, bridge: Running) -> None:
    sent = segment_of(LogBuilder().fill(batches=40, size=10_000))
    with fault("convert=raise-once"):
        answer = shim.copy(sent)
    assert len(answer.restarts) == 1
    assert "InjectedFaultError" in answer.restarts[0]
    segment = sent.finished(answer.custom_metadata)
    assert shim.fetch(segment) == sent.data
    for kind, data in sent.files.items():
        assert shim.fetch_index(segment, kind) == data
    assert [key for key in stored(bridge, segment) if key.startswith("data/")] == []
    assert bridge.metrics.verbatim_segments.labels("internal")._value.get() == 1


@pytest.mark.parametrize(("limit", "size"), [("COLUMN_CHUNKS_MAX", -1), ("FOOTER_BYTES_MAX", 0)])
def test_a_segment_of_too_large_a_footer_is_stored_verbatim(
    limit: str, size: int, shim: ShimClient, bridge: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converter.segment.writer, limit, size)
    sent = segment_of(LogBuilder().fill(batches=40, size=10_000))
    answer = shim.copy(sent)
    assert "FooterTooLargeError" in answer.restarts[0]
    segment = sent.finished(answer.custom_metadata)
    assert shim.fetch(segment) == sent.data
    assert [key for key in stored(bridge, segment) if key.startswith("data/")] == []


def test_a_segment_whose_pages_would_not_be_read_again_is_stored_verbatim(
    shim: ShimClient, bridge: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acknowledged, and every fetch of it was a corrupt_object."""
    monkeypatch.setattr(converter.parquet.page_table, "PAGE_VALUES_MAX", 5)
    sent = segment_of(LogBuilder().fill(batches=40, size=10_000))
    answer = shim.copy(sent)
    assert "UnreadablePagesError" in answer.restarts[0]
    segment = sent.finished(answer.custom_metadata)
    assert shim.fetch(segment) == sent.data
    assert [key for key in stored(bridge, segment) if key.startswith("data/")] == []


def test_a_converter_that_always_raises_still_tiers(shim: ShimClient) -> None:
    with fault("convert=raise"):
        for _ in range(3):
            sent = segment_of(LogBuilder().fill(batches=3))
            assert shim.fetch(shim.copied(sent)) == sent.data


@pytest.mark.parametrize("point", ["upload-write", "before-index"])
def test_a_failure_before_the_index_leaves_nothing(shim: ShimClient, bridge: Running, point: str) -> None:
    sent = segment_of(LogBuilder().fill(batches=3))
    with fault(f"{point}=raise"), pytest.raises(ShimError) as failed:
        shim.copy(sent)
    assert failed.value.kind == "internal"
    assert stored(bridge, sent) == []


def test_a_cancelled_copy_leaves_nothing_and_frees_its_place(shim: ShimClient, bridge: Running) -> None:
    sent = segment_of(LogBuilder().fill(batches=200, size=2_000))
    hold = threading.Event()

    def messages() -> Iterator[bytes]:
        yield from list(copy_messages(sent))[:-2]
        hold.wait(20)

    for _ in range(6):  # more often than there are workers
        call = shim.stub("stream_stream", "CopySegment")(messages(), metadata=HEADERS, timeout=30)
        next(iter(call))
        call.cancel()
    hold.set()
    assert shim.fetch(shim.copied(sent)) == sent.data
    end = time.monotonic() + 10
    while bridge.metrics.copies_running._value.get() and time.monotonic() < end:
        time.sleep(0.05)
    assert len(stored(bridge, sent)) == 2  # the index and data file of the copy that ended


def test_a_delete_in_the_last_steps_of_a_copy_wins(shim: ShimClient, bridge: Running) -> None:
    sent = segment_of(LogBuilder().fill(batches=3))
    failures: list[str | None] = []

    def copy() -> None:
        try:
            shim.copy(sent)
        except ShimError as error:
            failures.append(error.kind)

    with fault("before-index=sleep:1"):
        thread = threading.Thread(target=copy)
        thread.start()
        time.sleep(0.4)
        shim.delete(sent)
        thread.join(30)
    assert failures == ["segment_deleted"]
    assert [key for key in stored(bridge, sent) if not key.startswith("index/")] == []
    with pytest.raises(ShimError):
        shim.fetch(sent)


def test_damage_on_the_way_fails_the_copy(shim: ShimClient, bridge: Running) -> None:
    sent = segment_of(LogBuilder().fill(batches=3))
    messages = list(copy_messages(sent))
    frame = frame_message(0, sent.data, crc=12345)
    assert raw_copy(shim, [*messages[:-2], frame, messages[-1]]).kind == "damaged_in_transit"
    bad_file = rsm_pb2.IndexFile(type=rsm_pb2.IndexType.Name(IndexType.TIMESTAMP), data=b"abc", data_crc32c=1)
    assert raw_copy(shim, [messages[0], rsm_pb2.CopyRequest(file=bad_file).SerializeToString()]).kind == (
        "damaged_in_transit"
    )
    assert stored(bridge, sent) == []


def test_copies_that_contradict_themselves(shim: ShimClient, bridge: Running) -> None:
    sent = segment_of(LogBuilder().fill(batches=3))
    messages = list(copy_messages(sent))
    start, files, end = messages[0], messages[1:-2], messages[-1]
    gap = frame_message(5, sent.data[5:])
    short = frame_message(0, sent.data[:-1])
    for body in ([gap, end], [short, end], [end], [short, frame_message(0, sent.data), end]):
        assert raw_copy(shim, [start, *files, *body]).kind == "invalid_segment"
    for body in ([b"\xff\xff\xff"], [messages[1], start], [frame_message(0, b"")], []):
        assert raw_copy(shim, [start, *body]).kind == "bad_request"
    assert raw_copy(shim, [messages[1]]).kind == "bad_request"
    assert stored(bridge, sent) == []


def answer_of(call: Any, kind: str, request: bytes) -> list[bytes]:
    answer = call(request, metadata=HEADERS, timeout=10)
    return list(answer) if kind == "unary_stream" else [answer]


def test_malformed_requests_are_refused_and_harm_nobody(shim: ShimClient) -> None:
    # The last is without a segment; for a delete even an empty message is no request.
    noise = [b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", os.urandom(500), b"\x10\x01"]
    for kind, method in (
        ("unary_stream", "FetchSegment"),
        ("unary_stream", "FetchIndex"),
        ("unary_unary", "DeleteSegment"),
    ):
        for request in [*noise, *([b""] if method == "DeleteSegment" else [])]:
            call = shim.stub(kind, method)
            with pytest.raises(grpc.RpcError) as failed:
                answer_of(call, kind, request)
            assert ShimError(failed.value).kind == "bad_request"
    sent = segment_of(LogBuilder().fill(batches=1))
    assert shim.fetch(shim.copied(sent)) == sent.data


@pytest.mark.parametrize("headers", [(), (("tierberg-protocol", "2"),), (("tierberg-protocol", "1x"),)])
def test_another_protocol_version_is_refused_by_name(shim: ShimClient, headers: tuple[tuple[str, str], ...]) -> None:
    failed = raw_copy(shim, list(copy_messages(segment_of(LogBuilder().fill(batches=1)))), headers)
    assert failed.kind == "protocol_mismatch"
    assert failed.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "this bridge 1" in (failed.details or "")


def test_a_delete_of_another_protocol_version_puts_no_tombstone(bridge: Running, shim: ShimClient) -> None:
    request = rsm_pb2.DeleteSegmentRequest(
        segment=segment_of(LogBuilder().fill(batches=1)).message()
    ).SerializeToString()
    with pytest.raises(grpc.RpcError) as failed:
        shim.stub("unary_unary", "DeleteSegment")(request, metadata=(("tierberg-protocol", "2"),), timeout=10)
    assert ShimError(failed.value).kind == "protocol_mismatch"
    assert list(bridge.store.list_after("index/")) == []


def test_a_method_of_a_later_protocol_is_not_implemented(shim: ShimClient) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        shim.stub("unary_unary", "RenameSegment")(b"", metadata=HEADERS, timeout=10)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sent = segment_of(LogBuilder().fill(batches=20, size=5_000))
    with BridgeProcess("--data-dir", str(data), "--listen", "127.0.0.1:0") as bridge:
        with ShimClient(bridge.address) as shim:
            segment = shim.copied(sent)
        bridge.kill()
    with bridge_thread(test_settings(data)) as running, ShimClient(running.address) as shim:
        assert shim.fetch(segment) == sent.data


def test_serve_refuses_in_plain_words(tmp_path: Path) -> None:
    with BridgeProcess("--data-dir", str(tmp_path), "--listen", "0.0.0.0:0", expect_ready=False) as bridge:
        assert bridge.process.wait(60) == 2
        assert "nothing authenticates clients" in bridge.errors()
        assert "Traceback" not in bridge.errors()
