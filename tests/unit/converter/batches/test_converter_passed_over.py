"""What Kafka's own readers pass over in compressed records, and what they do not. The oracle says the same."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from dataclasses import replace

import lz4.frame
import pytest

from converter.batches.codecs import GZIP, LZ4, SNAPPY, PlainBuffer, Undecodable, decompress
from converter.types import BatchFlag, Cause
from tests.oracle import records
from tests.oracle.expect import actual_rows, parse, served, table
from tests.oracle.records import NONE, Batch, Record, decode_batch, lz4_header, xerial
from tests.oracle.strategies import make_segment

LIMIT = 1 << 20
TEXT = b"some text, several times over; " * 40
GZIPPED = gzip.compress(TEXT, 6, mtime=0)
EMPTY = gzip.compress(b"", 6, mtime=0)
FRAME = bytes(lz4.frame.compress(TEXT, block_linked=False, store_size=False, content_checksum=True))
BLOCKS, SUM = FRAME[7:-4], FRAME[-4:]
CHECKED = EMPTY[:3] + b"\x02" + EMPTY[4:10]  # a header with a checksum of its own behind it
STREAM = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def lz4_frame(size: int | None, checksum: bytes | None, dictionary: bytes = b"") -> bytes:
    flags = 0x60 | (size is not None) << 3 | (checksum is not None) << 2 | bool(dictionary)
    descriptor = bytes([flags, FRAME[5]]) + (b"" if size is None else struct.pack("<Q", size)) + dictionary
    return lz4_header(descriptor) + BLOCKS + (checksum or b"")


PASSED_OVER = {
    "lz4: a size that is too small": (LZ4, lz4_frame(1, None)),
    "lz4: a size beyond all memory": (LZ4, lz4_frame(1 << 60, SUM)),
    "lz4: a wrong checksum": (LZ4, lz4_frame(None, b"none")),
    "lz4: wrong size and checksum, dictionary": (LZ4, lz4_frame(1, b"none", b"dict")),
    "lz4: bytes behind the frame": (LZ4, lz4_frame(1, b"none") + b"behind"),
    "gzip: one zero behind": (GZIP, GZIPPED + b"\0"),
    "gzip: zeros behind": (GZIP, GZIPPED + bytes(3000)),
    "gzip: other bytes behind": (GZIP, GZIPPED + b"not gzip at all, but long enough for a member"),
    "gzip: a member behind a zero": (GZIP, GZIPPED + b"\0" + GZIPPED),
    "gzip: less than a member": (GZIP, GZIPPED + EMPTY[:18]),
    "gzip: another method": (GZIP, GZIPPED + b"\x1f\x8b\x09" + EMPTY[3:]),
    "gzip: a name without an end": (GZIP, GZIPPED + EMPTY[:3] + b"\x08" + EMPTY[4:10] + b"n" * 30),
    "gzip: a comment without an end": (GZIP, GZIPPED + EMPTY[:3] + b"\x18" + EMPTY[4:10] + b"n\0" + b"c" * 30),
    "gzip: more of an extra field than there is": (GZIP, GZIPPED + EMPTY[:3] + b"\x04" + EMPTY[4:10] + b"\xff" * 30),
    "gzip: a wrong checksum of a header": (GZIP, GZIPPED + CHECKED + b"no" + EMPTY[10:]),
    "snappy: one byte behind": (SNAPPY, xerial(TEXT) + b"\x82"),
    "snappy: three bytes behind": (SNAPPY, xerial(TEXT) + b"\0\0\1"),
    "snappy: half a magic": (SNAPPY, xerial(TEXT) + b"\x82SNAXXXX" + bytes(8)),
}

REFUSED = {
    "lz4: a wrong checksum of the header": (LZ4, FRAME[:6] + bytes([FRAME[6] ^ 1]) + FRAME[7:]),
    "lz4: cut in its checksum": (LZ4, lz4_frame(1, b"none")[:-1]),
    "lz4: no end": (LZ4, lz4_frame(1, None)[:-4]),
    "lz4: cut in its header": (LZ4, lz4_frame(1, None)[:10]),
    "lz4: a frame to be skipped": (LZ4, b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"),
    "gzip: a member that is damaged": (GZIP, GZIPPED + EMPTY[:10] + b"\xff" * 30),
    "gzip: a member that is cut": (GZIP, GZIPPED + GZIPPED[:-1]),
    "gzip: a wrong checksum": (GZIP, GZIPPED[:-8] + b"none" + GZIPPED[-4:]),
    "snappy: a size without its block": (SNAPPY, xerial(TEXT) + b"\0\0\0\1"),
    "snappy: a size below nought": (SNAPPY, xerial(TEXT) + b"\xff" * 4),
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_what_kafka_passes_over(name: str) -> None:
    codec, data = PASSED_OVER[name]
    out = PlainBuffer()
    assert decompress(codec, memoryview(data), out, LIMIT) == len(TEXT)
    assert out.data[: out.size].tobytes() == TEXT == records.decompress(codec, data)


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses(name: str) -> None:
    codec, data = REFUSED[name]
    with pytest.raises(Undecodable):
        decompress(codec, memoryview(data), PlainBuffer(), LIMIT)
    if "skipped" not in name:  # without records, in whatever way
        with pytest.raises((records.DecodeError, RuntimeError, zlib.error)):
            records.decompress(codec, data)


@pytest.mark.parametrize(
    "header",
    [
        b"\x04" + bytes(6) + struct.pack("<H", 3) + b"abc",
        b"\x18" + bytes(6) + b"name\0a comment\0",
        b"\x1c" + bytes(6) + struct.pack("<H", 0) + b"\0\0",
    ],
    ids=["extra", "name and comment", "all, empty"],
)
@pytest.mark.parametrize("checked", [False, True])
def test_members_of_gzip_may_say_more_of_themselves(header: bytes, *, checked: bool) -> None:
    header = b"\x1f\x8b\x08" + bytes([header[0] | 2 * checked]) + header[1:]
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if checked else b""
    data, out = GZIPPED + header + GZIPPED[10:], PlainBuffer()
    assert decompress(GZIP, memoryview(data), out, LIMIT) == 2 * len(TEXT)
    assert records.decompress(GZIP, data) == 2 * TEXT


def test_a_size_that_lies_allocates_nothing() -> None:
    data, out = memoryview(PASSED_OVER["lz4: a size beyond all memory"][1]), PlainBuffer()
    held = out.data
    tracemalloc.start()
    try:
        decompress(LZ4, data, out, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()
    assert out.data is held


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("canonical", [True, False])
def test_such_a_batch_has_rows_and_is_served(codec: int, *, canonical: bool) -> None:
    """Uncompressed where its records come back from their rows, as the producer sent it where they do not."""
    values = [random.Random(n).randbytes(30) + bytes(100) for n in range(3)]
    sent = Batch(
        0,
        tuple(Record(n, n, b"k", value, padding=0 if canonical else 1) for n, value in enumerate(values)),
        codec=codec,
        last_offset_delta=2,
        variant=2,
    )
    steps = parse(make_segment([sent]))
    row, again = table(steps)[0], served(steps)[0]
    assert [found["_kafka_value"] for found in actual_rows(steps)] == values
    assert decode_batch(again).same_but_codec(decode_batch(sent.encode()))
    if canonical:
        assert (row["flags"], row["cause"]) == (BatchFlag.ROWS, Cause.NONE)
        assert again == replace(sent, codec=NONE).encode()
    else:
        assert (row["flags"], row["cause"]) == (BatchFlag.ROWS | BatchFlag.KEPT, Cause.NOT_CANONICAL)
        assert again == sent.encode()
