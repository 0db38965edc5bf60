"""Whose the topic ids of a store are, and all segments of one topic by its name, out of the store alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from converter.errors import SegmentError
from iceberg_catalog.tables.names import Owner
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, SettingsError, StoreError
from rsm_bridge.storage.keys import (
    DATA_ROOT,
    INDEX_ROOT,
    KEPT_ROOT,
    index_prefix,
    parse_index_key,
    topic_of_folder,
)
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.opening import open_made_store
from rsm_bridge.storage.segments.known import KnownSegment, read_known, read_segments


def topic_ids(store: ObjectStore) -> list[bytes]:
    """Every topic id the store has an object of, ascending."""
    return sorted({topic_id for root in (INDEX_ROOT, DATA_ROOT, KEPT_ROOT) for topic_id in _topics_below(store, root)})


def indexed_topic_ids(store: ObjectStore) -> list[bytes]:
    """Every topic id the store has an index or a tombstone of, ascending."""
    return sorted(_topics_below(store, INDEX_ROOT))


def _topics_below(store: ObjectStore, root: str) -> set[bytes]:
    found = map(topic_of_folder, store.list_folders(root))
    return {topic_id for topic_id in found if topic_id is not None}


def stored_owner(store: ObjectStore, topic_id: bytes) -> Owner | None:
    """Whose topic id it is, by its first index or tombstone that tells; None when none does.

    A topic id has one name and one cluster for good, so no more of it is read. Raises what the store raises.
    """
    return _first_owner(store, store.list_after(index_prefix(topic_id)))


def stored_clusters(store: ObjectStore, topic_id: bytes) -> frozenset[str]:
    """The cluster names of the oldest and of the newest object that tell: two where brokers got another name.

    Empty where none tells. Raises what the store raises.
    """
    listed = sorted(store.list_after(index_prefix(topic_id)), key=lambda item: item.modified_ms)
    ends = (_first_owner(store, listed), _first_owner(store, reversed(listed)))
    return frozenset(owner.cluster for owner in ends if owner is not None)


def clusters_of(segments: Iterable[KnownSegment]) -> frozenset[str]:
    """All cluster names of segments."""
    return frozenset(known.owner.cluster for known in segments)


def _first_owner(store: ObjectStore, objects: Iterable[ListedObject]) -> Owner | None:
    for listed in objects:
        key = parse_index_key(listed.key)
        if key is not None:
            try:
                return read_known(store, key, listed).owner
            except StoreError:
                raise
            except ObjectNotFoundError:
                confirm_gone(store, [listed.key])
            except (BridgeError, SegmentError):
                continue
    return None


def stored_owners(store: ObjectStore, wanted: str | None = None) -> list[Owner]:
    """Of every topic id that tells, ascending, or of the one with these hex digits. Raises what the store raises."""
    known = (item for item in topic_ids(store) if wanted in (None, item.hex()))
    owners = (stored_owner(store, topic_id) for topic_id in known)
    return [owner for owner in owners if owner is not None]


def owners_of(store: ObjectStore, topic: str, wanted: str | None) -> list[Owner]:
    """The topic ids of which segments are stored under this name, ascending; at least one.

    Args:
        store: where.
        topic: the name.
        wanted: 32 hex digits: this one alone; None: all.

    Raises:
        SettingsError: `wanted` is no topic id.
        BridgeError: `not_found`: there is none; and what the store raises.
    """
    if wanted is not None and re.fullmatch("[0-9a-f]{32}", wanted) is None:
        raise SettingsError(f"topic id {wanted!r}: 32 hex digits, as `tierberg status --json` shows them")
    found = [owner for owner in stored_owners(store, wanted) if owner.topic == topic]
    if not found:
        which = "" if wanted is None else f" with id {wanted}"
        raise BridgeError("not_found", f"the store has nothing of a topic {topic}{which}")
    return found


def chosen_topics(store: ObjectStore, topic: str | None) -> dict[bytes, str]:
    """The topic ids a command is to work on, ascending, with what to call each.

    No more is read than whose each of them is: damage of one topic is not another's matter.

    Args:
        store: where.
        topic: a name: topic ids of that name alone. None: all; one of which nothing tells is called by its hex digits.

    Raises:
        BridgeError: `not_found`: there is none of that name; and what the store raises.
    """
    if topic is not None:
        return {owner.topic_id: topic for owner in owners_of(store, topic, None)}
    owners = {topic_id: stored_owner(store, topic_id) for topic_id in indexed_topic_ids(store)}
    return {topic_id: topic_id.hex() if owner is None else owner.topic for topic_id, owner in owners.items()}


def several(topic: str, owners: Sequence[Owner]) -> str:
    """That a name alone does not say which topic is meant: it was created again, or another cluster has one."""
    ids = ", ".join(f"{owner.topic_id.hex()} (cluster {owner.cluster})" for owner in owners)
    return f"several topics have, or had, the name {topic}: choose one by --topic-id: {ids}"


def segments_of(config: Path | None, data_dir: Path | None, topic: str, topic_id: str | None) -> list[KnownSegment]:
    """Every index and tombstone of one topic id.

    Args:
        config: the bridge's settings; None for the defaults.
        data_dir: overrides the settings' own.
        topic: its name.
        topic_id: 32 hex digits, needed when the store has several of that name with live segments.

    Raises:
        BridgeError: `not_found`; `bad_request` when several have the name; damage; the store is away.
        SegmentError, SettingsError: an index, or the configuration, cannot be used.
    """
    store = open_made_store(load_settings(config, {"data_dir": data_dir}))
    found = {owner: read_segments(store, owner.topic_id) for owner in owners_of(store, topic, topic_id)}
    living = {owner: known for owner, known in found.items() if any(item.live for item in known)} or found
    if len(living) > 1:
        raise BridgeError("bad_request", several(topic, list(living)))
    return next(iter(living.values()))
