"""From a path as table metadata spells it to a key of the store."""

from __future__ import annotations

from iceberg_catalog.livefiles import normal_path
from rsm_bridge.store import ObjectStore


def stored_key(store: ObjectStore, path: str) -> str | None:
    """The key of a path, normalised or not; None when it lies outside of the store."""
    prefix = f"{normal_path(store.root_uri)}/"
    name = normal_path(path)
    return name[len(prefix) :] if name.startswith(prefix) else None
