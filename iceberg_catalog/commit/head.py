"""What a publisher run starts from: the table's head, its live files and the state recorded with it.

A file's rows are known from its manifest entry alone: offsets from the bounds of `_kafka_offset` (kept in full),
partition from the partition value. Manifests are immutable, so each is read once; reading a head on which little
changed costs its manifest list and the new manifests, and one seen before nothing.

Files whose key is not one of ours (an engine rewrote the table, somebody inserted rows) and delete files are *foreign*:
reported, never touched. The state is then the one recorded by the newest ancestor that has one.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from converter.parquet.columns import OFFSET, TIMESTAMP
from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.commit.sound import entries_of, manifests_of
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import MANIFEST_READERS
from iceberg_catalog.plan.file_epochs import FileEpochs, Look, no_look
from iceberg_catalog.plan.types import LiveFile
from iceberg_catalog.tables.tables import data_root, kafka_field_id

STATE_KEY = "tierberg.state"
STATE_SHA256 = "tierberg.state-sha256"

_NAME = re.compile(r"(\d{20})-(\d{20})-(?:d-?\d+-[0-9a-f]{32}-|tail-)?[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True, eq=False)
class ManifestFiles:
    """Live content of one manifest: our files, paths of foreign ones, and `paths` of both."""

    manifest: ManifestFile
    files: tuple[LiveFile, ...]
    foreign: tuple[str, ...]
    paths: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head:
    """A table's current snapshot. `snapshot_id` is None for a table without one; `state` None: nothing recorded yet.

    look: gives the leader epochs of its files.
    """

    table: Table
    snapshot_id: int | None = None
    files: tuple[LiveFile, ...] = ()
    foreign: tuple[str, ...] = ()
    state: StateRef | None = None
    manifests: tuple[ManifestFiles, ...] = field(default=(), repr=False)
    look: Look = field(default=no_look, repr=False)


def by_partition(files: Iterable[LiveFile]) -> defaultdict[int, list[LiveFile]]:
    """Files by Kafka partition, in the order given; an empty list for a partition without any."""
    found: defaultdict[int, list[LiveFile]] = defaultdict(list)
    for file in files:
        found[file.partition].append(file)
    return found


class LiveFiles:
    """Reads heads of one table incrementally. Keep one per table; not for several threads at once."""

    def __init__(self) -> None:
        self._seen: dict[str, ManifestFiles] = {}
        self._last: tuple[tuple[int, str], Head] | None = None
        self._epochs = FileEpochs()

    def read(self, table: Table, written: Iterable[ManifestFiles] = ()) -> Head:
        """The head of `table` as it was loaded. `written`: manifests of our own commit, which are then not read.

        Raises:
            CatalogError: `state_missing` if the table has files but no snapshot that records a state;
                `table_unreadable` if a manifest, or the list of them, is not there or damaged; `schema_mismatch` if
                the table does not say what values it was made for, or where our files are.
            What the table's storage raises passes through.
        """
        snapshot = table.current_snapshot()
        self._epochs.io = table.io
        if snapshot is None:
            return Head(table=table)
        name = snapshot.snapshot_id, snapshot.manifest_list
        if self._last is None or self._last[0] != name:
            try:
                self._last = name, self._listed(table, snapshot, written)
            except FileNotFoundError as error:
                full_name = ".".join(table.name())
                raise CatalogError(
                    "table_unreadable",
                    f"table {full_name} names metadata that is not there: {error}. Is its storage there? "
                    "A catalog restored from an old backup may name what was deleted since: `tierberg table drop "
                    f"{full_name} --unreadable` drops the entry, and the bridge makes the table anew from the store",
                    full_name,
                ) from error
        head = replace(self._last[1], table=table, state=recorded_state(table, snapshot))
        if head.state is None and (head.files or head.foreign):
            full_name = ".".join(table.name())
            raise CatalogError("state_missing", f"table {full_name} has files but no recorded state", full_name)
        return head

    def _listed(self, table: Table, snapshot: Snapshot, written: Iterable[ManifestFiles]) -> Head:
        """What the snapshot's manifest list names, which never changes."""
        ours = {item.manifest.manifest_path: item for item in written}
        named = manifests_of(table, snapshot)
        unread = [item for item in named if item.manifest_path not in self._seen and item.manifest_path not in ours]
        read = dict(zip((item.manifest_path for item in unread), _contents(table, unread), strict=True))
        found: dict[str, ManifestFiles] = {}
        for manifest in named:
            path = manifest.manifest_path
            if path in self._seen:
                found[path] = self._seen[path]
            elif path in ours:
                found[path] = replace(ours[path], manifest=manifest)
            else:
                found[path] = read[path]
        self._seen = found
        files = tuple(item for content in found.values() for item in content.files)
        foreign = tuple(path for content in found.values() for path in content.foreign)
        return Head(
            table=table,
            snapshot_id=snapshot.snapshot_id,
            files=files,
            foreign=foreign,
            manifests=tuple(found.values()),
            look=self._epochs.of,
        )


