"""Generated segments are real: read back by a plain decoder written from the format (KIP-98), CRCs included."""

import gzip
import struct
from collections.abc import Iterator

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from crc32c import crc32c

from benchmarks.compress import CODECS, compress
from benchmarks.payloads import PAYLOADS, Records, records
from benchmarks.segments import BASE_TIMESTAMP_MS, build_segment, segment

HEADER = struct.Struct(">qiibIhiqqqhii")


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def decompress(number: int, data: bytes) -> bytes:
    if number == 0:
        return data
    if number == 1:
        return gzip.decompress(data)
    if number == 2:
        assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
        out, at = b"", 16
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    if number == 3:
        return bytes(lz4.frame.decompress(data))
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def decode(data: bytes) -> Iterator[tuple[int, list[tuple[int, int, bytes]]]]:
    """(batch header, records) of every batch; each record is (offset, timestamp, value)."""
    at = 0
    while at < len(data):
        header = HEADER.unpack_from(data, at)
        base, length, epoch, magic, checksum, attributes, last_delta, first_ts, max_ts, pid, pepoch, seq, count = header
        end = at + 12 + length
        assert (epoch, magic, pid, pepoch, seq) == (0, 2, -1, -1, -1)
        assert crc32c(data[at + 21 : end]) == checksum
        body = decompress(attributes & 7, data[at + HEADER.size : end])
        rows, place = [], 0
        for _ in range(count):
            size, place = varint(body, place)
            stop = place + size
            assert body[place] == 0
            ts_delta, place = varint(body, place + 1)
            offset_delta, place = varint(body, place)
            key_size, place = varint(body, place)
            value_size, place = varint(body, place)
            assert key_size == -1
            rows.append((base + offset_delta, first_ts + ts_delta, body[place : place + value_size]))
            headers, place = varint(body, place + value_size)
            assert (headers, place) == (0, stop)
        assert place == len(body)
        assert (last_delta, max_ts) == (count - 1, rows[-1][1])
        yield HEADER.size + len(body), rows
        at = end
    assert at == len(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", ["flights", "random-1k", "synthetic-100"])
def test_every_record_comes_back_from_its_batches(payload: str, codec: str) -> None:
    values = records(payload, 300_000)
    made = build_segment("x", values, codec, 16 * 1024)
    batches = list(decode(made.data))
    rows = [row for _, found in batches for row in found]
    assert [value for _, _, value in rows] == values.values()
    assert [offset for offset, _, _ in rows] == list(range(len(values)))
    assert [ts for _, ts, _ in rows] == [BASE_TIMESTAMP_MS + number for number in range(len(values))]
    assert max(size for size, _ in batches) <= 16 * 1024
    assert min(size for size, _ in batches[:-1]) > 14 * 1024
    assert (made.records_bytes, made.batches, made.records) == (
        sum(size for size, _ in batches),
        len(batches),
        len(values),
    )


def test_the_metadata_describes_the_segment() -> None:
    made = segment("synthetic-1k", "lz4", "1m", 3_000_000)
    last = list(decode(made.data))[-1][1][-1]
    assert made.metadata.start_offset == 0
    assert made.metadata.end_offset == last[0]
    assert made.metadata.max_timestamp_ms == last[1]
    assert made.metadata.segment_size_bytes == len(made.data)
    assert (len(made.metadata.segment_id), len(made.metadata.topic_id)) == (16, 16)


def test_one_record_batches_of_twenty_bytes_take_88() -> None:
    made = segment("synthetic-20", "none", "one", 2_000)
    assert (made.batches, made.records, len(made.data)) == (100, 100, 8_800)


def test_a_value_larger_than_a_batch_gets_one_of_its_own() -> None:
    sizes = [10, 50_000, 0, 70_000, 3]
    data = np.arange(sum(sizes), dtype=np.uint64).astype(np.uint8)
    values = Records(data, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64))
    made = build_segment("x", values, "none", 16 * 1024)
    assert [[len(row[2]) for row in rows] for _, rows in decode(made.data)] == [[10], [50_000], [0], [70_000], [3]]


def test_no_record_is_no_segment() -> None:
    with pytest.raises(ValueError, match="no record"):
        build_segment("x", records("random-1k", 999), "none", 100)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_are_the_same_every_time_and_within_their_size(payload: str) -> None:
    first = records(payload, 100_000)
    records.cache_clear()
    again = records(payload, 100_000)
    assert np.array_equal(first.data, again.data)
    assert np.array_equal(first.offsets, again.offsets)
    assert 98_000 < len(first.data) == first.offsets[-1] <= 100_000
    assert first.offsets[0] == 0


def test_longer_payloads_begin_like_shorter_ones() -> None:
    short, long = records("synthetic-100", 50_000), records("synthetic-100", 100_000)
    assert np.array_equal(short.data, long.data[: len(short.data)])


def test_flights_repeat_when_they_are_used_up() -> None:
    once = records("flights", 104_000_000)
    twice = records("flights", 210_000_000)
    flights = 336_776
    assert len(twice) > 2 * flights - 20_000 > len(once)
    sizes = np.diff(twice.offsets)
    assert np.array_equal(sizes[:1000], sizes[flights : flights + 1000])


@pytest.mark.parametrize(("payload", "ratio"), [("random-1k", 1.0), ("synthetic-1k", 0.26), ("synthetic-100", 0.26)])
def test_payloads_compress_as_they_say(payload: str, ratio: float) -> None:
    data = records(payload, 16_000_000).data.tobytes()
    assert len(zstandard.ZstdCompressor(level=1).compress(data)) / len(data) == pytest.approx(ratio, abs=0.01)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="poems"):
        records("poems", 10)
    with pytest.raises(KeyError):
        compress("brotli", memoryview(b"x"))
