"""Record batches in plain Python, written from KIP-98 and Kafka's DefaultRecord: slow, obvious, and the judge.

Shares no code with the converter. `Batch.encode()` can also write what no producer writes: padded varints, record
attributes, bytes left over, wrong CRCs, records of any bytes.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import cramjam
import crc32c
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
HEADER = struct.Struct(">qiibIhiqqqhii")  # the 61 bytes of magic 2

Header = tuple[bytes, bytes | None]


class DecodeError(Exception):
    """Kafka's DefaultRecord would throw here."""


def varint(value: int, padding: int = 0) -> bytes:
    """Zigzag varint; `padding` adds continuation bytes that change nothing."""
    raw = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


@dataclass(slots=True)
class Reader:
    data: bytes
    position: int = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.position:
            raise DecodeError("beyond the end")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, bits: int) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise DecodeError("varint too long")
        raw &= 2**bits - 1
        return signed((raw >> 1) ^ -(raw & 1), bits)

    def nullable(self) -> bytes | None:
        size = self.varint(32)
        return None if size < 0 else self.take(size)


@dataclass(frozen=True, slots=True)
class Record:
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    attributes: int = 0
    padding: int = 0  # surplus bytes of the offset delta's varint
    extra: bytes = b""  # after the headers, inside the record's length
    null_length: int = -1  # length written for nulls

    def encode(self) -> bytes:
        def nullable(data: bytes | None) -> bytes:
            return varint(self.null_length) if data is None else varint(len(data)) + data

        body = bytes([self.attributes]) + varint(self.timestamp_delta) + varint(self.offset_delta, self.padding)
        body += nullable(self.key) + nullable(self.value) + varint(len(self.headers))
        for name, value in self.headers:
            body += varint(len(name)) + name + nullable(value)
        body += self.extra
        return varint(len(body)) + body

    @property
    def plain(self) -> Record:
        """What a reader sees of it."""
        return Record(self.offset_delta, self.timestamp_delta, self.key, self.value, self.headers)


def decode_records(data: bytes, count: int) -> list[Record]:
    reader = Reader(data)
    records = []
    if count < 0:
        raise DecodeError("negative count")
    for _ in range(count):
        record = Reader(reader.take(reader.varint(32)))
        record.take(1)
        timestamp_delta, offset_delta = record.varint(64), record.varint(32)
        key, value = record.nullable(), record.nullable()
        headers: list[Header] = []
        header_count = record.varint(32)
        if header_count < 0 or header_count > len(record.data) - record.position:
            raise DecodeError("header count")
        for _ in range(header_count):
            name = record.take(record.varint(32))
            headers.append((name, record.nullable()))
        if record.position != len(record.data):
            raise DecodeError("bytes left in the record")
        records.append(Record(offset_delta, timestamp_delta, key, value, tuple(headers)))
    if count and reader.position != len(data):
        raise DecodeError("bytes left in the batch")
    return records


def xerial(data: bytes, block: int = 1000) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        piece = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        out += struct.pack(">i", len(piece)) + piece
    return out


def compress(codec: int, data: bytes, variant: int = 0) -> bytes:
    """`variant` 1 is another legal form: raw snappy, two gzip members, two zstd frames, an lz4 frame with its size.

    `variant` 2 is no legal form, and Kafka's readers pass over what is wrong with it: bytes behind a gzip member, less
    than a size behind blocks of snappy, a size and a checksum of an lz4 frame that are not those of its content. Of
    zstd they pass over nothing.
    """
    half = len(data) // 2 if variant == 1 else 0
    if codec == NONE:
        return data
    if codec == GZIP:
        whole = (gzip.compress(data[:half], 1) if variant == 1 else b"") + gzip.compress(data[half:], 1)
        return whole + bytes(30 if variant == 2 else 0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data)) if variant == 1 else xerial(data) + bytes(3 if variant else 0)
    if codec == LZ4:
        frame = bytes(lz4.frame.compress(data, block_linked=False, store_size=variant == 1, content_checksum=True))
        if variant == 2:
            return lz4_header(bytes([frame[4] | 8, frame[5]]) + b"\xff" * 7 + b"\x0f") + frame[7:-4] + b"none"
        return frame
    if codec == ZSTD:
        writer = zstandard.ZstdCompressor(level=1, write_content_size=variant != 1)
        return (writer.compress(data[:half]) if variant == 1 else b"") + writer.compress(data[half:])
    return data


