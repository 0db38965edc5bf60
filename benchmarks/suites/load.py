"""Fetches while 30 copies run on the same bridge: the slowest of 20 consumers, and the bridge's memory.

Once with consumers that ask for 2 MiB a second each, each from its own moment on. Once as fast as it goes: then all
begin at once, all cold, 20 fetches are in flight always, and the latency is 20 MiB divided by what the cores give.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients.process import Client
from benchmarks.meters import memory_bytes, peak_memory_bytes, reset_peak_memory
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segment_file import write_segment
from benchmarks.segments import segment
from tierberg.stack.servers.bridge import Bridge

_COPIES, _CONSUMERS = 30, 20
_SEGMENTS_PER_CONSUMER = 2
_PACES_MS = {"2 MiB/s each": 500, "as fast as it goes": 0}
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class _Load:
    name: str
    bridge: Bridge
    file: Path
    seconds: int
    pace_ms: int


def measure(plan: Plan) -> Cases:
    """Cases of load_fetch_max and load_memory; each consumer reads segments that no other one reads."""
    seconds, bytes_max = (6, 16_000_000) if plan.quick else (30, 48_000_000)
    cases: Cases = {"load_fetch_max": [], "load_memory": []}
    for payload in plan.payloads("load_fetch_max", "load_memory"):
        file = write_segment(segment(payload, "none", "16k", bytes_max), plan.folder / payload)
        bridge = Bridge(plan.folder / f"bridge-{payload}")
        bridge.start()
        try:
            alone = _idle(bridge, file)
            idle = memory_bytes(bridge.process.pid)
            for name, pace_ms in _PACES_MS.items():
                load = _Load(f"{payload}, {name}", bridge, file, seconds, pace_ms)
                _add(cases, load, alone["max_ms"], idle)
        finally:
            bridge.stop()
    return cases


def _add(cases: Cases, load: _Load, alone_ms: float, idle: int) -> None:
    bridge, seconds = load.bridge, load.seconds
    settings = {"target": bridge.target, "file": str(load.file), "seconds": seconds}
    topic = f"load-{load.pace_ms}"
    copying = {**settings, "topic": f"{topic}-copy", "copies": _COPIES, "each": 0}
    fetching = {
        **settings,
        "topic": f"{topic}-fetch",
        "consumers": _CONSUMERS,
        "segments": _SEGMENTS_PER_CONSUMER,
        "pace_ms": load.pace_ms,
    }
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
    cases["load_fetch_max"].append(Case(load.name, fetched["max_ms"], alone_ms, extra=extra))
    cases["load_memory"].append(Case(load.name, peak / _MIB, idle / _MIB, extra={"copies": copied["copies"]}))


def _idle(bridge: Bridge, file: Path) -> dict[str, float]:
    """One consumer on the idle bridge; also warms it."""
    settings = {"target": bridge.target, "file": str(file), "seconds": 4, "consumers": 1, "segments": 1, "pace_ms": 0}
    with Client("fetches", {**settings, "topic": "idle"}) as consumer:
        consumer.wait_ready()
        consumer.go()
        return consumer.result()
