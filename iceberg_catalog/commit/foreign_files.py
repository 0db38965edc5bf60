"""What others have in a table's head, by Kafka partition: data files of theirs, and delete files.

Rows below the frontier must not be added beside a data file of others, which may have them, nor beside a delete file,
which may be why they are not there. Nor may a file of ours be swapped for one with the same rows where a delete file
applies to it: position deletes name the old path, equality deletes older sequence numbers, so the rows would be back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from converter.parquet.columns import PARTITION
from iceberg_catalog.commit.head import Head
from iceberg_catalog.commit.sound import entries_of
from iceberg_catalog.tables.tables import kafka_field_id


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """deletes: it is a delete file. partition: of Kafka; None: its entry does not say, so it may concern any."""

    path: str
    deletes: bool
    partition: int | None


def foreign_files(head: Head) -> tuple[ForeignFile, ...]:
    """Those of a head; without any there is no request, else one for each manifest that names some.

    Raises:
        As :func:`~iceberg_catalog.commit.sound.entries_of`.
    """
    found: list[ForeignFile] = []
    for content in head.manifests:
        if not content.foreign:
            continue
        theirs = set(content.foreign)
        for entry in entries_of(head.table, content.manifest):
            file = entry.data_file
            if file.file_path in theirs:
                deletes = content.manifest.content != ManifestContent.DATA or file.content != DataFileContent.DATA
                found.append(ForeignFile(file.file_path, deletes, _partition(head.table, content.manifest, entry)))
    return tuple(found)


def concerning(files: Iterable[ForeignFile], partition: int) -> list[ForeignFile]:
    """Those that may have to do with rows of a partition."""
    return [file for file in files if file.partition in (None, partition)]


def rows_deleted(files: Iterable[ForeignFile], partition: int) -> bool:
    """Whether one of them is a delete file that may apply to rows of a partition."""
    return any(file.deletes for file in concerning(files, partition))


def _partition(table: Table, manifest: ManifestFile, entry: ManifestEntry) -> int | None:
    """By the partitioning it was written with, which an engine may have changed."""
    source = kafka_field_id(table, PARTITION)
    spec = table.specs().get(manifest.partition_spec_id)
    for place, named in enumerate(spec.fields if spec is not None else ()):
        if named.source_id == source and isinstance(named.transform, IdentityTransform):
            value = entry.data_file.partition[place]
            return value if isinstance(value, int) else None
    return None
