"""What a projection records of how far it has read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier, Position, decode_frontier
from rsm_bridge.storage.projections.progress import ProjectionLoss

WHOLE = st.integers(-1, 2**63 - 1)
POSITIONS = st.dictionaries(st.integers(0, 2**31 - 1), st.builds(Position, WHOLE, WHOLE, WHOLE, WHOLE), max_size=5)


LOSSES = st.dictionaries(st.integers(0, 2**31 - 1), st.builds(ProjectionLoss, WHOLE, WHOLE, WHOLE), max_size=5)


@given(st.binary(min_size=16, max_size=16), POSITIONS, LOSSES)
def test_what_is_written_is_read(
    topic_id: bytes, positions: dict[int, Position], lost: dict[int, ProjectionLoss]
) -> None:
    frontier = Frontier(topic_id, positions, lost)
    assert decode_frontier(frontier.encode(), "t@1") == frontier


def test_a_thousand_partitions_stay_small() -> None:
    frontier = Frontier(b"\1" * 16, {number: Position(3, 10**9 + number, 1, 1) for number in range(1000)})
    assert len(frontier.encode()) < 25_000
    lost = {number: ProjectionLoss(10**9, 10**9 + number, 1_700_000_000_000) for number in range(1000)}
    assert len(replace(frontier, lost=lost).encode()) < 75_000


BROKEN = [
    "",
    "{}",
    "[]",
    "null",
    '{"version": 1, "topic_id": "00", "partitions": {"0": [1, 2, 3]}}',
    '{"version": 1, "topic_id": "00", "partitions": {"0": [1, 2, 3, true]}}',
    '{"version": 1, "topic_id": "00", "partitions": {"0": [1, 2.0, 3, 4]}}',
    '{"version": 1, "topic_id": "zz", "partitions": {}}',
    '{"version": 1, "topic_id": "00", "partitions": {"x": [1, 2, 3, 4]}}',
    '{"version": 2, "topic_id": "00", "partitions": {}}',
    '{"version": 1, "topic_id": "00", "partitions": {}, "lost": {"0": [1, 2]}}',
    '{"version": 1, "topic_id": "00", "partitions": {}, "lost": []}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_read_is_an_error_that_names_the_snapshot(text: str) -> None:
    with pytest.raises(RepartitionError, match="sales@17") as raised:
        decode_frontier(text, "sales@17")
    assert raised.value.kind == "no_frontier"


def test_the_text_is_the_documented_one() -> None:
    document = json.loads(Frontier(b"\2" * 16, {3: Position(4, 100, 1, 2)}).encode())
    assert document == {"version": 1, "topic_id": "02" * 16, "partitions": {"3": [4, 100, 1, 2]}}
    text = Frontier(b"\2" * 16, {}, {0: ProjectionLoss(4, 7, 1_700_000_000_000)}).encode()
    assert json.loads(text)["lost"] == {"0": [4, 7, 1_700_000_000_000]}
