"""Messages that carry payload, read and written by hand.

gRPC hands over and takes raw bytes (no deserializer): a frame's payload is a slice of the message it came in, and a
chunk's is joined once with its prefix. Through protobuf objects the same costs twice the CPU. The bytes are ordinary
protobuf (proto/tierberg/v1/rsm.proto); fields of other numbers are skipped, as protobuf asks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import crc32c
import numpy as np
from google.protobuf.message import DecodeError, Message

from converter.types import IndexType, Int64Array, LeaderEpoch, SegmentMetadata
from rsm_bridge.errors import BridgeError
from rsm_bridge.kafka_names import is_topic_name
from rsm_bridge.limits import (
    FRAME_BYTES_MAX,
    LATER_INDEX_BYTES_MAX,
    LATER_INDEXES_MAX,
    LEADER_EPOCHS_MAX,
    NAME_CHARS_MAX,
    OFFSET_MAX,
    SEGMENT_BYTES_MAX,
)
from rsm_bridge.proto import rsm_pb2

_FIXED32 = struct.Struct("<I")
_VARINT, _FIXED64, _BYTES, _FIXED32_TYPE = 0, 1, 2, 5

M = TypeVar("M", bound=Message)
Field = int | memoryview


@dataclass(frozen=True, slots=True)
class Start:
    """The first message of a copy.

    Attributes:
        segment: without its leader epochs.
        epochs: those, a row of (epoch, start offset) each: as objects, ten times as large, once the copy has its place.
        later: transaction indexes of later segments of the partition, ascending, their checksums already compared; the
            last entry of each may be cut.
        later_complete: they are all there are.
    """

    segment: SegmentMetadata
    epochs: Int64Array
    later: tuple[bytes, ...] = ()
    later_complete: bool = False

    def described(self) -> SegmentMetadata:
        """The segment with its leader epochs."""
        epochs = [LeaderEpoch(epoch, start) for epoch, start in self.epochs.tolist()]
        return replace(self.segment, leader_epochs=tuple(epochs))


@dataclass(frozen=True, slots=True)
class File:
    """A piece of a file beside the log, its checksum already compared; all of a small one.

    `position` is that of its first byte, `size` the file's: neither is compared with anything yet.
    """

    type: IndexType
    data: memoryview
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Log bytes from `position` on, not yet compared with `crc`."""

    position: int
    data: memoryview
    crc: int

    def check(self) -> None:
        """Raises BridgeError `damaged_in_transit` when the bytes are not what the shim read."""
        if crc32c.crc32c(self.data) != self.crc:
            raise BridgeError("damaged_in_transit", f"the frame at position {self.position} fails its checksum")


@dataclass(frozen=True, slots=True)
class End:
    """The last message of a copy; `size` is the sum of all frames in bytes."""

    size: int


CopyMessage = Start | File | Frame | End


def _bad(message: str) -> BridgeError:
    return BridgeError("bad_request", message)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _bad("malformed message: a varint does not end")


def fields(data: memoryview) -> dict[int, Field]:
    """The fields of one message by number; the last of a number wins. Payloads are slices, not copies.

    Raises:
        BridgeError: `bad_request` for bytes that are no protobuf message.
    """
    found: dict[int, Field] = {}
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise _bad("malformed message: field number 0")
        if wire_type == _VARINT:
            found[number], at = _varint(data, at)
            continue
        if wire_type == _BYTES:
            length, at = _varint(data, at)
        elif wire_type in (_FIXED32_TYPE, _FIXED64):
            length = 4 if wire_type == _FIXED32_TYPE else 8
        else:
            raise _bad(f"malformed message: wire type {wire_type}")
        if length > size - at:
            raise _bad("malformed message: a field is longer than the message")
        found[number] = data[at : at + length]
        at += length
    return found


def _payload(found: dict[int, Field], number: int) -> memoryview:
    value = found.get(number, memoryview(b""))
    if not isinstance(value, memoryview):
        raise _bad(f"malformed message: field {number} has the wrong type")
    return value


def _integer(found: dict[int, Field], number: int) -> int:
    value = found.get(number, 0)
    if not isinstance(value, int):
        raise _bad(f"malformed message: field {number} has the wrong type")
    return value - (1 << 64) if value >= 1 << 63 else value


def _checksum(found: dict[int, Field], number: int) -> int:
    value = _payload(found, number)
    if len(value) not in (0, 4):
        raise _bad("malformed message: a checksum is four bytes")
    return int(_FIXED32.unpack(value)[0]) if len(value) else 0