@cache
def lz4_header(descriptor: bytes) -> bytes:
    """Magic, descriptor (flags, block size, content size, dictionary id) and the one checksum that readers accept."""
    for checksum in range(256):
        header = b"\x04\x22\x4d\x18" + descriptor + bytes([checksum])
        try:
            lz4.frame.get_frame_info(header)
        except RuntimeError:
            continue
        return header
    raise DecodeError("no descriptor of a frame")


def _lz4_frame(data: bytes) -> bytes:
    """Kafka's Lz4BlockInputStream: neither the content's size nor its checksum is compared, which must be there."""
    if lz4.frame.get_frame_info(data)["skippable"]:
        raise DecodeError("a frame without content")
    flags, start = data[4], 7
    start += 8 if flags & 8 else 0
    start += 4 if flags & 1 else 0
    reader = lz4.frame.LZ4FrameDecompressor()
    out = bytes(reader.decompress(lz4_header(bytes([flags & ~0b1101, data[5]])) + data[start:]))
    if not reader.eof or (flags & 4 and len(reader.unused_data or b"") < 4):
        raise DecodeError("a frame that is cut")
    return out


def _raw_snappy(block: bytes) -> bytes:
    """The library allocates what a block claims: snappy gives at most 64 bytes for three."""
    if cramjam.snappy.decompress_raw_len(block) > 32 * len(block):
        raise DecodeError("a block that claims more than it can hold")
    return bytes(cramjam.snappy.decompress_raw(block))


def _snappy_blocks(data: bytes) -> bytes:
    """snappy-java's SnappyInputStream: less than a size is the end, half of a magic begins the header of a stream."""
    out, p = bytearray(), 16
    while len(data) - p >= 4:
        size = struct.unpack_from(">i", data, p)[0]
        if data[p : p + 4] == b"\x82SNA":
            p += 16
            continue
        if size < 0 or size > len(data) - p - 4:
            raise DecodeError("a block beyond the end")
        out += _raw_snappy(data[p + 4 : p + 4 + size]) if size else b""
        p += 4 + size
    return bytes(out)


def _gzip_members(data: bytes) -> bytes:
    out = bytearray()
    while True:
        member = zlib.decompressobj(wbits=31)
        out += member.decompress(data)
        if not member.eof:
            raise DecodeError("a member that is cut")
        data = member.unused_data
        if not _is_gzip_member(data):
            return bytes(out)


def _is_gzip_member(data: bytes) -> bool:
    """java.util.zip.GZIPInputStream: behind a member, what is no whole header, or is below 19 bytes, is the end."""
    reader = Reader(data)
    try:
        begins = reader.take(3) == b"\x1f\x8b\x08"
        flags = reader.take(7)[0]
        if flags & 4:
            reader.take(int.from_bytes(reader.take(2), "little"))
        for flag in (8, 16):
            while flags & flag and reader.take(1) != b"\0":
                pass
        checksum = zlib.crc32(data[: reader.position]) & 0xFFFF
        return begins and len(data) > 18 and (not flags & 2 or int.from_bytes(reader.take(2), "little") == checksum)
    except DecodeError:
        return False


