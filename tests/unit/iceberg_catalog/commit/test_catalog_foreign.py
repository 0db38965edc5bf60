"""Commits of others: found whatever they left, remembered when they expire, undone by putting the table back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.foreign import FOREIGN_SINCE, TAG, ForeignCommits, foreign_commits
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.limits import MANIFESTS_SMALL_MAX, SNAPSHOTS_KEPT_MAX
from iceberg_catalog.tables.tables import rows_in
from tests.worlds.catalog_support import STATE, Place, make_place
from tests.worlds.foreign_support import (
    commit_manifests,
    delete_by_position,
    delete_whole_files,
    drop_tag,
    insert,
    rewrite,
    roll_back,
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def publish(place: Place, *ranges: tuple[int, int]) -> Head:
    head = LiveFiles().read(place.load())
    files = tuple(place.write(first, last) for first, last in ranges)
    outcome = commit(place.catalog, head, Change(append=files), STATE, commit_id="c", as_of_ms=0)
    assert outcome.kind == "committed"
    return LiveFiles().read(place.load())


def found(place: Place) -> ForeignCommits | None:
    return foreign_commits(place.load())


def tagged(place: Place) -> int | None:
    ref = place.load().metadata.refs.get(TAG)
    return None if ref is None else ref.snapshot_id


def delete_two_rows(place: Place) -> None:
    delete_by_position(place, LiveFiles().read(place.load()).files[0].path, [1, 2])


WRITERS: dict[str, tuple[Callable[[Place], None], list[int], int, tuple[str, ...]]] = {
    "insert": (lambda place: insert(place.load()), [*range(10), 100, 101, 102], 1, ("append",)),
    "delete of whole files": (lambda place: delete_whole_files(place.load()), [], 0, ("delete",)),
    "rewrite": (lambda place: rewrite(place.load()), [*range(10)], 1, ("append", "delete")),
    "merge-on-read delete": (delete_two_rows, [0, *range(3, 10)], 1, ("delete",)),
}


def uncounted(producer: Any, *_: object) -> Summary:
    """All that the spec asks of a summary."""
    return Summary(producer._operation)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("name", WRITERS)
def test_what_an_engine_did_is_found_and_the_way_back_works(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, counted: bool
) -> None:
    if not counted:
        monkeypatch.setattr(_SnapshotProducer, "_summary", uncounted)
    write, offsets, foreign, operations = WRITERS[name]
    ours = publish(place, (0, 4), (5, 9)).snapshot_id
    assert found(place) is None
    write(place)
    assert ours is not None
    assert found(place) == ForeignCommits(ours, operations)
    head = LiveFiles().read(place.load())
    assert (place.offsets(), len(head.foreign), head.state) == (offsets, foreign, STATE)
    # Publishing goes on above it, and nothing is added again.
    publish(place, (10, 12))
    assert place.offsets() == sorted([*offsets, 10, 11, 12])
    assert found(place) == ForeignCommits(ours, operations)
    assert tagged(place) == ours
    roll_back(place, ours)
    assert found(place) is None
    assert publish(place, (10, 12)).foreign == ()
    assert place.offsets() == [*range(13)]
    assert tagged(place) is None


def test_it_is_remembered_when_the_foreign_snapshots_have_expired(place: Place) -> None:
    ours = publish(place, (0, 9)).snapshot_id
    delete_whole_files(place.load())
    for number in range(SNAPSHOTS_KEPT_MAX + 3):
        publish(place, (10 + number, 10 + number))
    table = place.load()
    assert len(table.metadata.snapshots) == SNAPSHOTS_KEPT_MAX + 1  # and the tag's
    assert ours is not None
    assert found(place) == ForeignCommits(ours, ())
    roll_back(place, ours)
    assert place.offsets() == [*range(10)]


def test_a_second_engine_does_not_move_the_way_back(place: Place) -> None:
    ours = publish(place, (0, 9)).snapshot_id
    insert(place.load())
    publish(place, (10, 12))
    delete_whole_files(place.load())
    publish(place, (13, 15))
    assert ours is not None
    assert found(place) == ForeignCommits(ours, ("delete", "append"))
    assert tagged(place) == ours


def test_after_the_way_back_a_new_one_is_kept(place: Place) -> None:
    """Put back, and spoiled again before any commit of ours: an older tag must not be taken for it."""
    publish(place, (0, 4))
    second = publish(place, (5, 9)).snapshot_id
    insert(place.load())
    third = publish(place, (10, 12)).snapshot_id
    assert (tagged(place), third != second) == (second, True)
    first = place.load().metadata.snapshots[0].snapshot_id
    roll_back(place, first)
    insert(place.load())
    assert found(place) == ForeignCommits(first, ("append",))
    publish(place, (5, 9))
    assert tagged(place) == first


def test_who_drops_the_tag_takes_the_table_as_it_is(place: Place) -> None:
    publish(place, (0, 9))
    insert(place.load())
    publish(place, (10, 12))
    drop_tag(place, TAG)
    assert found(place) is None
    head = publish(place, (13, 15))
    assert (found(place), tagged(place), len(head.foreign)) == (None, None, 1)
    snapshot = place.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert FOREIGN_SINCE not in snapshot.summary.additional_properties


def test_who_puts_the_table_forward_again_finds_the_way_back_again(place: Place) -> None:
    """Our commit in between took the tag away, and status named a way back that nothing showed."""
    ours = publish(place, (0, 9)).snapshot_id
    insert(place.load())
    spoiled = publish(place, (10, 12)).snapshot_id
    assert ours is not None
    assert spoiled is not None
    roll_back(place, ours)
    publish(place, (10, 12))
    assert tagged(place) is None
    roll_back(place, spoiled)
    assert found(place) == ForeignCommits(ours, ("append",))
    publish(place, (13, 15))
    assert (found(place), tagged(place)) == (ForeignCommits(ours, ("append",)), ours)
    drop_tag(place, TAG)
    assert found(place) is None


@pytest.mark.parametrize(
    "summary", [{}, {"total-records": "1.5e3", "total-files-size": "many", "total-data-files": "x"}]
)
def test_totals_that_an_engine_does_not_say_are_counted(place: Place, summary: dict[str, str]) -> None:
    publish(place, (0, 4), (5, 9))
    table = place.load()
    manifests = LiveFiles().read(table).manifests
    snapshot_id = table.metadata.new_snapshot_id()
    same = [item.manifest for item in manifests]
    commit_manifests(place.catalog, table, snapshot_id, same, Summary(Operation.REPLACE, **summary))
    assert found(place) is None
    for first in (10, 20):
        publish(place, (first, first + 2))
    current = place.load().current_snapshot()
    assert current is not None
    assert current.summary is not None
    said = current.summary.additional_properties
    assert (said["total-data-files"], said["total-records"]) == ("4", "16")
    assert rows_in(place.load()) == 16


def test_a_table_that_nobody_wrote_has_none(place: Place) -> None:
    assert found(place) is None


def test_delete_files_stay_what_they_are_while_manifests_are_folded(place: Place) -> None:
    """In a manifest of data files engines would read them as rows."""
    path = publish(place, (0, 9)).files[0].path
    delete_by_position(place, path, [3])
    delete_by_position(place, path, [7])
    for number in range(MANIFESTS_SMALL_MAX + 2):
        publish(place, (10 + number, 10 + number))
    head = LiveFiles().read(place.load())
    assert len(head.manifests) < MANIFESTS_SMALL_MAX
    assert len(head.foreign) == 2
    assert [content.manifest.content for content in head.manifests].count(ManifestContent.DELETES) == 2
    assert place.offsets() == [0, 1, 2, 4, 5, 6, 8, 9, *range(10, 12 + MANIFESTS_SMALL_MAX)]
    # Which rows a delete file applies to follows from sequence numbers: those of folded entries stay as they were.
    table = place.load()
    entries = [entry for content in head.manifests for entry in content.manifest.fetch_manifest_entry(table.io)]
    assert sorted(entry.sequence_number or -1 for entry in entries) == [*range(1, MANIFESTS_SMALL_MAX + 6)]
    assert min(content.manifest.min_sequence_number for content in head.manifests) == 1
