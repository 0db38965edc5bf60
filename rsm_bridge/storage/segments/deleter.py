"""Deletes: a tombstone at the index's own key, and nothing else before the answer.

Before the index exists the tombstone is put if absent, and a copy that is still running then fails to put its index.
After it the index is replaced by compare-and-swap, with its bytes inside. Objects are removed later, by the reclaimer:
queries on the table's current snapshot still read them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal

from converter.types import SegmentMetadata
from iceberg_catalog import failpoints
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import TOMBSTONE_SWAPS_MAX
from rsm_bridge.storage.custom_metadata import decode_custom_metadata
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.object_store import ObjectStore, VersionedBytes
from rsm_bridge.storage.tombstone import Tombstone, decode_tombstone, is_tombstone

Outcome = Literal["unknown_id", "replaced", "already_deleted"]


@dataclass(frozen=True, slots=True)
class Deleter:
    """Writes tombstones; blocking, for worker threads."""

    store: ObjectStore

    def delete(self, segment: SegmentMetadata) -> Outcome:
        """Makes the segment unreadable for good. Repeating it changes nothing.

        Custom metadata tells retention (`deleted`) from the withdrawal of a failed copy (`withdrawn`); `deleted` wins
        over an earlier `withdrawn`.

        Raises:
            BridgeError: `foreign_segment` when another plugin wrote it, `store_unavailable`.
        """
        known = decode_custom_metadata(segment.custom_metadata)
        stone = Tombstone(
            kind="withdrawn" if known is None else "deleted",
            time_ms=int(time.time() * 1000),
            topic=segment.topic,
            cluster_name=segment.cluster_name,
        )
        key = str(index_key(segment))
        failpoints.hit("before-tombstone", key)
        # Kafka names custom metadata for finished copies only: then the index is there.
        if known is None and self.store.put_if_absent(key, stone.encode(), sync=False):
            return "unknown_id"
        return self.bury(key, stone)

    def bury(self, key: str, stone: Tombstone) -> Outcome:
        """Puts a tombstone at an index's key, with the index that is there inside.

        Raises:
            BridgeError: `corrupt_object`, `store_unavailable`.
        """
        for _ in range(TOMBSTONE_SWAPS_MAX):
            try:
                current = self.store.read(key)
            except ObjectNotFoundError:
                if self.store.put_if_absent(key, stone.encode()):
                    return "unknown_id"
                continue
            if (outcome := self._swap(key, current, stone)) is not None:
                return outcome
        raise StoreError(f"{key} changed {TOMBSTONE_SWAPS_MAX} times while it was deleted")

    def _swap(self, key: str, current: VersionedBytes, stone: Tombstone) -> Outcome | None:
        """One compare-and-swap; None when the object changed meanwhile."""
        index = current.data
        if is_tombstone(current.data):
            try:
                old = decode_tombstone(current.data)
            except BridgeError as error:
                raise BridgeError("corrupt_object", f"{key}: {error}") from error
            if old.kind == "deleted" or stone.kind == "withdrawn":
                return "already_deleted"
            index = old.index
        swapped = self.store.replace(key, replace(stone, index=index).encode(), current.version)
        return "replaced" if swapped else None
