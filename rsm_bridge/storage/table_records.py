"""Which tables were ever written for a topic id: one small object each, for the store's data is shared by them all.

Usually one. Another rule for names, another namespace or another catalog gives a topic id a second table while the
first still names data files, also those that no index names any more. Neither can see the other in its own catalog,
so the record is in the store.

* A table is recorded before its first run lists indexes (:func:`record_table`). So who takes objects away looks for
  records *after* it has read the indexes: a table that is not recorded by then lists indexes later, and comes to know
  of no object that these do not name.
* While another table than its own is recorded, nobody takes away what that one may name (tables/maintain/sweep.py,
tables/reclaim/reclaimer.py).
* The record goes with its table, by `tierberg table drop`, and by nothing else: a table that is not found may have
  another name, or be in another catalog.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from converter.stored_json import fields, parse, text
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.storage.keys import (
    TABLES_ROOT,
    column_ids_key,
    parse_table_record_key,
    table_record_key,
    table_records_prefix,
)
from rsm_bridge.storage.object_store import ObjectStore

#: Name of a table whose record cannot be read.
UNKNOWN_NAME = "(its record cannot be read)"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One table of a topic id (16 bytes). `table`: its name with the namespace when it was first written."""

    topic_id: bytes
    table_uuid: uuid.UUID
    table: str


def record_table(store: ObjectStore, topic_id: bytes, table_uuid: uuid.UUID, name: str) -> bool:
    """Makes it durable that a table is about to be written; whether nobody had.

    Raises:
        StoreError: the store did not take it: then the table must not be written.
    """
    return store.put_if_absent(table_record_key(topic_id, table_uuid), json.dumps({"table": name}).encode())


def recorded_uuids(store: ObjectStore, topic_id: bytes) -> frozenset[uuid.UUID]:
    """Tables of a topic id, by their keys alone: no damage of a record hides its table.

    Raises:
        StoreError: the store does not answer: then nothing may be taken away.
    """
    found = (parse_table_record_key(listed.key) for listed in store.list_after(table_records_prefix(topic_id)))
    return frozenset(item[1] for item in found if item is not None)


def other_tables(store: ObjectStore, topic_id: bytes, own: uuid.UUID | None) -> frozenset[uuid.UUID]:
    """Tables of a topic id beside one's own. To be asked after indexes were read, before anything goes.

    Raises:
        StoreError: as :func:`recorded_uuids`.
    """
    return recorded_uuids(store, topic_id) - {own}


def read_records(store: ObjectStore, topic_id: bytes | None = None) -> Iterator[TableRecord]:
    """Tables of a topic id, or of all of them, with their names; UNKNOWN_NAME where a record is damaged.

    Raises:
        StoreError: the store does not answer.
    """
    for listed in store.list_after(TABLES_ROOT if topic_id is None else table_records_prefix(topic_id)):
        parsed = parse_table_record_key(listed.key)
        if parsed is None:
            continue
        try:
            name = text(fields(parse(store.read(listed.key).data)).get("table"))
        except ObjectNotFoundError:
            continue
        except StoreError:
            raise
        except (BridgeError, ValueError):
            name = UNKNOWN_NAME
        yield TableRecord(*parsed, name)


def forget_table(store: ObjectStore, topic_id: bytes, table_uuid: uuid.UUID) -> None:
    """The table is gone: what only it named may go too."""
    store.delete_many([table_record_key(topic_id, table_uuid), column_ids_key(topic_id, table_uuid)])
