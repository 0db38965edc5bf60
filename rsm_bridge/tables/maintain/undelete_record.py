"""What undeletes of a topic id have brought back, in one small object of the store.

It serves two ends. An undelete that died between its steps is finished by the next one. And segments that came back are
live for ever, for Kafka has forgotten them and will never delete them: those the record names are deleted by us, when
retention has passed them or somebody takes the undelete back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from converter import stored_json
from iceberg_catalog import failpoints
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import TOMBSTONE_SWAPS_MAX
from rsm_bridge.storage.keys import UNDELETE_ROOT, parse_index_key
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_known
from rsm_bridge.storage.tombstone import MAGIC, Tombstone, is_tombstone


@dataclass(frozen=True, slots=True)
class Undeleted:
    """The record.

    lowest: by partition, the lowest offset of an undelete whose rows are not in the table yet; empty: none is open.
    restored: keys of indexes that were tombstones, and may be again, until they are gone.
    """

    lowest: Mapping[int, int]
    restored: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        """The object's bytes."""
        lowest = {str(partition): offset for partition, offset in self.lowest.items()}
        return json.dumps({"lowest": lowest, "restored": sorted(self.restored)}, sort_keys=True).encode()


def undelete_key(topic_id: bytes) -> str:
    """Of the record of a topic id."""
    return f"{UNDELETE_ROOT}{topic_id.hex()}.json"


def decode(data: bytes, topic_id: bytes) -> Undeleted:
    """The record of a topic id.

    Raises:
        BridgeError: `corrupt_object`, also when it names another topic's indexes: those it names get deleted.
    """
    try:
        document = stored_json.parse(data)
        lowest = stored_json.numbered(stored_json.field(document, "lowest"))
        restored = stored_json.listed(stored_json.field(document, "restored"))
        return Undeleted(
            {partition: stored_json.whole(offset, 0) for partition, offset in lowest.items()},
            frozenset(_index_of(name, topic_id) for name in restored),
        )
    except ValueError as error:
        name = undelete_key(topic_id)
        raise BridgeError("corrupt_object", f"{name}, the record of an undelete, does not parse: {error}") from error


def _index_of(name: object, topic_id: bytes) -> str:
    key = parse_index_key(stored_json.text(name))
    if key is None or key.topic_id != topic_id:
        raise ValueError(f"it names {ascii(name)[:200]}, which is no index of topic id {topic_id.hex()}")
    return str(key)


@dataclass(frozen=True, slots=True)
class UndeleteRecord:
    """The record of one topic id. All calls block."""

    store: ObjectStore
    topic_id: bytes

    @property
    def key(self) -> str:
        """Of the object."""
        return undelete_key(self.topic_id)

    def read(self) -> Undeleted:
        """What is recorded; empty without an object.

        Raises:
            BridgeError: `corrupt_object`, `store_unavailable`.
        """
        try:
            return decode(self.store.read(self.key).data, self.topic_id)
        except ObjectNotFoundError:
            return Undeleted({})

    def widen(self, lowest: Mapping[int, int], restored: frozenset[str]) -> Undeleted:
        """Adds what is about to be restored; returns it with what was recorded before."""

        def both(old: Undeleted) -> Undeleted:
            merged = {
                partition: min(part[partition] for part in (old.lowest, lowest) if partition in part)
                for partition in old.lowest.keys() | lowest.keys()
            }
            return Undeleted(merged, old.restored | restored)

        return self._update(both)

    def finish(self) -> None:
        """The rows are in the table."""
        self._update(lambda old: replace(old, lowest={}))

    def forget(self, keys: frozenset[str]) -> None:
        """These are gone."""
        self._update(lambda old: replace(old, restored=old.restored - keys))

    def _update(self, change: Callable[[Undeleted], Undeleted]) -> Undeleted:
        for _ in range(TOMBSTONE_SWAPS_MAX):
            try:
                current = self.store.read(self.key)
            except ObjectNotFoundError:
                made = change(Undeleted({}))
                if made == Undeleted({}) or self.store.put_if_absent(self.key, made.encode()):
                    return made
                continue
            old = decode(current.data, self.topic_id)
            made = change(old)
            if made == old or self.store.replace(self.key, made.encode(), current.version):
                return made
        raise StoreError(f"{self.key} changed again and again: is another undelete running?")


def delete_passed(store: ObjectStore, topic_id: bytes, states: Mapping[int, PartState]) -> int:
    """Deletes restored segments that retention has passed; returns how many.

    Args:
        store: where they are.
        topic_id: 16 bytes.
        states: recorded with the table's head; a later delete of Kafka has raised the floor of a partition.

    Raises:
        BridgeError, SegmentError: an index is damaged, or the store is away.
    """
    record = UndeleteRecord(store, topic_id).read()
    if record.lowest:
        return 0  # an undelete is under way: the floor is about to sink
    passed = set()
    for key in record.restored:
        parsed = parse_index_key(key)
        if parsed is not None and parsed.last < states.get(parsed.partition, PartState()).floor:
            passed.add(key)
    return _delete(store, topic_id, frozenset(passed))


def take_back(store: ObjectStore, topic_id: bytes) -> int:
    """Deletes every restored segment again, as Kafka's retention would; returns how many.

    Raises:
        BridgeError, SegmentError: an index is damaged, or the store is away.
    """
    return _delete(store, topic_id, UndeleteRecord(store, topic_id).read().restored)


def _delete(store: ObjectStore, topic_id: bytes, keys: frozenset[str]) -> int:
    buried = {key: _bury(store, key) for key in sorted(keys)}
    if gone := frozenset(key for key, found in buried.items() if found is None):
        UndeleteRecord(store, topic_id).forget(gone)
    return sum(found is True for found in buried.values())


def _bury(store: ObjectStore, index: str) -> bool | None:
    """Puts a tombstone over an index; False when there is one, None when there is nothing."""
    key = parse_index_key(index)
    if key is None:
        return None
    try:
        if is_tombstone(store.head_bytes(index, len(MAGIC))):  # most often: until it is reclaimed, at each pass
            return False
        current = store.read(index)
        if is_tombstone(current.data):
            return False
        owner = read_known(store, key, ListedObject(index, len(current.data), 0)).owner
    except ObjectNotFoundError:
        confirm_gone(store, [index])
        return None
    failpoints.hit("undelete-undo", index)
    stone = Tombstone("deleted", int(time.time() * 1000), owner.topic, owner.cluster, current.data)
    if not store.replace(index, stone.encode(), current.version):
        raise StoreError(f"{index} changed while it was deleted")
    return True
