"""Decompression never goes beyond its limit, whatever the frame says about itself."""

from __future__ import annotations

import gzip
import random
import struct
import time

import cramjam
import lz4.frame
import pytest
import zstandard

from converter.batches.codecs import GZIP, LZ4, SNAPPY, ZSTD, LimitExceeded, PlainBuffer, Undecodable, decompress

LIMIT = 1 << 20
PLAIN = bytes(range(256)) * (LIMIT // 256)


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, 1)
    if codec == LZ4:
        return bytes(lz4.frame.compress(data))
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 65536])) for at in range(0, len(data), 65536)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=["gzip", "snappy", "lz4", "zstd"])


@CODECS
def test_exactly_the_limit_is_allowed(codec: int) -> None:
    out = PlainBuffer()
    assert decompress(codec, memoryview(compress(codec, PLAIN)), out, LIMIT) == LIMIT
    assert out.data[: out.size].tobytes() == PLAIN


@CODECS
@pytest.mark.parametrize("size", [LIMIT + 1, 64 * LIMIT])
def test_a_bomb_stops_at_the_limit(codec: int, size: int) -> None:
    out = PlainBuffer()
    out.append(b"held")
    with pytest.raises(LimitExceeded):
        decompress(codec, memoryview(compress(codec, b"\0" * size)), out, LIMIT)
    assert out.data[: out.size].tobytes() == b"held"
    assert len(out.data) <= 16 * LIMIT  # and it stopped early


def test_members_of_gzip_count_together() -> None:
    half = gzip.compress(b"\0" * (LIMIT // 2 + 1), 1)
    with pytest.raises(LimitExceeded):
        decompress(GZIP, memoryview(half * 2), PlainBuffer(), LIMIT)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1 << 18, (1 << 18) + 1])
def test_members_of_gzip_end_where_they_end(size: int) -> None:
    """They are given in portions, and one ends anywhere in its last."""
    parts = [random.Random(n).randbytes(size) + b"%d" % n for n in range(4)]
    out, data = PlainBuffer(), b"".join(gzip.compress(part, 1) for part in parts)
    assert decompress(GZIP, memoryview(data), out, 2 * LIMIT) == len(b"".join(parts))
    assert out.data[: out.size].tobytes() == b"".join(parts)
    with pytest.raises(Undecodable):
        decompress(GZIP, memoryview(data)[:-1], PlainBuffer(), 2 * LIMIT)


@pytest.mark.parametrize("content", [b"", b"x"])
def test_many_members_of_gzip_take_time_by_their_bytes(content: bytes) -> None:
    """Eight times as many took 64 times as long: hours for a segment."""

    def seconds(count: int) -> float:
        data, best = gzip.compress(content) * count, float("inf")
        for _ in range(3):
            start = time.thread_time()
            assert decompress(GZIP, memoryview(data), PlainBuffer(), LIMIT) == count * len(content)
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(80_000) < 24 * seconds(10_000)


def test_frames_of_zstd_count_together() -> None:
    half = zstandard.ZstdCompressor().compress(b"\0" * (LIMIT // 2 + 1))
    with pytest.raises(LimitExceeded):
        decompress(ZSTD, memoryview(half * 2), PlainBuffer(), LIMIT)


def test_a_snappy_block_that_claims_too_much_allocates_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 20  # 4 GiB
    with pytest.raises((LimitExceeded, Undecodable)):
        decompress(SNAPPY, memoryview(claim), PlainBuffer(), LIMIT)


@CODECS
def test_every_cut_is_noticed(codec: int) -> None:
    whole = compress(codec, b"some text, several times over; " * 40)
    for size in range(1, len(whole)):
        out = PlainBuffer()
        try:
            decompress(codec, memoryview(whole[:size]), out, LIMIT)
        except Undecodable:
            assert out.size == 0
        else:
            # A cut between blocks is whole for a format without an end mark.
            assert codec in (SNAPPY, ZSTD)
            assert out.size < len(b"some text, several times over; " * 40) or size >= len(whole) - 4
