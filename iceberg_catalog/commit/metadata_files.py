"""Files in a table's metadata folder that nothing names, and which of them are the table's.

Manifests of expired snapshots, of commits that were refused or whose process died, and metadata.json files of swaps
that were lost.

A file may still be named by a request on its way until the head it was written for has passed; that is so when the
file is older than the current head's commit. And it is kept for a time beyond that, for engines write here too, and put
their commits on a new head with the manifests they have.

Several tables may have one folder: of a table that was renamed and the next of its name, of two catalogs with one
warehouse, or where `write.metadata.path` says so. So no file goes that may be another's. Manifests and lists of ours
have their table's uuid in the name, a metadata.json has it inside. What engines wrote has none: it is the table's only
in the folder that a table has to itself by its location, and while nothing of another one lies there.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Final

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from iceberg_catalog.commit.checked_names import table_of_name
from iceberg_catalog.commit.head import normal_path
from iceberg_catalog.commit.sound import kept_sound, manifests_of
from iceberg_catalog.errors import DAMAGE
from iceberg_catalog.limits import METADATA_JSON_BYTES_MAX

#: How the names of the files end of which each is one state of a table: Iceberg's specification, "File System Tables".
METADATA_JSON: Final = ".metadata.json"
#: Of a file that is not this table's, whoever's it is.
_SOMEBODY: Final = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """One file, as its file system lists it. `location` is a URI, `size` in bytes."""

    location: str
    size: int
    modified_ms: int


def unnamed_metadata(table: Table, before_ms: int) -> list[MetadataFile]:
    """Files of `table` that lie in its metadata folder, were written before `before_ms`, and that it does not name.

    The folder is listed first, so a file that is named by a commit made meanwhile is not old enough.

    Args:
        table: as just loaded, with a snapshot.
        before_ms: milliseconds since the epoch, exclusive, by the clock of the file system; not above the time of the
            current snapshot.

    Raises:
        KeptSnapshotError: a snapshot cannot be read. What the table's storage raises passes through. Nothing may be
        removed then.
    """
    listed = list(list_metadata(table))
    if not any(item.modified_ms < before_ms for item in listed):
        return []
    named = named_metadata(table)
    left = [item for item in listed if item.modified_ms < before_ms and normal_path(item.location) not in named]
    return _own(table, left, listed, named)


def own_metadata(table: Table) -> list[MetadataFile]:
    """All files in the metadata folder that are this table's and nobody else's.

    Raises:
        KeptSnapshotError: a snapshot cannot be read. What the table's storage raises passes through.
    """
    listed = list(list_metadata(table))
    return _own(table, listed, listed, named_metadata(table))


def _own(
    table: Table, wanted: Collection[MetadataFile], listed: Collection[MetadataFile], named: Collection[str]
) -> list[MetadataFile]:
    mine = table.metadata.table_uuid
    owners = {item: _owner(table, item, named) for item in wanted}
    told = [item for item in wanted if owners[item] == mine]
    if None not in owners.values():
        return told
    plain = normal_path(table.metadata_location).rpartition("/")[0] == normal_path(f"{table.location()}/metadata")
    others = (owners[item] if item in owners else _owner(table, item, named) for item in listed)
    alone = plain and all(owner in (None, mine) for owner in others)
    return [item for item in wanted if owners[item] is None or owners[item] == mine] if alone else told


def _owner(table: Table, item: MetadataFile, named: Collection[str]) -> uuid.UUID | None:
    """The table that a file is of; None where neither name nor content tells."""
    name = item.location.rpartition("/")[2]
    if not name.endswith(METADATA_JSON):
        return table_of_name(name)
    if normal_path(item.location) in named:
        return table.metadata.table_uuid
    if item.size > METADATA_JSON_BYTES_MAX:
        return _SOMEBODY
    try:
        return FromInputFile.table_metadata(table.io.new_input(item.location)).table_uuid
    except (FileNotFoundError, BadGzipFile, *DAMAGE):  # gone since it was listed, or no metadata
        return _SOMEBODY


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