def decompress(codec: int, data: bytes) -> bytes:
    """What Kafka's readers give; of snappy also what lies around a block without bytes, at which they stop."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return _gzip_members(data)
    if codec == SNAPPY:
        return _snappy_blocks(data) if data.startswith(b"\x82SNAPPY\x00") else _raw_snappy(data)
    if codec == LZ4:
        return _lz4_frame(data)
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    raise DecodeError("unknown codec")


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    records: tuple[Record, ...]
    codec: int = NONE
    log_append_time: bool = False
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    high_attributes: int = 0  # bits 7 to 15, unused by Kafka
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int = 1_700_000_000_000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = 0
    last_offset_delta: int = 0
    magic: int = 2
    count: int | None = None  # declared number of records, where it lies
    payload: bytes | None = None  # instead of the compressed records
    trailing: bytes = b""  # after the last record, inside the batch
    crc_error: int = 0  # xored into the CRC
    variant: int = 0  # see compress()

    @property
    def attributes(self) -> int:
        return signed(
            self.codec
            | self.log_append_time << 3
            | self.transactional << 4
            | self.control << 5
            | self.delete_horizon << 6
            | self.high_attributes << 7,
            16,
        )

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def plain(self) -> bytes:
        """The uncompressed records section."""
        return b"".join(record.encode() for record in self.records) + self.trailing

    def encode(self) -> bytes:
        payload = compress(self.codec, self.plain, self.variant) if self.payload is None else self.payload
        count = len(self.records) if self.count is None else self.count
        covered = (
            struct.pack(
                ">hiqqqhii",
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                count,
            )
            + payload
        )
        crc = int(crc32c.crc32c(covered)) ^ self.crc_error
        prefix = struct.pack(">qiibI", self.base_offset, len(covered) + 9, self.leader_epoch, self.magic, crc)
        return prefix + covered


def marker(
    base_offset: int, producer_id: int, kind: int, *, leader_epoch: int = 0, epoch: int = 0, timestamp: int = 0
) -> Batch:
    """A control batch: kind 0 abort, 1 commit, others as KRaft writes them."""
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return Batch(
        base_offset,
        (record,),
        transactional=kind < 2,
        control=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=leader_epoch,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )


@dataclass(frozen=True, slots=True)
class Message:
    """Magic 0 or 1, one uncompressed message."""

    base_offset: int
    key: bytes | None
    value: bytes | None
    magic: int = 1
    timestamp: int = 1_700_000_000_000
    crc_error: int = 0
    attributes: int = 0

    @property
    def last_offset(self) -> int:
        return self.base_offset

    def encode(self) -> bytes:
        def nullable(data: bytes | None) -> bytes:
            return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

        covered = struct.pack(">bb", self.magic, self.attributes)
        if self.magic == 1:
            covered += struct.pack(">q", self.timestamp)
        covered += nullable(self.key) + nullable(self.value)
        crc = zlib.crc32(covered) ^ self.crc_error
        return struct.pack(">qiI", self.base_offset, len(covered) + 4, crc) + covered


@dataclass(frozen=True, slots=True)
class Decoded:
    """A magic 2 batch as read: every header field but length and CRC, codec bits apart, and its records."""

    base_offset: int
    leader_epoch: int
    attributes: int  # without the codec
    codec: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[Record, ...] = field(default=())

    def same_but_codec(self, other: Decoded) -> bool:
        names = [name for name in self.__slots__ if name != "codec"]
        return all(getattr(self, name) == getattr(other, name) for name in names)


def decode_batch(data: bytes) -> Decoded:
    """Decode one magic 2 batch, CRC checked; `data` is exactly its bytes."""
    base, length, epoch, magic, crc, attributes, last, first_ts, max_ts, *rest = HEADER.unpack_from(data)
    producer, producer_epoch, sequence, count = rest
    if magic != 2 or length + 12 != len(data):
        raise DecodeError("not one batch of magic 2")
    if crc32c.crc32c(data[21:]) != crc:
        raise DecodeError("CRC")
    codec = attributes & 7
    records = decode_records(decompress(codec, data[61:]), count)
    return Decoded(
        base, epoch, attributes & ~7, codec, last, first_ts, max_ts, producer, producer_epoch, sequence, tuple(records)
    )


def split_batches(data: bytes) -> list[bytes]:
    """Cut a stream of whole batches, of any magic."""
    out, p = [], 0
    while p < len(data):
        size = struct.unpack_from(">i", data, p + 8)[0] + 12
        out.append(data[p : p + size])
        p += size
    return out


def encode_all(batches: Sequence[Batch | Message]) -> bytes:
    return b"".join(batch.encode() for batch in batches)
