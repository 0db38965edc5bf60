"""Bytes that a typed topic stores per record: columns with value bytes, or alone, in Parquet; beside the zstd segment.

Residual bytes are those of the values that keep theirs, uncompressed, as a share of all values'.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.conversion import convert
from benchmarks.results import Case, Cases
from benchmarks.run import Plan
from benchmarks.typed_conversion import columns_for, decoder, typed_segment
from benchmarks.typed_payloads import VALUE_BYTES, split_name, typed_values
from converter.parquet.columns import RAW_VALUE


def measure(plan: Plan) -> Cases:
    """Cases of typed_stored_bytes, typed_stored_bytes_proven and typed_residual."""
    bytes_max = 4_000_000 if plan.quick else 32_000_000
    cases: Cases = {"typed_stored_bytes": [], "typed_stored_bytes_proven": [], "typed_residual": []}
    for payload in plan.payloads(*cases):
        always, proven, residual = _stored(payload, bytes_max)
        cases["typed_stored_bytes"].append(always)
        cases["typed_stored_bytes_proven"].append(proven)
        cases["typed_residual"].append(residual)
    return cases


def _stored(payload: str, bytes_max: int) -> tuple[Case, Case, Case]:
    values = typed_values(payload, bytes_max // VALUE_BYTES[split_name(payload)[1]])
    plain = typed_segment(payload, values)
    made = decoder(payload)
    always = len(convert(plain, columns=columns_for(payload, made)).data) / len(values)
    stored = convert(plain, columns=columns_for(payload, made, proven=True))
    proven = len(stored.data) / len(values)
    kept = pq.read_table(pa.BufferReader(bytes(stored.data)), columns=[RAW_VALUE]).column(RAW_VALUE)
    share = 100 * (pc.sum(pc.binary_length(kept)).as_py() or 0) / sum(map(len, values))
    segment = len(typed_segment(payload, values, "zstd").data) / len(values)
    extra = {
        "times_zstd_segment": always / segment,
        "zstd_segment_1m_batches": len(typed_segment(payload, values, "zstd", "1m").data) / len(values),
        "value_bytes_alone": len(convert(plain).data) / len(values),
        "uncompressed_segment": len(plain.data) / len(values),
    }
    return (
        Case(payload, always, segment, extra=extra),
        Case(payload, proven, segment, extra={"times_zstd_segment": proven / segment, "times_always": proven / always}),
        Case(payload, share, extra={"index_bytes_per_record": len(stored.index) / len(values)}),
    )
