"""Decompression of a batch's records, never beyond a limit.

Each function writes into a caller's buffer of limit + 1 bytes at most, grown as bytes really come: what a frame says
about its size is not believed (zstd's one-shot call with a limit returned 64 MiB for a 1 MiB limit). Codec numbers are
the low three bits of the batch attributes. Snappy is Kafka's xerial framing, or one raw block.

What Kafka's own readers pass over is passed over here, so that a batch a consumer reads has rows: bytes behind an lz4
frame, its content size and content checksum, bytes behind a gzip member that begin no other, up to three bytes behind
the last snappy block.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import cramjam
import lz4.frame
import numpy as np
import zstandard
from isal import isal_zlib

from converter import limits
from converter.types import UInt8Array

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_SIZE_BYTES = 4
_PIECE_BYTES_MIN = 64 * limits.KIB
_PIECE_BYTES_MAX = 4 * limits.MIB
_GZIP_WBITS = 31
_GZIP_PORTION_BYTES_MIN = 512
_GZIP_PORTION_BYTES_MAX = 256 * limits.KIB
_GZIP_HEADER_BYTES = 10
_GZIP_MEMBER_BYTES_MIN = 19  # header, one byte, CRC and size
_GZIP_DEFLATE = b"\x1f\x8b\x08"
_GZIP_CHECKED, _GZIP_EXTRA, _GZIP_NAMED, _GZIP_COMMENTED = 2, 4, 8, 16  # flags, RFC 1952
_GZIP_TEXT = re.compile(rb"[^\0]*\0")
_LZ4_HEADER_BYTES = 7
_LZ4_FLAGS_AT = 4
_LZ4_DICTIONARY, _LZ4_CONTENT_CHECKSUM, _LZ4_CONTENT_SIZE = 1, 4, 8
_LZ4_CHECKSUM_BYTES = 4


class LimitExceeded(Exception):  # noqa: N818, a verdict on one batch that never leaves this room
    """The records are larger than the limit."""


class Undecodable(Exception):  # noqa: N818, likewise
    """The bytes do not follow the codec's format."""


