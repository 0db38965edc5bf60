"""A client that says nothing more hears why its copy was refused all the same, and at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, ShimClient, ShimError, copy_messages, frame_message, segment_of

DATA = LogBuilder().fill(batches=3)
FRAMES = {
    "bad checksum": (frame_message(0, b"x" * 1000, 1), "damaged_in_transit"),
    "gap": (frame_message(5, b"x" * 1000), "invalid_segment"),
}


@pytest.mark.parametrize(("frame", "kind"), FRAMES.values(), ids=FRAMES)
def test_a_refusal_does_not_wait_for_the_next_message(tmp_path: Path, frame: bytes, kind: str) -> None:
    segment, hold = segment_of(DATA), threading.Event()

    def messages() -> Iterator[bytes]:
        first, *rest = copy_messages(segment)
        yield first
        yield from (message for message in rest[: len(segment.files)])
        yield frame
        hold.wait(60)

    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        shim.copied(segment_of(LogBuilder().fill(batches=1)))  # kernels are loaded before anything is timed
        started = time.monotonic()
        call: Any = shim.stub("stream_stream", "CopySegment")(messages(), metadata=HEADERS, timeout=60)
        try:
            with pytest.raises(grpc.RpcError) as refused:
                list(call)
            assert ShimError(refused.value).kind == kind
            assert time.monotonic() - started < 4, "silence among others ends a copy after 5 s, alone after 60"
            again = shim.copied(segment)
            assert shim.fetch(again) == segment.data
        finally:
            hold.set()
