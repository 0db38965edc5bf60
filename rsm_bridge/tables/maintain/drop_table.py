"""`tierberg table drop`: ends a table that has nothing left, and what the store holds for it beside rows.

An empty table stays until then, for a deleted topic's history is worth a look. The command refuses while anything could
still be lost: rows, segments Kafka has, deleted ones that `tierberg undelete` could bring back.

What a `table drop` is about to remove, in one small object of the store until it is done.

Once the catalog has dropped the table, nothing else says where its states and metadata were. A drop that died in
between is finished by running it again.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from gzip import BadGzipFile

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from converter.stored_json import fields, parse, text, whole
from iceberg_catalog import failpoints
from iceberg_catalog.commit.head import LiveFiles, normal_path
from iceberg_catalog.commit.metadata_files import METADATA_JSON, own_metadata
from iceberg_catalog.errors import DAMAGE
from iceberg_catalog.tables import schema as table_schema
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import load_existing, owned_tables, stamped_owner
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import (
    DATA_ROOT,
    DROP_ROOT,
    KEPT_ROOT,
    LEASE_ROOT,
    UNDELETE_ROOT,
    is_stored_object,
    projections_prefix,
    state_prefix,
)
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.table_records import forget_table, other_tables


def drop_table(store: ObjectStore, catalog: Catalog, namespace: str, name: str, tally: Tally) -> str:
    """Drops an empty table of ours, its metadata and its state objects; what went is in `tally`.

    Args:
        store: the bridge's.
        catalog: where the table is.
        namespace: of our tables.
        name: the table's, without or with the namespace.
        tally: receives what was removed.

    Returns:
        The table's name with its namespace.

    Raises:
        BridgeError: `not_found`; `bad_request` when it is not ours or not empty, saying what is left.
        CatalogError: and what else catalog and storage raise. Run it again: what is gone is gone, what is left goes.
    """
    identifier = table_identifier(namespace, name)
    full_name = ".".join(identifier)
    table = load_existing(catalog, identifier)
    if table is None:
        record, unread = unfinished(store, full_name)
        if record is None or any(
            _uuid(table) == record.table_uuid for table, _ in owned_tables(catalog, namespace=namespace)
        ):
            may_be = (
                "" if record is not None or not unread else f"; was a drop of it not finished? Not told by {unread[0]}"
            )
            raise BridgeError("not_found", f"no table {full_name}{may_be}")
        io = load_file_io(catalog.properties)
        left = _left(record, owned_folders(store, catalog, identifier, record.topic_id), io)
        _remove(store, io, replace(record, metadata=left), tally)
        return full_name
    owner = _owner(table)
    _refuse_beside_others(store, table, owner)
    refuse_unless_empty(store, table, owner)
    # Taken before the drop: afterwards nothing says where they were.
    record = DropRecord(
        table=full_name,
        table_uuid=_uuid(table),
        topic_id=owner.topic_id.hex(),
        states={listed.key: listed.size for listed in store.list_after(state_prefix(table.metadata.table_uuid))},
        metadata={
            item.location: item.size
            for item in sorted(own_metadata(table), key=lambda item: item.location.endswith(METADATA_JSON))
        },
    )
    record.put(store)
    failpoints.hit("before-drop", record.topic_id)
    catalog.drop_table(table.name())
    failpoints.hit("after-drop", record.topic_id)
    _remove(store, table.io, record, tally)
    return full_name


def owned_folders(store: ObjectStore, catalog: Catalog, identifier: tuple[str, ...], topic_id: str) -> frozenset[str]:
    """Where the metadata of a table that is gone can have been: under the warehouse by its name, or with its data."""
    *namespace, name = identifier
    folders = {store.uri(f"{DATA_ROOT}{topic_id}/metadata")}
    warehouse = catalog.properties.get("warehouse", "").rstrip("/")
    if "/" in warehouse:
        place = ".".join(namespace)
        folders |= {f"{warehouse}/{place}/{name}/metadata", f"{warehouse}/{place}.db/{name}/metadata"}
    return frozenset(map(normal_path, folders))


def _left(record: DropRecord, folders: frozenset[str], io: FileIO) -> dict[str, int]:
    """Of the metadata files that a record, read from the store, names those that are to go, the heads last.

    A catalog that keeps its warehouse to itself does not say where a table that is gone was. There the folder's own
    heads, the `.metadata.json` files that the record names in it, show whose it is; when they are gone, all else is.

    Raises:
        BridgeError: `corrupt_object` when it would remove anybody else's files.
    """
    by_folder: dict[str, list[str]] = {}
    for location in record.metadata:
        folder, _, name = normal_path(location).rpartition("/")
        by_folder.setdefault(folder if name not in ("", ".", "..") else "", []).append(location)
    left: list[str] = []
    for folder, locations in by_folder.items():
        heads = [location for location in locations if location.endswith(METADATA_JSON)]
        owners = [] if folder in folders else [_owner_at(io, location) for location in heads]
        if folder not in folders and (not heads or any(owner not in (None, _whose(record)) for owner in owners)):
            raise BridgeError(
                "corrupt_object",
                f"{record.key} names {ascii(locations[0])[:500]}, which is in no folder that table {record.table} can "
                "have had: nothing was removed. If it was the table's, remove the files it names by hand, then the "
                "object",
            )
        left += locations if folder in folders or any(owners) else []
    return {
        location: record.metadata[location] for location in sorted(left, key=lambda name: name.endswith(METADATA_JSON))
    }


def _whose(record: DropRecord) -> tuple[str, str]:
    return record.table_uuid, record.topic_id


def _owner_at(io: FileIO, location: str) -> tuple[str, str] | None:
    """Uuid and topic id of the table whose head this is, empty of what is none; None when it is gone."""
    try:
        found = FromInputFile.table_metadata(io.new_input(location))
    except FileNotFoundError:
        return None
    except (BadGzipFile, *DAMAGE):
        return "", ""
    return str(found.table_uuid), found.properties.get(table_schema.TOPIC_ID, "")


def _remove(store: ObjectStore, io: FileIO, record: DropRecord, tally: Tally) -> None:
    """What the catalog's drop leaves, the record of it last."""
    store.delete_many(list(record.states))
    for size in record.states.values():
        tally.add("state", size)
    for location, size in record.metadata.items():
        with suppress(OSError):  # a catalog may have removed it itself, or not let us
            io.delete(location)
            tally.add("metadata", size)
    store.delete_many([f"{root}{record.topic_id}.json" for root in (LEASE_ROOT, UNDELETE_ROOT)])
    store.delete_many([listed.key for listed in store.list_after(projections_prefix(bytes.fromhex(record.topic_id)))])
    forget_table(store, bytes.fromhex(record.topic_id), uuid.UUID(record.table_uuid))
    record.forget(store)


