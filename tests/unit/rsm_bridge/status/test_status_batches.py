"""Batches of segments that wait are read once for all questions of one look, and several segments' at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import STATUS_BATCHES_AHEAD, STATUS_BATCHES_KEPT, STATUS_READERS
from rsm_bridge.status.store.batches import BatchesRead, UnreadBatchesError
from rsm_bridge.storage.segments.known import KnownSegment
from tests.unit.rsm_bridge.tables.reclaim.test_maintain_mass_delete import known


def waiting(count: int, load: Callable[[int], str]) -> list[KnownSegment]:
    """Segments whose batches `load` gives by their number."""

    def one(number: int) -> KnownSegment:
        found = known(number, 10, None)
        assert found.segment is not None
        asked: Any = lambda: load(number)  # noqa: E731 - stands for batches
        return replace(found, segment=replace(found.segment, load=asked))

    return [one(number) for number in range(count)]


def asked(batches: BatchesRead, segment: KnownSegment) -> Any:
    found = batches.of(segment).segment
    assert found is not None
    return found.load()


def test_batches_are_read_once_as_long_as_they_are_kept() -> None:
    loaded: list[int] = []

    def load(number: int) -> str:
        loaded.append(number)
        return f"batches of {number}"

    segments = waiting(STATUS_BATCHES_KEPT + 1, load)
    batches = BatchesRead(())
    for _ in range(2):
        assert asked(batches, segments[0]) == "batches of 0"
    assert loaded == [0]
    for segment in segments:
        asked(batches, segment)
    assert loaded == list(range(STATUS_BATCHES_KEPT + 1))
    asked(batches, segments[0])
    assert loaded[-1] == 0


def test_those_that_follow_are_read_beside() -> None:
    together = threading.Barrier(STATUS_READERS)
    loaded: list[int] = []

    def load(number: int) -> str:
        together.wait(10)
        loaded.append(number)
        return f"batches of {number}"

    count = 2 * (STATUS_BATCHES_AHEAD + 1)
    assert count % STATUS_READERS == 0
    segments = waiting(count, load)
    batches = BatchesRead(segments)
    for number, segment in enumerate(segments):
        assert asked(batches, segment) == f"batches of {number}"
        assert len(loaded) == (STATUS_BATCHES_AHEAD + 1) * (1 + number // (STATUS_BATCHES_AHEAD + 1))
    assert sorted(loaded) == list(range(count))


@pytest.mark.parametrize(("error", "raised"), [(StoreError, StoreError), (BridgeError, UnreadBatchesError)])
def test_what_fails_ahead_fails_when_its_turn_comes(error: type[BridgeError], raised: type[Exception]) -> None:
    def load(number: int) -> str:
        if number == 2:
            raise error("segment 2") if error is StoreError else error("corrupt_object", "segment 2")
        return f"batches of {number}"

    segments = waiting(4, load)
    batches = BatchesRead(segments)
    assert [asked(batches, segments[number]) for number in (0, 1, 3)] == [f"batches of {n}" for n in (0, 1, 3)]
    with pytest.raises(raised, match="segment 2"):
        asked(batches, segments[2])
