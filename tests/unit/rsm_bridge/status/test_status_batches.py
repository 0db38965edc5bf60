"""Batches of segments that wait are read once for all questions of one look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rsm_bridge.limits import STATUS_BATCHES_KEPT
from rsm_bridge.status.store_facts import _named
from tests.unit.rsm_bridge.tables.reclaim.test_maintain_mass_delete import known


def test_batches_are_read_once_as_long_as_they_are_kept() -> None:
    loaded: list[int] = []
    kept: dict[str, Any] = {}

    def one(number: int) -> Any:
        segment = known(number, 10, None)
        assert segment.segment is not None

        def load() -> Any:
            loaded.append(number)
            return f"batches of {number}"

        return _named(replace(segment, segment=replace(segment.segment, load=load)), kept).segment

    segments = [one(number) for number in range(STATUS_BATCHES_KEPT + 1)]
    for _ in range(2):
        assert segments[0].load() == "batches of 0"
    assert loaded == [0]
    for segment in segments:
        segment.load()
    assert loaded == list(range(STATUS_BATCHES_KEPT + 1))
    segments[0].load()
    assert loaded[-1] == 0
    assert len(kept) == STATUS_BATCHES_KEPT
