"""What a `table drop` is about to remove, in one small object of the store until it is done.

Once the catalog has dropped the table, nothing else says where its states and metadata were. A drop that died in
between is finished by running it again.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from converter.stored_json import fields, parse, text, whole
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.layout import DROP_ROOT, state_prefix
from rsm_bridge.store import ObjectStore

_TOPIC_ID = re.compile("[0-9a-f]{32}")
_STATE_NAME = re.compile(r"[0-9a-f]{64}-[0-9A-Za-z_.-]{1,128}\.json")


@dataclass(frozen=True, slots=True)
class DropRecord:
    """One drop under way.

    Attributes:
        table: name with the namespace.
        table_uuid: as the catalog had it.
        topic_id: of its topic, 32 hex digits.
        states: sizes of its state objects in bytes, by key.
        metadata: sizes of the files in its metadata folder in bytes, by location.
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


def unfinished(store: ObjectStore, table: str) -> DropRecord | None:
    """The drop of this table that was not finished, if there is one.

    Raises:
        BridgeError: `corrupt_object`, `store_unavailable`.
    """
    for listed in store.list_after(DROP_ROOT):
        try:
            record = decode_drop(listed.key, store.read(listed.key).data)
        except ObjectNotFoundError:
            continue
        if record.table == table:
            return record
    return None


def decode_drop(key: str, data: bytes) -> DropRecord:
    """The record at a key.

    Raises:
        BridgeError: `corrupt_object`, also when it names states of another table. Whether `metadata` is the table's the
            caller must see: what it names gets deleted.
    """
    try:
        document = fields(parse(data))
        record = DropRecord(
            text(document.get("table")),
            text(document.get("table_uuid")),
            text(document.get("topic_id")),
            _sizes(document.get("states")),
            _sizes(document.get("metadata")),
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
