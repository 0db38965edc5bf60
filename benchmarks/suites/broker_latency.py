"""What back-filling consumers do to producers and to consumers at the tail, beside LocalTieredStorage.

A steady producer and a consumer that follows it, on a topic of their own, while 0 or 10 consumers read a tiered topic
of the same broker over and over: at a pace that both systems keep, and as fast as each goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.clients.process import Client
from benchmarks.meters import median
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.systems import PARTITIONS, Kind, System, fill, running

_BACKFILLS = (0, 10)
#: By number of consumers: name and KB/s of each. 60 MB/s in all leaves both systems room.
_PACES: dict[int, dict[str, int]] = {0: {"": 0}, 10: {", 60 MB/s": 6000, ", as fast as it goes": 0}}
_IDS = tuple(f"{what}_p99_backfill_{number}" for what in ("produce", "tail") for number in _BACKFILLS)
_RATE = 1000  # records per second
_HISTORY, _LIVE = "history", "live"
_KINDS: tuple[Kind, ...] = ("local-tier", "tierberg", "tierberg-tls")
_OURS: tuple[tuple[Kind, str], ...] = (("tierberg", "plaintext"), ("tierberg-tls", "mTLS"))
_Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class _Load:
    payload: str
    backfills: int
    pace_kb_per_s: int
    seconds: int


def measure(plan: Plan) -> Cases:
    """Cases of the four p99 measures, plaintext and TLS."""
    seconds, rounds, bytes_max = (8, 1, 40_000_000) if plan.quick else (20, 2, 400_000_000)
    cases: Cases = {name: [] for name in _IDS}
    numbers = [number for number in _BACKFILLS if plan.wants(*(name for name in _IDS if name.endswith(f"_{number}")))]
    with running(_KINDS, plan.folder) as systems:
        for payload in plan.payloads(*_IDS):
            _fill(systems, payload, bytes_max)
            for number in numbers:
                for pace, kb_per_s in _PACES[number].items():
                    load = _Load(payload, number, kb_per_s, seconds)
                    _add(cases, f"{payload}{pace}", number, _measure(systems, load, rounds))
    return cases


def _measure(systems: list[System], load: _Load, rounds: int) -> dict[Kind, list[_Figures]]:
    found: dict[Kind, list[_Figures]] = {kind: [] for kind in _KINDS}
    for _ in range(rounds):
        for system in systems:
            found[system.kind].append(_run(system, load))
    for kind, figures in found.items():
        say(f"  {load}, {kind}: {figures}")
    return found


def _fill(systems: list[System], payload: str, bytes_max: int) -> None:
    fill(systems, _HISTORY, payload, bytes_max, "none")
    for system in systems:
        system.tier(_HISTORY)
        system.admin.create_topic(_LIVE, PARTITIONS, {"remote.storage.enable": "true"})
        _run(system, _Load(payload, 0, 0, 4))  # warms the broker; not counted


def _run(system: System, load: _Load) -> _Figures:
    seconds = load.seconds
    address = {"bootstrap": system.broker.bootstrap}
    producing = {**address, "topic": _LIVE, "payload": load.payload, "rate": _RATE, "seconds": seconds}
    tailing = {**address, "topic": _LIVE, "records": _RATE * seconds}
    filling = {
        **address,
        "topic": _HISTORY,
        "ends": system.ends[_HISTORY],
        "consumers": load.backfills,
        "pace_kb_per_s": load.pace_kb_per_s,
        "seconds": seconds + 2,
    }
    with (
        Client("latency", producing) as producer,
        Client("tail", tailing) as tail,
        Client("backfill", filling) as backfill,
    ):
        for client in (producer, tail, backfill):
            client.wait_ready()
        for client in (backfill, tail, producer):
            client.go()
        produced, tailed, filled = producer.result(), tail.result(), backfill.result()
    return {
        "produce_p99": produced["p99_ms"],
        "tail_p99": tailed["p99_ms"],
        "produce_p50": produced["p50_ms"],
        "tail_p50": tailed["p50_ms"],
        "backfill_mb_per_s": filled["bytes"] / 1e6 / (seconds + 2),
        "backfill_errors": filled["errors"],
    }


def _add(cases: Cases, case: str, number: int, found: dict[Kind, list[_Figures]]) -> None:
    for what in ("produce", "tail"):
        key = f"{what}_p99"
        floor = median(figures[key] for figures in found["local-tier"])
        for kind, name in _OURS:
            runs = [figures[key] for figures in found[kind]]
            extra = {
                "p50_ms": median(figures[f"{what}_p50"] for figures in found[kind]),
                "backfill_mb_per_s": median(figures["backfill_mb_per_s"] for figures in found[kind]),
                "floor_backfill_mb_per_s": median(figures["backfill_mb_per_s"] for figures in found["local-tier"]),
                "backfill_errors": sum(figures["backfill_errors"] for figures in found[kind]),
            }
            cases[f"{what}_p99_backfill_{number}"].append(Case(f"{case}, {name}", median(runs), floor, runs, extra))
