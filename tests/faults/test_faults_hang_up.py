"""Brokers hang up in the middle of every fetch: that is one `cancelled` line, never an error of ours."""

from __future__ import annotations

import time
from pathlib import Path

from structlog.testing import capture_logs

from rsm_bridge.proto import rsm_pb2
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, ShimClient, segment_of

HANG_UPS = 120
#: Enough for the bridge to fill the windows and wait in a write, which then fails before the call is cancelled.
BLOCKED_S = 0.01


def test_a_hung_up_fetch_is_cancelled_and_nothing_else(tmp_path: Path) -> None:
    with (
        capture_logs() as lines,
        bridge_thread(test_settings(tmp_path / "data")) as bridge,
        ShimClient(bridge.address) as shim,
    ):
        segment = shim.copied(segment_of(LogBuilder().fill(batches=2_000, size=2_000)))
        request = rsm_pb2.FetchSegmentRequest(segment=segment.message()).SerializeToString()
        for number in range(HANG_UPS):
            call = shim.stub("unary_stream", "FetchSegment")(request, metadata=HEADERS, timeout=30)
            for _ in range(number % 4):
                next(call)
            if number % 2:
                time.sleep(BLOCKED_S)
            call.cancel()

        def ended() -> dict[str, float]:
            found: dict[str, float] = {}
            for family in bridge.metrics.requests.collect():
                for sample in family.samples:
                    # Every kind there is begins with 0.
                    if sample.name.endswith("_total") and sample.labels["method"] == "fetch" and sample.value:
                        found[sample.labels["kind"]] = found.get(sample.labels["kind"], 0) + sample.value
            return found

        deadline = time.monotonic() + 20
        # One that was cancelled before it reached the bridge is no request there.
        while ended().get("cancelled", 0) < HANG_UPS / 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert shim.fetch(segment) == segment.data
        assert ended().get("cancelled", 0) >= HANG_UPS / 2
        assert set(ended()) == {"cancelled", "ok"}
    fetches = [line for line in lines if line["event"] == "fetch"]
    assert len(fetches) == sum(ended().values())
    for line in lines:
        assert line["log_level"] == "info", line
        assert "exc_info" not in line, line
