"""What a `table drop` is about to remove, in one small object of the store until it is done.

Once the catalog has dropped the table, nothing else says where its states and metadata were. A drop that died in
between is finished by running it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.layout import DROP_ROOT
from rsm_bridge.store import ObjectStore


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

    def put(self, store: ObjectStore) -> None:
        """Makes it durable, in place of what an earlier try left.

        Raises:
            StoreError: the store did not take it.
            BridgeError: `overloaded` when another drop of this table is under way.
        """
        store.delete_many([self.key])
        if not store.put_if_absent(self.key, json.dumps(asdict(self)).encode()):
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
            record = _decode(listed.key, store.read(listed.key).data)
        except ObjectNotFoundError:
            continue
        if record.table == table:
            return record
    return None


def _decode(key: str, data: bytes) -> DropRecord:
    try:
        return DropRecord(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise BridgeError("corrupt_object", f"{key}, the record of a drop, does not parse: {error!r}") from error
