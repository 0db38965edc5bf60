"""CPU of a copy in the broker and in the bridge, beside LocalTieredStorage, per GB of log bytes copied.

A topic is filled first; only then are its segments closed and copied. The CPU that the idle processes use anyway is
taken off. A fresh broker compiles and interprets for its first gigabytes (measured: 5 CPU-s/GB, then 1.7), so some
copies come before those that count. Producers do not compress (their default), so that a GB of log is a GB of records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.conversion import zstd_floor
from benchmarks.meters import median
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.segments import segment
from benchmarks.systems import Kind, System, drop, fill, running

_IDS: dict[str, Kind] = {
    "copy_cpu_broker": "tierberg",
    "copy_cpu_bridge": "tierberg",
    "copy_cpu_broker_tls": "tierberg-tls",
    "copy_cpu_bridge_tls": "tierberg-tls",
}
_IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class _Copy:
    """CPU seconds per GB of log, and MB of log per second until it is gone from the broker's disk."""

    broker: float
    bridge: float


def measure(plan: Plan) -> Cases:
    """Cases of the four copy_cpu measures; the copies before the rounds are not counted."""
    bytes_max, rounds, warm_rounds = (48_000_000, 1, 1) if plan.quick else (300_000_000, 3, 8)
    wanted = list(dict.fromkeys(kind for name, kind in _IDS.items() if plan.wants(name)))
    kinds: list[Kind] = ["local-tier", *wanted]
    cases: Cases = {name: [] for name in _IDS}
    with running(kinds, plan.folder) as systems:
        payloads = plan.payloads(*_IDS)
        for number in range(warm_rounds if payloads else 0):
            _round(systems, payloads[0], bytes_max, f"warm-{number}")
        for payload in payloads:
            idle = {system.kind: _idle(system) for system in systems}
            found: dict[Kind, list[_Copy]] = {kind: [] for kind in kinds}
            for number in range(rounds):
                for kind, copy in _round(systems, payload, bytes_max, str(number), idle).items():
                    found[kind].append(copy)
            _add(cases, payload, found)
            say(f"  {payload}: {found}")
    return cases


def _round(
    systems: list[System], payload: str, bytes_max: int, name: str, idle: dict[Kind, _Copy] | None = None
) -> dict[Kind, _Copy]:
    topic = f"copy-{payload}-{name}"
    found = {}
    fill(systems, topic, payload, bytes_max, "none")
    for system in systems:
        found[system.kind] = _copy(system, topic, idle[system.kind] if idle else _Copy(0, 0))
    drop(systems, topic)
    return found


def _copy(system: System, topic: str, idle: _Copy) -> _Copy:
    gigabytes = system.log_bytes(topic) / 1e9
    broker, bridge, started = system.broker_cpu_s(), system.bridge_cpu_s(), time.monotonic()
    system.tier(topic)
    took = time.monotonic() - started
    return _Copy(
        (system.broker_cpu_s() - broker - idle.broker * took) / gigabytes,
        (system.bridge_cpu_s() - bridge - idle.bridge * took) / gigabytes,
    )


def _idle(system: System) -> _Copy:
    """CPU seconds per second of the idle processes."""
    broker, bridge = system.broker_cpu_s(), system.bridge_cpu_s()
    time.sleep(_IDLE_S)
    return _Copy((system.broker_cpu_s() - broker) / _IDLE_S, (system.bridge_cpu_s() - bridge) / _IDLE_S)


def _add(cases: Cases, payload: str, found: dict[Kind, list[_Copy]]) -> None:
    yardstick = median(copy.broker for copy in found["local-tier"])
    plain = segment(payload, "none", "16k", 64_000_000).data
    zstd = zstd_floor(plain).cpu_s / (len(plain) / 1e9)
    for name, kind in _IDS.items():
        runs = [copy.broker if "broker" in name else copy.bridge for copy in found.get(kind, [])]
        if runs:
            floor = yardstick if "broker" in name else zstd
            cases[name].append(Case(payload, median(runs), floor, runs))
