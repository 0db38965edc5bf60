"""The tombstone of a segment: what a delete puts at the index's own key (docs/architecture.md, "Store layout").

Magic `TBTS` · version u8 · header length u32 · JSON header · the bytes of the index it replaced, if there was one ·
CRC32C u32 of all before; little-endian. The old index stays inside because the publish plan still needs a deleted
segment's epochs and batches (publish rules R5 and R6), until the segment is reclaimed.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Literal

import crc32c

from converter import stored_json
from rsm_bridge.errors import BridgeError

MAGIC = b"TBTS"
VERSION = 1
_HEAD = struct.Struct("<4sBI")
_CRC = struct.Struct("<I")
HEADER_BYTES_MAX = 1024 * 1024
_encode = json.JSONEncoder(sort_keys=True).encode

Kind = Literal["deleted", "withdrawn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A delete. `deleted`: retention, Kafka had custom metadata; `withdrawn`: a failed copy. `index` may be empty.

    reclaiming: its objects are being removed; there is no way back to an index. forgotten: not Kafka deleted it, but
    `tierberg topic forget`. Readers that do not know this take it for Kafka's.
    """

    kind: Kind
    time_ms: int
    topic: str
    cluster_name: str
    index: bytes = b""
    reclaiming: bool = False
    forgotten: bool = False

    def encode(self) -> bytes:
        """The object's bytes."""
        fields: dict[str, object] = {
            "cluster_name": self.cluster_name,
            "kind": self.kind,
            "time_ms": self.time_ms,
            "topic": self.topic,
        }
        if self.reclaiming:
            fields["reclaiming"] = True
        if self.forgotten:
            fields["forgotten"] = True
        header = _encode(fields).encode()
        body = b"".join((_HEAD.pack(MAGIC, VERSION, len(header)), header, self.index))
        return body + _CRC.pack(crc32c.crc32c(body))


def is_tombstone(head: bytes | memoryview) -> bool:
    """Whether an object at an index's key, of which at least four bytes are given, is a tombstone."""
    return bytes(head[:4]) == MAGIC


def index_start(head: bytes | memoryview) -> int:
    """Where the index begins that a tombstone replaced; `head` are its first bytes, unchecked, at least nine."""
    return _HEAD.size + int(_HEAD.unpack_from(head)[2])


def decode_tombstone(data: bytes) -> Tombstone:
    """The whole object, checked.

    Raises:
        BridgeError: `corrupt_object`, or `unsupported_version` for one of a newer release.
    """
    if len(data) < _HEAD.size + _CRC.size or not is_tombstone(data):
        raise BridgeError("corrupt_object", "not a tombstone")
    _, version, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise BridgeError("unsupported_version", f"tombstone version {version}, this release knows {VERSION}")
    body = memoryview(data)[: -_CRC.size]
    if crc32c.crc32c(body) != _CRC.unpack_from(data, len(body))[0]:
        raise BridgeError("corrupt_object", "the tombstone fails its checksum")
    if length > min(HEADER_BYTES_MAX, len(body) - _HEAD.size):
        raise BridgeError("corrupt_object", "the tombstone's header is longer than the object")
    try:
        header = stored_json.fields(stored_json.parse(body[_HEAD.size : _HEAD.size + length]))
        return Tombstone(
            kind=_kind(header.get("kind")),
            time_ms=stored_json.whole(header.get("time_ms"), 0),
            topic=stored_json.text(header.get("topic")),
            cluster_name=stored_json.text(header.get("cluster_name")),
            index=bytes(body[_HEAD.size + length :]),
            reclaiming=stored_json.truth(header.get("reclaiming", False)),
            forgotten=stored_json.truth(header.get("forgotten", False)),
        )
    except ValueError as error:
        raise BridgeError("corrupt_object", f"the tombstone does not parse: {error}") from error


def tombstone_at(key: str, data: bytes) -> Tombstone:
    """The whole object at an index's key. Raises what decode_tombstone raises, with the key."""
    try:
        return decode_tombstone(data)
    except BridgeError as error:
        raise BridgeError(error.kind, f"{key}: {error}") from error


def _kind(value: object) -> Kind:
    if value == "deleted":
        return "deleted"
    if value == "withdrawn":
        return "withdrawn"
    raise ValueError("its kind is neither deleted nor withdrawn")