def _contents(table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFiles]:
    """What manifests name, several read at once: of a store that answers slowly, each takes two of its answers."""

    def one(manifest: ManifestFile) -> ManifestFiles:
        return content_of(table, manifest, [entry.data_file for entry in entries_of(table, manifest)])

    if len(manifests) < 2:
        return [one(manifest) for manifest in manifests]
    with ThreadPoolExecutor(min(len(manifests), MANIFEST_READERS), thread_name_prefix="manifests") as pool:
        return list(pool.map(one, manifests))


def recorded_state(table: Table, snapshot: Snapshot) -> StateRef | None:
    """The state recorded by `snapshot` or its newest ancestor that records one."""
    states = (named_state(item) for item in ancestors(table.metadata, snapshot.snapshot_id))
    return next((state for state in states if state is not None), None)


def recorded_states(table: Table) -> set[StateRef]:
    """The states that the table's kept snapshots name, of every branch and tag."""
    states = (named_state(snapshot) for snapshot in table.metadata.snapshots)
    return {state for state in states if state is not None}


def named_state(snapshot: Snapshot) -> StateRef | None:
    """The state this very snapshot records, if it does."""
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    if STATE_KEY in summary and STATE_SHA256 in summary:
        return StateRef(summary[STATE_KEY], summary[STATE_SHA256])
    return None


def parse_file_name(name: str) -> tuple[int, int] | None:
    """First and last offset from the last part of a data file's key; None if it is not ours."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def normal_path(path: str) -> str:
    """One spelling for local paths: Java writes `file:/x`, PyIceberg `file:///x`, others `/x`."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith(("file:", "/")) else path


def content_of(table: Table, manifest: ManifestFile, entries: Sequence[DataFile]) -> ManifestFiles:
    """The content of a manifest with these live entries."""
    paths = frozenset(entry.file_path for entry in entries)
    if manifest.content != ManifestContent.DATA:
        return ManifestFiles(manifest, (), tuple(paths), paths)
    root = normal_path(data_root(table)).rstrip("/") + "/"
    ids = kafka_field_id(table, OFFSET), kafka_field_id(table, TIMESTAMP)
    parsed = [(entry.file_path, _live_file(entry, root, *ids)) for entry in entries]
    ours = tuple(item for _, item in parsed if item is not None)
    return ManifestFiles(manifest, ours, tuple(path for path, item in parsed if item is None), paths)


def _live_file(entry: DataFile, root: str, offset_id: int, timestamp_id: int) -> LiveFile | None:
    path = entry.file_path
    named = parse_file_name(path.rpartition("/")[2])
    low = (entry.lower_bounds or {}).get(offset_id)
    high = (entry.upper_bounds or {}).get(offset_id)
    if named is None or low is None or high is None or not normal_path(path).startswith(root):
        return None
    if entry.content != DataFileContent.DATA or len(low) != 8 or len(high) != 8:
        return None
    first, last = struct.unpack("<q", low)[0], struct.unpack("<q", high)[0]
    newest = (entry.upper_bounds or {}).get(timestamp_id)  # microseconds; absent when no row has a timestamp
    newest_ms = struct.unpack("<q", newest)[0] // 1000 if newest is not None and len(newest) == 8 else None
    size, rows = entry.file_size_in_bytes, entry.record_count
    return LiveFile(
        path=path,
        first=first,
        last=last,
        runs=None,
        partition=entry.partition[0],
        max_timestamp_ms=newest_ms,
        size_bytes=size,
        rows=rows,
    )
