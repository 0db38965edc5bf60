"""A snapshot and those it was made from."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """The snapshot, its parent and so on, as far as they are kept, each once: damaged parents may go in a circle.

    Nothing for None and for a snapshot that is not kept.
    """
    left: dict[int | None, Snapshot] = {item.snapshot_id: item for item in metadata.snapshots}
    while (snapshot := left.pop(snapshot_id, None)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id
