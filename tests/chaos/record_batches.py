"""Record batches, format v2 (KIP-98), taken apart in plain Python. Shares no code with the product."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from tests.chaos.contents import digest

HEADER = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_XERIAL = b"\x82SNAPPY\x00"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Rec(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch; `raw` is all of it, from the base offset on."""

    base: int
    last: int
    epoch: int
    attributes: int
    producer_id: int
    max_timestamp: int
    base_timestamp: int
    count: int
    raw: memoryview

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & _CODEC]

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def identity(self) -> tuple[int, ...]:
        """What a served batch has in common with the broker's, whatever its codec."""
        fields = HEADER.unpack_from(self.raw)
        attributes = self.attributes & ~_CODEC
        return (fields[0], fields[2], fields[3], attributes, *fields[6:])

    def body(self) -> bytes:
        """The records, not compressed."""
        held = bytes(self.raw[HEADER.size :])
        match self.attributes & _CODEC:
            case 0:
                return held
            case 1:
                return gzip.decompress(held)
            case 2:
                return _snappy(held)
            case 3:
                return bytes(lz4.frame.decompress(held))
            case _:
                return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(held)).read()

    def records(self) -> Iterator[Rec]:
        """Its records; of a control batch the marker."""
        body, at = self.body(), 0
        for _ in range(self.count):
            length, at = _varint(body, at)
            yield self._record(body, at)
            at += length
        if at != len(body):
            raise ValueError(f"{len(body) - at} bytes after the last record of the batch at {self.base}")

    def commits(self) -> bool:
        """Of a control batch: whether it is a COMMIT."""
        body = self.body()
        _, at = _varint(body, 0)
        at += 1
        for _ in range(2):
            _, at = _varint(body, at)
        _, at = _varint(body, at)
        return bool(struct.unpack_from(">hh", body, at)[1])

    def _record(self, body: bytes, at: int) -> Rec:
        delta_ms, at = _varint(body, at + 1)
        delta, at = _varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        count, at = _varint(body, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(body, at)
            held, at = _bytes(body, at)
            headers.append(((name or b"").decode(), held))
        when = self.max_timestamp if self.attributes & _LOG_APPEND else self.base_timestamp + delta_ms
        return Rec(self.base + delta, when, digest(key, value, headers))


def batches(data: bytes | memoryview) -> Iterator[Batch]:
    """The whole batches from the start of `data` on; ends at the first that is not whole or no batch."""
    view, at = memoryview(data), 0
    while len(view) - at >= HEADER.size:
        base, length, epoch, magic, _, attributes, delta, first, largest, producer, _, _, count = HEADER.unpack_from(
            view, at
        )
        end = at + _OVERHEAD + length
        if magic != 2 or length < HEADER.size - _OVERHEAD or end > len(view):
            return
        yield Batch(base, base + delta, epoch, attributes, producer, largest, first, count, view[at:end])
        at = end


def _snappy(held: bytes) -> bytes:
    if not held.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(held))
    parts, at = [], 16
    while at < len(held):
        (size,) = struct.unpack_from(">i", held, at)
        parts.append(bytes(cramjam.snappy.decompress_raw(held[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
