"""R3: what the files tell of a dead branch and the records do not takes the frontier back too: no row that can come
again is cut away above it.

A record of more than LINEAGE_ENTRIES_MAX epochs is shortened behind a hole. In the hole the histories do not differ for
certain, so the divergence lies above it; but a file's own epochs tell that it died below.
"""

from __future__ import annotations

from iceberg_catalog.plan.lineage import UNKNOWN
from iceberg_catalog.plan.types import PartState, Runs
from tests.worlds.plan_support import KEEP, Model, abort, commit, gone, plain, seg, txn

SHORTENED = PartState(frontier=200, floor=0, lineage=((UNKNOWN, 0), (10, 100)), known_end=200)


def table(state: PartState, *files: Runs, ends: tuple[int, ...]) -> Model:
    """With these files, by the runs of their batches; each ends before the next begins, the last at `ends`."""
    model = Model(KEEP, state=state)
    for runs, end in zip(files, ends, strict=True):
        epochs = {offset: epoch for (epoch, start) in runs for offset in range(start, end)}
        model.add(model.path(None), {offset: (epoch, 0) for offset, epoch in epochs.items()}, runs)
    return model


def test_rows_that_a_file_shows_dead_below_the_divergence_come_again() -> None:
    """Files end at 40, 80, 200; the living branch left the second at 50, and its record shows it from 80 on only."""
    model = table(SHORTENED, ((5, 0),), ((5, 40), (7, 55)), ((7, 80), (10, 100)), ends=(40, 80, 200))
    runs = ((5, 40), (6, 50), (12, 80))
    living = seg("living", [plain(40, 49, 5), plain(50, 79, 6), plain(80, 89, 12)], checkpoint=runs)
    made = model.publish(living)
    assert made.rewind == 50
    expected = {offset: 5 if offset < 50 else 6 if offset < 80 else 12 for offset in range(90)}
    assert model.rows == expected


def test_in_the_hole_of_both_records_too_an_epoch_is_dead_that_is_newer_than_what_follows() -> None:
    """Neither record tells of offset 39. But on a log whose epoch 7 began at 50 or below, nothing below is of 9."""
    model = table(SHORTENED, ((5, 0), (9, 20)), ((9, 40),), ((9, 60), (10, 100)), ends=(40, 60, 200))
    living = seg("living", [plain(50, 79, 7), plain(80, 89, 12)], checkpoint=((7, 50), (12, 80)))
    assert model.publish(living).rewind == 20
    assert model.rows == {
        offset: 5 if offset < 20 else 7 if offset < 80 else 12 for offset in (*range(20), *range(50, 90))
    }


def test_a_transaction_that_was_open_where_the_last_living_file_ends_goes_too() -> None:
    """Rows 30-35 were committed by a marker at 45 on the branch that died; on the living one they are aborted at 46."""
    model = table(SHORTENED, ((5, 0),), ((7, 60),), ((10, 100),), ends=(36, 90, 200))
    low = seg("low", [plain(0, 29, 5), txn(30, 35, 1, 5)], opened=((1, 30),))
    runs = ((5, 0), (6, 46), (12, 80))
    living = seg("living", [plain(36, 45, 5), abort(46, 1, 6), plain(47, 79, 6), plain(80, 89, 12)], checkpoint=runs)
    model.publish(low, living)
    assert model.offsets == [*range(30), *range(36, 46), *range(47, 90)]


def test_without_a_recorded_state_what_is_cut_comes_again() -> None:
    model = table(PartState(), ((0, 0), (1, 10)), ends=(15,))
    one = seg("s", [plain(0, 9, 0), plain(10, 19, 2)], checkpoint=((0, 0), (2, 10)))
    assert model.publish(one).rewind == 10
    assert model.rows == {offset: 0 if offset < 10 else 2 for offset in range(20)}


def test_where_epochs_below_the_floor_are_forgotten_an_older_one_that_wins_back_is_published_whole() -> None:
    """Epochs 2 to 4 had left epoch 1 behind at 10, and all of them were deleted; the record begins with epoch 4."""
    log = [plain(0, 9, 1), plain(10, 19, 2), plain(20, 29, 3), plain(30, 39, 4)]
    lost = seg("lost", log)
    model = Model()
    model.publish(lost)
    model.publish(gone(lost))
    model.publish()
    assert (model.offsets, model.state.floor, model.state.lineage) == ([], 40, ((4, 30),))
    won = seg("won", [plain(0, 44, 1), plain(45, 49, 6)])
    model.publish(won)
    assert model.rows == {offset: 1 if offset < 45 else 6 for offset in range(50)}


def test_the_next_epoch_after_the_living_one_may_be_of_a_log_that_never_had_it() -> None:
    """Retention deleted rows of the branch that lost. What the one that won has at the same offsets, Kafka serves."""
    lost = seg("lost", [plain(0, 9, 1), plain(10, 39, 2)])
    model = Model()
    model.publish(lost)
    model.publish(gone(lost))
    assert (model.state.floor, model.state.lineage) == (40, ((2, 10),))
    model.publish(seg("won", [plain(0, 44, 1), plain(45, 49, 6)]))
    assert model.offsets == list(range(50))


def test_a_transaction_stays_whose_marker_may_lie_in_a_hole_below_the_divergence() -> None:
    """Its marker was committed at 5 in both logs, and deleted with its segment, objects and all; they part at 10."""
    low = seg("low", [plain(0, 2, 1), txn(3, 4, 7, 1)])
    high = seg("high", [commit(5, 7, 1), plain(6, 9, 1), plain(10, 19, 2)], checkpoint=((1, 0), (2, 10)), opened=())
    model = Model(KEEP)
    model.publish(low, high)
    model.publish(gone(low), gone(high))
    won = seg("won", [plain(10, 14, 3)], checkpoint=((1, 0), (3, 10)))
    assert model.plan([gone(low), won], relisted=False).need_relist, "a hole that one listing shows may be none"
    assert model.publish(gone(low), won).rewind == 10
    assert model.rows == {
        0: 1,
        1: 1,
        2: 1,
        3: 1,
        4: 1,
        **dict.fromkeys(range(6, 10), 1),
        **dict.fromkeys(range(10, 15), 3),
    }
