"""Real log segments out of payloads: record batch v2, byte for byte as a producer writes it (KIP-98), CRCs valid.

Keys are null, headers empty, no producer id; timestamps rise by one millisecond a record. Batches hold as many whole
records as fit `batch_bytes` uncompressed (Kafka's `batch.size` bounds the same), at least one.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np
from crc32c import crc32c

from benchmarks.compress import CODEC_NUMBERS, compress
from benchmarks.payloads import Int64Array, Records, UInt8Array, records
from converter.types import LeaderEpoch, SegmentMetadata

#: Bytes of a batch; `one` makes batches of one record each.
BATCH_BYTES = {"one": 1, "16k": 16 * 1024, "1m": 1024 * 1024}
BASE_TIMESTAMP_MS = 1_700_000_000_000

_HEADER = struct.Struct(">qiibIhiqqqhii")  # base offset … records count: 61 bytes
_CRC_START = 21  # attributes: the first byte under the CRC
_RECORD_BYTES_OVERHEAD_MAX = 32  # five varints, the attributes and the header count

_TOPIC_ID = uuid.UUID("7ae1c09d-4a09-4b5c-9b55-0c2f4f7f6b61").bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's bytes and what KIP-405 says about it. `records_bytes`: size of its batches uncompressed."""

    name: str
    data: bytes
    metadata: SegmentMetadata
    records_bytes: int
    batches: int
    records: int


@lru_cache(maxsize=2)
def segment(payload: str, codec: str, batch: str, bytes_max: int) -> Segment:
    """The segment that holds `bytes_max` of values of `payload`, in batches of BATCH_BYTES[batch]."""
    return build_segment(f"{payload}/{codec}/{batch}", records(payload, bytes_max), codec, BATCH_BYTES[batch])


def build_segment(name: str, values: Records, codec: str, batch_bytes: int) -> Segment:
    """One segment from offset 0 on.

    Raises:
        ValueError: there are no values.
    """
    if not len(values):
        raise ValueError(f"{name}: no record fits")
    parts: list[bytes] = []
    uncompressed = 0
    first = 0
    scratch = np.empty(batch_bytes + _RECORD_BYTES_OVERHEAD_MAX, dtype=np.uint8)
    while first < len(values):
        last = batch_end(values.offsets, first, batch_bytes)
        needed = int(values.offsets[last] - values.offsets[first]) + (last - first) * _RECORD_BYTES_OVERHEAD_MAX
        if needed > len(scratch):
            scratch = np.empty(needed, dtype=np.uint8)
        body_bytes = encode_records(values.data, values.offsets, first, last, scratch)
        uncompressed += _HEADER.size + body_bytes
        parts.append(_batch(first, last - first, codec, scratch[:body_bytes]))
        first = last
    data = b"".join(parts)
    return Segment(name, data, _metadata(name, len(data), len(values)), uncompressed, len(parts), len(values))


def _batch(base_offset: int, count: int, codec: str, body: UInt8Array) -> bytes:
    payload = compress(codec, body.data)
    base_timestamp = BASE_TIMESTAMP_MS + base_offset
    header = bytearray(
        _HEADER.pack(
            base_offset,
            _HEADER.size - 12 + len(payload),
            0,  # leader epoch
            2,  # magic
            0,  # CRC, below
            CODEC_NUMBERS[codec],
            count - 1,
            base_timestamp,
            base_timestamp + count - 1,
            -1,
            -1,
            -1,
            count,
        )
    )
    checksum = crc32c(payload, crc32c(memoryview(header)[_CRC_START:]))
    struct.pack_into(">I", header, _CRC_START - 4, checksum)
    return bytes(header) + payload


def _metadata(name: str, size: int, count: int) -> SegmentMetadata:
    return SegmentMetadata(
        cluster_name="benchmark",
        topic="benchmark",
        topic_id=_TOPIC_ID,
        partition=0,
        segment_id=uuid.uuid5(uuid.UUID(bytes=_TOPIC_ID), name).bytes,
        start_offset=0,
        end_offset=count - 1,
        max_timestamp_ms=BASE_TIMESTAMP_MS + count - 1,
        broker_id=0,
        event_timestamp_ms=BASE_TIMESTAMP_MS + count,
        segment_size_bytes=size,
        leader_epochs=(LeaderEpoch(0, 0),),
    )


@numba.njit(cache=True)
def batch_end(offsets: Int64Array, first: int, batch_bytes: int) -> int:
    """The record after the last one that still fits; at least first + 1."""
    size = 0
    for record in range(first, len(offsets) - 1):
        value_size = offsets[record + 1] - offsets[record]
        size += _record_size(value_size, record - first)
        if size + 61 > batch_bytes and record > first:
            return record
    return len(offsets) - 1


@numba.njit(cache=True)
def encode_records(data: UInt8Array, offsets: Int64Array, first: int, last: int, out: UInt8Array) -> int:
    """Writes the records [first, last) as one batch's records; returns the bytes written."""
    at = 0
    for record in range(first, last):
        value_size = offsets[record + 1] - offsets[record]
        delta = record - first
        body = 1 + 2 * _varint_size(delta) + 1 + _varint_size(value_size) + value_size + 1
        at = _put_varint(out, at, body)
        out[at] = 0  # attributes
        at = _put_varint(out, at + 1, delta)  # timestamp delta, milliseconds
        at = _put_varint(out, at, delta)  # offset delta
        at = _put_varint(out, at, -1)  # key: null
        at = _put_varint(out, at, value_size)
        out[at : at + value_size] = data[offsets[record] : offsets[record + 1]]
        at += value_size
        at = _put_varint(out, at, 0)  # headers
    return at


@numba.njit(cache=True)
def _record_size(value_size: int, delta: int) -> int:
    body = 1 + 2 * _varint_size(delta) + 1 + _varint_size(value_size) + value_size + 1
    return int(_varint_size(body) + body)


@numba.njit(cache=True)
def _varint_size(value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


@numba.njit(cache=True)
def _put_varint(out: UInt8Array, at: int, value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        out[at] = (zigzag & 0x7F) | 0x80
        zigzag >>= 7
        at += 1
    out[at] = zigzag
    return at + 1
