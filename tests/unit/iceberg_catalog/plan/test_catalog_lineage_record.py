"""R1: the recorded lineage is cut where nothing below matters, and stays small under any number of epochs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.commit.state import encode_state
from iceberg_catalog.limits import LINEAGE_ENTRIES_MAX, STATE_BYTES_MAX
from iceberg_catalog.plan import lineage_record
from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, divergence, of_segment, valid_end
from iceberg_catalog.plan.lineage_record import cut, fold, read_record
from iceberg_catalog.plan.types import PartState, Segment
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, verdict
from tests.worlds.plan_support import (
    DELETED,
    KEEP,
    WITHDRAWN,
    B,
    Model,
    commit,
    from_records_alone,
    gone,
    plain,
    runs_of,
    seg,
    txn,
)

ROWS = 10


def log_of(epochs: int, first: int = 0) -> list[B]:
    """A leader that restarts after each batch: epoch n has the offsets of [10 n, 10 n + 9]."""
    return [plain(n * ROWS, n * ROWS + ROWS - 1, n) for n in range(first, first + epochs)]


def segments_of(log: list[B], each: int) -> list[Segment]:
    parts = [log[n : n + each] for n in range(0, len(log), each)]
    return [
        seg(f"s{part[0].base}", part, checkpoint=runs_of([b for b in log if b.base <= part[-1].base])) for part in parts
    ]


def test_a_thousand_partitions_with_a_hundred_epochs_below_the_floor_are_a_small_state() -> None:
    segments = segments_of(log_of(101), 1)
    model = Model()
    model.publish(*segments)
    model.publish(*map(gone, segments[:-1]), segments[-1])
    assert (model.state.floor, model.state.lineage) == (1000, ((100, 1000),))
    data, _ = encode_state(dict.fromkeys(range(1000), model.state))
    uncut, _ = encode_state(dict.fromkeys(range(1000), replace(model.state, lineage=runs_of(log_of(101)))))
    assert len(uncut) > 900_000
    assert len(data) < 100_000


SHORT = 32


@pytest.mark.parametrize("epochs", [SHORT, SHORT + 1, 1000])
def test_where_the_floor_does_not_move_the_newest_epochs_are_recorded(
    epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", SHORT)
    segments = segments_of(log_of(epochs), 7)
    model = Model(KEEP)
    for number in range(0, len(segments), 10):
        model.publish(*segments[: number + 10])
    assert model.offsets == list(range(epochs * ROWS))
    assert len(model.state.lineage) == min(epochs, SHORT)
    assert model.state.lineage[-1] == (epochs - 1, (epochs - 1) * ROWS)
    assert not model.plan(segments[-1:]).changes(model.state)


def test_two_thousand_partitions_with_as_many_epochs_as_are_recorded_fit_into_a_state() -> None:
    lineage = tuple((10_000 + n, 10**12 + n) for n in range(LINEAGE_ENTRIES_MAX))
    state = PartState(frontier=10**12, floor=10**12, lineage=lineage, known_end=10**12)
    assert 20 * len(encode_state(dict.fromkeys(range(100), state))[0]) < STATE_BYTES_MAX


@pytest.mark.parametrize("dropped", [5, 45, 59])
def test_an_unclean_election_over_more_epochs_than_are_recorded_takes_back_what_it_must(
    dropped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the record does not have, the index of the branch that lost still tells."""
    monkeypatch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", SHORT)
    log = log_of(60)
    whole = seg("whole", log)
    model = Model(KEEP)
    model.publish(whole)
    shared = log[: 60 - dropped]
    own = [plain(b.base, b.last, 70 + n) for n, b in enumerate(log[len(shared) :][:3])]
    winner = seg("winner", own, checkpoint=runs_of([*shared, *own]))
    assert model.publish(whole, winner).rewind == shared[-1].last + 1
    assert model.rows == {o: b.epoch for b in (*shared, *own) for o in range(b.base, b.last + 1)}


