"""Manifests as we write them: what PyIceberg's own writer says, in fewer blocks; moved entries are the same entries."""

from __future__ import annotations

import io
import itertools
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile, ManifestWriterV2

from iceberg_catalog.commit import manifest_writer
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.commit.manifest_entries import EncodedEntry, EntryReader
from iceberg_catalog.commit.manifest_writer import BlockEncoder, BlockManifestWriter, entry_schema
from iceberg_catalog.commit.sound import entries_of
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import MANIFEST_READERS, MANIFESTS_SMALL_MAX
from iceberg_catalog.tables.schema import DATA_PATH
from tests.worlds.catalog_support import STATE, Place, make_place

SNAPSHOT = 2**62 + 5


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def entry(data_file: DataFile, status: ManifestEntryStatus, snapshot_id: int, number: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=number,
        file_sequence_number=number,
        data_file=data_file,
    )


def write(place: Place, kind: Callable[..., Any], entries: list[ManifestEntry], name: str) -> ManifestFile:
    table = place.table
    output = table.io.new_output(f"{table.location()}/metadata/{name}.avro")
    with kind(table.spec(), table.schema(), output, SNAPSHOT, "deflate") as writer:
        for item in entries:
            writer.add_entry(item)
    made: ManifestFile = writer.to_manifest_file()
    return made


def contents(place: Place, source: ManifestFile) -> bytes:
    with place.table.io.new_input(source.manifest_path).open() as stream:
        return stream.read()


def described(entries: list[ManifestEntry]) -> list[Any]:
    """All fields, statistics included."""
    own = [(item.status, item.snapshot_id, item.sequence_number, item.file_sequence_number) for item in entries]
    files = [[item.data_file[position] for position in range(len(item.data_file))] for item in entries]
    return [own, [[dict(field) if hasattr(field, "items") else field for field in file] for file in files]]


def counted(manifest: ManifestFile) -> list[Any]:
    """All fields but path and length."""
    return [manifest[position] for position in range(2, len(manifest))]


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-2000, 2000))
def test_numbers_are_avros(number: int) -> None:
    theirs, ours = io.BytesIO(), BlockEncoder()
    BinaryEncoder(theirs).write_int(number)
    ours.write_int(number)
    assert ours.take() == theirs.getvalue()


def test_a_manifest_says_what_pyicebergs_own_says(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_writer, "MANIFEST_BLOCK_BYTES", 1500)  # several blocks
    files = [place.write(10 * number, 10 * number + 4, partition=number) for number in range(9)]
    entries = [
        *(entry(item, ManifestEntryStatus.ADDED, SNAPSHOT, None) for item in files[:5]),
        *(entry(item, ManifestEntryStatus.EXISTING, 7, 3 + number) for number, item in enumerate(files[5:8])),
        entry(files[8], ManifestEntryStatus.DELETED, SNAPSHOT, 2),
    ]
    theirs = write(place, ManifestWriterV2, entries, "theirs")
    ours = write(place, BlockManifestWriter, entries, "ours")
    assert counted(ours) == counted(theirs)
    read = place.table.io
    assert described(ours.fetch_manifest_entry(read, False)) == described(theirs.fetch_manifest_entry(read, False))
    assert header(place, ours) == header(place, theirs)
    assert ours.manifest_length == (Path(ours.manifest_path.removeprefix("file://"))).stat().st_size


def header(place: Place, manifest: ManifestFile) -> dict[str, str]:
    with AvroFile[ManifestEntry](place.table.io.new_input(manifest.manifest_path)) as file:
        return file.header.meta


def test_a_moved_entry_is_the_same_entry(place: Place) -> None:
    """From PyIceberg's blocks and from ours; those it deleted stay behind, what it inherits comes along."""
    files = [place.write(10 * number, 10 * number + 4, partition=number) for number in range(3)]
    entries = [
        entry(files[0], ManifestEntryStatus.ADDED, SNAPSHOT, None),
        entry(files[1], ManifestEntryStatus.EXISTING, 7, 3),
        entry(files[2], ManifestEntryStatus.DELETED, SNAPSHOT, 2),
    ]
    schema = entry_schema(place.table.spec(), place.table.schema())
    for kind in (ManifestWriterV2, BlockManifestWriter):
        source = write(place, kind, entries, kind.__name__)
        source.sequence_number = 11
        moved = EntryReader(schema).live(contents(place, source), source)
        assert moved is not None
        target = write_moved(place, moved, f"moved-{kind.__name__}")
        found = target.fetch_manifest_entry(place.table.io)
        expected = source.fetch_manifest_entry(place.table.io)
        for item in expected:
            item.status = ManifestEntryStatus.EXISTING
        assert described(found) == described(expected)
        assert [item.sequence_number for item in found] == [11, 3]
        assert (target.existing_files_count, target.existing_rows_count, target.min_sequence_number) == (2, 10, 3)
        assert [(item.lower_bound, item.upper_bound) for item in target.partitions or ()] == [(b"\0" * 4, b"\1\0\0\0")]


def write_moved(place: Place, entries: list[EncodedEntry], name: str) -> ManifestFile:
    table = place.table
    output = table.io.new_output(f"{table.location()}/metadata/{name}.avro")
    with BlockManifestWriter(table.spec(), table.schema(), output, SNAPSHOT, "deflate") as writer:
        for item in entries:
            writer.add_existing(item)
    return writer.to_manifest_file()


