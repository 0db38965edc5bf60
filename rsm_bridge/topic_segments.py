"""All segments of one topic by its name, out of the store alone."""

from __future__ import annotations

from pathlib import Path

from rsm_bridge.errors import BridgeError
from rsm_bridge.known_segments import KnownSegment, owner_of, read_segments
from rsm_bridge.layout import INDEX_ROOT
from rsm_bridge.open_store import open_store
from rsm_bridge.settings import load_settings


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
    store = open_store(load_settings(config, {"data_dir": data_dir}))
    names = [folder.removeprefix(INDEX_ROOT).strip("/") for folder in store.list_folders(INDEX_ROOT)]
    found: dict[str, list[KnownSegment]] = {}
    for name in names:
        if len(name) == 32 and topic_id in (None, name):
            segments = read_segments(store, bytes.fromhex(name))
            if segments and owner_of(segments)[0].topic == topic:
                found[name] = segments
    living = {name: known for name, known in found.items() if any(item.live for item in known)} or found
    if not living:
        raise BridgeError("not_found", f"the store has nothing of a topic {topic}")
    if len(living) > 1:
        several = ", ".join(sorted(living))
        raise BridgeError("bad_request", f"several topics had the name {topic}: choose one by --topic-id: {several}")
    return next(iter(living.values()))
