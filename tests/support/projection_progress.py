"""Progress of projections, as a job leaves it in the store."""

from __future__ import annotations

from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.progress import ProjectionProgress, write_progress


def put_progress(store: ObjectStore, progress: ProjectionProgress) -> None:
    """Over what was there."""
    write_progress(store, progress, lambda _: progress)
