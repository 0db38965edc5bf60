"""Rows that segments have and the table lacks below its frontier: plan_repair on a dict of rows."""

from __future__ import annotations

from dataclasses import replace

from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import Plan, Segment
from tests.worlds.plan_support import FOLLOW, WITHDRAWN, Model, abort, gone, plain, seg, txn


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
