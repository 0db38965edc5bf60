"""What an undelete cannot bring back: deleted segments whose objects are not in the store any more.

A segment without its data file would make every scan of its table fail, so none comes back. Its tombstone cannot stay
as it is either where others do: it is a deletion, and a deletion takes all that lies below it (publish rule R5). A
person who gives it up has it made a withdrawal, which says nothing of the floor (R4): the publisher takes its offsets
for a gap. Where only kept bytes are gone the rows are whole, and come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iceberg_catalog import failpoints
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, listed_sizes, read_known
from rsm_bridge.storage.tombstone import is_tombstone, tombstone_at
from rsm_bridge.words import plural

_KEYS_NAMED_MAX = 20
_PLACES_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Lost:
    """A deleted segment, and the keys of its objects that the store does not have in the size they were written."""

    known: KnownSegment
    keys: tuple[str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether its data files are all there."""
        return not any(stored.key in self.keys for stored in self.known.data_files())


def lost_of(store: ObjectStore, topic_id: bytes, deleted: Sequence[KnownSegment]) -> list[Lost]:
    """Those of deleted segments of a topic id that are not whole: two listings, and a request for what they lack.

    Raises:
        StoreError: the store does not answer.
    """
    if not deleted:
        return []
    listed = listed_sizes(store, topic_id)
    found = []
    for known in deleted:
        missing = tuple(key for key, size in _sizes(known).items() if listed.get(key) != size)
        if missing and (lost := tuple(key for key in missing if _is_lost(store, known, key))):
            found.append(Lost(known, lost))
    return found


def refusal(lost: Sequence[Lost]) -> BridgeError:
    """Why nothing was changed."""
    keys = list(dict.fromkeys(key for item in lost for key in item.keys))  # a merged file is of many segments
    hopeless = [item.known for item in lost if not item.has_rows]
    without = f"gives up for good those of {_where(hopeless)}" if hopeless else "loses none, for only kept bytes lack"
    return BridgeError(
        "corrupt_object",
        f"deleted segments lack {plural(len(keys), 'object')} that the store does not have as written: "
        f"{_some(keys, _KEYS_NAMED_MAX)}. Nothing was changed. Put back what can be restored, under the same "
        f"names, and run it again; or run it with --without-lost, which brings back all other rows and {without}",
    )


def given_up(lost: Sequence[Lost]) -> list[str]:
    """What to say of them when the others are back."""
    lines = [
        f"  not back: {_where([item.known])}, without {', '.join(item.keys)}" for item in lost if not item.has_rows
    ]
    return lines + [
        f"  {_where([item.known])}: the rows are back; Kafka is not served from them without {', '.join(item.keys)}"
        for item in lost
        if item.has_rows
    ]


def give_up(store: ObjectStore, known: KnownSegment) -> None:
    """Makes a deletion's tombstone a withdrawal.

    Raises:
        StoreError: it changed meanwhile, or the store is away.
        BridgeError: the tombstone is damaged.
    """
    key = known.listed.key
    current = store.read(key)
    stone = tombstone_at(key, current.data) if is_tombstone(current.data) else None
    failpoints.hit("undelete-turn", key)
    if stone is None or not store.replace(key, replace(stone, kind="withdrawn").encode(), current.version):
        raise StoreError(f"{key} changed while it was given up; run it again")


def _sizes(known: KnownSegment) -> dict[str, int]:
    return {item.key: item.size for item in known.stored()}


def _is_lost(store: ObjectStore, known: KnownSegment, key: str) -> bool:
    """Whether a deletion that still stands names it; what is being reclaimed goes at any moment."""
    try:
        now = read_known(store, known.key, store.stat(known.listed.key))
    except ObjectNotFoundError:
        return False
    if now.deletion is None or now.deletion.reclaiming or key not in now.objects():
        return False
    try:
        return store.size(key) != _sizes(now)[key]
    except ObjectNotFoundError:
        return True


def _where(segments: Sequence[KnownSegment]) -> str:
    places = [f"offsets {known.key.base} to {known.key.last} of partition {known.key.partition}" for known in segments]
    return _some(places, _PLACES_NAMED_MAX)


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
