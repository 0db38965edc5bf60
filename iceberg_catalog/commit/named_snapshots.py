"""Snapshots that tags and branches name must not expire, not even where the name was given a moment ago.

The head is read, a commit is planned, manifests are written: seconds, in which somebody may tag a snapshot that the
commit lets go. Iceberg's requirements speak of names that one knows, never of others, and `remove-snapshots` drops what
names its snapshots. So names are read anew just before the request; and a catalog that applies updates in this process
refuses to drop a name so (see :func:`require_unnamed`). With a REST catalog the milliseconds of the request remain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate


def unnamed_now(catalog: Catalog, table: Table, snapshot_ids: Collection[int]) -> list[int]:
    """Those of the snapshots that no tag or branch names by now; none when the table cannot be loaded.

    One request, and none without snapshots.
    """
    if not snapshot_ids:
        return []
    try:
        now = catalog.load_table(table.name())
    except Exception:  # noqa: BLE001 - expiry waits for the next commit
        return []
    named = {ref.snapshot_id for ref in now.metadata.refs.values()}
    return [number for number in snapshot_ids if number not in named]


def require_unnamed(metadata: TableMetadata, updates: Iterable[TableUpdate]) -> None:
    """Raises CommitFailedException where updates remove a snapshot that a tag or branch of the table names."""
    removed = {number for item in updates if isinstance(item, RemoveSnapshotsUpdate) for number in item.snapshot_ids}
    named = sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id in removed)
    if named:
        raise CommitFailedException(f"snapshots cannot expire that {', '.join(named)} names by now")
