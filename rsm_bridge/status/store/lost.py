"""What should be there and is not: objects that live segments need.

Two listings of a topic, and a closer look at what they lack.
"""

from __future__ import annotations

from collections.abc import Iterable

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import STATUS_LOST_OBJECTS_MAX
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, listed_sizes, read_known


def lost_objects(store: ObjectStore, topic_id: bytes, segments: Iterable[KnownSegment]) -> tuple[str, ...]:
    """Data files and kept bytes that live indexes name and the store does not have, or not whole.

    Each is a key; with sizes where the object is there and has not the one that was written. Deletes and merges go on
    meanwhile: of each of the first STATUS_LOST_OBJECTS_MAX the index is read again, and the object asked for.

    Raises:
        StoreError: the store does not answer.
    """
    needed = {item.key: (item.size, known) for known in segments if known.live for item in known.stored()}
    if not needed:
        return ()
    there = listed_sizes(store, topic_id)
    missing = sorted(key for key, (size, _) in needed.items() if there.get(key) != size)
    looked = missing[:STATUS_LOST_OBJECTS_MAX]
    lost = [said for key in looked if (said := _lost(store, key, needed[key][1])) is not None]
    return tuple(lost if len(lost) < len(looked) else (*lost, *missing[len(looked) :]))


def _lost(store: ObjectStore, key: str, known: KnownSegment) -> str | None:
    """What is said of an object that the index still names and that is gone, or has another size; None: it is whole."""
    try:
        now = read_known(store, known.key, store.stat(known.listed.key))
        named = next((item for item in now.stored() if item.key == key), None) if now.live else None
        size = None if named is None else store.size(key)
    except StoreError:
        raise
    except ObjectNotFoundError as error:
        return key if error.key == key else None
    except (BridgeError, SegmentError):
        return None  # a damaged index is reported as such
    return None if named is None or size == named.size else f"{key}, {size:,} of {named.size:,} bytes"
