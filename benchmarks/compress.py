"""Record compression as Kafka's Java producer writes it: the same framings, the default levels (KIP-98, KIP-110)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from types import MappingProxyType

import cramjam
import lz4.frame
import zstandard

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: Codec number in the low three bits of a batch's attributes.
CODEC_NUMBERS = MappingProxyType({name: number for number, name in enumerate(CODECS)})

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3


def compress(codec: str, data: memoryview) -> bytes:
    """`data` in the framing of `codec`.

    Raises:
        KeyError: `codec` is not one of CODECS.
    """
    return _COMPRESSORS[codec](data)


def _gzip(data: memoryview) -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4(data: memoryview) -> bytes:
    frame = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    return bytes(frame)


def _zstd(data: memoryview) -> bytes:
    # A stream, so that like Kafka's the frame declares no content size.
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    return compressor.compress(data) + compressor.flush()


_COMPRESSORS: dict[str, Callable[[memoryview], bytes]] = {
    "none": bytes,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
