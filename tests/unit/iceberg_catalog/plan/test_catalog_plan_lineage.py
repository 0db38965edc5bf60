"""Leader changes: which rows are alive, when published rows must go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, divergence, of_segment, valid_end
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.types import PartState, UseMain
from tests.worlds.plan_support import B, Model, commit, plain, runs_of, seg, txn


def lineage(end: int, *entries: tuple[int, int]) -> Lineage:
    return Lineage(entries, end)


def test_a_segment_tells_its_own_epochs_below_its_checkpoint() -> None:
    segment = seg("a", [plain(0, 4, 1), plain(5, 9, 2)], checkpoint=((2, 7),))
    assert of_segment(segment) == lineage(10, (1, 0), (2, 5))


def test_checkpoint_entries_above_the_segment_are_not_about_it() -> None:
    assert of_segment(seg("a", [plain(0, 4)], checkpoint=((0, 0), (3, 5)))) == lineage(5, (0, 0))


def test_the_newest_history_wins_and_older_ones_complete_it() -> None:
    old = seg("old", [plain(0, 9, 1)])
    new = seg("new", [plain(10, 12, 3)], checkpoint=((1, 5), (3, 10)))
    assert fold([new, old], PartState()) == lineage(13, (1, 0), (3, 10))


def test_an_epoch_that_the_newest_history_does_not_know_is_dead() -> None:
    dead = seg("dead", [plain(7, 8, 4)], checkpoint=((3, 0), (4, 7)))
    new = seg("new", [plain(11, 12, 5)], checkpoint=((3, 0), (5, 11)))
    assert fold([dead, new], PartState()) == lineage(13, (3, 0), (5, 11))


def test_a_checkpoint_cut_at_the_log_start_leaves_an_unknown_hole() -> None:
    """Finding 10: the cut is not where epoch 2 began."""
    old = seg("old", [plain(0, 4, 1)])
    new = seg("new", [plain(10, 12, 2)], checkpoint=((2, 8),))
    assert fold([old, new], PartState()) == lineage(13, (1, 0), (UNKNOWN, 5), (2, 8))


def test_no_hole_inside_one_epoch() -> None:
    old = seg("old", [plain(0, 4, 1)])
    new = seg("new", [plain(10, 12, 1)], checkpoint=((1, 8),))
    assert fold([old, new], PartState()) == lineage(13, (1, 0))


def test_a_cut_checkpoint_is_no_divergence() -> None:
    before = lineage(10, (1, 0), (2, 6))
    assert divergence(before, lineage(20, (1, 0), (UNKNOWN, 5), (2, 8))) is None
    assert divergence(lineage(20, (1, 0), (UNKNOWN, 5), (2, 8)), before) is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (lineage(10, (1, 0)), lineage(20, (1, 0)), None),
        (lineage(10, (1, 0)), lineage(20, (1, 0), (2, 10)), None),
        (lineage(10, (1, 0)), lineage(9, (1, 0), (2, 7)), 7),
        (lineage(10, (1, 0), (2, 5)), lineage(20, (1, 0), (3, 8)), 5),
        (lineage(10, (3, 5)), lineage(9, (4, 2)), 2),
        (lineage(10, (2, 0)), lineage(9, (1, 0), (3, 2)), 0),
        (lineage(10, (2, 4)), lineage(20, (1, 0), (3, 8)), 4),
        (lineage(10, (2, 4)), lineage(20, (1, 0), (3, 3)), 3),
        (Lineage(), lineage(9, (4, 2)), None),
        (lineage(5, (1, 0)), lineage(9, (4, 7)), None),
    ],
)
def test_divergence(old: Lineage, new: Lineage, expected: int | None) -> None:
    assert divergence(old, new) == expected


@pytest.mark.parametrize(
    ("runs", "base", "end", "living", "expected"),
    [
        (((1, 0),), 0, 10, lineage(20, (1, 0)), 10),
        (((1, 0),), 0, 10, lineage(20, (1, 0), (2, 6)), 6),
        (((1, 0), (2, 4)), 0, 10, lineage(20, (1, 0), (3, 6)), 4),
        (((2, 0),), 0, 10, lineage(20, (1, 0), (3, 6)), 0),
        (((1, 0), (2, 4)), 0, 10, lineage(20, (2, 4)), 10),
        (((1, 0), (2, 4)), 2, 10, lineage(20, (1, 0), (2, 4)), 10),
        (((5, 0),), 0, 10, Lineage(), 10),
    ],
)
def test_valid_end(runs: tuple[tuple[int, int], ...], base: int, end: int, living: Lineage, expected: int) -> None:
    assert valid_end(runs, base, end, living) == expected


def test_a_rewind_keeps_a_transaction_decided_before_it() -> None:
    a = seg("a", [txn(0, 3, 1, 3), commit(4, 1, 3), plain(5, 9, 3)])
    model = Model()
    model.publish(a)
    result = model.publish(a, seg("b", [plain(7, 8, 4)], checkpoint=((3, 0), (4, 7)), opened=()))
    assert result.rewind == 7
    assert model.offsets == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_dead_branch_that_was_never_published_adds_nothing() -> None:
    model = Model()
    model.publish(seg("b", [plain(0, 8, 4)]))
    model.publish(seg("b", [plain(0, 8, 4)]), seg("zombie", [plain(0, 20, 3)]))
    assert model.rows == dict.fromkeys(range(9), 4)


def test_an_unclean_election_replaces_published_rows() -> None:
    model = Model()
    a = seg("a", [plain(0, 4, 1), plain(5, 9, 1)])
    model.publish(a)
    b = seg("b", [plain(5, 6, 2), plain(7, 20, 2)], checkpoint=((1, 0), (2, 5)))
    result = model.publish(a, b)
    assert result.rewind == 5
    assert len(result.trim) == 1
    assert result.add == (UseMain("b"),)
    assert model.rows == {**dict.fromkeys(range(5), 1), **dict.fromkeys(range(5, 21), 2)}


def test_a_file_wholly_on_the_dead_branch_is_replaced_not_removed() -> None:
    """Retention is a `delete` snapshot; a branch that lost is an `overwrite`."""
    model = Model()
    a, b = seg("a", [plain(0, 4, 1)]), seg("b", [plain(5, 9, 1)], checkpoint=((1, 0),))
    model.publish(a, b)
    result = model.publish(a, b, seg("c", [plain(5, 6, 2)], checkpoint=((1, 0), (2, 5))))
    assert len(result.replace) == 1
    assert result.remove == ()


EPOCHS = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@given(EPOCHS, st.integers(0, 7), st.integers(1, 8))
def test_a_part_of_the_living_log_is_alive_as_a_whole(steps: list[int], first: int, length: int) -> None:
    """Any slice of one log, against the lineage of that log: all of it is valid."""
    log = [plain(n, n, sum(steps[: n + 1])) for n in range(len(steps))]
    part = log[first : first + length]
    if not part:
        return
    living = Lineage(runs_of(log), len(log))
    assert valid_end(runs_of(part), part[0].base, part[-1].last + 1, living) == part[-1].last + 1


@given(EPOCHS, st.data())
def test_uploads_of_one_log_never_look_like_a_divergence(steps: list[int], data: st.DataObject) -> None:
    """Checkpoints cut anywhere, segments cut anywhere, in any order: no false rewind."""
    log: list[B] = [plain(n, n, sum(steps[: n + 1])) for n in range(len(steps))]
    state = PartState()
    for number in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.integers(0, len(log) - 1))
        end = data.draw(st.integers(base, len(log) - 1))
        start = data.draw(st.integers(0, base))
        told = runs_of(log[start : end + 1])
        segment = seg(str(number), log[base : end + 1], checkpoint=told)
        result = fold([segment], state)
        assert divergence(Lineage(state.lineage, state.known_end), result) is None
        state = PartState(lineage=result.entries, known_end=result.end)
