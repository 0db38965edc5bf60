"""The head: files, foreign files and recorded state, read incrementally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import Head, LiveFiles, normal_path, parse_file_name
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import LiveFile
from tests.worlds.catalog_support import STATE, Place, make_place, make_rows

ATTEMPT = "0123456789abcdef" * 2
TABLE = "fedcba9876543210" * 2


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def publish(place: Place, live: LiveFiles, *files: Any, state: StateRef = STATE) -> Head:
    head = live.read(place.load())
    outcome = commit(place.catalog, head, Change(append=files), state, commit_id="c", as_of_ms=0)
    assert outcome.table is not None
    return live.read(outcome.table)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{5:020d}-{9:020d}-{ATTEMPT}.parquet", (5, 9)),
        (f"{5:020d}-{9:020d}-tail-{ATTEMPT}.parquet", (5, 9)),
        (f"{5:020d}-{9:020d}-d8412-{TABLE}-{ATTEMPT}.parquet", (5, 9)),
        (f"{5:020d}-{9:020d}-d-1-{TABLE}-{ATTEMPT}.parquet", (5, 9)),
        (f"{5:020d}-{9:020d}-d8412-{ATTEMPT}.parquet", None),
        (f"{5:020d}-{9:020d}-{ATTEMPT}.parquet.tmp", None),
        (f"{5:020d}-{9:020d}--{ATTEMPT}.parquet", None),
        (f"{5:020d}-{9:020d}-0.5-{ATTEMPT}.parquet", None),
        (f"{5:019d}-{9:020d}-{ATTEMPT}.parquet", None),
        ("00000-0-1b1ff9c5.parquet", None),
        ("", None),
    ],
)
def test_file_names(name: str, expected: object) -> None:
    assert parse_file_name(name) == expected


@pytest.mark.parametrize("path", ["file:/a/b", "file:///a/b", "/a/b", "file://a/b"])
def test_local_paths_have_one_spelling(path: str) -> None:
    assert normal_path(path) == "/a/b"


def test_other_paths_stay_as_they_are() -> None:
    assert normal_path("s3://bucket//a/b") == "s3://bucket//a/b"


def test_a_table_without_snapshots_has_an_empty_head(place: Place) -> None:
    head = LiveFiles().read(place.load())
    assert (head.snapshot_id, head.files, head.foreign, head.state) == (None, (), (), None)


def test_files_carry_offsets_and_partition(place: Place) -> None:
    one, two = place.write(3, 9, partition=0, epoch=2), place.write(10, 12, partition=7)
    head = publish(place, LiveFiles(), one, two)
    sizes = [item.file_size_in_bytes for item in (one, two)]
    assert set(head.files) == {
        LiveFile(
            path=one.file_path,
            first=3,
            last=9,
            runs=None,
            partition=0,
            max_timestamp_ms=1_704_067_209_000,
            size_bytes=sizes[0],
            rows=7,
        ),
        LiveFile(
            path=two.file_path,
            first=10,
            last=12,
            runs=None,
            partition=7,
            max_timestamp_ms=1_704_067_212_000,
            size_bytes=sizes[1],
            rows=3,
        ),
    }
    assert head.state == STATE
    assert head.foreign == ()


def test_offsets_are_those_of_rows_not_of_the_key(place: Place) -> None:
    """A segment's first and last batch may be control batches."""
    from iceberg_catalog.tables.data_file import data_file

    folder = place.data / "0"
    folder.mkdir(parents=True)
    path = folder / f"{0:020d}-{99:020d}-{ATTEMPT}.parquet"
    pq.write_table(make_rows(range(10, 20), 0, "raw"), path)
    item = data_file(place.table, path.as_uri(), path.stat().st_size, pq.read_metadata(path), 0)
    (file,) = publish(place, LiveFiles(), item).files
    assert (file.first, file.last) == (10, 19)


def test_a_second_read_opens_new_manifests_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveFiles()
    publish(place, live, place.write(0, 4))
    table = place.load()
    opened: list[str] = []
    real = table.io.new_input

    def counting(location: str) -> Any:
        opened.append(location)
        return real(location)

    monkeypatch.setattr(table.io, "new_input", counting)
    assert len(live.read(table).files) == 1
    assert [path for path in opened if "/snap-" not in path] == []
    fresh = LiveFiles().read(table)
    assert fresh.files == live.read(table).files
    assert any("-m" in path for path in opened)


def test_files_that_left_are_forgotten(place: Place) -> None:
    live = LiveFiles()
    item = place.write(0, 4)
    head = publish(place, live, item)
    commit(place.catalog, head, Change(delete=(item.file_path,)), STATE, commit_id="d", as_of_ms=0)
    assert live.read(place.load()).files == ()


def append_like_an_engine(table: Table) -> None:
    table.append(make_rows(range(100, 103), 0, "raw"))


def test_files_an_engine_wrote_are_reported_and_the_state_is_found_below(place: Place) -> None:
    live = LiveFiles()
    publish(place, live, place.write(0, 4))
    append_like_an_engine(place.load())
    head = live.read(place.load())
    assert len(head.files) == 1
    assert len(head.foreign) == 1
    assert head.state == STATE


def test_a_commit_on_top_leaves_foreign_files_alone(place: Place) -> None:
    live = LiveFiles()
    mine = place.write(0, 4)
    publish(place, live, mine)
    append_like_an_engine(place.load())
    head = live.read(place.load())
    other = StateRef("state/other.json", "other")
    outcome = commit(place.catalog, head, Change(delete=(mine.file_path,)), other, commit_id="d", as_of_ms=0)
    assert outcome.kind == "committed"
    head = live.read(place.load())
    assert (head.files, len(head.foreign), head.state) == ((), 1, other)
    assert place.offsets() == [100, 101, 102]


def test_our_name_outside_the_data_path_is_foreign(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(place.catalog, place.table, tmp_path / "elsewhere")
    head = publish(place, LiveFiles(), elsewhere.write(0, 4))
    assert (head.files, len(head.foreign)) == ((), 1)


def test_rows_without_a_recorded_state_are_an_error(place: Place) -> None:
    append_like_an_engine(place.load())
    with pytest.raises(CatalogError) as caught:
        LiveFiles().read(place.load())
    assert caught.value.kind == "state_missing"


def test_what_a_commit_wrote_is_known_without_reading_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveFiles()
    first, second = place.write(0, 9), place.write(10, 19)
    publish(place, live, first, second)
    head = live.read(place.load())
    change = Change(append=(place.write(20, 29),), delete=(first.file_path,))
    outcome = commit(place.catalog, head, change, STATE, commit_id="c", as_of_ms=0)
    assert outcome.table is not None
    expected = LiveFiles().read(place.load())
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", lambda *_: pytest.fail("a manifest was read"))
    found = live.read(outcome.table, outcome.manifests)
    assert found.files == expected.files
    assert [item.paths for item in found.manifests] == [item.paths for item in expected.manifests]
    assert [item.manifest.min_sequence_number for item in found.manifests] == [
        item.manifest.min_sequence_number for item in expected.manifests
    ]
