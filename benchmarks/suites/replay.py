"""Parquet and index → record batches, the whole segment in order, beside bare decompression of the same records."""

from __future__ import annotations

from functools import partial

from benchmarks.conversion import Stored, convert, replay_all, unzstd_floor, zstd_parts
from benchmarks.meters import Spent, interleaved, median, spent
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segments import segment

_PART_BYTES = 256 * 1024  # about a page


def measure(plan: Plan) -> Cases:
    """Cases of replay_cpu and replay_rate; GB of served bytes."""
    bytes_max, rounds = (8_000_000, 1) if plan.quick else (64_000_000, 3)
    cases: Cases = {"replay_cpu": [], "replay_rate": []}
    for payload in plan.payloads("replay_cpu", "replay_rate"):
        for batch in ("16k", "1m"):
            one = segment(payload, "none", batch, bytes_max)
            stored = convert(one)
            replay_all(convert(segment(payload, "none", batch, 3_000_000)))  # loads what the first call loads
            parts = zstd_parts(one.data, _PART_BYTES)
            work = [partial(_replay, stored, len(one.data)), partial(unzstd_floor, parts)]
            ours, floor = interleaved(work, rounds)
            _add(cases, f"{payload}/{batch}", len(one.data), ours, floor)
    return cases


def _replay(stored: Stored, size: int) -> Spent:
    with spent() as took:
        served = replay_all(stored)
    if served != size:
        raise ValueError(f"{served} bytes came back of {size}")
    return took


def _add(cases: Cases, name: str, size: int, ours: list[Spent], floor: list[Spent]) -> None:
    cpu = [took.cpu_s / (size / 1e9) for took in ours]
    cases["replay_cpu"].append(Case(name, median(cpu), median(took.cpu_s / (size / 1e9) for took in floor), cpu))
    rate = [size / 1e6 / took.wall_s for took in ours]
    floor_rate = median(size / 1e6 / took.wall_s for took in floor)
    cases["replay_rate"].append(Case(name, median(rate), floor_rate, rate))
