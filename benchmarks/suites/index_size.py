"""Bytes of the segment index, and what the rows took in Parquet."""

from __future__ import annotations

from benchmarks.conversion import convert
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.segments import segment

_KAFKA_INDEX_BYTES = 8 + 12  # an entry of the offset index and one of the time index
_KAFKA_INTERVAL_BYTES = 4096  # index.interval.bytes
_BATCH_HEADER_BYTES = 61


def measure(plan: Plan) -> Cases:
    """Cases of index_bytes_16k (per MiB of segment) and index_bytes_one_record (per batch)."""
    bytes_max = 16_000_000 if plan.quick else 128_000_000
    cases: Cases = {}
    if plan.wants("index_bytes_16k"):
        cases["index_bytes_16k"] = [_per_mib(payload, bytes_max) for payload in plan.payloads("index_bytes_16k")]
    if plan.wants("index_bytes_one_record"):
        payloads = plan.payloads("index_bytes_one_record")
        cases["index_bytes_one_record"] = [_per_batch(payload, bytes_max // 10) for payload in payloads]
    return cases


def _per_mib(payload: str, bytes_max: int) -> Case:
    one = segment(payload, "none", "16k", bytes_max)
    stored = convert(one)
    mib = len(one.data) / 2**20
    # Kafka writes an entry at a batch's start, so batches larger than the interval get one each.
    floor = _KAFKA_INDEX_BYTES * min(one.batches, len(one.data) / _KAFKA_INTERVAL_BYTES) / mib
    parquet_share = len(stored.data) / len(one.data)
    return Case(one.name, len(stored.index) / mib, floor, extra={"parquet_bytes_per_segment_byte": parquet_share})


def _per_batch(payload: str, bytes_max: int) -> Case:
    one = segment(payload, "none", "one", bytes_max)
    stored = convert(one)
    extra = {
        "index_mib_per_gib": len(stored.index) / len(one.data) * 1024,
        "parquet_bytes_per_segment_byte": len(stored.data) / len(one.data),
    }
    return Case(one.name, len(stored.index) / one.batches, float(_BATCH_HEADER_BYTES), extra=extra)
