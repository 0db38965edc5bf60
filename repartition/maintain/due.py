"""Which maintenance a projection's table needs, from its metadata alone. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_catalog.commit.ancestors import ancestors
from repartition.limits import (
    COMPACTION_DELETE_FILES_MIN,
    COMPACTION_FILES_MIN,
    EXPIRY_EVERY_MS,
    MANIFESTS_MAX,
    ORPHAN_AGE_MS,
    ORPHANS_EVERY_MS,
    RETENTION_EVERY_MS,
    SNAPSHOT_AGE_MS,
    SNAPSHOTS_KEPT,
)
from repartition.run.target import run_branches

Chore = Literal["retention", "compaction", "manifests", "expiry", "orphans"]

#: When a chore was last done that leaves no trace of its own, milliseconds since the epoch.
LAST_ORPHANS: Final = "tierberg.copy.orphans-removed-ms"
LAST_RETENTION: Final = "tierberg.copy.retention-applied-ms"
LAST_COMPACTION: Final = "tierberg.copy.compacted-ms"
LAST_EXPIRY: Final = "tierberg.copy.snapshots-expired-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceFacts:
    """Of one table. Times in milliseconds since the epoch.

    Attributes:
        files_added: data files that commits have added since the last compaction.
        deletes_added: position delete files or deletion vectors, the same.
        manifests: of the head.
        snapshots: when each was made, ascending.
        orphans_ms: when orphans were last removed; 0: never.
        retention_ms: when old rows were last deleted; 0: never.
        expiry_ms: when snapshots were last expired; 0: never.
        left: branches that runs of long ago have left.
    """

    files_added: int
    deletes_added: int
    manifests: int
    snapshots: tuple[int, ...]
    orphans_ms: int = 0
    retention_ms: int = 0
    expiry_ms: int = 0
    left: int = 0


def facts_of(metadata: TableMetadata, manifests: Callable[[Snapshot], int], now_ms: int) -> MaintenanceFacts:
    """What the metadata says. `manifests`: counts those of a snapshot."""
    head = metadata.current_snapshot()
    if head is None:
        return MaintenanceFacts(files_added=0, deletes_added=0, manifests=0, snapshots=())
    said = metadata.properties
    files, deletes = _added(metadata, head, int(said.get(LAST_COMPACTION, "0")))
    return MaintenanceFacts(
        files_added=files,
        deletes_added=deletes,
        manifests=manifests(head),
        snapshots=tuple(sorted(snapshot.timestamp_ms for snapshot in metadata.snapshots)),
        orphans_ms=int(said.get(LAST_ORPHANS, "0")),
        retention_ms=int(said.get(LAST_RETENTION, "0")),
        expiry_ms=int(said.get(LAST_EXPIRY, "0")),
        left=len(run_branches(metadata, now_ms - ORPHAN_AGE_MS)),
    )


def _added(metadata: TableMetadata, head: Snapshot, since_ms: int) -> tuple[int, int]:
    """Data files and delete files that commits have added since then, or since somebody else's compaction."""
    files, deletes = 0, 0
    for current in ancestors(metadata, head.snapshot_id):
        if current.timestamp_ms <= since_ms:
            break
        totals = {} if current.summary is None else current.summary.additional_properties
        if current.summary is not None and current.summary.operation is Operation.REPLACE:
            if "deleted-data-files" in totals:
                break
        else:
            files += int(totals.get("added-data-files", "0"))
            deletes += int(totals.get("added-delete-files", "0"))
    return files, deletes


def due(facts: MaintenanceFacts, now_ms: int, *, retention: bool) -> tuple[Chore, ...]:
    """What is to be done, most useful first. `retention`: the rule has one."""
    if not facts.snapshots:
        return ()
    old = len(facts.snapshots) > SNAPSHOTS_KEPT and facts.snapshots[0] < now_ms - SNAPSHOT_AGE_MS
    chores: list[tuple[Chore, bool]] = [
        ("retention", retention and now_ms - facts.retention_ms >= RETENTION_EVERY_MS),
        (
            "compaction",
            facts.files_added >= COMPACTION_FILES_MIN or facts.deletes_added >= COMPACTION_DELETE_FILES_MIN,
        ),
        ("manifests", facts.manifests > MANIFESTS_MAX),
        ("expiry", (facts.left > 0 or old) and now_ms - facts.expiry_ms >= EXPIRY_EVERY_MS),
        ("orphans", now_ms - facts.orphans_ms >= ORPHANS_EVERY_MS),
    ]
    return tuple(chore for chore, wanted in chores if wanted)


@dataclass(slots=True)
class Budget:
    """How much of the running time maintenance may take. `share`: 0 to 1, exclusive."""

    share: float
    working_s: float = 0.0
    maintaining_s: float = 0.0

    def left(self) -> bool:
        """Whether one more chore may begin; how long it takes is only known afterwards."""
        return self.maintaining_s < self.share * (self.working_s + self.maintaining_s)

    def per_hour(self) -> float:
        """Seconds of maintenance in an hour of runs and maintenance, without the time between rounds."""
        whole = self.working_s + self.maintaining_s
        return 3600 * self.maintaining_s / whole if whole else 0.0
