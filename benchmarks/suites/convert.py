"""Segment → Parquet and index, proof included, beside zstd-1 of the same records; all codecs, both batch sizes."""

from __future__ import annotations

from functools import partial

from benchmarks.conversion import Memory, convert, zstd_floor
from benchmarks.meters import Spent, interleaved, median, spent
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segments import Segment, segment

#: Every codec in the batches of a producer's defaults; large batches uncompressed and in the usual codec.
_FORMS = (
    ("none", "16k"),
    ("gzip", "16k"),
    ("snappy", "16k"),
    ("lz4", "16k"),
    ("zstd", "16k"),
    ("none", "1m"),
    ("zstd", "1m"),
)


def measure(plan: Plan) -> Cases:
    """Cases of convert_cpu and convert_rate; CPU seconds are of all threads, GB of uncompressed batches."""
    bytes_max, rounds = (8_000_000, 1) if plan.quick else (32_000_000, 2)
    cases: Cases = {"convert_cpu": [], "convert_rate": []}
    memory = Memory()
    for payload in plan.payloads("convert_cpu", "convert_rate"):
        plain = segment(payload, "none", "16k", bytes_max).data
        _convert(segment(payload, "none", "16k", bytes_max), memory)  # loads what the first call loads
        for codec, batch in _FORMS:
            one = segment(payload, codec, batch, bytes_max)
            ours, floor = interleaved([partial(_convert, one, memory), partial(zstd_floor, plain)], rounds)
            _add(cases, one, ours, floor, len(plain))
    return cases


def _convert(one: Segment, memory: Memory) -> Spent:
    with spent() as took:
        convert(one, memory)
    return took


def _add(cases: Cases, one: Segment, ours: list[Spent], floor: list[Spent], floor_bytes: int) -> None:
    gigabytes, floor_gigabytes = one.records_bytes / 1e9, floor_bytes / 1e9
    cpu = [took.cpu_s / gigabytes for took in ours]
    rate = [one.records_bytes / 1e6 / took.wall_s for took in ours]
    floor_cpu = median(took.cpu_s / floor_gigabytes for took in floor)
    extra = {"times_floor": median(cpu) / floor_cpu, "segment_bytes": float(len(one.data))}
    cases["convert_cpu"].append(Case(one.name, median(cpu), floor_cpu, cpu, extra))
    floor_rate = median(floor_bytes / 1e6 / took.wall_s for took in floor)
    cases["convert_rate"].append(Case(one.name, median(rate), floor_rate, rate))
