"""Snapshots that tags and branches hold must not expire, not even where one came to do so a moment ago.

A tag holds what it names. A branch of somebody else's holds its own history too, as far as it is not the table's: who
writes there decides what becomes of it. Further back, into the table's history, and for `main` itself, a branch holds
what the retention asks for that was set on it.

The head is read, a commit is planned, manifests are written: seconds, in which somebody may tag a snapshot that the
commit lets go. Iceberg's requirements speak of names that one knows, never of others, and `remove-snapshots` drops what
names its snapshots. So names are read anew just before the request; and a catalog that applies updates in this process
refuses to drop a name so (see :func:`require_unheld`). With a REST catalog the milliseconds of the request remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.limits import SNAPSHOTS_HELD_MAX


def held_snapshots(metadata: TableMetadata) -> dict[int, str]:
    """Snapshots that may not expire, each with the name of a tag or branch that holds it.

    They are what tags and branches name; of each branch but `main` all ancestors that are not ancestors of `main`'s
    head; and of every branch those that its `min-snapshots-to-keep` (so many from its head on, the head among them) or
    its `max-snapshot-age-ms` (as of the table's last update, inclusive) asks for, among the first SNAPSHOTS_HELD_MAX
    from its head on. What is not set asks for nothing.
    """
    main = metadata.refs.get(MAIN_BRANCH)
    on_main = set() if main is None else {item.snapshot_id for item in ancestors(metadata, main.snapshot_id)}
    held: dict[int, str] = {}
    for name, ref in metadata.refs.items():
        held.setdefault(ref.snapshot_id, name)
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            line = list(ancestors(metadata, ref.snapshot_id))
            own = [item for item in line if item.snapshot_id not in on_main]
            for item in (*own, *_retained(ref, line[:SNAPSHOTS_HELD_MAX], metadata.last_updated_ms)):
                held.setdefault(item.snapshot_id, name)
    return held


def _retained(ref: SnapshotRef, line: list[Snapshot], now_ms: int) -> Iterator[Snapshot]:
    """Those of a branch's line, newest first, that its own retention asks for."""
    number, age_ms = ref.min_snapshots_to_keep or 0, ref.max_snapshot_age_ms
    yield from line[:number]
    if age_ms is not None:
        yield from (item for item in line[number:] if now_ms - item.timestamp_ms <= age_ms)


def metadata_now(catalog: Catalog, table: Table) -> TableMetadata | None:
    """The table's metadata by now; None when it cannot be loaded. One request."""
    try:
        return catalog.load_table(table.name()).metadata
    except Exception:  # noqa: BLE001 - what depends on it waits for the next commit
        return None


def unheld(metadata: TableMetadata, snapshot_ids: Iterable[int]) -> list[int]:
    """Those of the snapshots that no tag or branch holds."""
    held = held_snapshots(metadata)
    return [number for number in snapshot_ids if number not in held]


def require_unheld(metadata: TableMetadata, updates: Iterable[TableUpdate]) -> None:
    """Raises CommitFailedException where updates remove a snapshot that a tag or branch of the table holds."""
    removed = {number for item in updates if isinstance(item, RemoveSnapshotsUpdate) for number in item.snapshot_ids}
    held = held_snapshots(metadata) if removed else {}
    names = sorted({held[number] for number in removed & held.keys()})
    if names:
        raise CommitFailedException(f"snapshots cannot expire that {', '.join(names)} holds by now")
