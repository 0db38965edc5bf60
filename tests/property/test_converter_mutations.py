"""Any bytes: SegmentError("invalid_segment"), or batches that are served as they came. Never another exception."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.types import BatchFlag, ConvertOptions, Mode, ParsedStep, SegmentMetadata
from tests.oracle.expect import served
from tests.oracle.records import NONE, decode_batch, split_batches
from tests.oracle.strategies import Segment, segments
from tests.support.examples import examples


def run(data: bytes, metadata: SegmentMetadata, mode: Mode, transactions: Transactions) -> list[ParsedStep] | None:
    parser = SegmentParser(metadata, ConvertOptions(mode=mode), transactions)
    steps: list[ParsedStep] = []
    found: SegmentError | None = None
    try:
        steps += parser.feed(data)
        steps += parser.finish()
    except SegmentError as error:
        found = error
    if found is None:
        return steps
    assert found.kind == "invalid_segment"
    assert found.batch is not None
    assert found.position is not None
    assert 0 <= found.position <= metadata.segment_size_bytes
    return None


def check(data: bytes, steps: list[ParsedStep] | None) -> None:
    if not steps:
        return
    flags = np.concatenate([step.batches["flags"] for step in steps])
    for original, again, flag in zip(split_batches(data), served(steps), flags.tolist(), strict=True):
        if again != original:
            assert not flag & BatchFlag.KEPT
            assert decode_batch(again).codec == NONE
            assert decode_batch(again).same_but_codec(decode_batch(original))


@given(segments(max_batches=5), st.data(), st.sampled_from(["table", "table", "verbatim"]))
@examples(300)
def test_flipped_bytes(segment: Segment, data: st.DataObject, mode: Mode) -> None:
    changed = bytearray(segment.data)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(changed), run(bytes(changed), segment.metadata, mode, segment.transactions))


@given(segments(max_batches=4), st.data())
@examples(100)
def test_bytes_moved_about(segment: Segment, data: st.DataObject) -> None:
    """Slices taken out, doubled or put elsewhere; the size is that of the result."""
    changed = segment.data
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(changed)))
        end = data.draw(st.integers(start, len(changed)))
        to = data.draw(st.integers(0, len(changed)))
        piece = changed[start:end]
        if data.draw(st.booleans()):
            changed = changed[:start] + changed[end:]
        changed = changed[:to] + piece + changed[to:]
    metadata = replace(segment.metadata, segment_size_bytes=len(changed))
    check(changed, run(changed, metadata, "table", segment.transactions))


@given(st.binary(max_size=300), st.sampled_from(["table", "verbatim"]))
def test_random_bytes(data: bytes, mode: Mode) -> None:
    metadata = SegmentMetadata(
        cluster_name="c",
        topic="t",
        topic_id=bytes(16),
        partition=0,
        segment_id=bytes(16),
        start_offset=0,
        end_offset=2**62,
        max_timestamp_ms=0,
        broker_id=0,
        event_timestamp_ms=0,
        segment_size_bytes=len(data),
        leader_epochs=(),
    )
    check(data, run(data, metadata, mode, Transactions()))


@given(segments(max_batches=5), st.binary(max_size=200), st.binary(max_size=200))
@examples(50)
def test_random_transaction_files(segment: Segment, index: bytes, snapshot: bytes) -> None:
    """Damaged files never fail a copy, and never make rows of another segment's batches disappear from Kafka."""
    transactions = Transactions.parse(index, snapshot)
    steps = run(segment.data, segment.metadata, "table", transactions)
    assert steps is not None
    check(segment.data, steps)
