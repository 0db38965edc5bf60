"""1 MiB of served bytes at random offsets: block of the index cached, pages read from memory, batches rebuilt."""

from __future__ import annotations

import numpy as np

from benchmarks.conversion import Stored, blocks, chunk, convert, unzstd_floor, zstd_parts
from benchmarks.limits import FETCH_BYTES
from benchmarks.meters import Spent, median, percentile, spent
from benchmarks.payloads import SEED
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segments import segment
from converter.index.model import Block

_IDS = ("random_read_cpu_p50", "random_read_cpu_p99", "random_read_wall_p50", "random_read_wall_p99")


def measure(plan: Plan) -> Cases:
    """Cases of the four random_read measures, milliseconds per read."""
    bytes_max, reads = (32_000_000, 60) if plan.quick else (128_000_000, 300)
    cases: Cases = {name: [] for name in _IDS}
    for payload in plan.payloads(*_IDS):
        for batch in ("16k", "1m"):
            one = segment(payload, "none", batch, bytes_max)
            stored = convert(one)
            floor = _floor(one.data)
            _add(cases, f"{payload}/{batch}", _reads(stored, reads), floor)
            segment.cache_clear()
    return cases


def _floor(data: bytes) -> list[Spent]:
    return [unzstd_floor([part]) for part in zstd_parts(data[: 64 * FETCH_BYTES], FETCH_BYTES)]


def _reads(stored: Stored, reads: int) -> list[Spent]:
    decoded = list(blocks(stored))
    starts = np.concatenate([block.batches["position"] for block in decoded])
    generator = np.random.default_rng(SEED)
    took = [_read(stored, decoded, int(position)) for position in generator.choice(starts, reads + 5)]
    return took[5:]  # the first ones load code


def _read(stored: Stored, decoded: list[Block], position: int) -> Spent:
    """The batches from `position` on until they are 1 MiB, over the border of a block where need be."""
    with spent() as took:
        left = FETCH_BYTES
        for block in decoded:
            batches = block.batches
            if left <= 0 or int(batches["position"][-1]) < position:
                continue
            first = int(np.searchsorted(batches["position"], position, side="left"))
            sizes = np.cumsum(batches["served_size"][first:], dtype=np.int64)
            count = min(int(np.searchsorted(sizes, left, side="left")) + 1, len(sizes))
            left -= len(chunk(stored, block, first, first + count))
    return took


def _add(cases: Cases, name: str, took: list[Spent], floor: list[Spent]) -> None:
    cpu_ms, wall_ms = [one.cpu_s * 1000 for one in took], [one.wall_s * 1000 for one in took]
    floor_cpu, floor_wall = median(one.cpu_s * 1000 for one in floor), median(one.wall_s * 1000 for one in floor)
    cases["random_read_cpu_p50"].append(Case(name, percentile(cpu_ms, 50), floor_cpu))
    cases["random_read_cpu_p99"].append(Case(name, percentile(cpu_ms, 99), floor_cpu))
    cases["random_read_wall_p50"].append(Case(name, percentile(wall_ms, 50), floor_wall))
    cases["random_read_wall_p99"].append(Case(name, percentile(wall_ms, 99), floor_wall))
