"""Which data files the table's kept snapshots still name, and until when each of those snapshots is owed to readers.

A file that left the head stays in the store while an older snapshot that is kept names it: a query may be reading that
snapshot, and a tag may hold it for years. Manifests are immutable and mostly shared between snapshots, so each is read
once; those of the head are known from :class:`~iceberg_catalog.commit.head.LiveFiles` already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.commit.head import Head, named_state, normal_path
from iceberg_catalog.commit.named_snapshots import held_snapshots
from iceberg_catalog.commit.sound import entries_of, kept_sound, manifests_of


@dataclass(frozen=True, slots=True, eq=False)
class KeptSnapshot:
    """One snapshot of the table.

    replaced_ms: until when it may have been the head, milliseconds since the epoch (:func:`last_as_head`); None: it may
    not be expired, for it is the head, a branch or tag holds it, or the head's state is recorded in it. files: live
    paths, normalised, by manifest.
    """

    snapshot_id: int
    replaced_ms: int | None
    files: tuple[frozenset[str], ...] = field(repr=False)

    def names(self, path: str) -> bool:
        """Whether the file is live in it; `path` is normalised."""
        return any(path in part for part in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class Retained:
    """All kept snapshots, oldest first, the head among them.

    oldest_ms: since when the head was none but kept ones, milliseconds since the epoch (:func:`kept_since`): a file
    that none of them names had left the head by then. None without any.
    """

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
        fixed, until = fixed_snapshots(table), last_as_head(table)
        manifests: dict[str, frozenset[str]] = {
            content.manifest.manifest_path: self._manifests.get(content.manifest.manifest_path)
            or frozenset(map(normal_path, content.paths))
            for content in head.manifests
        }
        lists: dict[int, tuple[str, ...]] = {}
        kept: list[KeptSnapshot] = []
        for snapshot in ordered:
            known = self._lists.get(snapshot.snapshot_id)
            if known is None:
                with kept_sound(table, snapshot):
                    known = self._listed(table, snapshot, manifests)
            lists[snapshot.snapshot_id] = known
            for path in known:
                if path not in manifests:
                    manifests[path] = self._manifests[path]
            replaced = None if snapshot.snapshot_id in fixed else until[snapshot.snapshot_id]
            files = tuple(manifests[path] for path in known)
            kept.append(KeptSnapshot(snapshot.snapshot_id, replaced, files))
        self._manifests, self._lists = manifests, lists
        current = next((item for item in kept if item.snapshot_id == head.snapshot_id), None)
        return Retained(tuple(kept), current, kept_since(table))

    def _listed(self, table: Table, snapshot: Snapshot, manifests: dict[str, frozenset[str]]) -> tuple[str, ...]:
        found = manifests_of(table, snapshot)
        for manifest in found:
            path = manifest.manifest_path
            if path not in manifests and path not in self._manifests:
                entries = entries_of(table, manifest)
                manifests[path] = frozenset(normal_path(entry.data_file.file_path) for entry in entries)
        return tuple(manifest.manifest_path for manifest in found)


def fixed_snapshots(table: Table) -> set[int]:
    """Snapshots that may not be expired: those that tags and branches hold, and those the head's state comes from."""
    fixed = set(held_snapshots(table.metadata))
    for snapshot in ancestors(table.metadata, table.metadata.current_snapshot_id):
        fixed.add(snapshot.snapshot_id)
        if named_state(snapshot) is not None:
            break
    return fixed


def last_as_head(table: Table) -> dict[int, int]:
    """By kept snapshot until when it was the head at the latest, milliseconds since the epoch; not of the head itself.

    That is what a grace of readers counts from. What came next in the table need not have replaced it: that may be of
    another branch. The table's own log says when its head was moved, also back; where that has been cut, the next
    ancestor of the head does. Of what neither knows (it was of another branch, or taken back long ago), nothing is
    known but that the table has not changed since its last change.
    """
    metadata = table.metadata
    until: dict[int, int] = {}
    for child in ancestors(metadata, metadata.current_snapshot_id):
        if child.parent_snapshot_id is not None:
            until[child.parent_snapshot_id] = child.timestamp_ms
    for entry, following in pairwise(metadata.snapshot_log):
        until[entry.snapshot_id] = max(until.get(entry.snapshot_id, 0), following.timestamp_ms)
    return {item.snapshot_id: until.get(item.snapshot_id, metadata.last_updated_ms) for item in metadata.snapshots}


def kept_since(table: Table) -> int | None:
    """Since when no other than kept snapshots were the head, milliseconds since the epoch; None without a head.

    Snapshots expire by number, and what a tag names stays for years: the time of the oldest one tells nothing of those
    that were the head after it and are gone. The log does: as long as each of its entries descends from the one before,
    through snapshots that are kept, there was nothing in between. Nor may there have been before a log that was cut.
    """
    log, current = table.metadata.snapshot_log, table.current_snapshot()
    if current is None:
        return None
    if not log or log[-1].snapshot_id != current.snapshot_id:
        return table.metadata.last_updated_ms
    since = log[-1]
    for earlier in reversed(log[:-1]):
        if not _descends(table, since.snapshot_id, earlier.snapshot_id):
            break
        since = earlier
    return since.timestamp_ms


def _descends(table: Table, snapshot_id: int, ancestor: int) -> bool:
    return any(item.parent_snapshot_id == ancestor for item in ancestors(table.metadata, snapshot_id))


def named_paths(snapshots: Iterable[KeptSnapshot]) -> set[str]:
    """All files these snapshots name, normalised."""
    parts = {part for snapshot in snapshots for part in snapshot.files}
    return {path for part in parts for path in part}
