"""Write the manifests and manifest list of one new snapshot. Commits nothing.

PyIceberg's producers cost seconds at 100,000 files: they rewrite or re-list everything. This one, per snapshot:

* rewrites only manifests that hold a removed file; the rewritten one carries the survivors as EXISTING and the removed
  files as DELETED, in this snapshot only;
* leaves out manifests without a live file that an earlier snapshot wrote;
* writes added files in new manifests of at most MANIFEST_ENTRIES_MAX entries, and once there are MANIFESTS_SMALL_MAX
  small manifests, folds those together with them (entries keep their snapshot and sequence numbers).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    Operation,
    Snapshot,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)

from iceberg_catalog.commit.checked_names import Gathered, checked_name, commit_name
from iceberg_catalog.commit.head import Head, ManifestFiles, content_of
from iceberg_catalog.commit.manifest_entries import EncodedEntry, EntryReader
from iceberg_catalog.commit.manifest_writer import BlockManifestWriter, entry_schema
from iceberg_catalog.commit.sound import MANIFESTS, entries_of, manifest_bytes, require_entries, sound
from iceberg_catalog.limits import MANIFEST_ENTRIES_MAX, MANIFEST_SMALL_ENTRIES, MANIFESTS_SMALL_MAX
from iceberg_catalog.plan.types import LiveFile
from iceberg_catalog.tables.schema import FORMAT_VERSION

_CODEC: Final = "deflate"
_NONE: Final[Mapping[str, LiveFile]] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """One snapshot to write: Iceberg operation, files that come, paths that go, whether to fold whatever is small."""

    operation: Operation
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    fold: bool = False


@dataclass(slots=True, kw_only=True)
class SnapshotChain:
    """New snapshots on top of a head, each the child of the one before.

    `written` names every file this chain created, so that a lost swap can clean up after itself.
    """

    head: Head
    written: list[str] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    _manifests: list[ManifestFiles] = field(default_factory=list)
    _name: str = field(init=False)

    def __post_init__(self) -> None:
        self._name = commit_name(self.head.table.metadata.table_uuid)
        self._manifests = list(self.head.manifests)

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
        before = None if parent is None else _totals(parent, self._manifests)
        kept = self._rewrite(step.removed, snapshot_id, gone)
        if step.operation == Operation.APPEND:
            kept = self._append(kept, step.added, snapshot_id, 2 if step.fold else MANIFESTS_SMALL_MAX)
        else:
            kept += self._write(snapshot_id, [_added(item, snapshot_id) for item in step.added])
        output = Gathered()
        with write_manifest_list(
            format_version=FORMAT_VERSION,
            output_file=output,
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent is not None else None,
            sequence_number=sequence_number,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests([item.manifest for item in kept])
        path = self._store(f"snap-{snapshot_id}-0-{self._name}", output.data)
        for item in kept:
            _assign_sequence(item.manifest, sequence_number)
        self._manifests = kept
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent is not None else None,
                "manifest-list": path,
                "sequence-number": sequence_number,
                "timestamp-ms": self._timestamp_ms(),
                "summary": self._summary(step, gone, before, summary | {MANIFESTS: str(len(kept))}),
                "schema-id": metadata.current_schema_id,
            }
        )
        self.snapshots.append(snapshot)
        return snapshot

    def _timestamp_ms(self) -> int:
        """Now, but behind what the table has: Java's readers refuse a log of snapshots that goes back in time."""
        before = self.snapshots[-1].timestamp_ms if self.snapshots else self.head.table.metadata.last_updated_ms + 1
        return max(int(time.time() * 1000), before)

    def contents(self) -> tuple[ManifestFiles, ...]:
        """What the new manifests of the last snapshot hold, so that nobody need read them back."""
        written = set(self.written)
        return tuple(item for item in self._manifests if item.manifest.manifest_path in written)

    def _rewrite(self, removed: Sequence[str], snapshot_id: int, gone: list[DataFile]) -> list[ManifestFiles]:
        """The manifests without the removed files; `gone` receives their entries."""
        missing = set(removed)
        kept: list[ManifestFiles] = []
        for item in self._manifests:
            if not item.paths:
                continue
            hit = item.paths & missing
            if not hit:
                kept.append(item)
                continue
            missing -= hit
            entries = entries_of(self.head.table, item.manifest)
            gone.extend(entry.data_file for entry in entries if entry.data_file.file_path in hit)
            kept += self._write(
                snapshot_id,
                [_moved(entry, snapshot_id, dead=entry.data_file.file_path in hit) for entry in entries],
                spec_id=item.manifest.partition_spec_id,
            )
        if missing:
            raise ValueError(f"not a live file of the head: {min(missing)}")
        return kept

    def _append(
        self, kept: list[ManifestFiles], added: Sequence[DataFile], snapshot_id: int, least: int
    ) -> list[ManifestFiles]:
        """With the added files; the small manifests folded together with them if there are `least` of them."""
        spec_id = self.head.table.metadata.default_spec_id
        entries: list[ManifestEntry | EncodedEntry] = [_added(item, snapshot_id) for item in added]
        small = [item for item in kept if is_small(item.manifest, len(item.paths), spec_id)]
        coming = 0 < len(added) % MANIFEST_ENTRIES_MAX < MANIFEST_SMALL_ENTRIES
        if len(small) + coming < least:
            return kept + self._write(snapshot_id, entries)
        rest = [item for item in kept if item not in small]
        table = self.head.table
        reader = EntryReader(entry_schema(table.spec(), table.schema()))
        for item in small:
            entries += self._moved(reader, item.manifest, snapshot_id)
        return rest + self._write(
            snapshot_id, entries, known={file.path: file for item in small for file in item.files}
        )

    def _moved(
        self, reader: EntryReader, manifest: ManifestFile, snapshot_id: int
    ) -> Sequence[ManifestEntry | EncodedEntry]:
        """The live entries of a manifest, for another one of the table's current partition spec."""
        table = self.head.table
        with sound(table, manifest.manifest_path):
            encoded = reader.live(manifest_bytes(table, manifest), manifest)
            if encoded is not None:
                require_entries(manifest, encoded)
                return encoded
        return [_moved(entry, snapshot_id, dead=False) for entry in entries_of(table, manifest)]

    def _write(
        self,
        snapshot_id: int,
        entries: Sequence[ManifestEntry | EncodedEntry],
        *,
        spec_id: int | None = None,
        known: Mapping[str, LiveFile] = _NONE,
    ) -> list[ManifestFiles]:
        """New manifests with these entries. known: which of the encoded ones are our files, by path."""
        metadata = self.head.table.metadata
        spec = metadata.spec() if spec_id is None else metadata.specs()[spec_id]
        manifests: list[ManifestFiles] = []
        for start in range(0, len(entries), MANIFEST_ENTRIES_MAX):
            chunk = entries[start : start + MANIFEST_ENTRIES_MAX]
            output = Gathered()
            with BlockManifestWriter(spec, metadata.schema(), output, snapshot_id, _CODEC) as writer:
                for entry in chunk:
                    if isinstance(entry, EncodedEntry):
                        writer.add_existing(entry)
                    else:
                        writer.add_entry(entry)
            output.lie_at(self._store(f"{self._name}-m{len(self.written)}", output.data))
            manifests.append(self._content(writer.to_manifest_file(), chunk, known))
        return manifests

    def _content(
        self, manifest: ManifestFile, entries: Sequence[ManifestEntry | EncodedEntry], known: Mapping[str, LiveFile]
    ) -> ManifestFiles:
        decoded = [entry for entry in entries if isinstance(entry, ManifestEntry)]
        live = [entry.data_file for entry in decoded if entry.status != ManifestEntryStatus.DELETED]
        content = content_of(self.head.table, manifest, live)
        moved = [entry.path for entry in entries if isinstance(entry, EncodedEntry)]
        files = tuple(known[path] for path in moved if path in known)
        foreign = tuple(path for path in moved if path not in known)
        return ManifestFiles(manifest, content.files + files, content.foreign + foreign, content.paths.union(moved))

    def _store(self, name: str, data: bytes) -> str:
        """Writes a metadata file and returns its path."""
        table = self.head.table
        path = table.location_provider().new_metadata_location(checked_name(name, data))
        self.written.append(path)
        with table.io.new_output(path).create(overwrite=True) as stream:
            stream.write(data)
        return path

    @staticmethod
    def _summary(
        step: Step, gone: Sequence[DataFile], before: Mapping[str, str] | None, properties: dict[str, str]
    ) -> Summary:
        counts = UpdateMetrics()
        for item in step.added:
            counts.add_file(item)
        for item in gone:
            counts.remove_file(item)
        changed = {(item.spec_id, item.partition) for item in (*step.added, *gone)}
        partitions = {CHANGED_PARTITION_COUNT_PROP: str(len(changed))} if changed else {}
        summary = Summary(step.operation, **counts.to_dict(), **partitions, **properties)
        return update_snapshot_summaries(summary, before)


def _totals(parent: Snapshot, manifests: Sequence[ManifestFiles]) -> dict[str, str]:
    """What a snapshot's summary counts; of files and rows the manifests do where another writer has not.

    The spec asks no writer for them, and PyIceberg raises on one that is no whole number.
    """
    said = {} if parent.summary is None else parent.summary.additional_properties
    data = [item.manifest for item in manifests if item.manifest.content == ManifestContent.DATA]
    files = sum((item.added_files_count or 0) + (item.existing_files_count or 0) for item in data)
    rows = sum((item.added_rows_count or 0) + (item.existing_rows_count or 0) for item in data)
    counted = {"total-data-files": str(files), "total-records": str(rows)}
    return counted | {name: value for name, value in said.items() if name.startswith("total-") and value.isdecimal()}


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
