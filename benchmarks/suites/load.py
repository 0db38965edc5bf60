"""Fetches while 30 copies run on the same bridge: the slowest of 20 consumers, and the bridge's memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.clients.process import Client
from benchmarks.meters import memory_bytes, peak_memory_bytes, reset_peak_memory
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segment_file import write_segment
from benchmarks.segments import segment
from stack.bridge import Bridge

_COPIES, _CONSUMERS = 30, 20
_SEGMENTS_PER_CONSUMER = 2
_MIB = 2**20


def measure(plan: Plan) -> Cases:
    """Cases of load_fetch_max and load_memory; each consumer reads segments that no other one reads."""
    seconds, bytes_max = (6, 16_000_000) if plan.quick else (30, 48_000_000)
    cases: Cases = {"load_fetch_max": [], "load_memory": []}
    for payload in plan.payloads("load_fetch_max", "load_memory"):
        file = write_segment(segment(payload, "none", "16k", bytes_max), plan.folder / payload)
        bridge = Bridge(plan.folder / f"bridge-{payload}")
        bridge.start()
        try:
            _add(cases, payload, bridge, file, seconds)
        finally:
            bridge.stop()
    return cases


def _add(cases: Cases, payload: str, bridge: Bridge, file: Path, seconds: int) -> None:
    alone = _idle(bridge, file)
    idle = memory_bytes(bridge.process.pid)
    settings = {"target": bridge.target, "file": str(file), "seconds": seconds}
    copying = {**settings, "topic": "load-copy", "copies": _COPIES, "each": 0}
    fetching = {**settings, "topic": "load-fetch", "consumers": _CONSUMERS, "segments": _SEGMENTS_PER_CONSUMER}
    with Client("fetches", fetching) as consumers, Client("copies", copying) as copiers:
        consumers.wait_ready()
        copiers.wait_ready()
        reset_peak_memory(bridge.process.pid)
        copiers.go()
        consumers.go()
        fetched, copied = consumers.result(), copiers.result()
    peak = peak_memory_bytes(bridge.process.pid)
    extra = {
        "p50_ms": fetched["p50_ms"],
        "p99_ms": fetched["p99_ms"],
        "cold_max_ms": fetched["cold_max_ms"],
        "fetches": fetched["fetches"],
        "fetch_mb_per_s": fetched["bytes"] / 1e6 / seconds,
        "copies": copied["copies"],
        "copy_mb_per_s": copied["bytes"] / 1e6 / max(seconds, copied["longest_s"]),
    }
    cases["load_fetch_max"].append(Case(payload, fetched["max_ms"], alone["max_ms"], extra=extra))
    cases["load_memory"].append(Case(payload, peak / _MIB, idle / _MIB, extra={"copies": copied["copies"]}))


def _idle(bridge: Bridge, file: Path) -> dict[str, float]:
    """One consumer on the idle bridge; also warms it."""
    settings = {"target": bridge.target, "file": str(file), "seconds": 4, "consumers": 1, "segments": 1}
    with Client("fetches", {**settings, "topic": "idle"}) as consumer:
        consumer.wait_ready()
        consumer.go()
        return consumer.result()
