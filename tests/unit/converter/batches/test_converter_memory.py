"""What a batch may become is counted before it is allocated: records and headers, however it came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import zstandard

from converter import limits
from converter.batches.parser import SegmentParser
from converter.batches.rows import split_values
from converter.batches.transactions import Transactions
from converter.types import Cause, ConvertOptions, LeaderEpoch, ParsedStep, SegmentMetadata, VarBytes
from tests.faults.test_faults_segments import batch
from tests.support.kafka_log import varint

LIMIT = limits.STEP_ROWS_BYTES + 64 * limits.RECORD_BYTES
#: One record and so many headers cost exactly the limit.
HEADERS = LIMIT // limits.RECORD_BYTES - 1


def record(offset: int, value: bytes, headers: bytes = b"\0") -> bytes:
    body = b"\0\0" + varint(offset) + b"\x01" + varint(len(value)) + value + headers
    return varint(len(body)) + body


def of(codec: str, *records: bytes, offset: int = 0) -> bytes:
    plain = b"".join(records)
    payload = zstandard.ZstdCompressor(1).compress(plain) if codec == "zstd" else plain
    return batch(codec, payload, offset=offset, last=len(records) - 1, count=len(records))


class Turns:
    def __init__(self) -> None:
        self.begun = 0
        self.held = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        assert not self.held
        self.begun, self.held = self.begun + 1, True
        yield
        self.held = False


def metadata_of(data: bytes, end_offset: int) -> SegmentMetadata:
    return SegmentMetadata(
        cluster_name="",
        topic="",
        topic_id=bytes(16),
        partition=0,
        segment_id=bytes(16),
        start_offset=0,
        end_offset=end_offset,
        max_timestamp_ms=0,
        broker_id=0,
        event_timestamp_ms=0,
        segment_size_bytes=len(data),
        leader_epochs=(LeaderEpoch(0, 0),),
    )


def parsed(data: bytes, end_offset: int, turns: Turns) -> list[ParsedStep]:
    metadata = metadata_of(data, end_offset)
    options = ConvertOptions(decompressed_batch_bytes_max=LIMIT)
    parser = SegmentParser(metadata, options, Transactions(), large=turns)
    steps = []
    for part in (parser.feed(data), parser.finish()):
        for step in part:
            steps.append(step)
    parser.close()
    assert not turns.held
    return steps


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_headers_at_the_limit_are_rows_and_one_more_is_a_bomb(codec: str) -> None:
    for count, cause in ((HEADERS, Cause.NONE), (HEADERS + 1, Cause.DECOMPRESSION_LIMIT)):
        turns = Turns()
        (step,) = parsed(of(codec, record(0, b"", varint(count) + b"\0\1" * count)), 0, turns)
        assert step.rows.num_rows == (1 if cause is Cause.NONE else 0)
        assert step.batches["cause"][0] in ({cause, Cause.SERVED_SIZE} if cause is Cause.NONE else {cause})
        assert turns.begun == (1 if cause is Cause.NONE else 0)


def test_a_bomb_takes_no_other_batchs_rows() -> None:
    bomb = of("zstd", record(0, b"", varint(HEADERS + 1) + b"\0\1" * (HEADERS + 1)), offset=1)
    data = of("zstd", record(0, b"before")) + bomb + of("none", record(0, b"after"), offset=2)
    steps = parsed(data, 2, Turns())
    values = [value for step in steps for value in step.rows.column("_kafka_value").to_pylist()]
    assert values == [b"before", b"after"]


def test_steps_hold_no_more_rows_than_a_step_may() -> None:
    """Batches of one step, each small, whose headers are eight times as large in columns."""
    count = limits.STEP_ROWS_BYTES // limits.RECORD_BYTES // 3
    one = record(0, b"", varint(count) + b"\0\1" * count)
    data = b"".join(of("zstd", one, offset=offset) for offset in range(8))
    turns = Turns()
    steps = parsed(data, 7, turns)
    assert [step.rows.num_rows for step in steps] == [2, 2, 2, 2]
    assert turns.begun == 0


def test_a_large_batch_has_its_turn_until_its_step_was_taken() -> None:
    large = of("zstd", record(0, bytes(limits.SCRATCH_BYTES_MAX + 1)))
    turns = Turns()
    data = large + of("none", record(0, b"after"), offset=1)
    metadata = metadata_of(data, 1)
    parser = SegmentParser(metadata, ConvertOptions(decompressed_batch_bytes_max=LIMIT), Transactions(), large=turns)
    held = []
    for part in (parser.feed(data), parser.finish()):
        held += [turns.held for _ in part]
    assert held == [True, False]
    assert turns.begun == 1


def test_a_parser_that_is_closed_holds_no_turn() -> None:
    data = of("zstd", record(0, bytes(limits.SCRATCH_BYTES_MAX + 1)))
    metadata = metadata_of(data, 0)
    turns = Turns()
    parser = SegmentParser(metadata, ConvertOptions(), Transactions(), large=turns)
    list(parser.feed(data))
    next(parser.finish())
    assert turns.held
    parser.close()
    assert not turns.held


def test_one_bad_byte_does_not_make_text_eight_times_as_large() -> None:
    size = 8 * limits.MIB
    data = np.full(size, 0x61, dtype=np.uint8)
    data[-1] = 0xFF
    column = VarBytes(np.array([0, size - 1, size], np.int64), data, np.ones(2, np.bool_))
    text, rest, errors = split_values(column)
    assert (text.offsets.tolist(), rest.offsets.tolist()) == ([0, size - 1, size - 1], [0, 0, 1])
    assert text.data.tobytes() == data[:-1].tobytes()
    assert errors.to_pylist() == [None, "invalid_utf8"]
