"""How many calls one connection may have open at once."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from rsm_bridge.limits import MESSAGE_BYTES_MAX, MIB, STREAMS_PER_CONNECTION_MAX
from rsm_bridge.serving.grpc_server import OPTIONS
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, ShimClient, segment_of

LIMIT = 8


def test_a_connection_has_so_many_calls_and_further_ones_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-open copies fill it; a fetch on it waits until one of them ends, and others are served."""
    assert ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX) in OPTIONS
    # A request that never ends holds a message: docs/threat-model.md says how much that is.
    assert STREAMS_PER_CONNECTION_MAX * MESSAGE_BYTES_MAX == 640 * MIB
    options = tuple((name, LIMIT if name == "grpc.max_concurrent_streams" else value) for name, value in OPTIONS)
    monkeypatch.setattr("rsm_bridge.serving.grpc_server.OPTIONS", options)
    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as full:
        segment = full.copied(segment_of(LogBuilder().fill(2)))  # and the client knows the limit
        ended: Queue[bytes | None] = Queue()
        calls: list[Any] = []  # grpc.Call has no types
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as threads, ShimClient(bridge.address) as other:
            for _ in range(LIMIT):
                call = full.stub("stream_stream", "CopySegment")(iter(ended.get, None), metadata=HEADERS, timeout=60)
                assert list(islice(call.initial_metadata(), 1))
                calls.append(call)
                stack.callback(ended.put, None)
                stack.callback(call.cancel)
            waiting = threads.submit(full.fetch, segment)
            assert other.fetch(segment) == segment.data
            assert not waiting.done()
            calls[0].cancel()
            assert waiting.result(timeout=20) == segment.data
