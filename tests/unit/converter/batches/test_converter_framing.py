"""Framing that lies fails the copy, naming batch and byte; framing that is odd but right does not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.types import ConvertOptions, LeaderEpoch, Mode, SegmentMetadata
from tests.oracle.expect import parse, table
from tests.oracle.records import Batch, Message, Record, split_batches
from tests.oracle.strategies import Segment, make_segment


def plain(base: int, count: int = 3, epoch: int = 0) -> Batch:
    records = tuple(Record(i, i, b"k", b"value %d" % i) for i in range(count))
    return Batch(base, records, last_offset_delta=count - 1, leader_epoch=epoch)


def sample() -> Segment:
    return make_segment([plain(10), plain(13, epoch=2), plain(20, epoch=2)], slack=5)


def run(data: bytes, metadata: SegmentMetadata, mode: Mode = "table") -> None:
    parser = SegmentParser(metadata, ConvertOptions(mode=mode), Transactions())
    list(parser.feed(data))
    list(parser.finish())


def patched(data: bytes, batch: int, at: int, form: str, value: int) -> bytes:
    parts = split_batches(data)
    part = bytearray(parts[batch])
    struct.pack_into(form, part, at, value)
    parts[batch] = bytes(part)
    return b"".join(parts)


LIES: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "negative length": (lambda d: patched(d, 1, 8, ">i", -1), 1),
    "length of less than a header": (lambda d: patched(d, 1, 8, ">i", 48), 1),
    "length beyond the segment": (lambda d: patched(d, 2, 8, ">i", 10_000), 2),
    "largest length": (lambda d: patched(d, 0, 8, ">i", 2**31 - 1), 0),
    "length that runs into the next batch": (lambda d: patched(d, 0, 8, ">i", 60), 1),
    "base offset below the segment": (lambda d: patched(d, 0, 0, ">q", 9), 0),
    "negative base offset": (lambda d: patched(d, 0, 0, ">q", -1), 0),
    "base offset above the segment": (lambda d: patched(d, 2, 0, ">q", 28), 2),
    "base offset within the batch before": (lambda d: patched(d, 1, 0, ">q", 12), 1),
    "base offset again": (lambda d: patched(d, 1, 0, ">q", 10), 1),
    "largest base offset": (lambda d: patched(d, 1, 0, ">q", 2**63 - 1), 1),
    "last offset above the segment": (lambda d: patched(d, 2, 23, ">i", 8), 2),
    "largest last offset": (lambda d: patched(d, 2, 23, ">i", 2**31 - 1), 2),
    "negative last offset": (lambda d: patched(d, 2, 23, ">i", -1), 2),
    "last offset above the next batch": (lambda d: patched(d, 1, 23, ">i", 7), 2),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("mode", ["table", "verbatim"])
def test_a_lie_names_batch_and_byte(lie: str, mode: Mode) -> None:
    segment = sample()
    change, batch = LIES[lie]
    with pytest.raises(SegmentError) as caught:
        run(change(segment.data), segment.metadata, mode)
    assert caught.value.kind == "invalid_segment"
    assert caught.value.batch == batch
    if lie != "length that runs into the next batch":
        assert caught.value.position == sum(len(part) for part in split_batches(segment.data)[:batch])


def test_every_cut_is_noticed() -> None:
    segment = sample()
    for size in range(len(segment.data)):
        with pytest.raises(SegmentError) as caught:
            run(segment.data[:size], segment.metadata)
        assert caught.value.kind == "invalid_segment"
        # The metadata cut alike: then only a cut between batches is a segment.
        cut = replace(segment.metadata, segment_size_bytes=size)
        ends = [sum(len(part) for part in split_batches(segment.data)[:n]) for n in range(3)]
        if size in ends:
            run(segment.data[:size], cut)
        else:
            with pytest.raises(SegmentError):
                run(segment.data[:size], cut)


def test_more_bytes_than_the_segment_has() -> None:
    segment = sample()
    with pytest.raises(SegmentError) as caught:
        run(segment.data + b"\0", segment.metadata)
    assert caught.value.kind == "invalid_segment"
    assert caught.value.position == len(segment.data)


def test_a_first_batch_above_the_start_and_gaps_are_fine() -> None:
    segment = make_segment([plain(10), plain(50)], start_offset=3, slack=100)
    assert len(table(parse(segment))) == 2


def test_messages_carry_no_epoch() -> None:
    segment = make_segment([Message(5, b"k", b"v"), plain(6, epoch=4)], start_offset=5)
    run(segment.data, replace(segment.metadata, leader_epochs=(LeaderEpoch(4, 6),)))


def test_a_segment_without_batches() -> None:
    metadata = replace(sample().metadata, segment_size_bytes=0)
    parser = SegmentParser(metadata, ConvertOptions(), Transactions())
    assert [*parser.feed(b""), *parser.finish()] == []


def test_steps_must_be_taken_before_the_next_feed() -> None:
    segment = make_segment([plain(0), plain(3)])
    parser = SegmentParser(segment.metadata, ConvertOptions(), Transactions())
    list(parser.feed(segment.data))
    steps = parser.finish()
    next(steps)
    with pytest.raises(RuntimeError):
        parser.feed(b"")
