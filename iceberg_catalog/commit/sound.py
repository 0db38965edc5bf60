"""Reading a table's own metadata, whose damage is that table's trouble and names the file."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Final, NoReturn

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.commit.checked_names import require_named
from iceberg_catalog.commit.manifest_entries import EncodedEntry, avro_meta
from iceberg_catalog.errors import DAMAGE, CatalogError, damage_of

#: In a snapshot's summary: how many manifests its list names. A list that is cut between two blocks reads well.
MANIFESTS: Final = "tierberg.manifests"


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """What a snapshot's manifest list names.

    Raises:
        CatalogError: `table_unreadable`: the list is damaged. FileNotFoundError: it is not there. What else the table's
            storage raises passes through.
    """
    path = snapshot.manifest_list
    with sound(table, path):
        data = _bytes_of(table, path)
        found = list(read_manifest_list(_InMemory(path, data)))
        written_for = avro_meta(data).get("snapshot-id", "")
        if written_for.isdecimal() and int(written_for) != snapshot.snapshot_id:
            raise ValueError(f"it is of snapshot {written_for}, not of {snapshot.snapshot_id}")
        count = None if snapshot.summary is None else snapshot.summary.additional_properties.get(MANIFESTS)
        if count is not None and int(count) != len(found):
            raise ValueError(f"it names {len(found)} manifests, {count} were written")
        paths = {manifest.manifest_path for manifest in found}
        if len(paths) < len(found):
            raise ValueError("it names a manifest twice")
        if not all(path.strip("/") for path in paths):
            raise ValueError("it names a manifest without a path")
    return found


def entries_of(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest.

    Raises:
        CatalogError: `table_unreadable`: it is damaged, cut, or another file. FileNotFoundError: it is not there. What
            else the table's storage raises passes through.
    """
    path = manifest.manifest_path
    with sound(table, path):
        entries = manifest.fetch_manifest_entry(_InMemoryIO(_InMemory(path, manifest_bytes(table, manifest))))
        require_entries(manifest, entries)
    return entries


def manifest_bytes(table: Table, manifest: ManifestFile) -> bytes:
    """A manifest, whole.

    Raises:
        ValueError: it has not the bytes that its name, or the length that its manifest list tells of. What the table's
            storage raises passes through.
    """
    data = _bytes_of(table, manifest.manifest_path)
    if len(data) != manifest.manifest_length:
        raise ValueError(f"it has {len(data)} bytes, the manifest list says {manifest.manifest_length}")
    return data


def require_entries(manifest: ManifestFile, live: list[ManifestEntry] | list[EncodedEntry]) -> None:
    """Raises ValueError where live entries that were read from a manifest are not those that its list speaks of.

    Another manifest's bytes may be as long: what it added, another snapshot has added.
    """
    counts = manifest.added_files_count, manifest.existing_files_count
    wanted = None if None in counts else sum(count or 0 for count in counts)
    if wanted is not None and len(live) < wanted:
        raise ValueError(f"it has {len(live)} live entries, the manifest list says {wanted}")
    for entry in live:
        if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id != manifest.added_snapshot_id:
            raise ValueError(f"it is of snapshot {entry.snapshot_id}, not of {manifest.added_snapshot_id}")


def _bytes_of(table: Table, path: str) -> bytes:
    """Raises ValueError where they are not those that its name tells of."""
    with table.io.new_input(path).open() as stream:
        data = stream.read()
    require_named(path, data)
    return data


class _InMemory(InputFile):
    """A file that was read."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - the base's
        return io.BytesIO(self._data)


class _InMemoryIO(FileIO):
    """Gives one file that was read."""

    def __init__(self, file: InputFile) -> None:
        super().__init__()
        self._file = file

    def new_input(self, location: str) -> InputFile:  # noqa: ARG002
        return self._file

    def new_output(self, location: str) -> NoReturn:
        raise io.UnsupportedOperation(f"{location}: read only")

    def delete(self, location: object) -> NoReturn:
        raise io.UnsupportedOperation(f"{location}: read only")


@contextlib.contextmanager
def sound(table: Table, path: str) -> Iterator[None]:
    """Raises CatalogError `table_unreadable` for a metadata file that is there and damaged."""
    try:
        yield
    except DAMAGE as error:
        raise DamagedFileError(table, path, error) from error


@contextlib.contextmanager
def kept_sound(table: Table, snapshot: Snapshot) -> Iterator[None]:
    """Raises :class:`KeptSnapshotError` when what is read of an older snapshot is damaged or not there."""
    try:
        yield
    except FileNotFoundError as error:
        raise KeptSnapshotError(table, snapshot, f"names metadata that is not there: {error}") from error
    except DamagedFileError as error:  # what is wrong with it may sound different each time
        raise KeptSnapshotError(table, snapshot, f"cannot be read: {error.path} is damaged") from error


class DamagedFileError(CatalogError):
    """A metadata file is there and is not what was written."""

    def __init__(self, table: Table, path: str, error: BaseException) -> None:
        name = ".".join(table.name())
        super().__init__("table_unreadable", f"table {name}: {path} is damaged: {damage_of(error)}", name)
        self.path = path


class KeptSnapshotError(CatalogError):
    """An older snapshot cannot be read: nobody knows which files it still holds, so none of the table may go."""

    def __init__(self, table: Table, snapshot: Snapshot, said: str) -> None:
        super().__init__(
            "table_unreadable",
            f"snapshot {snapshot.snapshot_id} of table {'.'.join(table.name())}, which is not its newest, {said}. Rows "
            "and publishing are whole; nothing that the table has left behind is removed. Restore the file; or "
            "`tierberg maintain` expires the snapshot, unless a tag, a branch or the recorded state holds it",
        )
        self.snapshot_id = snapshot.snapshot_id
