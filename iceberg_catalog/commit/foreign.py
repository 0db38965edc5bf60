"""Commits that others made to a table of ours: an engine inserted, deleted, updated or rewrote.

Each snapshot of ours records a state; one that does not, and adds or removes files, is *foreign*, or says nothing of
files at all: the spec asks for no more than the operation. Its files alone would not tell: a DELETE of whole partitions
leaves none. Nothing a foreign commit did is touched, and no row below the
frontier is added again. What helps is to put the table back to `since`, its last snapshot that was ours alone; the plan
then publishes again what came after. So that this stays possible:

* the next commit of ours tags that snapshot with `tierberg-before-foreign`: what a tag names never expires, and its
  files stay in the store;
* our snapshots repeat `tierberg.foreign-since` for as long as the tag is there, for the foreign ones expire.

The first commit after the table was put back removes the tag. So does who drops it by hand: the table is then accepted
as it is. Who puts the table forward again, to a snapshot that says so, has not accepted it: the next commit tags anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.commit.head import named_state

FOREIGN_SINCE: Final = "tierberg.foreign-since"
TAG: Final = "tierberg-before-foreign"

_CHANGES: Final = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
#: What a summary has beside these where its writer counts: one without changes says no `added-data-files`.
_COUNTED: Final = (*_CHANGES, "total-data-files", "total-records", "changed-partition-count")


@dataclass(frozen=True, slots=True)
class ForeignCommits:
    """since: the last snapshot with nothing foreign in it. operations: of the foreign ones still kept, newest first."""

    since: int
    operations: tuple[str, ...]


def foreign_commits(table: Table) -> ForeignCommits | None:
    """What of others is in the table's head; None: nothing, as far as kept snapshots say. No requests."""
    since: int | None = None
    operations: list[str] = []
    for current in ancestors(table.metadata, table.metadata.current_snapshot_id):
        said = _properties(current)
        if named_state(current) is not None:
            named = None if FOREIGN_SINCE not in said else _way_back(table, current.snapshot_id, said[FOREIGN_SINCE])
            if named is None:
                since = current.snapshot_id if since is None and operations else since
                break
            since = named
        elif _changes_files(said):
            operations.append(said.get("operation", "unknown"))
    return None if since is None else ForeignCommits(since, tuple(operations))


def _changes_files(said: Mapping[str, str]) -> bool:
    if any(name in said for name in _COUNTED):
        return any(said.get(name, "0") != "0" for name in _CHANGES)
    return said.get("operation") != Operation.REPLACE.value  # new manifests of the same files


def _way_back(table: Table, snapshot_id: int, said: str) -> int | None:
    """The last snapshot with nothing foreign, of one of ours that says it; None: the table was accepted as it is.

    The tag's, where there is one: somebody may have moved it. Else the one said, if it is kept and the table went back
    from this snapshot and came forward to it again.
    """
    tag = table.metadata.refs.get(TAG)
    if tag is not None:
        return tag.snapshot_id
    heads = [entry.snapshot_id for entry in table.metadata.snapshot_log]
    came_again = heads.count(snapshot_id) > 1
    kept = said.isdecimal() and table.metadata.snapshot_by_id(int(said)) is not None
    return int(said) if came_again and kept else None


def tag_updates(table: Table, found: ForeignCommits | None) -> tuple[TableUpdate, ...]:
    """What a commit on this head does about the tag. `found`: of the same head."""
    tag = table.metadata.refs.get(TAG)
    if found is None:
        return () if tag is None else (RemoveSnapshotRefUpdate.model_validate({"ref-name": TAG}),)
    if tag is not None and tag.snapshot_id == found.since:
        return ()
    named = {"ref-name": TAG, "type": SnapshotRefType.TAG, "snapshot-id": found.since}
    return (SetSnapshotRefUpdate.model_validate(named),)


def _properties(snapshot: Snapshot) -> dict[str, str]:
    """The snapshot's summary with its operation; empty for one without."""
    summary = snapshot.summary
    return {} if summary is None else {"operation": summary.operation.value, **summary.additional_properties}
