"""Cut, lying and bombing segments, per codec, through a real bridge: refused by name, or kept and served byte-true."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from crc32c import crc32c

from rsm_bridge.serving.service import Running
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder, encode_record
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of

LIMIT_MIB = 2
BOMB_BYTES = 48 * 1024 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PACKED = CODECS[1:]


def xerial(data: bytes) -> bytes:
    blocks = (bytes(cramjam.snappy.compress_raw(data[at : at + 32768])) for at in range(0, len(data), 32768))
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def packed(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(data, 1)
        case "snappy":
            return xerial(data)
        case "lz4":
            return bytes(lz4.frame.compress(data))
        case "zstd":
            return zstandard.ZstdCompressor(3).compress(data)
        case _:
            return data


def batch(codec: str, payload: bytes, *, offset: int = 0, last: int = 0, count: int = 1) -> bytes:
    """A rightly framed batch with a right CRC around any payload; `last` is the last offset delta."""
    head = struct.pack(">hiqqqhii", CODECS.index(codec), last, 1000, 1000, -1, -1, -1, count)
    return struct.pack(">qiibI", offset, 49 + len(payload), 0, 2, crc32c(head + payload)) + head + payload


def good(codec: str, offset: int, value: bytes = b"good " * 40) -> bytes:
    log = LogBuilder(next_offset=offset)
    record = log.records([value], timestamp=1000)[0]
    return batch(codec, packed(codec, encode_record(record, offset, 1000)), offset=offset)


def sent(data: bytes, end_offset: int) -> Segment:
    return replace(segment_of(LogBuilder().fill(batches=1)), data=data, start_offset=0, end_offset=end_offset)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("faults")
    limits = {"decompressed_batch_mib": LIMIT_MIB}
    with bridge_thread(test_settings(folder, limits=limits)) as running:
        yield running


@pytest.fixture(scope="module")
def shim(bridge: Running) -> Iterator[ShimClient]:
    with ShimClient(bridge.address) as client:
        yield client


def refused(shim: ShimClient, bridge: Running, segment: Segment) -> str:
    """The message of a refusal that left nothing behind."""
    with pytest.raises(ShimError) as failed:
        shim.copy(segment)
    assert failed.value.kind == "invalid_segment"
    for root in ("index", "data", "kept"):
        assert not list(bridge.store.list_after(f"{root}/{segment.topic_id.hex()}/"))
    return failed.value.details or ""


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_tail_is_refused(shim: ShimClient, bridge: Running, codec: str) -> None:
    whole = good(codec, 0) + good(codec, 1)
    for cut in (1, 20, len(good(codec, 1)) - 5):
        message = refused(shim, bridge, sent(whole[:-cut], 1))
        assert "batch 1" in message or "batch=1" in message, message


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("at", "lie"),
    [
        (8, struct.pack(">i", 2**31 - 1)),
        (8, struct.pack(">i", -1)),
        (8, struct.pack(">i", 3)),
        (0, struct.pack(">q", 7)),
        (0, struct.pack(">q", -1)),
        (0, struct.pack(">q", 0)),
        (23, struct.pack(">i", 2**31 - 1)),
        (23, struct.pack(">i", -1)),
    ],
    ids=["length-huge", "length-negative", "length-short", "offset-above", "offset-negative", "offset-again",
         "last-above", "last-negative"],
)  # fmt: skip
def test_lies_in_the_framing_are_refused(shim: ShimClient, bridge: Running, codec: str, at: int, lie: bytes) -> None:
    first, second = good(codec, 0), good(codec, 1)
    liar = second[:at] + lie + second[at + len(lie) :]
    refused(shim, bridge, sent(first + liar, 1))


@pytest.mark.parametrize("codec", CODECS)
def test_another_leader_epoch_than_the_metadata_says_is_served(shim: ShimClient, codec: str) -> None:
    first, second = good("none", 0), good(codec, 1)
    odd = second[:12] + struct.pack(">i", 9) + second[16:]
    served = shim.fetch(shim.copied(sent(first + odd, 1)))
    assert served[: len(first) + 16] == first + odd[:8] + served[len(first) + 8 :][:4] + odd[12:16]
    assert codec != "none" or served == first + odd


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_kept_and_served(shim: ShimClient, codec: str) -> None:
    payload = packed(codec, b"\0" * BOMB_BYTES)
    data = good(codec, 0) + batch(codec, payload, offset=1) + good(codec, 2)
    served = shim.fetch(shim.copied(sent(data, 2)))
    assert batch(codec, payload, offset=1) in served
    assert served.endswith(good("none", 2)[61:])


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("how", ["cut", "noise", "flipped", "empty"])
def test_payloads_that_do_not_decode_are_kept_and_served(shim: ShimClient, codec: str, how: str) -> None:
    right = packed(codec, b"any bytes at all " * 500)
    payload = {
        "cut": right[: len(right) // 2],
        "noise": os.urandom(300),
        "flipped": right[:12] + bytes([right[12] ^ 0xFF]) + right[13:],
        "empty": b"",
    }[how]
    bad = batch(codec, payload, offset=1)
    served = shim.fetch(shim.copied(sent(good("none", 0) + bad + good("none", 2), 2)))
    assert served == good("none", 0) + bad + good("none", 2)


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_record_counts_that_lie_are_kept_and_served(shim: ShimClient, codec: str, count: int) -> None:
    record = encode_record(LogBuilder(next_offset=0).records([b"v"], timestamp=1000)[0], 0, 1000)
    data = batch(codec, packed(codec, record), count=count)
    assert shim.fetch(shim.copied(sent(data, 0))) == data


@pytest.mark.parametrize("length", [2**31 - 1, 2**62, -(2**63)])
def test_lengths_inside_records_that_lie(shim: ShimClient, length: int) -> None:
    from tests.support.kafka_log import varint

    data = batch("none", varint(length) + b"\0" * 30)
    assert shim.fetch(shim.copied(sent(data, 0))) == data


def test_a_segment_of_noise(shim: ShimClient, bridge: Running) -> None:
    for size in (1, 12, 60, 61, 5000):
        refused(shim, bridge, sent(os.urandom(size), 10))