def test_an_older_epoch_that_wins_back_over_more_epochs_than_are_recorded() -> None:
    first = seg("first", [plain(0, 99, 1)])
    log = [plain(0, 19, 1), *(plain(20 + 2 * n, 21 + 2 * n, 2 + n) for n in range(50))]
    lost = seg("lost", log[1:], checkpoint=runs_of(log))
    winner = seg("winner", [plain(100, 109, 90)], checkpoint=((1, 0), (90, 100)))
    model = Model(KEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", SHORT)
        model.publish(first)
        model.publish(first, lost)
        assert model.state.lineage[0] == (UNKNOWN, 0)
        assert from_records_alone(model, first, lost, winner).rewind == 20
        assert model.publish(first, lost, winner).rewind == 20
    assert model.rows == {**dict.fromkeys(range(100), 1), **dict.fromkeys(range(100, 110), 90)}


def test_a_dead_branch_below_the_cut_stays_dead() -> None:
    """What showed it dead is not recorded any more; it must not complete the record."""
    dead = seg("dead", [plain(20, 30, 1)], checkpoint=((1, 0),))
    low = seg("low", [plain(0, 9, 1), plain(10, 39, 2)])
    high = seg("high", [plain(40, 89, 2), plain(90, 120, 5)], checkpoint=((1, 0), (2, 10), (5, 90)))
    model = Model()
    model.publish(low, high, dead)
    model.publish(gone(low), high, dead)
    assert model.state.lineage == ((2, 10), (5, 90))
    more = seg("more", [plain(121, 130, 5)], checkpoint=((5, 100),))
    assert fold([dead, more], model.state) == Lineage(((2, 10), (5, 90)), 131)
    assert fold([dead, high, more], model.state) == Lineage(((1, 0), (2, 10), (5, 90)), 131)
    model.publish(high, dead, more)
    assert model.state.lineage == ((2, 10), (5, 90))
    assert model.offsets == list(range(40, 131))


def test_a_segment_that_reaches_over_the_cut_proves_itself() -> None:
    """Another leader's segments begin lower: one row of it still waits when retention has passed its first ones."""
    dead = seg("dead", [plain(20, 30, 1)], checkpoint=((1, 0),))
    low = seg("low", [plain(0, 9, 1), plain(10, 39, 2)])
    wide = seg(
        "wide", [plain(12, 39, 2), plain(40, 49, 2), txn(50, 60, 7, 2)], checkpoint=((2, 12),), opened=((7, 50),)
    )
    model = Model()
    model.publish(low, wide, dead)
    model.publish(gone(low), wide, dead)
    assert (model.state.frontier, model.state.lineage) == (50, ((2, 10),))
    model.publish(wide, dead, seg("m", [commit(61, 7, 2)], checkpoint=((2, 12),), opened=()))
    assert model.offsets == list(range(40, 61))


def test_a_cut_is_no_epoch_start() -> None:
    """Finding 10, of the record: what is known from the floor on began anywhere below."""
    a, b = seg("a", [plain(0, 9, 1)]), seg("b", [plain(10, 30, 1)], checkpoint=((1, 0),))
    model = Model()
    model.publish(a, b)
    model.publish(gone(a), b)
    assert model.state.lineage == ((1, 0),)
    for known, told in product((0, 10), (((1, 0), (2, 31)), ((1, 5), (2, 31)), ((1, 12), (2, 31)))):
        once = Model(state=replace(model.state, lineage=((1, known),)), files=dict(model.files))
        assert once.publish(b, seg("c", [plain(31, 40, 2)], checkpoint=told)).rewind is None
        assert once.offsets == list(range(10, 41))


def test_an_archive_keeps_what_proves_its_files() -> None:
    """Below the floor too: an election that goes below it takes back what died there, and no more."""
    log = log_of(6)
    segments = segments_of(log, 1)
    model = Model(KEEP)
    model.publish(*segments)
    model.publish(*map(gone, segments[:5]), segments[5])
    assert (model.state.floor, len(model.state.lineage)) == (50, 6)
    winner = seg("w", [plain(35, 70, 9)], checkpoint=((0, 0), (1, 10), (2, 20), (3, 30), (9, 35)))
    assert model.publish(segments[5], winner).rewind == 35
    assert model.offsets == list(range(71))
    assert {model.rows[offset] for offset in range(35, 71)} == {9}


def test_what_waits_for_its_marker_below_the_floor_of_an_archive_is_not_cut() -> None:
    """Deleted before it was decided: its rows come when the marker does, from a segment the record still knows."""
    low = seg("low", [plain(0, 4, 1), txn(5, 6, 7, 1)])
    high = seg("high", [plain(7, 9, 2)], checkpoint=((1, 0), (2, 7)), opened=((7, 5),))
    model = Model(KEEP)
    model.publish(low, high)
    model.publish(gone(low), gone(high))
    assert (model.state.frontier, model.state.floor, model.state.lineage) == (5, 10, ((1, 0), (2, 7)))
    assert verdict(gone(low), model.state) is TombstoneVerdict.NEEDED
    model.publish(gone(low), gone(high), seg("m", [commit(10, 7, 2)], checkpoint=((1, 0), (2, 7)), opened=()))
    assert model.offsets == list(range(10))


def test_what_lies_in_the_hole_of_a_short_record_is_not_called_dead() -> None:
    living = Lineage(((UNKNOWN, 0), (5, 100), (7, 150)), 200)
    assert valid_end(((2, 10),), 10, 50, living) == 50
    assert valid_end(((2, 10), (4, 90)), 10, 120, living) == 100
    assert valid_end(((6, 10),), 10, 50, living) == 10
    assert valid_end(((6, 120),), 120, 150, living) == 120
    deleted = gone(seg("d", [plain(10, 49, 2)]), DELETED)
    state = PartState(frontier=120, floor=0, lineage=living.entries, known_end=living.end)
    assert verdict(deleted, state) is TombstoneVerdict.NEEDED
    assert verdict(deleted, replace(state, floor=50)) is TombstoneVerdict.FREE
    assert verdict(gone(deleted, WITHDRAWN), state) is TombstoneVerdict.FREE


def test_an_older_epoch_that_wins_back_below_the_floor_is_published_from_its_lowest_row_on() -> None:
    """What retention deleted was of the branch that lost, and nobody knows where the two parted."""
    lost = seg("lost", [plain(10, 19, 1)], checkpoint=((0, 0), (1, 10)))
    rest = seg("rest", [plain(20, 49, 1)], checkpoint=((1, 15),))
    model = Model()
    model.publish(lost, rest)
    model.publish(gone(lost), rest)
    assert (model.state.floor, model.state.lineage) == (20, ((1, 10),))
    won = seg("won", [plain(0, 29, 0), plain(30, 39, 2)])
    assert model.publish(rest, won).rewind == 0
    assert (model.state.floor, model.offsets) == (0, list(range(40)))
    assert [model.rows[offset] for offset in (0, 29, 30)] == [0, 0, 2]


def test_a_cut_keeps_where_its_first_epoch_began() -> None:
    entries = ((1, 0), (2, 5), (4, 9))
    assert cut(entries, 4) == entries
    assert cut(entries, 5) == ((2, 5), (4, 9))
    assert cut(entries, 100) == ((4, 9),)
    assert cut(((UNKNOWN, 0), (2, 5), (4, 9)), 3) == ((UNKNOWN, 3), (2, 5), (4, 9))
    assert cut(entries, -1) == entries
    assert cut((), 5) == ()


def test_a_short_record_has_one_hole_where_there_was_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", 3)
    assert cut(((1, 0), (2, 5), (UNKNOWN, 7), (4, 9)), 2) == ((UNKNOWN, 2), (4, 9))


EPOCHS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(EPOCHS, st.data())
def test_uploads_of_one_log_never_look_like_a_divergence_however_the_record_is_cut(
    steps: list[int], data: st.DataObject
) -> None:
    """Checkpoints cut anywhere, segments anywhere and in any order; floors in between; a record of four entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineage_record, "LINEAGE_ENTRIES_MAX", 4)
        log = [plain(n, n, sum(steps[: n + 1])) for n in range(len(steps))]
        truth = Lineage(runs_of(log), len(log))
        state = PartState()
        stored: list[Segment] = []
        for number in range(data.draw(st.integers(1, 6))):
            base = data.draw(st.integers(0, len(log) - 1))
            end = data.draw(st.integers(base, len(log) - 1))
            told = runs_of(log[data.draw(st.integers(0, base)) : end + 1])
            told = tuple((epoch, max(start, told[0][1])) for epoch, start in told)
            stored.append(seg(str(number), log[base : end + 1], checkpoint=told))
            found = fold(stored, state)
            record = read_record(state, [of_segment(item) for item in stored])
            assert divergence(record, found) is None
            for item in stored:
                end = valid_end(item.runs, item.base, item.last + 1, found)
                assert end in (item.base, item.last + 1) or found.epoch_at(end) == UNKNOWN  # nobody can tell from there
            assert all(epoch in (truth.epoch_at(start), UNKNOWN) for epoch, start in found.entries)
            floor = data.draw(st.integers(state.floor, found.end))
            kept = lineage_record.recorded(found, state, floor, floor)
            assert len(kept) <= 4
            state = PartState(frontier=found.end, floor=floor, lineage=kept, known_end=found.end)
            stored = [item for item in stored if item.last >= floor]
