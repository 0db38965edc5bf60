"""A plugin's throw-away calls after its start: answered, and left no trace of."""

from __future__ import annotations

import grpc
import pytest
from structlog.testing import capture_logs

from rsm_bridge.limits import WARM_UP_BYTES
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.service import Running
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, ShimClient, ShimError, segment_of


def counted(bridge: Running) -> dict[tuple[str, ...], float]:
    """All samples that count calls."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in bridge.metrics.registry.collect()
        for sample in metric.samples
        if sample.name.startswith(("tierberg_request", "tierberg_served", "tierberg_cache", "tierberg_foreign"))
        and not sample.name.endswith("_created")
    }


@pytest.mark.parametrize("method", ["FetchSegment", "FetchIndex"])
def test_an_empty_request_is_answered_with_zeros_and_noted_nowhere(
    bridge: Running, shim: ShimClient, method: str
) -> None:
    before = counted(bridge)
    with capture_logs() as lines:
        (chunk,) = shim.stub("unary_stream", method)(b"", metadata=HEADERS, timeout=10)
        assert rsm_pb2.FetchChunk.FromString(chunk).data == bytes(WARM_UP_BYTES)
        # One that is noted, so that the look at notes sees something.
        with pytest.raises(ShimError):
            shim.fetch(segment_of(LogBuilder().fill(batches=1)))
    assert [line["event"] for line in lines if line["event"] in ("fetch", "fetch_index", "warm_up")] == ["fetch"]
    changed = {key for key, value in counted(bridge).items() if before.get(key, 0.0) != value}
    assert {key[1] for key in changed if key[0] == "tierberg_requests_total"} == {"fetch"}
    assert not any(key[0].startswith("tierberg_served") for key in changed)


def test_a_warm_up_of_another_protocol_is_refused_and_noted(bridge: Running, shim: ShimClient) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        list(shim.stub("unary_stream", "FetchSegment")(b"", metadata=(("tierberg-protocol", "2"),), timeout=10))
    assert ShimError(failed.value).kind == "protocol_mismatch"
    assert counted(bridge)["tierberg_requests_total", "fetch", "protocol_mismatch"] == 1
