"""Peak memory of the bridge's process tree with four copies of 1 GiB at once, above what it holds warm and idle."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.clients.process import run_together
from benchmarks.meters import memory_bytes, peak_memory_bytes, reset_peak_memory
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segment_file import write_segment
from benchmarks.segments import segment
from converter.limits import ROW_GROUP_BYTES, STEP_BYTES
from tierberg.stack.servers.bridge import Bridge

_COPIES = 4
_MIB = 2**20
_SETTLE_S = 3.0


def measure(plan: Plan) -> Cases:
    """One case per payload, a bridge of its own for each."""
    # Kafka's segments end below 1 GiB: values of 1.05e9 bytes make 1.07e9 bytes of batches.
    bytes_max = 128_000_000 if plan.quick else 1_050_000_000
    cases = [_case(plan.folder / payload, payload, bytes_max) for payload in plan.payloads("copy_memory")]
    return {"copy_memory": cases}


def _case(folder: Path, payload: str, bytes_max: int) -> Case:
    folder.mkdir()
    large = write_segment(segment(payload, "none", "16k", bytes_max), folder / "large")
    small = write_segment(segment(payload, "none", "16k", 16_000_000), folder / "small")
    segment.cache_clear()
    bridge = Bridge(folder / "bridge")
    bridge.start()
    try:
        pid = bridge.process.pid
        _copy(bridge, small, "warm")
        time.sleep(_SETTLE_S)
        idle = memory_bytes(pid)
        reset_peak_memory(pid)
        took_s = _copy(bridge, large, "large")
        peak = peak_memory_bytes(pid)
    finally:
        bridge.stop()
    size = large.stat().st_size
    floor = (STEP_BYTES + ROW_GROUP_BYTES) / _MIB
    extra = {
        "idle_mib": idle / _MIB,
        "peak_mib": peak / _MIB,
        "segment_mib": size / _MIB,
        "mb_per_s": _COPIES * size / 1e6 / took_s,
    }
    return Case(f"{payload}/none/16k", (peak - idle) / _MIB / _COPIES, floor, extra=extra)


def _copy(bridge: Bridge, file: Path, topic: str) -> float:
    settings = {
        "target": bridge.target,
        "file": str(file),
        "topic": topic,
        "copies": _COPIES,
        "each": 1,
        "seconds": 0,
    }
    _, wall_s = run_together("copies", [settings])
    return wall_s
