"""`tierberg table drop NAME --unreadable`: ends the catalog's entry of a table that can never be read or written again.

A catalog restored from a backup may name a metadata.json, manifests or a recorded state that were deleted since. The
publisher can neither read such a table nor make another under its name. No more can it write one of which an engine has
dropped or renamed columns of Kafka's, or changed the partitioning. The entry alone goes: every object of the store
stays, and the bridge makes the table anew from the indexes.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import check_layout, load_existing, names_of, stamped_owner
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.shell_words import command_line
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.segments.topic_segments import stored_owners
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.storage.table_records import forget_table, read_records
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.maintain.drop_table import table_identifier

#: Kinds of errors of a table that nobody can read as long as nobody mends it.
LOST = frozenset({"table_unreadable", "state_missing", "corrupt_state"})
#: And of one that can be read, and that no bridge writes: an engine dropped a column of Kafka's, which nothing undoes.
_UNUSABLE = LOST | {"schema_mismatch"}


def drop_unreadable(store: ObjectStore, catalog: Catalog, name: str, context: TableContext) -> str:
    """Drops the entry; returns what to say.

    Without its metadata nobody can tell whose the table was. So it goes only when a topic of the store would have a
    table of this very name. Where the metadata can be read, its owner stamp must be that topic's.

    Args:
        store: the bridge's.
        catalog: where the table is.
        name: the table's, without or with the namespace.
        context: the rules of all tables.

    Raises:
        BridgeError: `not_found` when there is no entry; `bad_request` when the table can be read, is no topic's of this
            store, or keeps rows that would be removed without it; `store_unavailable`.
        CatalogError: `unavailable`, and what else catalog and storage raise: nothing is dropped.
    """
    identifier = table_identifier(context.namespace, name)
    full_name = ".".join(identifier)
    owner, lost = _lost(store, catalog, identifier)
    found = [item for item in stored_owners(store) if identifier[-1] in names_of(item, context.plain)]
    levels = tuple(context.namespace.split("."))
    if identifier[:-1] != levels or not found or (owner is not None and owner not in found):
        raise BridgeError(
            "bad_request",
            f"no topic of this store has a table {full_name}, so it may be anybody's: drop its entry by the catalog's "
            f"own means if it is to go ({lost})",
        )
    for item in found:
        _refuse_archive(store, full_name, item, context)
    catalog.drop_table(identifier)
    for item in found:
        # Of several that had this name, in several catalogs, nobody knows which one this was: `status` names them.
        records = [record for record in read_records(store, item.topic_id) if record.table == full_name]
        if len(records) == 1:
            forget_table(store, item.topic_id, records[0].table_uuid)
    return (
        f"{full_name}: the catalog's entry is dropped ({lost}). The bridge makes the table of topic {found[0].topic} "
        "anew from the store; old metadata files stay where they are"
    )


def _lost(store: ObjectStore, catalog: Catalog, identifier: tuple[str, ...]) -> tuple[Owner | None, str]:
    """The table's owner if its stamp can be read, and what of it is not there."""
    name = ".".join(identifier)
    try:
        table = load_existing(catalog, identifier)
    except CatalogError as error:
        return None, _said(error)
    if table is None:
        raise BridgeError("not_found", f"no table {name}")
    owner = stamped_owner(table)
    if owner is None:
        raise BridgeError("bad_request", f"table {name} is not Tierberg's: it has no owner stamp")
    try:
        check_layout(table)
        recorded_parts(store, LiveFiles().read(table))
    except ObjectNotFoundError as error:
        confirm_gone(store, [error.key])
        return owner, f"its recorded state {error.key} is gone"
    except CatalogError as error:
        return owner, _said(error)
    raise BridgeError(
        "bad_request", f"table {name} can be read: without --unreadable it goes when nothing is left of it"
    )


def _refuse_archive(store: ObjectStore, name: str, owner: Owner, context: TableContext) -> None:
    """Raises where no table would be made anew, and deleted segments whose rows are to be kept would go."""
    segments = read_segments(store, owner.topic_id)
    if context.retention(owner.topic) == "follow-kafka" or not any(known.data_files() for known in segments):
        return
    if not any(known.live and known.data_files() for known in segments):
        undelete = command_line("tierberg undelete", [owner.topic], [f"--topic-id {owner.topic_id.hex()}"])
        raise BridgeError(
            "bad_request",
            f"Kafka has deleted every segment of topic {owner.topic}, and its rule keeps their rows (table_retention): "
            f"without table {name} they would be reclaimed. First `{undelete}`: it brings the "
            "segments back, though it ends by saying that the table cannot be read",
        )


def _said(error: CatalogError) -> str:
    """What is lost; raises an error that does not say that anything is."""
    if error.kind not in _UNUSABLE:
        raise error
    return str(error).partition(". Is its storage")[0]
