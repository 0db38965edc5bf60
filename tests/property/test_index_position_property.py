"""Served positions: never faster than the bytes served, sparse, within what Kafka can add to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.index.position import PositionAssigner
from converter.types import BATCH_DTYPE, BatchTable

INTERVAL = 16 * 1024


def table(sizes: list[tuple[int, int]], start: int = 0) -> BatchTable:
    """Batches of (original size, served size), ten offsets each."""
    batches = np.zeros(len(sizes), dtype=BATCH_DTYPE)
    batches["length"] = [original - 12 for original, _ in sizes]
    batches["served_size"] = [served for _, served in sizes]
    batches["base_offset"] = start + np.arange(len(sizes)) * 10
    batches["last_offset_delta"] = 9
    return batches


def entries(index: bytes) -> list[tuple[int, int]]:
    """Kafka's reading of an OFFSET index."""
    return [tuple(pair) for pair in np.frombuffer(index, dtype=">i4").reshape(-1, 2).tolist()]


sizes_lists = st.lists(
    st.tuples(st.integers(61, 40_000), st.integers(61, 1 << 20)) | st.just((61, 61)), min_size=1, max_size=60
)


@given(sizes_lists, st.sampled_from([1, 2**30, 2**30 + 1, 1_500_000_001, 2**31 - 1]), st.integers(1, 60))
def test_positions(sizes: list[tuple[int, int]], segment_size: int, cut: int) -> None:
    batches = table(sizes, 5000)
    assigner = PositionAssigner(5000, segment_size)
    positions = np.concatenate([assigner.assign(batches[:cut]), assigner.assign(batches[cut:])]).tolist()
    served = np.cumsum([0] + [size for _, size in sizes]).tolist()
    original = np.cumsum([0] + [size for size, _ in sizes]).tolist()
    assert positions[0] == 0
    for i in range(1, len(positions)):
        grown = positions[i] - positions[i - 1]
        assert 0 < grown <= served[i] - served[i - 1]
        assert grown <= original[i] - original[i - 1]
    if segment_size <= 2**30:
        assert positions[1:2] == [min(sizes[0])] * (len(sizes) > 1)
    index = entries(assigner.offset_index())
    at_position = dict(zip(positions, batches["base_offset"] + 9 - 5000, strict=True))
    before = (-1, 0)
    for offset, position in index:
        assert at_position[position] == offset, "an entry is a batch start with that batch's last offset"
        assert position - before[1] >= INTERVAL
        assert offset > before[0]
        before = (offset, position)
    assert positions[-1] - before[1] < INTERVAL, "no batch is further from its entry than the interval and a batch"


def test_the_last_position_of_the_largest_segment_is_at_most_2_30() -> None:
    sizes = [(2**29, 2**29)] * 3 + [(2**29 - 100, 2**29), (99, 99)]
    positions = PositionAssigner(0, 2**31 - 1).assign(table(sizes))
    assert positions[-1] <= 2**30
    assert (np.diff(positions) > 0).all()
    assert positions[1] == 2**29 * 2**30 // (2**31 - 1)


def test_a_highly_compressed_segment_keeps_its_original_positions() -> None:
    positions = PositionAssigner(0, 500).assign(table([(100, 10**6)] * 4))
    assert positions.tolist() == [0, 100, 200, 300]


def test_kept_and_rebuilt_smaller_batches_count_what_is_served() -> None:
    positions = PositionAssigner(0, 500).assign(table([(400, 70)] * 3))
    assert positions.tolist() == [0, 70, 140]


def test_one_record_batches_give_a_sparse_index() -> None:
    assigner = PositionAssigner(0, 88 * 100_000)
    assigner.assign(table([(88, 88)] * 100_000))
    index = assigner.offset_index()
    assert len(index) % 8 == 0
    assert 88 * 100_000 / INTERVAL * 0.98 * 8 < len(index) <= 88 * 100_000 / INTERVAL * 8


def test_offsets_beyond_an_int_are_refused() -> None:
    batches = table([(61, 61)] * 2)
    for base in (2**31, -20):
        batches["base_offset"][1] = base
        with pytest.raises(SegmentError) as caught:
            PositionAssigner(0, 1000).assign(batches)
        assert caught.value.kind == "invalid_segment"


def test_no_batches() -> None:
    assigner = PositionAssigner(0, 0)
    assert len(assigner.assign(table([]))) == 0
    assert assigner.offset_index() == b""
