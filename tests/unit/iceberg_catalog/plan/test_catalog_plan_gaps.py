"""Which stretches between two files rows may yet come into: a merge leaves them open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan import gaps
from iceberg_catalog.plan.gaps import open_gaps
from iceberg_catalog.plan.types import KeepUntil, LiveFile, PartState, Policy, Segment
from tests.worlds.plan_support import DELETED, FOLLOW, KEEP, WITHDRAWN, B, abort, commit, gone, plain, seg, txn

STATE = PartState(frontier=30, floor=0, lineage=((0, 0),), known_end=30)
FILES = [
    LiveFile(path=path, first=first, last=last, runs=((0, first),), partition=0)
    for path, first, last in (("a", 0, 9), ("c", 20, 29))
]
LEFT, RIGHT = seg("a", [plain(0, 9)]), seg("c", [plain(20, 29)], checkpoint=((0, 0),))
GAP = [(10, 19)]


def found(
    *between: Segment, policy: Policy = FOLLOW, bare: tuple[str, ...] = (), state: PartState = STATE
) -> list[tuple[int, int]]:
    return open_gaps([LEFT, *between, RIGHT], FILES, state, policy, bare=bare, whole={"a", "c"})


def middle(*batches: B) -> Segment:
    return seg("b", list(batches), checkpoint=((0, 0),))


def test_neighbours_have_none() -> None:
    near = [FILES[0], replace(FILES[1], first=10)]
    assert open_gaps([], near, STATE, FOLLOW) == []


def test_offsets_of_which_nothing_is_known_are_open() -> None:
    """The index may have been lost, or the copy is to be made again."""
    assert found() == GAP
    assert found(seg("b", [plain(10, 18, rows=False)], checkpoint=((0, 0),))) == GAP


@pytest.mark.parametrize("policy", [FOLLOW, KEEP, KeepUntil(0)])
def test_a_segment_without_rows_closes_it_unless_it_may_get_some(policy: Policy) -> None:
    empty = middle(plain(10, 19, rows=False))
    assert found(empty, policy=policy) == []
    assert found(empty, policy=policy, bare=("b",)) == GAP
    assert found(gone(empty, WITHDRAWN), policy=policy) == GAP
    assert found(gone(empty, DELETED), policy=policy) == (GAP if policy == FOLLOW else [])


def test_rows_that_a_repair_would_bring_leave_it_open() -> None:
    assert found(middle(plain(10, 19))) == GAP
    assert found(middle(plain(10, 14, rows=False), plain(15, 16), plain(17, 19, rows=False))) == GAP


def test_rows_of_an_aborted_transaction_never_come() -> None:
    assert found(middle(txn(10, 17, 7), abort(18, 7), plain(19, 19, rows=False))) == []
    assert found(middle(txn(10, 17, 7), commit(18, 7), plain(19, 19, rows=False))) == GAP


def test_rows_that_wait_for_a_marker_leave_it_open() -> None:
    waits = replace(RIGHT, open_end=((7, 10),))
    assert open_gaps([LEFT, middle(txn(10, 19, 7)), waits], FILES, STATE, FOLLOW, whole={"a", "c"}) == GAP


def test_what_is_of_a_dead_branch_tells_nothing() -> None:
    state = replace(STATE, lineage=((0, 0), (2, 15)))
    right = replace(RIGHT, checkpoint=((0, 0), (2, 15)))
    dead = middle(plain(10, 14, rows=False), plain(15, 19, epoch=1, rows=False))
    assert open_gaps([LEFT, dead, right], FILES, state, FOLLOW, whole={"a", "c"}) == GAP


def test_few_are_asked_and_none_that_is_not_between_what_is_to_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = middle(txn(10, 17, 7), abort(18, 7), plain(19, 19, rows=False))
    assert open_gaps([LEFT, aborted, RIGHT], FILES, STATE, FOLLOW, within=[(0, 9)]) == []
    assert open_gaps([LEFT, RIGHT], FILES, STATE, FOLLOW, within=[(0, 9), (20, 29)]) == []
    assert open_gaps([LEFT, RIGHT], FILES, STATE, FOLLOW, within=[(5, 25)]) == GAP
    monkeypatch.setattr(gaps, "MERGE_ASKED_MAX", 0)
    assert found(aborted) == GAP


def test_a_marker_is_looked_for_in_the_next_segments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = seg("m", [abort(18, 7), plain(19, 19, rows=False)], checkpoint=((0, 0),))
    between = middle(txn(10, 17, 7)), ends
    assert found(*between) == []
    monkeypatch.setattr(gaps, "MERGE_MARKERS_WITHIN", 0)
    assert found(*between) == GAP
