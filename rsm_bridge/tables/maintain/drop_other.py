"""`tierberg table drop UUID`: ends a table that other rules for names made for a topic id, beside the one of today.

Its rows are in today's table too, so it need not be empty; the command refuses where they are not. Data files are
shared and stay: once no record says that a table may name them, maintenance finds those that nobody names
(storage/table_records.py). A table that this catalog does not have is only forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from iceberg_catalog import failpoints
from iceberg_catalog.commit.head import Head, LiveFiles, normal_path
from iceberg_catalog.commit.metadata_files import list_metadata, named_metadata
from iceberg_catalog.plan.types import PartState
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import load_existing, stamped_owner
from rsm_bridge.errors import BridgeError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import state_prefix
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.storage.table_records import TableRecord, forget_table, read_records


def table_uuid_of(name: str) -> uuid.UUID | None:
    """The uuid that is meant, in the spelling `tierberg status` uses; None for a name."""
    try:
        found = uuid.UUID(name)
    except ValueError:
        return None
    return found if str(found) == name.lower() else None


def drop_other(
    store: ObjectStore,
    catalog: Catalog,
    table_uuid: uuid.UUID,
    current: Callable[[Owner], Table | None],
    tally: Tally,
) -> str:
    """Drops a recorded table that is not its topic's of today; what went is in `tally`.

    Args:
        store: the bridge's.
        catalog: where it may be, under the name it had when it was first written.
        table_uuid: which one.
        current: the topic's table by today's settings.
        tally: receives what was removed.

    Returns:
        What to say.

    Raises:
        BridgeError: `not_found` when no such table is recorded; `bad_request` when it is the topic's table of today,
            when there is none of today, or when that one lacks rows of it, saying which.
        CatalogError: `table_unreadable` when the catalog has its entry and no metadata; and what else catalog and
            storage raise. Run it again: what is left goes.
    """
    record = next((item for item in read_records(store) if item.table_uuid == table_uuid), None)
    if record is None:
        raise BridgeError("not_found", f"the store knows of no table {table_uuid}")
    table = _load(catalog, record)
    if table is None:
        _remove(store, record, tally)
        return f"{record.table} ({table_uuid}) is not in this catalog: forgotten"
    owner = stamped_owner(table)
    today = None if owner is None else current(owner)
    if owner is None or owner.topic_id != record.topic_id or today is None:
        raise BridgeError(
            "bad_request", f"these settings name no table for the topic of {record.table}: nothing is done"
        )
    if today.metadata.table_uuid == table_uuid:
        raise BridgeError("bad_request", f"{record.table} is what these settings name for topic {owner.topic}")
    _refuse_unless_covered(store, table, today)
    spared = named_metadata(today)
    # With `catalog.layout: inside` both share one folder: only what the table itself names is certainly its own.
    own = named_metadata(table) - spared
    metadata = [item for item in list_metadata(table) if normal_path(item.location) in own]
    failpoints.hit("before-drop", record.topic_id.hex())
    catalog.drop_table(table.name())
    failpoints.hit("after-drop", record.topic_id.hex())
    for item in metadata:
        with suppress(OSError):  # a catalog may have removed it itself, or not let us
            table.io.delete(item.location)
            tally.add("metadata", item.size)
    _remove(store, record, tally)
    return f"{record.table} ({table_uuid}) dropped; the table of topic {owner.topic} is {'.'.join(today.name())}"


def _load(catalog: Catalog, record: TableRecord) -> Table | None:
    try:
        table = load_existing(catalog, tuple(record.table.split(".")))
    except NoSuchNamespaceError:
        return None
    return table if table is not None and table.metadata.table_uuid == record.table_uuid else None


def _remove(store: ObjectStore, record: TableRecord, tally: Tally) -> None:
    """Its states, and the record last."""
    states = list(store.list_after(state_prefix(record.table_uuid)))
    store.delete_many([listed.key for listed in states])
    for listed in states:
        tally.add("state", listed.size)
    forget_table(store, record.topic_id, record.table_uuid)


def _refuse_unless_covered(store: ObjectStore, table: Table, today: Table) -> None:
    """Raises BridgeError `bad_request` unless today's table reaches as far down and up, in every partition."""
    name = ".".join(table.name())
    mine, other = LiveFiles().read(table), LiveFiles().read(today)
    if mine.foreign:
        raise BridgeError("bad_request", f"table {name} has {len(mine.foreign)} files that Tierberg did not write")
    states = recorded_parts(store, other)
    lowest = _lowest(other)
    for partition, first in sorted(_lowest(mine).items()):
        last = max(file.last for file in mine.files if file.partition == partition)
        frontier = states.get(partition, PartState()).frontier
        if first < lowest.get(partition, frontier) or last >= frontier:
            raise BridgeError(
                "bad_request",
                f"table {name} has offsets {first} to {last} of partition {partition}, table {'.'.join(today.name())} "
                f"has {lowest.get(partition, frontier)} to {frontier - 1}. If its rows may go: drop it in the catalog "
                "by any engine, without PURGE, and run this again",
            )


def _lowest(head: Head) -> dict[int, int]:
    """The lowest offset of each partition's files."""
    found: dict[int, int] = {}
    for file in head.files:
        found[file.partition] = min(file.first, found.get(file.partition, file.first))
    return found
