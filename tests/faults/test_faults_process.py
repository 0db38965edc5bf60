"""A bridge that is killed, stopped or absent: calls end within their deadline, and nothing is lost or doubled."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rsm_bridge.proto import rsm_pb2
from tests.support.bridge_process import BridgeProcess
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, copy_messages, segment_of
from tierberg.stack.ports import free_ports

DEADLINE_S = 4.0


def serve(data: Path, port: int, fault: str = "") -> BridgeProcess:
    return BridgeProcess("--data-dir", str(data), "--listen", f"127.0.0.1:{port}", fault=fault)


def fetch_call(shim: ShimClient, segment: Segment, seconds: float) -> Iterator[bytes]:
    request = rsm_pb2.FetchSegmentRequest(segment=segment.message())
    fetch = shim.stub("unary_stream", "FetchSegment")
    answer: Iterator[bytes] = fetch(request.SerializeToString(), metadata=HEADERS, timeout=seconds)
    return answer


def ends_within(seconds: float, work: object, *arguments: object) -> str:
    """How the call ended, ok or its status; fails when it does not end in time."""
    ended: list[str] = []

    def run() -> None:
        try:
            work(*arguments)  # type: ignore[operator]
            ended.append("ok")
        except ShimError as error:
            ended.append(error.code.name)
        except grpc.RpcError as error:
            ended.append(error.code().name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"still stuck after {seconds} s"
    return ended[0]


def test_killed_in_mid_copy_and_mid_fetch(tmp_path: Path) -> None:
    data, (port,) = tmp_path / "data", free_ports(1)
    big = segment_of(LogBuilder().fill(batches=300, records=20, size=3_000))
    half = segment_of(LogBuilder().fill(batches=50, size=2_000), topic="half")
    with serve(data, port) as bridge, ShimClient(bridge.address, timeout=30) as shim:
        segment = shim.copied(big)
        reading = fetch_call(shim, segment, 30)
        assert next(iter(reading))
        hold = threading.Event()

        def some() -> Iterator[bytes]:
            yield from list(copy_messages(half))[:-1]
            hold.wait(30)

        copying = shim.stub("stream_stream", "CopySegment")(some(), metadata=HEADERS, timeout=30)
        assert next(iter(copying))
        bridge.kill()
        assert ends_within(DEADLINE_S, lambda: list(copying)) == "UNAVAILABLE"
        assert ends_within(DEADLINE_S, lambda: list(reading)) == "UNAVAILABLE"
        hold.set()
        # Absent: everything fails at once or at its deadline.
        shim.timeout = 1.0
        assert ends_within(DEADLINE_S, shim.fetch, segment) == "UNAVAILABLE"
        assert ends_within(DEADLINE_S, shim.copy, half) == "UNAVAILABLE"
        assert ends_within(DEADLINE_S, shim.delete, half) == "UNAVAILABLE"
    with serve(data, port) as bridge, ShimClient(bridge.address) as shim:
        assert shim.fetch(segment) == big.data
        with pytest.raises(ShimError) as failed:
            shim.fetch(half)
        assert failed.value.kind == "foreign_segment"
        again = segment_of(LogBuilder().fill(batches=2), topic="half", topic_id=half.topic_id)
        assert shim.fetch(shim.copied(again)) == again.data
        assert bridge.stop() == 0


def test_stopped_and_continued(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serve(tmp_path / "data", port) as bridge, ShimClient(bridge.address, timeout=2.0) as shim:
        first = segment_of(LogBuilder().fill(batches=100, size=2_000))
        shim.timeout = 30.0
        segment = shim.copied(first)
        shim.timeout = 1.5
        late = segment_of(LogBuilder().fill(batches=4), topic="late")
        bridge.process.send_signal(signal.SIGSTOP)
        try:
            for work, given in ((shim.fetch, segment), (shim.copy, late), (shim.delete, late)):
                assert ends_within(DEADLINE_S, work, given) == "DEADLINE_EXCEEDED"
        finally:
            bridge.process.send_signal(signal.SIGCONT)
        shim.timeout = 30.0
        assert shim.fetch(segment) == first.data
        # The delete that was waiting may have come through: its id is then gone for good, and a new attempt is not.
        retried = segment_of(LogBuilder().fill(batches=4), topic="late", topic_id=late.topic_id)
        assert shim.fetch(shim.copied(retried)) == retried.data
        assert bridge.stop() == 0


@pytest.mark.parametrize("point", ["after-index", "before-commit"])
def test_killed_at_a_step_and_started_again(tmp_path: Path, point: str) -> None:
    """The index is there but nobody was told, or nothing was published yet: the next start makes it good, once."""
    from iceberg_catalog.connect.open import embedded_settings, open_catalog

    data, (port,) = tmp_path / "data", free_ports(1)
    log = LogBuilder().fill(batches=10)
    sent = segment_of(log, topic="steps")
    with serve(data, port, fault=f"{point}=kill") as bridge, ShimClient(bridge.address) as shim:
        assert ends_within(30, shim.copy, sent) in ("ok", "UNAVAILABLE")
        assert bridge.process.wait(30) == -signal.SIGKILL
    with serve(data, port) as bridge:
        catalog = open_catalog(embedded_settings(data))
        found: list[int] = []
        end = time.monotonic() + 40
        while time.monotonic() < end and len(found) < len(log.committed):
            if catalog.table_exists("kafka.steps"):
                table = catalog.load_table("kafka.steps")
                if table.current_snapshot() is not None:
                    found = table.scan().to_arrow().column("_kafka_offset").to_pylist()
            time.sleep(0.2)
        assert sorted(found) == [record.offset for record in log.committed]
        assert bridge.stop() == 0
