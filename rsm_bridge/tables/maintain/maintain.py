"""One maintenance pass over one topic id and its table: snapshots expire, leftovers go, what is small is put together.

The order matters: objects are listed, then the table is loaded, then indexes are listed; see sweep.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog

from iceberg_catalog import failpoints
from iceberg_catalog.commit.expire import expire, fence, foldable
from iceberg_catalog.commit.foreign_files import foreign_files, rows_deleted
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.metadata_files import delete_metadata
from iceberg_catalog.commit.retained import RetainedFiles, fixed_snapshots
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import check_layout, owned_tables
from rsm_bridge.config.settings import MergeSettings, Settings
from rsm_bridge.limits import MIB, SNAPSHOT_AGE_SECONDS_MAX
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.segments.topic_segments import stored_owner
from rsm_bridge.storage.segments.undelete_record import delete_passed
from rsm_bridge.storage.state_objects import StateObjects, recorded_parts
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.maintain.merge import Merger
from rsm_bridge.tables.maintain.missing_files import MissingRun
from rsm_bridge.tables.maintain.sweep import Leftovers, Sweeper
from rsm_bridge.tables.publish.table_run import RunResult, waiting_files


@dataclass(slots=True, kw_only=True)
class TableMaintenance:
    """Passes over one topic id. Remembers what it read of immutable objects; one thread at a time.

    context: the rules of all tables. grace: `reclaim_grace`, seconds. merger: None: small files stay as they are.
    owner: whose table, None while nobody knows: the pass finds it out. missing: None: files that the store has no more
    stay in the table.
    """

    store: ObjectStore
    catalog: Catalog
    topic_id: bytes
    context: TableContext
    grace: float
    merger: Merger | None = None
    owner: Owner | None = None
    missing: MissingRun | None = None
    _live: LiveFiles = field(default_factory=LiveFiles)
    _retained: RetainedFiles = field(default_factory=RetainedFiles)
    _sweeper: Sweeper = field(init=False)

    def __post_init__(self) -> None:
        self._sweeper = Sweeper(store=self.store, topic_id=self.topic_id, grace=self.grace)

    def run(self, tally: Tally, *, dry_run: bool = False) -> None:
        """One pass; what it did, or with `dry_run` would do, is in `tally`.

        Raises:
            CatalogError: `schema_mismatch` when somebody altered the table: snapshots have expired and leftovers are
                gone, nothing is merged.
            BridgeError, SegmentError, CatalogError: and what else catalog and storage raise. Nothing needs undoing.
        """
        stored = self._sweeper.stored()
        head = self._mended(stored, tally, dry_run=dry_run)
        if head is not None:
            self._expire(head, self._old(head), tally, dry_run=dry_run)
            if not dry_run:
                delete_passed(self.store, self.topic_id, recorded_parts(self.store, head))
        left = self._sweeper.look(stored, head, self.context.clock_ms())
        left.count(tally)
        if not dry_run:
            self._remove(left, head)
        if left.snapshots and (head := self.head()) is not None:
            self._expire(head, left.snapshots, tally, dry_run=dry_run)
        if head is not None:
            # What is left over goes in any case. Files and manifests are written for a table as it was made alone.
            check_layout(head.table)
        if self.merger is not None:
            self._merge(self.merger, stored, tally, dry_run=dry_run)
        self._fold(tally, dry_run=dry_run)

    def _mended(self, stored: Sequence[ListedObject], tally: Tally, *, dry_run: bool) -> Head | None:
        """The head, without the files that the store has no more."""
        head = self.head()
        if head is None or self.missing is None or self.owner is None:
            return head
        done = self.missing.mend({item.key for item in stored}, self.owner, self.head, dry_run=dry_run)
        tally.missing += done.removed
        tally.missing_stay += len(done.stay)
        tally.lost += done.lost
        return self.head() if done.removed and not dry_run else head

    def _remove(self, left: Leftovers, head: Head | None) -> None:
        if left.objects:
            failpoints.hit("sweep-objects", self.topic_id.hex())
        self.store.delete_many([listed.key for _, listed in left.objects])
        if head is not None and left.metadata:
            failpoints.hit("sweep-metadata", self.topic_id.hex())
            delete_metadata(head.table, list(left.metadata))

    def _merge(self, merger: Merger, stored: Sequence[ListedObject], tally: Tally, *, dry_run: bool) -> None:
        """Merges last, on a head of its own: expiry may have written another, and segments are read only if need be."""
        head = self.head()
        if head is None or len(head.files) < merger.limits.files_min:
            return
        states = recorded_parts(self.store, head)
        segments = read_segments(self.store, self.topic_id)
        wanted = merger.planned(head, stored, segments, states, self.context.clock_ms())
        theirs = foreign_files(head) if wanted else ()
        planned = [item for item in wanted if not rows_deleted(theirs, item[0])]
        tally.unmerged += sum(len(merge.files) for _, merge in wanted) - sum(len(merge.files) for _, merge in planned)
        if not dry_run:
            merger.run(self._live, head, planned, segments, tally)
            return
        tally.merged += sum(len(merge.files) for _, merge in planned)
        tally.merged_into += len(planned)

    def head(self) -> Head | None:
        """The table's head; None while there is no table."""
        self.owner = self.owner or find_owner(self.store, self.catalog, self.topic_id, self.context.namespace)
        if self.owner is None:
            return None
        table = self.context.table(self.catalog, self.owner)
        return None if table is None else self._live.read(table)

    def expire_unreadable(self, snapshot_id: int, tally: Tally) -> bool:
        """Expires an older snapshot that nobody can read; False while it is held, or where a commit came between."""
        head = self.head()
        if head is None or snapshot_id in fixed_snapshots(head.table):
            return False
        before = tally.objects["snapshot"]
        self._expire(head, [snapshot_id], tally, dry_run=False)
        return tally.objects["snapshot"] > before

    def _old(self, head: Head) -> list[int]:
        """Snapshots that were replaced long ago."""
        before_ms = self.context.clock_ms() - SNAPSHOT_AGE_SECONDS_MAX * 1000
        return [
            item.snapshot_id
            for item in self._retained.read(head).snapshots
            if item.replaced_ms is not None and item.replaced_ms < before_ms
        ]

    def _expire(self, head: Head, snapshots: Collection[int], tally: Tally, *, dry_run: bool) -> None:
        """What only they named goes in the next pass."""
        if snapshots and (dry_run or expire(self.catalog, head, list(snapshots)) is not None):
            tally.objects["snapshot"] += len(snapshots)

    def _fold(self, tally: Tally, *, dry_run: bool) -> None:
        """Commits fold as they go; a table that rests may be left with many manifests, which every reader opens."""
        head = self.head()
        small = 0 if head is None else foldable(head)
        if head is None or not small:
            return
        if not dry_run:
            commit_id = uuid.uuid4().hex
            state = StateObjects(self.store).put(head.table, recorded_parts(self.store, head), commit_id)
            as_of_ms = self.context.clock_ms()
            if fence(self.catalog, head, state, commit_id=commit_id, as_of_ms=as_of_ms, fold=True) is None:
                return
        tally.objects["folded"] += small


