"""Commits that change no row: snapshots expire, small manifests are folded, an empty snapshot outruns late requests.

All are swaps against the head they were decided on, so neither can undo what another bridge has just published.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import Head
from iceberg_catalog.commit.named_snapshots import metadata_now, unheld
from iceberg_catalog.commit.snapshots import is_small
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.limits import MANIFESTS_FOLDED_MIN


def expire(catalog: Catalog, head: Head, snapshot_ids: Collection[int]) -> Table | None:
    """Expires these snapshots, if the table's head still is `head` and no tag or branch holds any of them.

    Returns:
        The table as it is then, when none of the snapshots is in it any more, whatever the reply was. None otherwise:
        load and decide again. A request that was lost may land later, as long as the head has not moved; it does then
        what had been decided on that head.
    """
    table = head.table
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id}),
    )
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(snapshot_ids)})
    failpoints.hit("before-expire", ".".join(table.name()))
    now = metadata_now(catalog, table)
    if now is None or len(unheld(now, snapshot_ids)) < len(snapshot_ids):
        return None
    with suppress(Exception):  # only the table itself says how it ended
        catalog.commit_table(table, requirements, (update,))
    failpoints.hit("after-expire", ".".join(table.name()))
    with suppress(Exception):
        after = catalog.load_table(table.name())
        same = after.metadata.table_uuid == table.metadata.table_uuid
        if same and all(after.metadata.snapshot_by_id(number) is None for number in snapshot_ids):
            return after
    return None


def foldable(head: Head) -> int:
    """How many manifests :func:`fence` would fold into one; 0 when that is not worth a snapshot."""
    spec_id = head.table.metadata.default_spec_id
    small = sum(is_small(item.manifest, len(item.paths), spec_id) for item in head.manifests if item.paths)
    return small if small >= MANIFESTS_FOLDED_MIN else 0


def fence(
    catalog: Catalog, head: Head, state: StateRef, *, commit_id: str, as_of_ms: int, fold: bool = False
) -> Head | None:
    """Puts an empty snapshot on top: whatever was planned on `head` can no longer land.

    Args:
        catalog: the one the head was loaded from.
        head: what is to be passed.
        state: a durable object with the state `head` records.
        commit_id: unique per attempt.
        as_of_ms: milliseconds since the epoch.
        fold: rewrite all small manifests as one.

    Returns:
        The new head, with the files of the old one; None when another commit was faster or the outcome is unknown.
    """
    outcome = commit(catalog, head, Change(fold=fold), state, commit_id=commit_id, as_of_ms=as_of_ms)
    if outcome.kind != "committed" or outcome.table is None:
        return None
    return Head(
        table=outcome.table,
        snapshot_id=outcome.snapshot_id,
        files=head.files,
        foreign=head.foreign,
        state=state,
        manifests=head.manifests,
    )