def test_an_entry_without_a_sequence_number_is_never_called_existing(place: Place) -> None:
    """Its manifest is of a snapshot that has none yet."""
    new = entry(place.write(0, 4), ManifestEntryStatus.ADDED, SNAPSHOT, None)
    source = write(place, BlockManifestWriter, [new], "new")
    moved = EntryReader(entry_schema(place.table.spec(), place.table.schema())).live(contents(place, source), source)
    assert moved is not None
    output = place.table.io.new_output(f"{place.table.location()}/metadata/moved.avro")
    with BlockManifestWriter(place.table.spec(), place.table.schema(), output, SNAPSHOT, "deflate") as writer:
        with pytest.raises(ValueError, match="without sequence numbers"):
            writer.add_existing(moved[0])
        writer.add_entry(new)


def test_a_damaged_manifest_is_an_error(place: Place) -> None:
    source = write(place, BlockManifestWriter, [entry(place.write(0, 4), ManifestEntryStatus.ADDED, 1, 1)], "damaged")
    path = Path(source.manifest_path.removeprefix("file://"))
    data = path.read_bytes()
    schema = entry_schema(place.table.spec(), place.table.schema())
    for broken in (data[:-1] + bytes([data[-1] ^ 1]), data[:-40] + bytes(40)):
        path.write_bytes(broken)
        with pytest.raises((ValueError, EOFError, zlib.error)):
            EntryReader(schema).live(contents(place, source), source)


def test_what_another_snapshot_added_is_another_manifest(place: Place) -> None:
    """However long it is."""
    for snapshot in (SNAPSHOT, SNAPSHOT + 1):
        new = entry(place.write(0, 4), ManifestEntryStatus.ADDED, snapshot, 1)
        source = write(place, BlockManifestWriter, [new], f"of-{snapshot}")
        source.sequence_number = 1
        if snapshot == SNAPSHOT:
            assert len(entries_of(place.table, source)) == 1
            continue
        with pytest.raises(CatalogError, match=f"of snapshot {snapshot}, not of {SNAPSHOT}"):
            entries_of(place.table, source)


@pytest.mark.parametrize("known", [True, False])
def test_folding_keeps_every_entry_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Also when the manifests are written in a schema that another program chose."""
    if not known:
        monkeypatch.setattr(EntryReader, "live", lambda *_: None)
    live = LiveFiles()
    expected: dict[str, tuple[int, Any]] = {}
    for number in range(MANIFESTS_SMALL_MAX + 3):
        made = place.write(10 * number, 10 * number + 4, partition=number % 3)
        head = live.read(place.load())
        outcome = commit(place.catalog, head, Change(append=(made,)), STATE, commit_id="c" * 32, as_of_ms=0)
        assert outcome.table is not None
        after = live.read(outcome.table, outcome.manifests)
        stored = LiveFiles().read(place.load())
        assert set(after.files) == set(stored.files)
        assert {item.paths for item in after.manifests} == {item.paths for item in stored.manifests}
        expected[made.file_path] = outcome.snapshot_id, [dict(made[position]) for position in range(6, 12)]
    fresh = LiveFiles().read(place.load())
    assert len(fresh.manifests) < MANIFESTS_SMALL_MAX
    found = [item for content in fresh.manifests for item in content.manifest.fetch_manifest_entry(place.table.io)]
    statistics = {
        item.data_file.file_path: (item.snapshot_id, [dict(item.data_file[position]) for position in range(6, 12)])
        for item in found
    }
    assert statistics == expected
    numbers = sorted((item.sequence_number, item.file_sequence_number) for item in found)
    assert numbers == [(number, number) for number in range(1, MANIFESTS_SMALL_MAX + 4)]


def test_manifests_are_read_several_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that takes two seconds for an answer, one after the other took half a minute for six of them."""
    live = LiveFiles()
    for number in range(MANIFEST_READERS + 2):
        made = place.write(10 * number, 10 * number + 4, partition=0)
        commit(place.catalog, live.read(place.load()), Change(append=(made,)), STATE, commit_id="c" * 32, as_of_ms=0)
    meeting = threading.Barrier(MANIFEST_READERS)
    calls = itertools.count()

    def slow(*given: Any) -> Any:
        if next(calls) < MANIFEST_READERS:
            meeting.wait(60)
        return entries_of(*given)

    expected = LiveFiles().read(place.load())
    monkeypatch.setattr("iceberg_catalog.commit.head.entries_of", slow)
    assert LiveFiles().read(place.load()).files == expected.files
    assert next(calls) == len(expected.manifests) > MANIFEST_READERS


def test_our_files_are_known_whatever_an_engine_says_of_its_own(place: Place) -> None:
    """By `write.data.path` a bridge that was started anew took them for others', and published all rows once more."""
    made = place.write(0, 4, partition=0)
    commit(place.catalog, LiveFiles().read(place.load()), Change(append=(made,)), STATE, commit_id="c" * 32, as_of_ms=0)
    with place.load().transaction() as change:
        change.set_properties({"write.data.path": "file:///elsewhere"})
    found = LiveFiles().read(place.load())
    assert ([item.path for item in found.files], found.foreign) == ([made.file_path], ())
    with place.load().transaction() as change:
        change.remove_properties("write.data.path", DATA_PATH)
    with pytest.raises(CatalogError, match=r"tierberg\.data-path is gone") as raised:
        LiveFiles().read(place.load())
    assert raised.value.kind == "schema_mismatch"
