"""The highest field id of a table's columns, in the store, beside the data files that have them.

A catalog that is restored from a backup forgets columns. Data files that were written since have their field ids, and a
new column must get none of these: the files' values would appear in it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from converter.stored_json import fields, parse, whole
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import COLUMN_IDS_SWAPS_MAX
from rsm_bridge.storage.keys import column_ids_key
from rsm_bridge.storage.object_store import ObjectStore, VersionedBytes


@dataclass(frozen=True, slots=True)
class StoredFieldIds:
    """See iceberg_catalog.evolve.table.FieldIds. Of the table of one topic id; several bridges may swap its object."""

    store: ObjectStore
    topic_id: bytes
    table_uuid: uuid.UUID

    def given(self) -> int:
        """See FieldIds.

        Raises:
            BridgeError: `corrupt_object`; `store_unavailable`.
        """
        current = self._read()
        return 0 if current is None else self._last(current)

    def give(self, last: int) -> None:
        """See FieldIds.

        Raises:
            BridgeError: as :meth:`given`; `overloaded` when other bridges keep swapping it.
        """
        data = json.dumps({"last_id": last}).encode()
        for _ in range(COLUMN_IDS_SWAPS_MAX):
            current = self._read()
            if current is None:
                if self.store.put_if_absent(self._key, data):
                    return
            elif self._last(current) >= last or self.store.replace(self._key, data, current.version):
                return
        raise BridgeError("overloaded", f"{self._key} is being written by others all the time")

    @property
    def _key(self) -> str:
        return column_ids_key(self.topic_id, self.table_uuid)

    def _read(self) -> VersionedBytes | None:
        try:
            return self.store.read(self._key)
        except ObjectNotFoundError:
            return None

    def _last(self, current: VersionedBytes) -> int:
        try:
            return whole(fields(parse(current.data)).get("last_id"), 0)
        except ValueError as error:
            raise BridgeError(
                "corrupt_object",
                f"{self._key} is damaged ({error}): restore it, or remove it if no catalog was restored",
            ) from error