def _refuse_beside_others(store: ObjectStore, table: Table, owner: Owner) -> None:
    """Raises BridgeError `bad_request` while another table of the topic id is recorded: they share what would go."""
    others = sorted(map(str, other_tables(store, owner.topic_id, table.metadata.table_uuid)))
    if others:
        raise BridgeError(
            "bad_request",
            f"topic {owner.topic} has another table too, {others[0]}: see `another_table` in `tierberg status`. "
            f"`tierberg table drop {others[0]}` ends that one, if it is no longer wanted",
        )


def refuse_unless_empty(store: ObjectStore, table: Table, owner: Owner) -> None:
    """Raises BridgeError `bad_request` while the table or the store has anything of the topic."""
    name = ".".join(table.name())
    head = LiveFiles().read(table)
    if head.files or head.foreign:
        raise BridgeError("bad_request", f"table {name} has rows, in {len(head.files) + len(head.foreign)} files")
    segments = read_segments(store, owner.topic_id)
    live = sum(known.live for known in segments)
    if live:
        raise BridgeError("bad_request", f"Kafka still has {live} segments of topic {owner.topic}")
    deleted = sum(known.segment is not None for known in segments)
    if deleted:
        raise BridgeError(
            "bad_request",
            f"{deleted} deleted segments of topic {owner.topic} are still in the store and can be brought back; they "
            "go by themselves after reclaim_grace, or mass_delete_grace",
        )
    topic = owner.topic_id.hex()
    folders = [f"{root}{topic}/" for root in (DATA_ROOT, KEPT_ROOT)]
    # The table's own metadata may lie there too (`catalog.layout: inside`).
    left = sum(is_stored_object(listed.key) for folder in folders for listed in store.list_after(folder))
    if left:
        raise BridgeError(
            "bad_request",
            f"{left} objects of topic {owner.topic} are still in the store: older snapshots name them, or a crash left "
            f"them. They go by themselves, or with `tierberg maintain`, as soon as that is safe",
        )


