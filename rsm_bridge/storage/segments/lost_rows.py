"""Tables with rows of a topic that the store has nothing of: every index object went, or it is another store.

`tierberg verify` and `tierberg status` judge by the same.
"""

from __future__ import annotations

from pyiceberg.table import Table

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import rows_in
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.storage.keys import index_prefix
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.state_objects import recorded_parts


def lost_rows(store: ObjectStore, table: Table, owner: Owner) -> int:
    """How many rows the table has, if the store has no index and no tombstone of its topic id now; else 0.

    Also 0 for an archive of which Kafka has deleted everything: its tombstones go, its rows stay.

    Raises:
        CatalogError: head or state are damaged, so nobody knows what was deleted.
        StoreError: the store does not answer.
    """
    rows = rows_in(table)
    if not rows or any(True for _ in store.list_after(index_prefix(owner.topic_id))) or _all_deleted(store, table):
        return 0
    return rows


def _all_deleted(store: ObjectStore, table: Table) -> bool:
    """Whether the recorded state, which is in the table's own store, says that Kafka deleted all rows of it."""
    head = LiveFiles().read(table)
    try:
        states = recorded_parts(store, head)
    except ObjectNotFoundError:
        return False
    return all(file.partition in states and file.last < states[file.partition].floor for file in head.files)
