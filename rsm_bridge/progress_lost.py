"""Which objects that live segments need are not in the store: two listings, and a closer look at what they lack."""

from __future__ import annotations

from collections.abc import Iterable

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.known_segments import KnownSegment, read_known
from rsm_bridge.layout import DATA_ROOT, KEPT_ROOT
from rsm_bridge.limits import STATUS_LOST_OBJECTS_MAX
from rsm_bridge.store import ObjectStore


def lost_objects(store: ObjectStore, topic_id: bytes, segments: Iterable[KnownSegment]) -> tuple[str, ...]:
    """Keys of data files and kept bytes that live indexes name and the store does not have.

    Deletes and merges go on meanwhile: of each of the first STATUS_LOST_OBJECTS_MAX the index is read again, and the
    object asked for.

    Raises:
        StoreError: the store does not answer.
    """
    needed = {key: known for known in segments if known.live for key in known.objects()}
    if not needed:
        return ()
    roots = (f"{root}{topic_id.hex()}/" for root in (DATA_ROOT, KEPT_ROOT))
    missing = sorted(needed.keys() - {item.key for root in roots for item in store.list_after(root)})
    looked = missing[:STATUS_LOST_OBJECTS_MAX]
    lost = [key for key in looked if _is_lost(store, key, needed[key])]
    return tuple(lost if len(lost) < len(looked) else missing)


def _is_lost(store: ObjectStore, key: str, known: KnownSegment) -> bool:
    try:
        now = read_known(store, known.key, store.stat(known.listed.key))
        if not now.live or key not in now.objects():
            return False
        store.size(key)
    except StoreError:
        raise
    except ObjectNotFoundError as error:
        return error.key == key
    except (BridgeError, SegmentError):
        return False  # a damaged index is reported as such
    return False