def parse_copy_request(data: bytes) -> CopyMessage:
    """One message of a copy, its payload sliced out of `data`.

    Raises:
        BridgeError: `bad_request`, or `damaged_in_transit` for a piece of a file that fails its checksum.
    """
    found = fields(memoryview(data))
    parts = [number for number in (1, 2, 3) if number in found]
    if len(parts) > 1 or (parts and 5 in found):
        raise _bad("a copy message holds exactly one of start, file, end or a frame")
    if 1 in found:
        start = parse(rsm_pb2.CopyStart(), bytes(_payload(found, 1)))
        # Kafka has no custom metadata yet; what else stands there would be kept while the copy waits.
        segment = replace(segment_metadata(start.segment), custom_metadata=b"")
        later = _later(start.later_transaction_indexes, segment.end_offset)
        return Start(segment, _epochs(start.segment), later, start.later_transaction_indexes_complete)
    if 2 in found:
        return _file(fields(_payload(found, 2)))
    if 3 in found:
        return End(_integer(fields(_payload(found, 3)), 1))
    frame = Frame(_integer(found, 4), _payload(found, 5), _checksum(found, 6))
    if not 0 < len(frame.data) <= FRAME_BYTES_MAX:
        raise _bad(f"a frame holds 1 to {FRAME_BYTES_MAX} bytes, not {len(frame.data)}")
    return frame


def _later(indexes: Sequence[rsm_pb2.LaterTransactionIndex], end_offset: int) -> tuple[bytes, ...]:
    size = sum(len(index.data) for index in indexes)
    if len(indexes) > LATER_INDEXES_MAX or size > LATER_INDEX_BYTES_MAX:
        raise _bad(f"{len(indexes)} later transaction indexes of {size} bytes are too many")
    for index in indexes:
        if index.base_offset <= end_offset:
            raise _bad("later_transaction_indexes are not ascending above end_offset")
        end_offset = index.base_offset
        if crc32c.crc32c(index.data) != index.data_crc32c:
            raise BridgeError("damaged_in_transit", f"the transaction index at {end_offset} fails its checksum")
    return tuple([index.data for index in indexes])


def _file(found: dict[int, Field]) -> File:
    number, data = _integer(found, 1), _payload(found, 2)
    if number not in IndexType._value2member_map_:
        raise _bad(f"unknown index type {number}")
    if len(data) > FRAME_BYTES_MAX:
        raise _bad(f"a piece of a file holds at most {FRAME_BYTES_MAX} bytes, not {len(data)}")
    if crc32c.crc32c(data) != _checksum(found, 3):
        raise BridgeError("damaged_in_transit", f"the {IndexType(number).name} file fails its checksum")
    return File(IndexType(number), data, _integer(found, 4), _integer(found, 5))


def parse(message: M, data: bytes) -> M:
    """Fills a protobuf message without payload.

    Raises:
        BridgeError: `bad_request` for bytes that are no such message.
    """
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _bad(f"malformed message: {error}") from error
    return message


def segment_metadata(message: rsm_pb2.SegmentMetadata) -> SegmentMetadata:
    """The segment a call is about, checked; without its leader epochs, which only a copy needs.

    Raises:
        BridgeError: `bad_request` naming the field that cannot be.
    """
    segment = SegmentMetadata(
        cluster_name=message.cluster_name,
        topic=message.topic,
        topic_id=message.topic_id,
        partition=message.partition,
        segment_id=message.segment_id,
        start_offset=message.start_offset,
        end_offset=message.end_offset,
        max_timestamp_ms=message.max_timestamp_ms,
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        segment_size_bytes=message.segment_size_bytes,
        leader_epochs=(),
        custom_metadata=message.custom_metadata,
    )
    if problems := _problems(segment):
        raise _bad(f"segment metadata: {'; '.join(problems)}")
    return segment


def _epochs(message: rsm_pb2.SegmentMetadata) -> Int64Array:
    """The segment's leader epochs, a row of (epoch, start offset) each."""
    count = len(message.leader_epochs)
    if count > LEADER_EPOCHS_MAX:
        raise _bad(f"segment metadata: {count} leader_epochs, more than {LEADER_EPOCHS_MAX}")
    flat = (number for entry in message.leader_epochs for number in (entry.epoch, entry.start_offset))
    epochs = np.fromiter(flat, dtype=np.int64, count=2 * count).reshape(count, 2)
    if (epochs[1:, 0] <= epochs[:-1, 0]).any() or (epochs[1:, 1] < epochs[:-1, 1]).any():
        raise _bad("segment metadata: leader_epochs are not ascending")
    return epochs


def _problems(segment: SegmentMetadata) -> list[str]:
    """What cannot be. Plain comparisons: every call comes through here."""
    found = []
    if len(segment.topic_id) != 16:
        found.append("topic_id is not 16 bytes")
    if len(segment.segment_id) != 16:
        found.append("segment_id is not 16 bytes")
    if not is_topic_name(segment.topic):
        found.append("topic is no name that Kafka gives")
    if len(segment.cluster_name) > NAME_CHARS_MAX:
        found.append("cluster_name is too long")
    if segment.partition < 0:
        found.append("partition is negative")
    if segment.start_offset < 0:
        found.append("start_offset is negative")
    if not segment.start_offset <= segment.end_offset <= OFFSET_MAX:
        found.append("end_offset is below start_offset, or the last there is")
    if not 0 <= segment.segment_size_bytes <= SEGMENT_BYTES_MAX:
        found.append("segment_size_bytes is out of range")
    return found


def _length_prefix(number: int, length: int) -> bytes:
    prefix = bytearray([number << 3 | _BYTES])
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix)


def fetch_chunk(data: memoryview | bytes) -> bytes:
    """A serialised FetchChunk; the payload is copied once, into the message."""
    return b"".join((_length_prefix(1, len(data)), data))