class PlainBuffer:
    """Decompressed records of the batches of a step, one after another.

    before_large: called before the buffer grows beyond limits.SCRATCH_BYTES_MAX.
    """

    def __init__(self, before_large: Callable[[], None] = lambda: None) -> None:
        self._before_large = before_large
        self.data: UInt8Array = np.empty(limits.STEP_RECORDS_BYTES, dtype=np.uint8)
        self.size = 0

    def reset(self) -> None:
        """Forget the bytes; a buffer that one huge batch made large is dropped."""
        self.size = 0
        if len(self.data) > limits.SCRATCH_BYTES_MAX:
            self.data = np.empty(limits.STEP_RECORDS_BYTES, dtype=np.uint8)

    def room(self, size: int) -> UInt8Array:
        """At least `size` writable bytes after the ones held. Invalid after the next call."""
        if size > len(self.data) - self.size:
            wanted = max(self.size + size, 2 * len(self.data))
            if wanted > limits.SCRATCH_BYTES_MAX:
                self._before_large()
            grown = np.empty(wanted, dtype=np.uint8)
            grown[: self.size] = self.data[: self.size]
            self.data = grown
        return self.data[self.size :]

    def append(self, piece: bytes | memoryview) -> None:
        """Copy bytes to the end."""
        room = self.room(len(piece))
        room[: len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        self.size += len(piece)


def decompress(codec: int, data: memoryview, out: PlainBuffer, limit: int) -> int:
    """Append the decompressed bytes to `out` and return their number, 0 to `limit`.

    On an error `out` holds what it held before.

    Raises:
        LimitExceeded: there are more than `limit` bytes.
        Undecodable: damaged, cut or followed by something that Kafka's reader does not pass over, or an unknown codec.
    """
    start = out.size
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise Undecodable(f"codec {codec} is unknown")
    try:
        decoder(data, out, limit)
    except (LimitExceeded, Undecodable):
        out.size = start
        raise
    except (MemoryError, RuntimeError, ValueError, EOFError, OSError) as error:
        out.size = start
        raise Undecodable(str(error)) from error
    except _CODEC_ERRORS as error:
        out.size = start
        raise Undecodable(str(error)) from error
    return out.size - start


def _take(out: PlainBuffer, start: int, limit: int, piece: bytes | memoryview) -> None:
    if len(piece) > limit - (out.size - start):
        raise LimitExceeded
    out.append(piece)


def _piece_bytes(data: memoryview) -> int:
    """How much to ask a decoder for at once: enough for most batches, little enough to stop early."""
    return min(max(8 * len(data), _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)


def _gzip(data: memoryview, out: PlainBuffer, limit: int) -> None:
    """Every member gets its bytes in portions: at its end the library copies what it was given too much."""
    start, p = out.size, 0
    begins = len(data) > 0
    while begins:
        member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
        portion = _GZIP_PORTION_BYTES_MIN
        while True:
            chunk: bytes | memoryview = member.unconsumed_tail
            if not len(chunk):
                chunk = data[p : p + portion]
                p += len(chunk)
                portion = min(2 * portion, _GZIP_PORTION_BYTES_MAX)
            piece = member.decompress(chunk, _piece_bytes(data))
            _take(out, start, limit, piece)
            if member.eof:
                break
            if not piece and len(member.unconsumed_tail) == len(chunk):
                raise Undecodable("gzip member is cut")
        p -= len(member.unused_data)
        begins = _gzip_member_begins(data, p)


def _gzip_member_begins(data: memoryview, p: int) -> bool:
    """Whether a member follows one that ends at p.

    As for java.util.zip.GZIPInputStream, which takes for the end what is no whole header or is too short for a member.
    """
    if len(data) - p < _GZIP_MEMBER_BYTES_MIN or data[p : p + len(_GZIP_DEFLATE)] != _GZIP_DEFLATE:
        return False
    flags, end = data[p + 3], p + _GZIP_HEADER_BYTES
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for flag in (_GZIP_NAMED, _GZIP_COMMENTED):
        if flags & flag:
            text = _GZIP_TEXT.match(data, end)
            if text is None:
                return False
            end = text.end()
    if flags & _GZIP_CHECKED:
        checksum = int.from_bytes(data[end : end + 2], "little")
        return len(data) - end >= 2 and zlib.crc32(data[p:end]) & 0xFFFF == checksum
    return end <= len(data)


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """Kafka's reader ends where less than a block's size is left, and knows the next stream by half of its magic."""
    p = _XERIAL_HEADER_BYTES
    while len(data) - p >= _XERIAL_SIZE_BYTES:
        said = data[p : p + _XERIAL_SIZE_BYTES]
        if said == _XERIAL_MAGIC[:_XERIAL_SIZE_BYTES]:  # streams may be concatenated
            p += _XERIAL_HEADER_BYTES
            continue
        size = int.from_bytes(said, "big", signed=True)
        p += _XERIAL_SIZE_BYTES
        if size < 0 or size > len(data) - p:
            raise Undecodable("snappy block ends beyond the batch")
        yield data[p : p + size]
        p += size


def _snappy(data: memoryview, out: PlainBuffer, limit: int) -> None:
    start = out.size
    framed = len(data) >= _XERIAL_HEADER_BYTES and bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    for block in _xerial_blocks(data) if framed else (data,):
        if len(block) == 0:
            continue
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit - (out.size - start):
            raise LimitExceeded
        # Snappy gives at most 64 bytes for three: a longer claim is a lie and must not allocate.
        if size > 32 * len(block):
            raise Undecodable("snappy block claims more than it can hold")
        room = out.room(size)[:size]
        if cramjam.snappy.decompress_raw_into(block, room.data) != size:
            raise Undecodable("snappy block is shorter than it claims")
        out.size += size


@cache
def _lz4_header(block_size_id: int, block_linked: bool, block_checksum: bool) -> bytes:
    """A frame's header without content size, content checksum and dictionary."""
    context = lz4.frame.create_compression_context()
    header: bytes = lz4.frame.compress_begin(
        context, block_size=block_size_id, block_linked=block_linked, block_checksum=block_checksum
    )
    return header


def _lz4(data: memoryview, out: PlainBuffer, limit: int) -> None:
    """The frame behind a header of ours: Kafka's reader compares neither the content's size nor its checksum."""
    start = out.size
    about = lz4.frame.get_frame_info(data)  # it compares the header's own checksum
    if about["skippable"]:
        raise Undecodable("lz4 frame holds no records")
    flags = data[_LZ4_FLAGS_AT]
    header_size = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    frame = lz4.frame.LZ4FrameDecompressor()
    frame.decompress(_lz4_header(about["block_size_id"], about["block_linked"], about["block_checksum"]), max_length=1)
    chunk: bytes | memoryview = data[header_size:]
    while not frame.eof:
        piece = frame.decompress(chunk, max_length=_piece_bytes(data))
        if not piece and frame.needs_input and not frame.eof:
            raise Undecodable("lz4 frame is cut")
        _take(out, start, limit, piece)
        chunk = b""
    if flags & _LZ4_CONTENT_CHECKSUM and len(frame.unused_data or b"") < _LZ4_CHECKSUM_BYTES:
        raise Undecodable("lz4 frame is cut in its checksum")


class _ZstdContext(threading.local):
    """One decompression context per thread: making one costs as much as decompressing a small batch."""

    def __init__(self) -> None:
        self.decompressor: Any = _zstd_decompressor()

    def leave(self) -> None:
        """A context that a frame with a wide window made large is dropped."""
        if self.decompressor.memory_size() > limits.ZSTD_CONTEXT_BYTES_MAX:
            self.decompressor = _zstd_decompressor()


def _zstd_decompressor() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)


def _zstd(data: memoryview, out: PlainBuffer, limit: int) -> None:
    start = out.size
    try:
        with _ZSTD.decompressor.stream_reader(data, read_across_frames=True) as reader:
            while True:
                allowed = limit - (out.size - start)
                room = out.room(min(_piece_bytes(data), allowed + 1))
                count = reader.readinto(room[: min(len(room), allowed + 1)])
                if count == 0:
                    break
                if count > allowed:
                    raise LimitExceeded
                out.size += count
    finally:
        _ZSTD.leave()


_ZSTD_WINDOW_BYTES_MAX = 128 * limits.MIB
_ZSTD = _ZstdContext()

#: What the libraries raise beyond Python's own exceptions.
_CODEC_ERRORS: tuple[type[Exception], ...] = (
    cast(type[Exception], isal_zlib.error),
    cramjam.DecompressionError,
    zstandard.ZstdError,
)

_DECODERS: dict[int, Callable[[memoryview, PlainBuffer, int], None]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
