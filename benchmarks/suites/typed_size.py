"""Bytes that a typed topic stores per record: a Parquet file with value bytes and columns, beside the zstd segment."""

from __future__ import annotations

from benchmarks.conversion import convert
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.typed_conversion import columns_for, decoder, typed_segment
from benchmarks.typed_payloads import VALUE_BYTES, split_name, typed_values


def measure(plan: Plan) -> Cases:
    """Cases of typed_stored_bytes."""
    bytes_max = 4_000_000 if plan.quick else 32_000_000
    return {"typed_stored_bytes": [_stored(payload, bytes_max) for payload in plan.payloads("typed_stored_bytes")]}


def _stored(payload: str, bytes_max: int) -> Case:
    values = typed_values(payload, bytes_max // VALUE_BYTES[split_name(payload)[1]])
    plain = typed_segment(payload, values)
    always = len(convert(plain, columns=columns_for(payload, decoder(payload))).data) / len(values)
    segment = len(typed_segment(payload, values, "zstd").data) / len(values)
    extra = {
        "times_zstd_segment": always / segment,
        "zstd_segment_1m_batches": len(typed_segment(payload, values, "zstd", "1m").data) / len(values),
        "value_bytes_alone": len(convert(plain).data) / len(values),
        "uncompressed_segment": len(plain.data) / len(values),
    }
    return Case(payload, always, segment, extra=extra)
