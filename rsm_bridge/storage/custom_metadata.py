"""The custom metadata that Kafka keeps with a finished segment (KIP-405; the broker allows 128 bytes).

`TBM1` · flags u8 · attempt id 16 B · index size u32 · directory size u32 · data size u64 · kept size u64 · CRC32C u32
of all before; little-endian. A finished copy always has it, so a delete without it withdraws a failed copy.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import crc32c

from rsm_bridge.errors import BridgeError

MAGIC = b"TBM1"
FLAG_VERBATIM = 1
_BODY = struct.Struct("<4sB16sIIQQ")
_CRC = struct.Struct("<I")
SIZE_BYTES = _BODY.size + _CRC.size


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadata:
    """Where a copy's objects are and how large. Sizes in bytes; `attempt` is 16 bytes."""

    attempt: bytes
    index_size: int
    directory_size: int
    data_size: int
    kept_size: int
    verbatim: bool = False

    def encode(self) -> bytes:
        """The bytes Kafka keeps."""
        body = _BODY.pack(
            MAGIC,
            FLAG_VERBATIM if self.verbatim else 0,
            self.attempt,
            self.index_size,
            self.directory_size,
            self.data_size,
            self.kept_size,
        )
        return body + _CRC.pack(crc32c.crc32c(body))


def decode_custom_metadata(data: bytes) -> CustomMetadata | None:
    """What Kafka kept for a segment; None when it has none.

    Raises:
        BridgeError: `foreign_segment` when the bytes are not ours.
    """
    if not data:
        return None
    if len(data) != SIZE_BYTES or not data.startswith(MAGIC):
        raise BridgeError("foreign_segment", "the segment's custom metadata was not written by Tierberg")
    body = data[: _BODY.size]
    if _CRC.unpack_from(data, _BODY.size)[0] != crc32c.crc32c(body):
        raise BridgeError("foreign_segment", "the segment's custom metadata fails its checksum")
    _, flags, attempt, index_size, directory_size, data_size, kept_size = _BODY.unpack(body)
    return CustomMetadata(
        attempt=attempt,
        index_size=index_size,
        directory_size=directory_size,
        data_size=data_size,
        kept_size=kept_size,
        verbatim=bool(flags & FLAG_VERBATIM),
    )
