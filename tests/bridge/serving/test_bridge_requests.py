"""Requests to fetch and to delete carry names and ids alone: what else they bring costs the bridge nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Queue

import grpc
import pytest

from converter.types import IndexType
from rsm_bridge.limits import REQUEST_BYTES_MAX
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, segment_of

CALLS: dict[str, Callable[[ShimClient, Segment], object]] = {
    "fetch": lambda shim, segment: shim.fetch(segment),
    "fetch of an index": lambda shim, segment: shim.fetch_index(segment, IndexType.LEADER_EPOCH),
    "delete": lambda shim, segment: shim.delete(segment),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_request_that_is_too_large_is_refused_before_it_is_read(shim: ShimClient, call: str) -> None:
    known = shim.copied(segment_of(LogBuilder().fill(batches=1)))
    few = tuple((epoch, 0) for epoch in range(REQUEST_BYTES_MAX // 10))
    many = tuple((epoch, 0) for epoch in range(REQUEST_BYTES_MAX // 4))
    assert len(replace(known, epochs=few).message().SerializeToString()) < REQUEST_BYTES_MAX
    with pytest.raises(ShimError) as refused:
        CALLS[call](shim, replace(known, epochs=many))
    assert refused.value.kind == "bad_request"
    assert f"more than {REQUEST_BYTES_MAX}" in str(refused.value)
    CALLS[call](shim, replace(known, epochs=few))  # nobody looks at them


@pytest.mark.parametrize("method", ["FetchSegment", "FetchIndex", "DeleteSegment"])
def test_a_request_that_does_not_come_is_waited_for_a_while(
    shim: ShimClient, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsm_bridge.serving.handlers.START_SECONDS_MAX", 0.3)
    kind = "stream_unary" if method == "DeleteSegment" else "stream_stream"

    def answered(requests: Iterator[bytes]) -> object:
        made = shim.stub(kind, method)(requests, metadata=HEADERS, timeout=20)
        return made if kind == "stream_unary" else list(made)

    silent: Queue[bytes | None] = Queue()
    with pytest.raises(grpc.RpcError) as failed:
        answered(iter(silent.get, None))
    silent.put(None)
    assert ShimError(failed.value).kind == "deadline"
    with pytest.raises(grpc.RpcError) as closed:
        answered(iter([]))
    assert ShimError(closed.value).kind == "bad_request"
