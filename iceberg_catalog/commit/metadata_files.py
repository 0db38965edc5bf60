"""Files in a table's metadata folder that nothing names.

Manifests of expired snapshots, of commits that were refused or whose process died, and metadata.json files of swaps
that were lost.

A file may still be named by a request on its way until the head it was written for has passed; that is so when the
file is older than the current head's commit. And it is kept for a time beyond that, for engines write here too, and put
their commits on a new head with the manifests they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from iceberg_catalog.commit.head import normal_path
from iceberg_catalog.commit.sound import kept_sound, manifests_of


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """One file, as its file system lists it. `location` is a URI, `size` in bytes."""

    location: str
    size: int
    modified_ms: int


def unnamed_metadata(table: Table, before_ms: int) -> list[MetadataFile]:
    """Files of the metadata folder that were written before `before_ms` and that `table` does not name.

    The folder is listed first, so a file that is named by a commit made meanwhile is not old enough.

    Args:
        table: as just loaded, with a snapshot.
        before_ms: milliseconds since the epoch, exclusive, by the clock of the file system; not above the time of the
            current snapshot.

    Raises:
        KeptSnapshotError: a snapshot cannot be read. What the table's storage raises passes through. Nothing may be
        removed then.
    """
    old = [item for item in list_metadata(table) if item.modified_ms < before_ms]
    if not old:
        return []
    named = named_metadata(table)
    return [item for item in old if normal_path(item.location) not in named]


def named_metadata(table: Table) -> set[str]:
    """Every metadata file the table's kept snapshots and metadata log name, normalised."""
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {item.statistics_path for item in (*metadata.statistics, *metadata.partition_statistics)}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        with kept_sound(table, snapshot):
            named |= {item.manifest_path for item in manifests_of(table, snapshot)}
    return {normal_path(path) for path in named}


def list_metadata(table: Table) -> Iterator[MetadataFile]:
    """The files directly in the table's metadata folder; nothing when its file system cannot be listed."""
    io = table.io
    folder = table.metadata_location.rpartition("/")[0]
    if not isinstance(io, PyArrowFileIO):
        return
    scheme, netloc, path = io.parse_location(folder, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if info.type == fs.FileType.File:
            modified_ms = int(info.mtime_ns // 1_000_000) if info.mtime_ns is not None else 0
            yield MetadataFile(f"{folder}/{info.base_name}", int(info.size or 0), modified_ms)


def delete_metadata(table: Table, files: list[MetadataFile]) -> None:
    """Deletes them; one that is gone already is no error."""
    for item in files:
        try:
            table.io.delete(item.location)
        except FileNotFoundError:
            continue
