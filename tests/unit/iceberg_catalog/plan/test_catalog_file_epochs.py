"""Which live files are asked for their leader epochs, what they answer, and what comes of it (C18)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from converter.epochs import clipped, footer_entry, joined, runs_of_footer
from converter.types import LeaderEpoch
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan import file_epochs
from iceberg_catalog.plan.file_epochs import Endings, FileEpochs
from iceberg_catalog.plan.lineage import UNKNOWN, Lineage
from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import LiveFile, PartState, Runs
from tests.worlds.catalog_support import STATE, Place, make_place, make_rows
from tests.worlds.plan_support import FOLLOW, KEEP, B, seg

TWELVE = tuple((epoch, 3 * epoch) for epoch in range(12))


def live(first: int, last: int, runs: Runs | None = None) -> LiveFile:
    return LiveFile(path=f"f{first}", first=first, last=last, runs=runs, partition=0)


class Looker:
    """Answers, and remembers who was asked for."""

    def __init__(self, runs: Runs = ()) -> None:
        self.runs, self.asked = runs, list[str]()

    def __call__(self, file: LiveFile) -> Runs:
        self.asked.append(file.path)
        return self.runs


def test_a_normal_run_looks_into_none_of_100_000_files() -> None:
    files = [live(10 * number, 10 * number + 9) for number in range(100_000)]
    lineage = ((0, 0), (3, 500_000))
    state = PartState(frontier=1_000_000, floor=0, lineage=lineage, known_end=1_000_000)
    more = seg("s", [B(1_000_000, 1_000_009, 4)], checkpoint=(*lineage, (4, 1_000_000)))
    look = Looker()
    made = plan([more], files, state, FOLLOW, relisted=True, look=look)
    assert look.asked == []
    assert (made.remove, made.replace, made.trim, len(made.add)) == ((), (), (), 1)


def test_of_a_dead_branch_no_file_that_goes_whole_is_looked_into() -> None:
    files = [live(10 * number, 10 * number + 9) for number in range(10_000)]
    state = PartState(frontier=100_000, floor=0, lineage=((0, 0), (1, 49_995)), known_end=100_000)
    other = seg("s", [B(49_995, 49_999, 2)], checkpoint=((0, 0), (2, 49_995)))
    look = Looker(((0, 49_990), (1, 49_995)))
    made = plan([other], files, state, FOLLOW, relisted=True, look=look)
    assert look.asked == ["f49990"]
    assert [(item.path, item.keep_below) for item in made.trim] == [("f49990", 49_995)]
    assert len(made.replace) == 5_000


@pytest.mark.parametrize("told", [True, False])
def test_a_rewind_over_more_than_eight_epochs_leaves_what_is_alive(told: bool) -> None:
    """C18: one segment of 12 epochs, whole in the table; an unclean election drops the last 8."""
    state = PartState(frontier=36, floor=0, lineage=TWELVE, known_end=36)
    new = seg("s", [B(12, 15, 20)], checkpoint=(*TWELVE[:4], (20, 12)))
    look = Looker(TWELVE)
    made = plan([new], [live(0, 35, TWELVE if told else None)], state, FOLLOW, relisted=True, look=look)
    assert [item.keep_below for item in made.trim] == [12]
    assert made.replace == ()
    assert look.asked == ([] if told else ["f0"])


@pytest.mark.parametrize(
    ("recorded", "lineage", "first", "last", "frontier", "runs", "end", "asks"),
    [
        # Agrees at its last row, whatever happened elsewhere.
        (((0, 0), (1, 50)), ((0, 0), (2, 50)), 0, 49, 50, (), 50, False),
        # Begins where everything goes.
        (((0, 0), (1, 50)), ((0, 0), (2, 50)), 60, 69, 50, (), 50, False),
        (((0, 0), (1, 50)), ((0, 0), (2, 50)), 40, 69, 50, ((0, 40), (1, 50)), 50, True),
        # Nothing was recorded: every file is asked, and only what the lineage proves stays.
        ((), ((0, 0), (2, 50)), 40, 69, 70, ((0, 40), (1, 50)), 50, True),
        ((), ((0, 0), (2, 50)), 40, 69, 70, ((0, 40), (2, 50)), 70, True),
        ((), (), 40, 69, 70, (), 70, False),
        # The record begins above the file: it was alive when it left the record's reach, and is while they agree there.
        (((4, 90),), ((0, 0), (3, 20), (4, 90)), 40, 69, 100, (), 70, False),
        (((4, 90),), ((0, 0), (3, 20), (5, 90)), 40, 69, 100, ((3, 40),), 70, True),
        (((4, 90),), ((0, 0), (5, 50)), 40, 69, 100, ((0, 40), (3, 50)), 50, True),
        (((4, 90),), ((0, 0), (UNKNOWN, 20), (5, 90)), 40, 69, 100, (), 70, False),
        # A hole in the record is no word against what the file itself says.
        (((0, 0), (UNKNOWN, 20), (4, 60)), ((0, 0), (1, 20), (4, 60)), 10, 39, 100, ((0, 10), (1, 20)), 40, True),
        (((0, 0), (UNKNOWN, 20), (4, 60)), ((0, 0), (2, 20), (4, 60)), 10, 39, 100, ((0, 10), (1, 20)), 20, True),
        (((0, 0), (UNKNOWN, 20), (4, 60)), ((0, 0), (UNKNOWN, 20), (4, 60), (5, 90)), 10, 39, 100, (), 40, False),
        # What the record said is a hole now: another branch won, and nobody knows since when.
        (((0, 0), (5, 5)), ((0, 0), (UNKNOWN, 5), (3, 20)), 3, 9, 10, ((0, 3), (5, 5)), 5, True),
    ],
)
def test_how_far_a_file_is_alive(
    recorded: Runs, lineage: Runs, first: int, last: int, frontier: int, runs: Runs, end: int, asks: bool
) -> None:
    look = Looker(runs)
    known = 100 if len(recorded) != 2 or recorded[1] != (5, 5) else 10
    endings = Endings(Lineage(recorded, known), Lineage(lineage, 1000), look)
    assert endings.of(live(first, last), frontier) == end
    assert bool(look.asked) == asks
    if asks:
        assert endings.of(live(first, last, runs), frontier) == end


def test_without_a_recorded_state_files_are_asked() -> None:
    one = seg("s", [B(0, 9, 0), B(10, 19, 2)], checkpoint=((0, 0), (2, 10)))
    look = Looker(((0, 0), (1, 10)))
    made = plan([one], [live(0, 14)], PartState(), KEEP, relisted=True, look=look)
    assert look.asked == ["f0"]
    assert [item.keep_below for item in made.trim] == [10]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def published(place: Place, *files: object) -> Head:
    head = LiveFiles().read(place.load())
    outcome = commit(place.catalog, head, Change(append=files), STATE, commit_id="c", as_of_ms=0)  # type: ignore[arg-type]
    assert outcome.table is not None
    return LiveFiles().read(outcome.table)


def test_a_footer_is_read_once_and_only_when_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head = published(place, place.write(3, 9, epoch=2), place.write(10, 12, epoch=4))
    read = list[object]()
    real = pq.read_metadata

    def counting(stream: object) -> object:
        read.append(stream)
        return real(stream)

    monkeypatch.setattr(pq, "read_metadata", counting)
    by_first = {file.first: file for file in head.files}
    assert read == []
    assert head.look(by_first[3]) == ((2, 3),)
    assert head.look(by_first[10]) == ((4, 10),)
    assert head.look(by_first[3]) == ((2, 3),)
    assert len(read) == 2


def test_what_is_remembered_has_a_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_epochs, "FILE_EPOCHS_KEPT_MAX", 2)
    head = published(place, *(place.write(number, number) for number in range(5)))
    epochs = FileEpochs(head.table.io)
    for file in head.files:
        epochs.of(file)
    assert len(epochs._known) == 2


@pytest.mark.parametrize("told", [None, b"0", b"0.1.2", b"x.y", b"\xff"])
def test_a_file_that_does_not_tell_is_named(place: Place, told: bytes | None) -> None:
    (file,) = published(place, place.write(3, 9)).files
    rows = make_rows(range(3, 10), 0, "raw")
    pq.write_table(
        rows.replace_schema_metadata(None if told is None else {b"tierberg.leader-epochs": told}), file.path[7:]
    )
    with pytest.raises(CatalogError, match=f"{file.path} does not tell its leader epochs") as caught:
        FileEpochs(place.table.io).of(file)
    assert caught.value.kind == "corrupt_state"


def test_no_file_at_all_is_an_error_of_the_storage(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        FileEpochs(place.table.io).of(replace(live(0, 1), path=place.data.as_uri() + "/none.parquet"))


def test_runs_survive_a_footer_whatever_their_number(tmp_path: Path) -> None:
    runs = [LeaderEpoch(epoch, 7 * epoch) for epoch in range(20_000)]
    path = tmp_path / "x.parquet"
    pq.write_table(make_rows(range(1), 0, "raw").replace_schema_metadata(footer_entry(runs)), path)
    assert runs_of_footer(pq.read_metadata(path)) == tuple(runs)


def test_runs_are_clipped_and_joined() -> None:
    runs = [LeaderEpoch(0, 0), LeaderEpoch(3, 120), LeaderEpoch(5, 150), LeaderEpoch(9, 400)]
    assert clipped(runs, 100, 199) == (LeaderEpoch(0, 100), LeaderEpoch(3, 120), LeaderEpoch(5, 150))
    assert clipped(runs, 120, 149) == (LeaderEpoch(3, 120),)
    assert clipped(runs, 149, 150) == (LeaderEpoch(3, 149), LeaderEpoch(5, 150))
    assert clipped((), 0, 9) == ()
    assert joined(runs[:2], runs[2:]) == tuple(runs)
    assert joined(runs[:2], [LeaderEpoch(3, 130), LeaderEpoch(5, 150)]) == (*runs[:2], LeaderEpoch(5, 150))
    assert joined((), runs[:1]) == joined(runs[:1], ()) == tuple(runs[:1])
