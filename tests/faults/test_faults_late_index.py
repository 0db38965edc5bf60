"""A copy whose index put hangs long after its delete: the tombstone stays until that copy has really ended."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import grpc
import pytest

from rsm_bridge.storage.tombstone import is_tombstone
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, ShimClient, copy_messages, segment_of

WAIT_SECONDS = 20.0


def eventually(true: threading.Event) -> None:
    assert true.wait(WAIT_SECONDS)


def test_a_hanging_index_put_cannot_land_after_its_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.tables.reclaim.reclaimer.LATE_COPY_SECONDS", 0.2)
    monkeypatch.setattr("rsm_bridge.tables.reclaim.reclaimer.COPY_RECHECK_SECONDS", 0.2)
    log = LogBuilder()
    log.batch([b"a", b"b"])
    segment = segment_of(log)
    hanging, release, landed = threading.Event(), threading.Event(), list[bool]()
    with bridge_thread(test_settings(tmp_path / "data")) as bridge, ShimClient(bridge.address) as shim:
        put = bridge.store.put_if_absent

        def hanging_put(key: str, data: bytes, *, sync: bool = True) -> bool:
            if not key.startswith("index/") or is_tombstone(data):
                return put(key, data, sync=sync)
            hanging.set()
            eventually(release)
            landed.append(put(key, data, sync=sync))
            return landed[-1]

        monkeypatch.setattr(bridge.store, "put_if_absent", hanging_put)

        def stored() -> list[str]:
            roots = ("index", "data", "kept")
            return [one.key for root in roots for one in bridge.store.list_after(f"{root}/{segment.topic_id.hex()}/")]

        call = shim.stub("stream_stream", "CopySegment")(copy_messages(segment), metadata=HEADERS, timeout=60)
        eventually(hanging)
        call.cancel()
        with pytest.raises(grpc.RpcError):
            list(call)
        shim.delete(segment)
        # Many times the fence and the publish interval: without the registry the tombstone would be reclaimed by now.
        time.sleep(3.0)
        try:
            assert [key for key in stored() if key.startswith("index/")]
        finally:
            release.set()
        deadline = time.monotonic() + WAIT_SECONDS
        while stored() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert stored() == []
    assert landed == [False]
