"""Rows that segments have and the table lacks below its frontier: plan_repair on a dict of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import Batches, KeepUntil, LiveFile, Plan, Policy, Segment, UseMain
from tests.worlds.plan_support import FOLLOW, KEEP, WITHDRAWN, Model, abort, commit, gone, plain, seg, txn


def bare(segment: Segment) -> Segment:
    """The segment, stored without rows."""
    batches = segment.load()
    without = replace(batches, rows=batches.rows & False)
    return replace(segment, main=None, tail=None, load=lambda: without)


def repaired(model: Model, *segments: Segment) -> list[int]:
    """Offsets of the table after a repair by all of them; a second one must add nothing."""

    def missing() -> Plan:
        files = [file for file, _ in model.files.values()]
        found = plan_repair(segments, files, model.state, FOLLOW, [item.id for item in segments])
        return Plan(add=tuple(found.add), state=model.state)

    model.apply(missing(), segments)
    assert not missing().add
    return model.offsets


def test_a_copy_that_took_the_place_of_one_without_rows() -> None:
    model, other, again = Model(), seg("a", [plain(0, 9)]), seg("c", [plain(10, 19)], checkpoint=((0, 0),))
    first = bare(seg("b", [plain(10, 19)], checkpoint=((0, 0),)))
    model.publish(other, first)
    model.publish(other, gone(first, WITHDRAWN), again)
    assert model.offsets == list(range(10))
    assert repaired(model, other, gone(first, WITHDRAWN), again) == list(range(20))


def test_a_segment_that_an_unclean_election_cut_gives_what_is_before() -> None:
    """The new leader's own copy begins within it."""
    model, first = Model(), seg("a", [plain(0, 19)])
    late = seg("b", [plain(20, 24), plain(25, 29), plain(30, 34), plain(35, 39)], checkpoint=((0, 0),))
    new = seg("c", [plain(30, 34), plain(35, 54, epoch=1)], checkpoint=((0, 0), (1, 35)))
    model.publish(first, bare(late))
    model.publish(first, bare(late), new)
    assert model.offsets == [*range(20), *range(30, 55)]
    assert repaired(model, first, late, new) == list(range(55))
    assert model.rows[39] == 1


def test_what_is_aborted_and_what_lies_in_a_dead_branch_stays_out() -> None:
    model, first = Model(), seg("a", [plain(0, 9)])
    late = seg("b", [txn(10, 14, 7), abort(15, 7), plain(16, 19)], checkpoint=((0, 0),))
    dead = seg("c", [plain(16, 25, epoch=1)], checkpoint=((0, 0), (1, 16)))
    new = seg("d", [plain(20, 29, epoch=2)], checkpoint=((0, 0), (2, 20)))
    model.publish(first, bare(late), new)
    assert repaired(model, first, late, dead, new) == [*range(10), *range(16, 30)]
    assert {model.rows[offset] for offset in range(16, 20)} == {0}


def test_rows_whose_marker_fell_into_a_hole_that_was_believed_do_not_wait() -> None:
    model, first = Model(), seg("a", [plain(0, 9)])
    late = seg("b", [plain(10, 12), txn(13, 19, 7)], checkpoint=((0, 0),))
    last = seg("d", [plain(30, 39)], checkpoint=((0, 0),))
    model.publish(first, bare(late), last)
    found = plan_repair([first, late, last], files_of(model), model.state, FOLLOW, ["b"])
    assert found.waiting == 0
    assert repaired(model, first, late, last) == [*range(13), *range(30, 40)]
    # Where nothing lies above the hole yet, the marker may come.
    other = Model()
    other.publish(first, bare(late))
    assert plan_repair([first, late], files_of(other), other.state, FOLLOW, ["b"]).waiting == 7


