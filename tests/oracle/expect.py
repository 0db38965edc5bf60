"""What the parser must make of a segment, worked out with the plain-Python oracle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from converter.batches.parser import SegmentParser
from converter.batches.rebuild import rebuild
from converter.batches.rows import row_buffers
from converter.types import BatchTable, ConvertOptions, ParsedStep
from tests.oracle.records import LZ4, Batch, DecodeError, Message, Record, decode_records, decompress, signed
from tests.oracle.strategies import MICROSECOND_LIMIT, Segment


def parse(segment: Segment, options: ConvertOptions | None = None, slice_bytes: int = 0) -> list[ParsedStep]:
    """All steps of a segment, fed in slices (0: whole)."""
    parser = SegmentParser(segment.metadata, options or ConvertOptions(), segment.transactions)
    steps: list[ParsedStep] = []
    size = slice_bytes or max(len(segment.data), 1)
    for start in range(0, len(segment.data), size):
        steps += parser.feed(segment.data[start : start + size])
    steps += parser.finish()
    assert parser.transaction_conflicts == 0
    return steps


def table(steps: Iterable[ParsedStep]) -> BatchTable:
    return np.concatenate([step.batches for step in steps])


def served(steps: Iterable[ParsedStep]) -> list[bytes]:
    """The served bytes of every batch, rebuilt from what the steps hold."""
    out = []
    for step in steps:
        kept = np.frombuffer(b"".join(step.kept), dtype=np.uint8)
        data = rebuild(step.batches, row_buffers(step.rows), step.timestamp_deltas, kept).tobytes()
        position = 0
        for size in step.batches["served_size"].tolist():
            out.append(data[position : position + size])
            position += size
        assert position == len(data)
    return out


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one batch: its readable records, or why there are none."""

    records: tuple[Record, ...] | None
    rows: bool


def expected(segment: Segment, i: int) -> Expected:
    batch = segment.batches[i]
    if isinstance(batch, Message) or batch.magic != 2 or batch.crc_error:
        return Expected(None, False)
    payload = batch.encode()[61:]
    count = len(batch.records) if batch.count is None else batch.count
    try:
        if batch.codec > LZ4 + 1:
            raise DecodeError("codec")
        records = decode_records(decompress(batch.codec, payload), count)
    except Exception:  # noqa: BLE001, each codec library has errors of its own
        return Expected(None, False)
    ascending = all(a.offset_delta < b.offset_delta for a, b in pairwise(records))
    if records and (records[0].offset_delta < 0 or records[-1].offset_delta > batch.last_offset_delta or not ascending):
        return Expected(None, False)
    rows = bool(records) and not batch.control and segment.outcome.decisions[i] != "aborted"
    return Expected(tuple(records), rows)


def timestamp_seen(batch: Batch, record: Record) -> int | None:
    """Milliseconds a consumer sees, None for -1 and for what microseconds cannot hold."""
    seen = batch.max_timestamp if batch.log_append_time else signed(batch.base_timestamp + record.timestamp_delta, 64)
    return None if seen == -1 or abs(seen) > MICROSECOND_LIMIT else seen


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def expected_rows(segment: Segment, value_format: str = "raw") -> list[dict[str, Any]]:
    """All rows of the segment, timestamps as microseconds."""
    rows = []
    for i, batch in enumerate(segment.batches):
        want = expected(segment, i)
        if not want.rows or want.records is None or isinstance(batch, Message):
            continue
        for record in want.records:
            seen = timestamp_seen(batch, record)
            row: dict[str, Any] = {
                "_kafka_partition": 7,
                "_kafka_offset": batch.base_offset + record.offset_delta,
                "_kafka_timestamp": None if seen is None else seen * 1000,
                "_kafka_timestamp_type": int(batch.log_append_time),
                "_kafka_key": record.key,
                "_kafka_headers": [
                    {"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers
                ],
                "_kafka_value": record.value,
                "_kafka_value_size": None if record.value is None else len(record.value),
            }
            if value_format == "string":
                good = record.value is None or is_text(record.value)
                row["value"] = record.value.decode() if good and record.value is not None else None
                row["_kafka_value"] = None if good else record.value
                row["_kafka_error"] = None if good else "invalid_utf8"
            rows.append(row)
    return rows


def actual_rows(steps: Iterable[ParsedStep]) -> list[dict[str, Any]]:
    """All rows of the steps, timestamps as microseconds (Python's datetime ends in the year 9999)."""
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    for step in steps:
        step.rows.validate(full=True)
        at = step.rows.schema.get_field_index("_kafka_timestamp")
        plain = step.rows.set_column(at, "_kafka_timestamp", step.rows.column(at).view(pa.int64()))
        rows += plain.to_pylist()
    return rows
