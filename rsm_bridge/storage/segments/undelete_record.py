"""What undeletes of a topic id have brought back, in one small object of the store.

It serves two ends. An undelete that died between its steps is finished by the next one. And segments that came back are
live for ever, for Kafka has forgotten them and will never delete them: those the record names are deleted by us, when
retention has passed them or somebody takes the undelete back.

A head may lack an undelete: its commit never landed, or the table was rolled back to a snapshot of before. What the
undelete brought back then lies live below a floor that no later deletion has raised. That is not retention: nothing of
it is deleted, and the next undelete brings its rows back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from converter import stored_json
from iceberg_catalog import failpoints
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import TOMBSTONE_SWAPS_MAX
from rsm_bridge.storage.keys import UNDELETE_ROOT, IndexKey, parse_index_key
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_known
from rsm_bridge.storage.tombstone import MAGIC, Tombstone, is_tombstone


@dataclass(frozen=True, slots=True)
class Undeleted:
    """The record.

    lowest: by partition, the lowest offset of an undelete whose rows are not in the table yet; empty: none is open.
    restored: keys of indexes that were tombstones, and may be again, until they are gone.
    floors: by partition, the floor of the table before the latest undelete whose rows came into it.
    """

    lowest: Mapping[int, int]
    restored: frozenset[str] = frozenset()
    floors: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The object's bytes."""
        document: dict[str, object] = {"lowest": _named(self.lowest), "restored": sorted(self.restored)}
        if self.floors:
            document["floors"] = _named(self.floors)
        return json.dumps(document, sort_keys=True).encode()

    def begun(self) -> dict[str, int]:
        """Keys in partitions where an undelete has begun and not ended, each an index or still a tombstone."""
        return {str(key): key.partition for key in self.parsed() if key.partition in self.lowest}

    def below(self, states: Mapping[int, PartState]) -> frozenset[str]:
        """Keys of what lies below the floor of a head with these states."""
        return frozenset(str(key) for key in self.parsed() if key.last < _floor(states, key.partition))

    def not_in(self, states: Mapping[int, PartState]) -> frozenset[str]:
        """Those of `below` that no deletion since the undelete has passed: the head is without the undelete."""
        then: dict[int, int] = {}
        for key in self.parsed():
            then[key.partition] = max(key.last + 1, then.get(key.partition, 0))
        then.update(self.floors)
        return frozenset(
            str(key)
            for key in self.parsed()
            if key.last < (floor := _floor(states, key.partition))
            and (key.partition in self.lowest or floor <= then[key.partition])
        )

    def widened(self, lowest: Mapping[int, int], restored: frozenset[str] = frozenset()) -> Undeleted:
        """With what is about to be restored."""
        merged = {
            partition: min(part[partition] for part in (self.lowest, lowest) if partition in part)
            for partition in self.lowest.keys() | lowest.keys()
        }
        return replace(self, lowest=merged, restored=self.restored | restored)

    def without(self, keys: frozenset[str]) -> Undeleted:
        """It, when these are no longer restored."""
        left = replace(self, restored=self.restored - keys)
        partitions = {key.partition for key in left.parsed()}
        return replace(left, floors={number: at for number, at in self.floors.items() if number in partitions})

    def parsed(self) -> list[IndexKey]:
        """Keys of what is restored."""
        return [key for key in map(parse_index_key, self.restored) if key is not None]


def _floor(states: Mapping[int, PartState], partition: int) -> int:
    return states.get(partition, PartState()).floor


def _named(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _offsets(value: object) -> dict[int, int]:
    return {partition: stored_json.whole(offset, 0) for partition, offset in stored_json.numbered(value).items()}


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
        restored = stored_json.listed(stored_json.field(document, "restored"))
        return Undeleted(
            _offsets(stored_json.field(document, "lowest")),
            frozenset(_index_of(name, topic_id) for name in restored),
            _offsets(stored_json.fields(document).get("floors", {})),
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
        return self._update(lambda old: old.widened(lowest, restored))

    def finish(self, floors: Mapping[int, int], turned: frozenset[str] = frozenset()) -> None:
        """The rows are in the table, which had these floors before.

        turned: named again, should somebody have taken the undelete back before it turned them.
        """
        self._update(
            lambda old: replace(
                old,
                lowest={},
                restored=old.restored | turned,
                floors={**old.floors, **{at: max(floor, old.floors.get(at, 0)) for at, floor in floors.items()}},
            )
        )

    def close(self, partitions: frozenset[int]) -> None:
        """No undelete is open there any more. What it had not turned it did not restore."""

        def closed(old: Undeleted) -> Undeleted:
            # Looked at for each swap: an undelete that is under way turns keys, and says so at its end.
            begun = [key for key, number in old.begun().items() if number in partitions]
            left = {number: at for number, at in old.lowest.items() if number not in partitions}
            return replace(old, lowest=left).without(frozenset(key for key in begun if _is_buried(self.store, key)))

        self._update(closed)

    def end(self) -> None:
        """What an open undelete was to bring back is to stay deleted."""
        self._update(lambda old: replace(old, lowest={}).without(frozenset(old.begun())) if old.lowest else old)

    def forget(self, keys: frozenset[str]) -> None:
        """These are gone."""
        self._update(lambda old: old.without(keys))

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
    kept = UndeleteRecord(store, topic_id)
    record = kept.read()
    if ended := frozenset(number for number in record.lowest if _has_ended(store, record, number, states)):
        kept.close(ended)
        record = kept.read()
    return _delete(store, topic_id, record.below(states) - record.not_in(states))


def _has_ended(store: ObjectStore, record: Undeleted, partition: int, states: Mapping[int, PartState]) -> bool:
    """Whether an undelete died when its rows were in the table, or the table was made anew with them."""
    if _floor(states, partition) > record.lowest[partition]:
        return False
    return not any(_is_buried(store, key) for key, number in record.begun().items() if number == partition)


def take_back(store: ObjectStore, topic_id: bytes) -> int:
    """Deletes every restored segment again, as Kafka's retention would; returns how many.

    An undelete that was not finished is ended. What it had not turned is Kafka's own deletion, as before.

    Raises:
        BridgeError, SegmentError: an index is damaged, or the store is away.
    """
    kept = UndeleteRecord(store, topic_id)
    record = kept.read()
    if record.lowest:
        kept.close(frozenset(record.lowest))
        record = kept.read()
    return _delete(store, topic_id, record.restored)


def _delete(store: ObjectStore, topic_id: bytes, keys: frozenset[str]) -> int:
    buried = {key: _bury(store, key) for key in sorted(keys)}
    if gone := frozenset(key for key, found in buried.items() if found is None):
        UndeleteRecord(store, topic_id).forget(gone)
    return sum(found is True for found in buried.values())


def _is_buried(store: ObjectStore, index: str) -> bool:
    """Whether a tombstone is at the key of an index."""
    try:
        return is_tombstone(store.head_bytes(index, len(MAGIC)))
    except ObjectNotFoundError:
        confirm_gone(store, [index])
        return False


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
    stone = Tombstone(
        kind="deleted",
        time_ms=int(time.time() * 1000),
        topic=owner.topic,
        cluster_name=owner.cluster,
        index=current.data,
    )
    if not store.replace(index, stone.encode(), current.version):
        raise StoreError(f"{index} changed while it was deleted")
    return True
