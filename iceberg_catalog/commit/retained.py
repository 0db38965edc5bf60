"""Which data files the table's kept snapshots still name, and until when each of those snapshots is owed to readers.

A file that left the head stays in the store while an older snapshot that is kept names it: a query may be reading that
snapshot, and a tag may hold it for years. Manifests are immutable and mostly shared between snapshots, so each is read
once; those of the head are known from :class:`~iceberg_catalog.commit.head.LiveFiles` already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.commit.head import Head, named_state, normal_path
from iceberg_catalog.commit.sound import entries_of, kept_sound, manifests_of


@dataclass(frozen=True, slots=True, eq=False)
class KeptSnapshot:
    """One snapshot of the table.

    replaced_ms: when the next one took its place, milliseconds since the epoch; None: it may not be expired, for it is
    the head, a branch or tag names it, or the head's state is recorded in it. files: live paths, normalised, by
    manifest.
    """

    snapshot_id: int
    replaced_ms: int | None
    files: tuple[frozenset[str], ...] = field(repr=False)

    def names(self, path: str) -> bool:
        """Whether the file is live in it; `path` is normalised."""
        return any(path in part for part in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class Retained:
    """All kept snapshots, oldest first, the head among them. `oldest_ms`: time of the oldest; None without any."""

    snapshots: tuple[KeptSnapshot, ...] = ()
    head: KeptSnapshot | None = None
    oldest_ms: int | None = None

    def holders(self, path: str) -> list[KeptSnapshot]:
        """The snapshots in which the file is live. `path` as the table spells it."""
        wanted = normal_path(path)
        return [snapshot for snapshot in self.snapshots if snapshot.names(wanted)]

    def left(self) -> set[str]:
        """Files of kept snapshots that are not in the head, normalised."""
        current = set(self.head.files) if self.head is not None else set()
        older = {part for snapshot in self.snapshots for part in snapshot.files} - current
        return {path for part in older for path in part if self.head is None or not self.head.names(path)}


class RetainedFiles:
    """Reads the kept snapshots of one table incrementally. Keep one per table; not for several threads at once."""

    def __init__(self) -> None:
        self._manifests: dict[str, frozenset[str]] = {}
        self._lists: dict[int, tuple[str, ...]] = {}

    def read(self, head: Head) -> Retained:
        """What the table's snapshots name, as `head.table` was loaded.

        Raises:
            KeptSnapshotError: an older snapshot cannot be read. CatalogError: `table_unreadable`, the head. What the
            table's storage raises passes through. Nothing may be removed then.
        """
        table = head.table
        ordered = sorted(table.metadata.snapshots, key=lambda item: (item.sequence_number or 0, item.timestamp_ms))
        fixed = fixed_snapshots(table)
        manifests: dict[str, frozenset[str]] = {
            content.manifest.manifest_path: self._manifests.get(content.manifest.manifest_path)
            or frozenset(map(normal_path, content.paths))
            for content in head.manifests
        }
        lists: dict[int, tuple[str, ...]] = {}
        kept: list[KeptSnapshot] = []
        for number, snapshot in enumerate(ordered):
            known = self._lists.get(snapshot.snapshot_id)
            if known is None:
                with kept_sound(table, snapshot):
                    known = self._listed(table, snapshot, manifests)
            lists[snapshot.snapshot_id] = known
            for path in known:
                if path not in manifests:
                    manifests[path] = self._manifests[path]
            last = number + 1 == len(ordered)
            replaced = None if last or snapshot.snapshot_id in fixed else ordered[number + 1].timestamp_ms
            files = tuple(manifests[path] for path in known)
            kept.append(KeptSnapshot(snapshot.snapshot_id, replaced, files))
        self._manifests, self._lists = manifests, lists
        current = next((item for item in kept if item.snapshot_id == head.snapshot_id), None)
        oldest = min((item.timestamp_ms for item in ordered), default=None)
        return Retained(tuple(kept), current, oldest)

    def _listed(self, table: Table, snapshot: Snapshot, manifests: dict[str, frozenset[str]]) -> tuple[str, ...]:
        found = manifests_of(table, snapshot)
        for manifest in found:
            path = manifest.manifest_path
            if path not in manifests and path not in self._manifests:
                entries = entries_of(table, manifest)
                manifests[path] = frozenset(normal_path(entry.data_file.file_path) for entry in entries)
        return tuple(manifest.manifest_path for manifest in found)


def fixed_snapshots(table: Table) -> set[int]:
    """Snapshots that may not be expired."""
    fixed = {ref.snapshot_id for ref in table.metadata.refs.values()}
    current = table.current_snapshot()
    while current is not None:
        fixed.add(current.snapshot_id)
        if named_state(current) is not None:
            break
        parent = current.parent_snapshot_id
        current = table.metadata.snapshot_by_id(parent) if parent is not None else None
    return fixed


def named_paths(snapshots: Iterable[KeptSnapshot]) -> set[str]:
    """All files these snapshots name, normalised."""
    parts = {part for snapshot in snapshots for part in snapshot.files}
    return {path for part in parts for path in part}
