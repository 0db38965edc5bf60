"""What becomes of each file of a restored head that the store has no more: iceberg_catalog/plan/missing.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan.missing import Missing, plan_missing
from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import Derive, LiveFile, PartState, Policy, Segment, UseMain
from tests.worlds.plan_support import FOLLOW, KEEP, gone, plain, seg, txn

STATE = PartState(frontier=10, lineage=((0, 0),), known_end=10)


def file(first: int, last: int) -> LiveFile:
    return LiveFile(path=f"{first}-{last}", first=first, last=last, runs=None, partition=0, max_timestamp_ms=0)


FILES = [file(0, 4), file(5, 9)]


def mended(*segments: Segment, lost: str = "0-4", policy: Policy = FOLLOW, state: PartState = STATE) -> Missing:
    return plan_missing(segments, FILES, {lost}, state, policy)


def test_rows_of_a_live_segment_come_again_and_nothing_else() -> None:
    a, b = seg("a", [plain(0, 4)]), seg("b", [plain(5, 9)])
    assert mended(a, b) == Missing(replace=("0-4",), add=(UseMain("a"),))


def test_a_segment_that_lies_in_two_files_gives_what_is_gone() -> None:
    whole = seg("a", [plain(0, 4), plain(5, 9)])
    assert mended(whole) == Missing(replace=("0-4",), add=(Derive((("a", 0, 4),)),))


def test_rows_that_no_segment_has_any_more_go() -> None:
    assert mended(seg("b", [plain(5, 9)])) == Missing(remove=("0-4",))
    assert mended() == Missing(remove=("0-4",))


@pytest.mark.parametrize("segments", [(), (seg("a", [plain(0, 2)]),), (gone(seg("a", [plain(0, 4)])),)])
def test_an_archive_loses_no_row_of_a_file_by_it(segments: tuple[Segment, ...]) -> None:
    assert mended(*segments, policy=KEEP) == Missing(stay=("0-4",))


def test_a_file_of_rows_whose_end_is_to_come_waits() -> None:
    """They came by what was peeked; its marker is in no segment yet."""
    a, b = seg("a", [txn(0, 4, 7)], opened=((7, 0),)), seg("b", [plain(5, 9)], opened=((7, 0),))
    assert mended(a, b) == Missing(stay=("0-4",))


def test_before_a_rewind_the_frontier_goes_back() -> None:
    """A newer history parts from the recorded one at 3: half of the live segment is dead."""
    a = seg("a", [plain(0, 4)])
    newer = seg("b", [plain(3, 9, 1)], checkpoint=((0, 0), (1, 3)))
    found = mended(a, newer)
    assert found == Missing(replace=("0-4", "5-9"), back=0)
    assert mended(a, newer, policy=KEEP) == Missing(stay=("0-4",))
    again = plan((a, newer), (), replace(STATE, frontier=0), FOLLOW, relisted=True)
    assert again.add == (Derive((("a", 0, 2),)), UseMain("b"))
    assert again.state.frontier == 10


def test_a_file_of_a_segment_that_is_dead_in_part_waits() -> None:
    """Its own rows from 3 on are none of the history's, and no other segment says whose the file had there."""
    state = PartState(frontier=10, lineage=((0, 0), (1, 3)), known_end=10)
    cut = seg("a", [plain(0, 2), plain(3, 4)])
    newer = seg("b", [plain(5, 9, 1)], checkpoint=((0, 0), (1, 3)))
    assert mended(cut, newer, state=state) == Missing(stay=("0-4",))


def test_a_file_above_the_frontier_waits() -> None:
    state = PartState(frontier=7, lineage=((0, 0),), known_end=10)
    assert mended(lost="5-9", state=state) == Missing(stay=("5-9",))


def test_of_two_files_one_waits_and_the_other_goes() -> None:
    a, b = seg("a", [txn(0, 4, 7)], opened=((7, 0),)), seg("b", [plain(5, 9)], opened=((7, 0),))
    found = plan_missing((a, b), FILES, {"0-4", "5-9"}, STATE, FOLLOW)
    assert found == Missing(replace=("5-9",), add=(UseMain("b"),), stay=("0-4",))