def test_an_archive_takes_rows_of_deleted_segments_and_records_their_epochs() -> None:
    model = Model(policy=KEEP)
    late = seg("a", [plain(0, 9)])
    new = seg("b", [plain(10, 19, epoch=1)], checkpoint=((1, 10),))
    model.publish(bare(late), new)
    had = gone(late)
    model.publish(had, new)
    assert model.offsets == list(range(10, 20))
    found = plan_repair([had, new], files_of(model), model.state, KEEP, ["a"])
    assert found.add == [UseMain("a")]
    assert found.lineage[0] == (0, 0)
    assert not plan_repair([had, new], files_of(model), model.state, FOLLOW, ["a"]).add
    assert not plan_repair([replace(had, leaving=True), new], files_of(model), model.state, KEEP, ["a"]).add


def test_what_is_over_age_by_now_is_not_waited_for() -> None:
    model = Model(policy=KEEP)
    late = seg("a", [txn(0, 9, 7)])
    new = replace(seg("b", [plain(10, 19)], checkpoint=((0, 0),)), open_end=((7, 0),))
    model.publish(bare(late), new)
    model.publish(gone(late), new)
    for horizon, waiting in ((0, 10), (10**15, 0)):
        found = plan_repair([gone(late), new], files_of(model), model.state, KeepUntil(horizon), ["a"])
        assert (found.add, found.waiting) == ([], waiting)


def test_no_batch_is_read_behind_what_decides_those_that_may_be_missing() -> None:
    """A year of segments lies above one whose last transaction was aborted: each of them was read."""
    first = seg("a", [plain(0, 9), txn(10, 11, 7), plain(12, 12)])
    second = seg("b", [plain(13, 13), abort(14, 7), plain(15, 19), txn(20, 21, 8), abort(22, 8)], checkpoint=((0, 0),))
    above = [seg(f"{number}", [plain(10 * number, 10 * number + 9)], checkpoint=((0, 0),)) for number in range(3, 9)]
    gap = seg("c", [plain(23, 29)], checkpoint=((0, 0),))
    model = Model()
    model.publish(first, second, gap, *above)
    assert 10 not in model.offsets

    def read_of(*segments: Segment) -> list[str]:
        read: list[str] = []

        def noted(item: Segment) -> Segment:
            def load() -> Batches:
                read.append(item.id)
                return item.load()

            return replace(item, load=load)

        watched = [noted(item) for item in segments]
        assert not plan_repair(watched, files_of(model), model.state, FOLLOW, ["a", "b"]).add
        return read

    assert read_of(first, second, gap, *above) == ["a", "b"]
    # A producer snapshot far above that lists the transaction as open speaks against its marker.
    doubt = replace(above[-1], open_end=((7, 10),))
    assert read_of(first, second, gap, *above[:-1], doubt) == ["a", "b", "c", *(item.id for item in above)]


@pytest.mark.parametrize("policy", [FOLLOW, KEEP], ids=["follow", "keep"])
@pytest.mark.parametrize("end", ["no snapshot", "a branch that dies"])
def test_behind_a_dead_marker_the_one_that_counts_is_looked_for(policy: Policy, end: str) -> None:
    """It lies above all that seemed to decide: rows were said to wait for a marker that was tiered long ago."""
    first = seg("s1", [txn(0, 9, 1)], opened=((1, 0),), aborts=[])
    dead = (
        replace(seg("s2", [commit(10, 1)], opened=(), checkpoint=((0, 0),), aborts=[]), open_end=None)
        if end == "no snapshot"
        else seg("s2", [commit(10, 1), plain(11, 15, 1)], opened=(), checkpoint=((0, 0), (1, 11)), aborts=[])
    )
    new = seg("s3", [plain(11, 20, 2)], opened=((1, 0),), checkpoint=((2, 11),), aborts=[])
    rest = (
        seg("s4", [commit(21, 1, 2), plain(22, 30, 2)], opened=(), checkpoint=((2, 11),), aborts=[]),
        seg("s5", [plain(31, 40, 2)], opened=(), checkpoint=((2, 11),), aborts=[]),
    )
    model, without = Model(policy), [bare(first), dead, new, *rest]
    for count in range(1, 6):
        model.publish(*without[:count])
    found = plan_repair([first, dead, new, *rest], files_of(model), model.state, policy, ["s1"])
    assert (found.add, found.waiting, found.left) == ([UseMain("s1")], 0, set())


def files_of(model: Model) -> list[LiveFile]:
    return [file for file, _ in model.files.values()]