def observe(store: ObjectStore, catalog: Catalog, topic_id: bytes, context: TableContext) -> RunResult:
    """What a publisher run by these rules would start from, without running it: head and state first, listing after.

    Raises:
        BridgeError, SegmentError, CatalogError: and what else catalog and storage raise.
    """
    owner = find_owner(store, catalog, topic_id, context.namespace)
    table = None if owner is None else context.table(catalog, owner)
    head = None if table is None else LiveFiles().read(table)
    states = {} if head is None else recorded_parts(store, head)
    found = RunResult(head=head, states=states, segments=read_segments(store, topic_id))
    declared = () if owner is None or table is None else context.projections(owner, table.name()[-1])
    return replace(found, waiting=waiting_files(found, declared, context.clock_ms() if declared else 0))


def find_owner(store: ObjectStore, catalog: Catalog, topic_id: bytes, namespace: str) -> Owner | None:
    """Whose topic id it is, by its first index or tombstone, or by the stamp of a table.

    Damaged ones do not tell. None when nothing does. Raises what store and catalog raise.
    """
    stored = stored_owner(store, topic_id)
    if stored is not None:
        return stored
    owned = owned_tables(catalog, namespace=namespace)
    return next((owner for _, owner in owned if owner.topic_id == topic_id), None)


def open_maintenance(
    settings: Settings,
    store: ObjectStore,
    catalog: Catalog,
    topic_id: bytes,
    context: TableContext,
    *,
    stopping: Callable[[], bool] = lambda: False,
) -> TableMaintenance:
    """Maintenance of one topic id. `context`: made from these settings. `stopping`: asked between merges."""
    merger = Merger(
        store=store,
        catalog=catalog,
        topic_id=topic_id,
        limits=merge_limits(settings.merge),
        policy=context.policy,
        stopping=stopping,
    )
    return TableMaintenance(
        store=store,
        catalog=catalog,
        topic_id=topic_id,
        context=context,
        grace=settings.reclaim_grace,
        merger=merger if settings.merge.small_mib else None,
        missing=MissingRun(store=store, catalog=catalog, topic_id=topic_id, context=context),
    )


def merge_limits(settings: MergeSettings) -> MergeLimits:
    """The section `merge` in the units of the plan."""
    return MergeLimits(
        small_bytes=settings.small_mib * MIB,
        target_bytes=settings.target_mib * MIB,
        files_min=settings.files_min,
        files_max=settings.files_max,
        age_ms=int(settings.age * 1000),
        span_ms=int(settings.span * 1000),
    )