def table_identifier(namespace: str, name: str) -> tuple[str, ...]:
    """Of a table that is named without or with the namespace."""
    return tuple(name.split(".")) if name.startswith(f"{namespace}.") else (*namespace.split("."), name)


def _owner(table: Table) -> Owner:
    owner = stamped_owner(table)
    if owner is None:
        raise BridgeError("bad_request", f"table {'.'.join(table.name())} is not Tierberg's: it has no owner stamp")
    return owner


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


_TOPIC_ID = re.compile("[0-9a-f]{32}")
_STATE_NAME = re.compile(r"[0-9a-f]{64}-[0-9A-Za-z_.-]{1,128}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRecord:
    """One drop under way.

    Attributes:
        table: name with the namespace.
        table_uuid: as the catalog had it.
        topic_id: of its topic, 32 hex digits.
        states: sizes of its state objects in bytes, by key.
        metadata: sizes of its own files in its metadata folder in bytes, by location.
    """

    table: str
    table_uuid: str
    topic_id: str
    states: Mapping[str, int]
    metadata: Mapping[str, int]

    @property
    def key(self) -> str:
        """Of the object."""
        return f"{DROP_ROOT}{self.topic_id}.json"

    def encode(self) -> bytes:
        """The object's bytes."""
        return json.dumps(asdict(self)).encode()

    def put(self, store: ObjectStore) -> None:
        """Makes it durable, in place of what an earlier try left.

        Raises:
            StoreError: the store did not take it.
            BridgeError: `overloaded` when another drop of this table is under way.
        """
        store.delete_many([self.key])
        if not store.put_if_absent(self.key, self.encode()):
            raise BridgeError("overloaded", f"another drop of table {self.table} is under way")

    def forget(self, store: ObjectStore) -> None:
        """All is removed."""
        store.delete_many([self.key])


def unfinished(store: ObjectStore, table: str) -> tuple[DropRecord | None, list[str]]:
    """The drop of this table that was not finished, if there is one, and why records cannot be read, with their keys.

    A damaged record is another table's, most likely, and no reason to say nothing of this one.

    Raises:
        BridgeError: `store_unavailable`.
    """
    unread: list[str] = []
    for listed in store.list_after(DROP_ROOT):
        try:
            record = decode_drop(listed.key, store.read(listed.key).data)
        except StoreError:
            raise
        except ObjectNotFoundError:
            continue
        except BridgeError as error:
            unread.append(str(error))
            continue
        if record.table == table:
            return record, unread
    return None, unread


def decode_drop(key: str, data: bytes) -> DropRecord:
    """The record at a key.

    Raises:
        BridgeError: `corrupt_object`, also when it names states of another table. Whether `metadata` is the table's the
            caller must see: what it names gets deleted.
    """
    try:
        document = fields(parse(data))
        record = DropRecord(
            table=text(document.get("table")),
            table_uuid=text(document.get("table_uuid")),
            topic_id=text(document.get("topic_id")),
            states=_sizes(document.get("states")),
            metadata=_sizes(document.get("metadata")),
        )
        _check_states(key, record)
    except ValueError as error:
        raise BridgeError("corrupt_object", f"{key}, the record of a drop, does not parse: {error}") from error
    return record


def _sizes(value: object) -> dict[str, int]:
    return {text(name): whole(size, 0) for name, size in fields(value).items()}


def _check_states(key: str, record: DropRecord) -> None:
    """Raises ValueError unless the record lies under its own key and names its own table's states only."""
    if _TOPIC_ID.fullmatch(record.topic_id) is None or record.key != key:
        raise ValueError("it is another topic's")
    prefix = state_prefix(uuid.UUID(record.table_uuid))
    for name in record.states:
        if not name.startswith(prefix) or _STATE_NAME.fullmatch(name.removeprefix(prefix)) is None:
            raise ValueError(f"{ascii(name)[:200]} is no state of table {record.table}")
