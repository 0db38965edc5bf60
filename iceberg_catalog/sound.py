"""Reading a table's own metadata, whose damage is that table's trouble and names the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.errors import DAMAGE, CatalogError, damage_of


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """What a snapshot's manifest list names.

    Raises:
        CatalogError: `table_unreadable`: the list is damaged. FileNotFoundError: it is not there. What else the table's
            storage raises passes through.
    """
    with sound(table, snapshot.manifest_list):
        found = list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
        for manifest in found:
            if not manifest.manifest_path.strip("/"):
                raise ValueError("it names a manifest without a path")
    return found


def entries_of(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest.

    Raises:
        CatalogError: `table_unreadable`: it is damaged, or ends early. FileNotFoundError: it is not there. What else
            the table's storage raises passes through.
    """
    path = manifest.manifest_path
    with sound(table, path):
        entries = manifest.fetch_manifest_entry(table.io)
        counts = manifest.added_files_count, manifest.existing_files_count
        wanted = None if None in counts else sum(count or 0 for count in counts)
        # One that is cut between two Avro blocks reads well.
        if wanted is not None and len(entries) < wanted:
            raise ValueError(f"it has {len(entries)} live entries, the manifest list says {wanted}")
    return entries


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
        super().__init__("table_unreadable", f"table {'.'.join(table.name())}: {path} is damaged: {damage_of(error)}")
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
