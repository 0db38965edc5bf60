"""One swap of a table's head, and certainty about how it ended.

PyIceberg's own path is not safe here: it retries blindly, so the same rows can land twice, and when a request that
landed is repeated and answered 409 it deletes the new head's manifest list. Instead:

1. Write the manifests of every new snapshot. Nothing is visible yet.
2. Send ONE request: the snapshots, the new `main`, expiry of old snapshots; on condition that the table's UUID and its
   head are the ones the plan was made on.
3. After any exception, reload. Snapshot ids were chosen beforehand:

| reload shows | exception | outcome |
|---|---|---|
| our snapshot | any | committed |
| it is absent, and `main` has moved | CommitFailedException | conflict: it can never land; our manifests are removed |
| it is absent, and `main` has not | CommitFailedException | unknown: the reload may be older than the commit |
| it is absent | anything else | unknown: files stay, the request may land late |
| reload fails | any | unknown: files stay |

A request that lands late is harmless: it can only land while the head stays as it was, and then our next swap fails
and is planned again.

One commit makes up to three snapshots, in this order, so that incremental readers, who take appends only, stay right:
`overwrite` (cut and superseded files), `delete` (retention), `append` (new rows). A change of state alone is an append
without files. Only the last records the new state, those before it the one that the commit began with: a table that is
rolled back to one of them is planned on from there. Where rows were taken back, the frontier goes back with them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from iceberg_catalog import failpoints
from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.commit.foreign import FOREIGN_SINCE, ForeignCommits, foreign_commits, tag_updates
from iceberg_catalog.commit.head import STATE_KEY, STATE_SHA256, Head, ManifestFiles
from iceberg_catalog.commit.named_snapshots import held_snapshots, metadata_now, unheld
from iceberg_catalog.commit.snapshots import SnapshotChain, Step
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.commit.vended_credentials import renewed
from iceberg_catalog.limits import RELOAD_ATTEMPTS_MAX, RELOAD_PAUSE_MS, SNAPSHOTS_KEPT_MAX
from iceberg_catalog.plan.summary import RETENTION

_DELETE_OLD: Final = "write.metadata.delete-after-commit.enabled"
COMMIT_ID = "tierberg.commit-id"
AS_OF = "tierberg.as-of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Files of one commit, all partitions of the table together.

    append: files with new rows. delete: paths that go by retention. replace, replacement: paths that go and files that
    come for any other reason (cut, superseded branch, merge); the rows of `replacement` were in the table before.
    fold: rewrite all small manifests as one.
    """

    append: tuple[DataFile, ...] = ()
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    replacement: tuple[DataFile, ...] = ()
    fold: bool = False

    def steps(self) -> list[Step]:
        """The snapshots to make; at least one."""
        steps = []
        if self.replace or self.replacement:
            steps.append(Step(Operation.OVERWRITE, self.replacement, self.replace))
        if self.delete:
            steps.append(Step(Operation.DELETE, removed=self.delete))
        if self.append or self.fold or not steps:
            steps.append(Step(Operation.APPEND, self.append, fold=self.fold))
        return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a commit ended. Only `committed` says the change is in the table; after the others, load and plan again.

    table: the table as last seen, or None when it could not be reloaded. snapshot_id: the new head if committed.
    error: what was raised, also when it landed all the same. manifests: what the new ones hold, for `LiveFiles.read`.
    """

    kind: Literal["committed", "conflict", "unknown"]
    table: Table | None
    snapshot_id: int
    error: Exception | None = None
    manifests: tuple[ManifestFiles, ...] = ()


def recorded_as_of(head: Head) -> int:
    """Up to when the head says the table is current, milliseconds since the epoch; 0 when it does not say."""
    current = head.table.current_snapshot()
    summary = current.summary.additional_properties if current is not None and current.summary is not None else {}
    return int(summary.get(AS_OF, 0))


def recorded_retention(head: Head) -> str | None:
    """What the newest of our commits says of the rule that rows are kept by; None: no snapshot that is there does."""
    for snapshot in ancestors(head.table.metadata, head.table.metadata.current_snapshot_id):
        if snapshot.summary is not None and RETENTION in snapshot.summary.additional_properties:
            return snapshot.summary.additional_properties[RETENTION]
    return None


def _refuse_twice(head: Head, change: Change) -> None:
    """No plan may add a file that is live: every row of it would be there twice."""
    added = {file.file_path for file in (*change.append, *change.replacement)}
    gone = {*change.delete, *change.replace}
    twice = next((file.path for file in head.files if file.path in added and file.path not in gone), None)
    if twice is not None:
        raise ValueError(f"{twice} is a live file of the table already, and would be in it twice")


def commit(
    catalog: Catalog,
    head: Head,
    change: Change,
    state: StateRef,
    *,
    commit_id: str,
    as_of_ms: int,
    summary: Mapping[str, str] | None = None,
    midst: StateRef | None = None,
) -> Outcome:
    """Swap the table's head for one with this change and state, if it still is `head`.

    Args:
        catalog: the one the head was loaded from.
        head: what the change was planned on.
        change: files that come and go.
        state: an object that is durable already.
        commit_id: unique per attempt; recorded in the snapshots.
        as_of_ms: broker or bridge time up to which the table is current, milliseconds since the epoch.
        summary: further entries for the snapshots' summaries.
        midst: for the snapshots before the last, durable too; None: the state recorded with the head.

    Raises:
        ValueError: the change takes a path that is no live file of the head, or adds one that is, and stays.
        What the storage raises while manifests are written passes through, and the catalog while it lends credentials
        anew; nothing was sent then and nothing is left.
    """
    _refuse_twice(head, change)
    head = renewed(catalog, head)
    chain = SnapshotChain(head=head)
    foreign = foreign_commits(head.table)
    properties = {
        COMMIT_ID: commit_id,
        **({FOREIGN_SINCE: str(foreign.since)} if foreign is not None else {}),
        **(summary or {}),
    }
    after = _recorded(state, as_of_ms)
    # Whoever rolls back to a snapshot in between lacks what the later ones bring: the state before tells the next plan.
    began = midst or head.state
    before = after if began is None else _recorded(began, recorded_as_of(head))
    *between, last = change.steps()
    try:
        for step in between:
            chain.add(step, properties | before)
        chain.add(last, properties | after)
    except Exception:
        _discard(head.table, chain.written)
        raise
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=head.table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id}),
    )
    failpoints.hit("before-swap", ".".join(head.table.name()))
    updates = _updates(head, metadata_now(catalog, head.table), chain.snapshots, foreign)
    try:
        response = catalog.commit_table(head.table, requirements, updates)
    except Exception as error:  # noqa: BLE001 any answer, or none: only the table itself knows
        return _settle(catalog, head, chain, error)
    failpoints.hit("after-swap", ".".join(head.table.name()))
    with suppress(Exception):  # housekeeping: the commit stands, a leftover metadata.json harms nobody
        drop_old_metadata(head.table, response)
    table = Table(head.table.name(), response.metadata, response.metadata_location, head.table.io, catalog)
    return Outcome(
        kind="committed", table=table, snapshot_id=chain.snapshots[-1].snapshot_id, manifests=chain.contents()
    )


def _recorded(state: StateRef, as_of_ms: int) -> dict[str, str]:
    """What a snapshot says of the state that goes with it."""
    return {STATE_KEY: state.key, STATE_SHA256: state.sha256, AS_OF: str(as_of_ms)}


def _updates(
    head: Head, now: TableMetadata | None, snapshots: list[Snapshot], foreign: ForeignCommits | None
) -> tuple[TableUpdate, ...]:
    """What one request asks for. `now`: the table just before it; None: nobody knows, and nothing expires."""
    main = (now or head.table.metadata).refs.get(MAIN_BRANCH)
    # An update that does not repeat the retention that somebody set on `main` takes it away.
    retention = {} if main is None else main.model_dump()
    moved = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshots[-1].snapshot_id}
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots]
    updates.append(SetSnapshotRefUpdate.model_validate(retention | moved))
    updates.extend(tag_updates(head.table, foreign))
    expired = [] if now is None else unheld(now, _expired(head, len(snapshots), foreign))
    if expired:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired}))
    return tuple(updates)


def _expired(head: Head, coming: int, foreign: ForeignCommits | None) -> list[int]:
    """Oldest snapshots beyond SNAPSHOTS_KEPT_MAX, of which those do not count that a tag or branch holds.

    But for the head: it counts, and stays.
    """
    metadata = head.table.metadata
    held = held_snapshots(metadata).keys() | ({foreign.since} if foreign is not None else set())
    old = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    free = [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in held]
    return free[: max(len(free) + 1 + coming - SNAPSHOTS_KEPT_MAX, 0)]


def _settle(catalog: Catalog, head: Head, chain: SnapshotChain, error: Exception) -> Outcome:
    """Finds out whether the request landed."""
    ours = chain.snapshots[-1].snapshot_id
    table = _reload(catalog, head)
    if table is None or table.metadata.table_uuid != head.table.metadata.table_uuid:
        return Outcome(kind="unknown", table=table, snapshot_id=ours, error=error)
    if table.metadata.snapshot_by_id(ours) is not None:
        return Outcome(kind="committed", table=table, snapshot_id=ours, error=error)
    if not isinstance(error, CommitFailedException) or table.metadata.current_snapshot_id == head.snapshot_id:
        # Refused for its repetition, perhaps, and the reload is of a replica or a cache that has not heard of it.
        return Outcome(kind="unknown", table=table, snapshot_id=ours, error=error)
    # Could it have landed and expired since? Not while every snapshot made since is still there to be looked at: some
    # catalogs keep no more than the newest.
    next_then = head.table.metadata.next_sequence_number()
    kept = sum((snapshot.sequence_number or 0) >= next_then for snapshot in table.metadata.snapshots)
    if kept == table.metadata.next_sequence_number() - next_then:
        _discard(head.table, chain.written)
    return Outcome(kind="conflict", table=table, snapshot_id=ours, error=error)


def _reload(catalog: Catalog, head: Head) -> Table | None:
    for attempt in range(RELOAD_ATTEMPTS_MAX):
        if attempt:
            time.sleep(RELOAD_PAUSE_MS / 1000)
        with suppress(Exception):  # the outcome stays unknown, which is safe
            return catalog.load_table(head.table.name())
    return None


def _discard(table: Table, paths: list[str]) -> None:
    for path in paths:
        with suppress(Exception):  # a leftover manifest harms nobody; some were perhaps never written
            table.io.delete(path)


def drop_old_metadata(table: Table, response: CommitTableResponse) -> None:
    """Deletes metadata.json files that fell out of the log, where the table's properties ask for it."""
    if not property_as_bool(table.properties, _DELETE_OLD, False):
        return
    listed = {entry.metadata_file for entry in response.metadata.metadata_log} | {response.metadata_location}
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in listed:
            table.io.delete(entry.metadata_file)
