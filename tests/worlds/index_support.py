"""Segments for the tests of writer, index, page reader and replay, made without the parser.

Batches are encoded by plain Python (KIP-98) and described by the steps that a parser would make of them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from converter.batches.transactions import Transactions
from converter.index.codec import block_section, decode_block
from converter.index.model import Block, Directory, StoredObjects
from converter.parquet.columns import ERROR, ERROR_INVALID_UTF8, VALUE, row_schema
from converter.segment.reader import last_batch_within, plan_read, replay
from converter.segment.writer import SegmentWriter, WrittenSegment
from converter.types import (
    BATCH_DTYPE,
    BatchFlag,
    Cause,
    ConvertOptions,
    IndexType,
    LeaderEpoch,
    ParsedStep,
    SegmentMetadata,
    ValueFormat,
)

FILES = {
    IndexType.OFFSET: b"the broker's own, which is not kept",
    IndexType.TIMESTAMP: b"timestamps" * 7,
    IndexType.PRODUCER_SNAPSHOT: b"snapshot",
    IndexType.LEADER_EPOCH: b"",
}
OBJECTS = StoredObjects(bytes(range(16)), "data/key.parquet", "kept/key.kept", "data/key-tail.parquet")
Header = tuple[bytes, bytes | None]


@dataclass
class Record:
    """One record; deltas are relative to its batch."""

    offset_delta: int
    timestamp_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@dataclass
class Batch:
    """One batch. `kept`: stored as bytes; `exact`: its timestamp deltas are in the index."""

    base_offset: int
    records: list[Record] = field(default_factory=list)
    last_offset_delta: int = 0
    base_timestamp: int = 1_700_000_000_000
    attributes: int = 0
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    kept: bool = False
    exact: bool = False
    flags: int = 0
    cause: Cause = Cause.NONE
    original_size: int = 0  # other than the served size: as if it had been compressed

    def encode(self) -> bytes:
        """The served bytes."""
        body = b"".join(_record(record) for record in self.records)
        after = struct.pack(
            ">hiqqqhii",
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.base_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records),
        )
        head = struct.pack(">qiib", self.base_offset, 49 + len(body), self.leader_epoch, 2)
        return head + struct.pack(">I", crc32c(after + body)) + after + body


def varint(value: int) -> bytes:
    """A zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _record(record: Record) -> bytes:
    body = b"\0" + varint(record.timestamp_delta) + varint(record.offset_delta)
    body += _blob(record.key) + _blob(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _blob(name) + _blob(value)
    return varint(len(body)) + body


class StepBuilder:
    """Makes steps of batches; numbers count on from step to step."""

    def __init__(self, value_format: ValueFormat = "raw", field_ids: dict[str, int] | None = None) -> None:
        self.value_format: ValueFormat = value_format
        self.schema = row_schema(value_format, field_ids)
        self.rows = self.kept = self.deltas = self.source = 0

    def step(self, batches: Sequence[Batch]) -> ParsedStep:
        """One step of these batches."""
        table = np.zeros(len(batches), dtype=BATCH_DTYPE)
        rows: list[dict[str, object]] = []
        kept: list[memoryview | bytes] = []
        deltas: list[int] = []
        for entry, batch in zip(table, batches, strict=True):
            served = batch.encode()
            original = batch.original_size or len(served)
            has_rows = bool(batch.records) and batch.cause in (Cause.NONE, Cause.SERVED_SIZE, Cause.NOT_CANONICAL)
            flags = batch.flags | (BatchFlag.KEPT if batch.kept else 0) | (BatchFlag.ROWS if has_rows else 0)
            flags |= BatchFlag.EXACT_TIMESTAMPS if batch.exact else 0
            for name in ("base_offset", "last_offset_delta", "base_timestamp", "attributes", "leader_epoch"):
                entry[name] = getattr(batch, name)
            for name in ("producer_id", "producer_epoch", "base_sequence", "cause"):
                entry[name] = getattr(batch, name)
            entry["length"], entry["magic"], entry["count"] = original - 12, 2, len(batch.records)
            entry["max_timestamp"], entry["control_type"] = batch.base_timestamp, -1
            entry["crc"] = entry["served_crc"] = crc32c(served[21:])
            entry["flags"], entry["served_size"] = flags, len(served)
            entry["row_start"], entry["row_count"] = self.rows, len(batch.records) if has_rows else 0
            entry["kept_start"], entry["source_position"] = self.kept, self.source
            entry["timestamps_start"] = self.deltas if batch.exact else -1
            self.source += original
            if batch.exact:
                deltas += [record.timestamp_delta for record in batch.records]
                self.deltas += len(batch.records)
            if batch.kept:
                kept.append(served)
                self.kept += len(served)
            if has_rows:
                rows += [self._row(batch, record) for record in batch.records]
                self.rows += len(batch.records)
        return ParsedStep(
            table, pa.RecordBatch.from_pylist(rows, schema=self.schema), kept, np.array(deltas, dtype=np.int64)
        )

    def _row(self, batch: Batch, record: Record) -> dict[str, object]:
        timestamp = (batch.base_timestamp + record.timestamp_delta) * 1000
        row: dict[str, object] = {
            "_kafka_partition": 3,
            "_kafka_offset": batch.base_offset + record.offset_delta,
            "_kafka_timestamp": None if batch.exact else timestamp,
            "_kafka_timestamp_type": 0,
            "_kafka_key": record.key,
            "_kafka_headers": [{"key": k.decode(), "value": v} for k, v in record.headers],
            "_kafka_value": record.value,
            "_kafka_value_size": None if record.value is None else len(record.value),
        }
        if self.value_format == "string" and record.value is not None:
            try:
                row[VALUE] = record.value.decode()
                row["_kafka_value"] = None
            except UnicodeDecodeError:
                row[ERROR] = ERROR_INVALID_UTF8
        return row


@dataclass
class Stored:
    """A written segment with its objects, and what it must serve; `data` is data file and tail joined."""

    written: WrittenSegment
    data: bytes
    kept: bytes
    served: bytes

    @property
    def directory(self) -> Directory:
        """The directory, as the writer returned it."""
        return self.written.directory

    def data_files(self) -> list[bytes]:
        """Data file and tail, as far as there are any."""
        return data_files(self.directory, self.data)

    def block(self, number: int) -> Block:
        """Decode a block."""
        section = block_section(self.directory, number)
        return decode_block(self.directory, number, self.written.index[section.offset : section.offset + section.size])

    def read(self, block: Block, first: int, last: int) -> bytes:
        """Served bytes of a range of batches."""
        plan = plan_read(self.directory, block, first, last)
        data = [self.data[start : start + length] for start, length in plan.data]
        kept = [self.kept[start : start + length] for start, length in plan.kept]
        out = bytes(replay(self.directory, block, plan, data, kept))
        assert len(out) == plan.served_bytes
        return out

    def read_all(self, chunk_bytes: int = 1 << 20) -> bytes:
        """Everything, in chunks, front to back."""
        out = bytearray()
        for number in range(len(self.directory.blocks)):
            block = self.block(number)
            first = block.first_batch
            while first < block.first_batch + len(block.batches):
                last = last_batch_within(block, first, chunk_bytes)
                out += self.read(block, first, last)
                first = last + 1
        return bytes(out)


def data_files(directory: Directory, joined: bytes) -> list[bytes]:
    """Data file and tail of a segment, cut out of both joined."""
    found: list[bytes] = []
    for stored in directory.data_files:
        found.append(joined[: stored.size])
        joined = joined[stored.size :]
        assert crc32c(found[-1]) == stored.crc32c
    assert joined == b""
    return found


def metadata(size: int, start_offset: int = 0, end_offset: int | None = None) -> SegmentMetadata:
    """Segment metadata with everything in it set."""
    return SegmentMetadata(
        cluster_name="c",
        topic="t-ü",
        topic_id=b"T" * 16,
        partition=3,
        segment_id=b"S" * 16,
        start_offset=start_offset,
        end_offset=start_offset + 10**6 if end_offset is None else end_offset,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_001,
        segment_size_bytes=size,
        leader_epochs=(LeaderEpoch(0, start_offset),),
    )


def write(
    steps: Sequence[Sequence[Batch]],
    value_format: ValueFormat = "raw",
    *,
    start_offset: int = 0,
    transactions: Transactions | None = None,
    field_ids: dict[str, int] | None = None,
) -> Stored:
    """Write a segment of some steps."""
    builder = StepBuilder(value_format, field_ids)
    made = [builder.step(batches) for batches in steps]
    data, kept, tail = io.BytesIO(), io.BytesIO(), io.BytesIO()
    options = ConvertOptions(value_format=value_format)
    writer = SegmentWriter(metadata(builder.source, start_offset), options, builder.schema, data, kept, tail)
    for step in made:
        writer.add(step)
    written = writer.finish(FILES, Transactions() if transactions is None else transactions, OBJECTS)
    served = b"".join(batch.encode() for batches in steps for batch in batches)
    return Stored(written, data.getvalue() + tail.getvalue(), kept.getvalue(), served)


def simple_batches(count: int, records: int = 1, value: bytes = b"v" * 100) -> list[Batch]:
    """Batches one after another, with some of everything ordinary."""
    return [
        Batch(
            base_offset=i * records,
            last_offset_delta=records - 1,
            base_timestamp=1_700_000_000_000 + i,
            records=[
                Record(k, k, b"key%d" % (i % 7) if i % 3 else None, value, ((b"h", b"x"),) if i % 2 else ())
                for k in range(records)
            ],
        )
        for i in range(count)
    ]
