"""Write the manifests and manifest list of one new snapshot. Commits nothing.

PyIceberg's producers cost seconds at 100,000 files: they rewrite or re-list everything. This one, per snapshot:

* rewrites only manifests that hold a removed file; the rewritten one carries the survivors as EXISTING and the removed
  files as DELETED, in this snapshot only;
* leaves out manifests without a live file that an earlier snapshot wrote;
* writes added files in new manifests of at most MANIFEST_ENTRIES_MAX entries, and once there are MANIFESTS_SMALL_MAX
  small manifests, folds those together (entries keep their snapshot and sequence numbers).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)

from iceberg_catalog.limits import MANIFEST_ENTRIES_MAX, MANIFEST_SMALL_ENTRIES, MANIFESTS_SMALL_MAX
from iceberg_catalog.livefiles import Head, ManifestFiles, content_of

_CODEC: Final = "deflate"
_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Step:
    """One snapshot to write: Iceberg operation, files that come, paths that go, whether to fold whatever is small."""

    operation: Operation
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    fold: bool = False


@dataclass(slots=True)
class _Manifest:
    """A manifest of the table under construction and the paths of its live files; `live`: those files, if it is new."""

    file: ManifestFile
    paths: frozenset[str]
    live: tuple[DataFile, ...] | None = None


@dataclass(slots=True)
class SnapshotChain:
    """New snapshots on top of a head, each the child of the one before.

    `written` names every file this chain created, so that a lost swap can clean up after itself.
    """

    head: Head
    written: list[str] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    _manifests: list[_Manifest] = field(default_factory=list)
    _name: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self._manifests = [_Manifest(content.manifest, content.paths) for content in self.head.manifests]

    def add(self, step: Step, summary: dict[str, str]) -> Snapshot:
        """Writes one snapshot's manifests and manifest list.

        Raises:
            ValueError: a path to remove is not a live file of the head. What the storage raises passes through.
        """
        metadata = self.head.table.metadata
        parent = self.snapshots[-1] if self.snapshots else metadata.current_snapshot()
        taken = {snapshot.snapshot_id for snapshot in (*metadata.snapshots, *self.snapshots)}
        snapshot_id = metadata.new_snapshot_id()
        while snapshot_id in taken:
            snapshot_id = metadata.new_snapshot_id()
        sequence_number = metadata.next_sequence_number() + len(self.snapshots)
        gone: list[DataFile] = []
        kept = self._rewrite(step.removed, snapshot_id, gone)
        kept += self._write(snapshot_id, (_added(item, snapshot_id) for item in step.added))
        if step.operation == Operation.APPEND:
            kept = self._fold(kept, snapshot_id, 2 if step.fold else MANIFESTS_SMALL_MAX)
        path = self._path(f"snap-{snapshot_id}-0-{self._name}.avro")
        with write_manifest_list(
            format_version=_FORMAT,
            output_file=self.head.table.io.new_output(path),
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent is not None else None,
            sequence_number=sequence_number,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests([item.file for item in kept])
        for item in kept:
            _assign_sequence(item.file, sequence_number)
        self._manifests = kept
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent is not None else None,
                "manifest-list": path,
                "sequence-number": sequence_number,
                "summary": self._summary(step, gone, parent, summary),
                "schema-id": metadata.current_schema_id,
            }
        )
        self.snapshots.append(snapshot)
        return snapshot

    def contents(self) -> tuple[ManifestFiles, ...]:
        """What the new manifests of the last snapshot hold, so that nobody need read them back."""
        table = self.head.table
        return tuple(content_of(table, item.file, item.live) for item in self._manifests if item.live is not None)

    def _rewrite(self, removed: Sequence[str], snapshot_id: int, gone: list[DataFile]) -> list[_Manifest]:
        """The manifests without the removed files; `gone` receives their entries."""
        missing = set(removed)
        kept: list[_Manifest] = []
        for item in self._manifests:
            if not item.paths:
                continue
            hit = item.paths & missing
            if not hit:
                kept.append(item)
                continue
            missing -= hit
            entries = item.file.fetch_manifest_entry(self.head.table.io)
            gone.extend(entry.data_file for entry in entries if entry.data_file.file_path in hit)
            kept += self._write(
                snapshot_id,
                (_moved(entry, snapshot_id, dead=entry.data_file.file_path in hit) for entry in entries),
                spec_id=item.file.partition_spec_id,
            )
        if missing:
            raise ValueError(f"not a live file of the head: {min(missing)}")
        return kept

    def _fold(self, manifests: list[_Manifest], snapshot_id: int, least: int) -> list[_Manifest]:
        """Folds the small ones together if there are `least` of them."""
        spec_id = self.head.table.metadata.default_spec_id
        small = [item for item in manifests if is_small(item.file, len(item.paths), spec_id)]
        if len(small) < least:
            return manifests
        rest = [item for item in manifests if item not in small]
        entries = [
            # Files of this snapshot have no sequence number yet: they inherit it from the folded manifest.
            _added(entry.data_file, snapshot_id)
            if entry.snapshot_id == snapshot_id
            else _moved(entry, snapshot_id, dead=False)
            for item in small
            for entry in item.file.fetch_manifest_entry(self.head.table.io)
        ]
        return rest + self._write(snapshot_id, entries)

    def _write(
        self, snapshot_id: int, entries: Iterable[ManifestEntry], *, spec_id: int | None = None
    ) -> list[_Manifest]:
        batch: list[ManifestEntry] = []
        manifests: list[_Manifest] = []
        for entry in entries:
            batch.append(entry)
            if len(batch) == MANIFEST_ENTRIES_MAX:
                manifests.append(self._write_one(snapshot_id, batch, spec_id))
                batch = []
        if batch:
            manifests.append(self._write_one(snapshot_id, batch, spec_id))
        return manifests

    def _write_one(self, snapshot_id: int, entries: list[ManifestEntry], spec_id: int | None) -> _Manifest:
        metadata = self.head.table.metadata
        spec = metadata.spec() if spec_id is None else metadata.specs()[spec_id]
        path = self._path(f"{self._name}-m{len(self.written)}.avro")
        writer: ManifestWriter
        with write_manifest(
            format_version=_FORMAT,
            spec=spec,
            schema=metadata.schema(),
            output_file=self.head.table.io.new_output(path),
            snapshot_id=snapshot_id,
            avro_compression=_CODEC,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        live = tuple(entry.data_file for entry in entries if entry.status != ManifestEntryStatus.DELETED)
        return _Manifest(writer.to_manifest_file(), frozenset(item.file_path for item in live), live)

    def _path(self, name: str) -> str:
        path = self.head.table.location_provider().new_metadata_location(name)
        self.written.append(path)
        return path

    def _summary(
        self, step: Step, gone: Sequence[DataFile], parent: Snapshot | None, properties: dict[str, str]
    ) -> Summary:
        metadata = self.head.table.metadata
        collector = SnapshotSummaryCollector()
        for item in step.added:
            collector.add_file(item, schema=metadata.schema(), partition_spec=metadata.spec())
        for item in gone:
            collector.remove_file(item, schema=metadata.schema(), partition_spec=metadata.specs()[item.spec_id])
        previous = parent.summary.model_dump() if parent is not None and parent.summary is not None else None
        summary = Summary(step.operation, **collector.build(), **properties)
        return update_snapshot_summaries(summary, previous)


def is_small(manifest: ManifestFile, files: int, spec_id: int) -> bool:
    """Whether a manifest with so many live files is to be folded. An engine's delete files stay where they are."""
    mine = manifest.partition_spec_id == spec_id and manifest.content == ManifestContent.DATA
    return mine and files < MANIFEST_SMALL_ENTRIES


def _added(data_file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=data_file,
    )


def _moved(entry: ManifestEntry, snapshot_id: int, *, dead: bool) -> ManifestEntry:
    """The entry in a rewritten manifest: as it was, or deleted by this snapshot."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if dead else ManifestEntryStatus.EXISTING,
        snapshot_id=snapshot_id if dead else entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _assign_sequence(manifest: ManifestFile, sequence_number: int) -> None:
    """What readers would inherit from the manifest list, so that a later snapshot of the same commit can carry it."""
    if manifest.sequence_number < 0:
        manifest.sequence_number = sequence_number
    if manifest.min_sequence_number < 0:
        manifest.min_sequence_number = sequence_number
