"""When an offset was seen first, and when its segment was stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.suites.freshness import tiered_at
from benchmarks.visible import Sightings
from rsm_bridge.storage.keys import IndexKey
from tests.support.eventually import eventually


def test_an_offset_is_visible_from_the_first_look_that_reached_it() -> None:
    seen = Sightings(dict, 1.0, seen=[(10.0, {0: 0}), (11.0, {0: 5, 1: 2}), (12.0, {0: 5}), (13.0, {0: 9})])
    assert seen.when(0, 0) == 11.0
    assert seen.when(0, 4) == 11.0
    assert seen.when(0, 5) == 13.0
    assert seen.when(0, 9) is None
    assert seen.when(7, 0) is None


def test_looks_go_on_after_a_failure() -> None:
    answers: list[Mapping[int, int] | None] = [{0: 1}, None, {0: 3}]

    def look() -> Mapping[int, int]:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found is None:
            raise OSError("no table yet")
        return found

    with Sightings(look, 0.01) as seen:
        seen.wait_for({0: 3}, 10.0)
        eventually(lambda: len(seen.seen) > 3)
    assert [found for _, found in seen.seen[:2]] == [{0: 1}, {0: 3}]
    assert seen.failures == 1


def test_tiered_is_when_the_index_was_written(tmp_path: Path) -> None:
    for number in (1, 0):
        key = IndexKey(topic_id=b"t" * 16, partition=0, last=number * 10 + 9, base=number * 10, segment_id=b"s" * 16)
        path = tmp_path / str(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (100 + number, 100 + number))
    assert tiered_at(tmp_path) == [(9, 100.0), (19, 101.0)]
