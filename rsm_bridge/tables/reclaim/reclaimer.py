"""Deletes from the store what nobody can need any more (publish rules R12 and R13), after each publisher run.

A deleted segment goes through these gates, in this order; docs/operations.md tells the operator's side:

1. The table: the head does not name its data file, and its state has taken the delete in (rules.py). What only
   a request planned on this head could still name waits for one more commit, an empty one if the table is idle.
2. Time: `reclaim_grace` after the delete *and* after its rows left the head. A mass delete waits for
   `mass_delete_grace` (mass_delete.py), what an undelete has begun to bring back until one ends or it is taken back
   (storage/segments/undelete_record.py). While the store knows another table of the topic id
   (storage/table_records.py), which this head says nothing of, what leads to objects waits altogether.
3. Snapshots: those that still name its file expire in a commit of our own, each `reclaim_grace` after it was replaced.
   What a tag or branch names, and the head, never expires; the objects wait for it. Where the table keeps deleted
   rows, a segment also waits for the snapshots that would need it if the table were rolled back to them (rollbacks.py).
   None of those expires for it: that would take away what it is kept for. They go by number and by age. One that got
   its rows by a requeue waits as long as the table lacks any of them: another requeue adds them (plan/repair.py).
4. The tombstone is marked, so that it cannot be turned back; objects go; the tombstone goes last: after a crash in
   between the next run finds it and finishes.

Derived files that left the head go through 2 and 3 too. Leftovers that no tombstone and no kept snapshot leads to are
the sweep's (tables/maintain/sweep.py).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog

from iceberg_catalog import failpoints
from iceberg_catalog.commit.expire import expire, fence
from iceberg_catalog.commit.head import Head, by_partition, normal_path
from iceberg_catalog.commit.retained import Retained, RetainedFiles
from iceberg_catalog.plan.repair import plan_repair, sources_of
from iceberg_catalog.plan.types import Follow, PartState, Policy, Segment, SegmentState
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import (
    COPY_RECHECK_SECONDS,
    COPY_SECONDS_MAX,
    LATE_COPY_SECONDS,
    LATE_PUT_SECONDS,
    OTHER_TABLE_RECHECK_SECONDS,
    ROLLBACK_RECHECK_SECONDS,
    SWAP_RETRY_SECONDS,
)
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import derived_head, stored_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.segments.undelete_record import UndeleteRecord
from rsm_bridge.storage.state_objects import StateObjects
from rsm_bridge.storage.table_records import other_tables
from rsm_bridge.storage.tombstone import is_tombstone, tombstone_at
from rsm_bridge.tables.publish.table_run import RunResult
from rsm_bridge.tables.reclaim.mass_delete import MassDelete, mass_deletes
from rsm_bridge.tables.reclaim.rollbacks import ListedStates, States
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, needed_after_rollback, still_to_raise, verdict


@dataclass(frozen=True, slots=True)
class Graces:
    """`reclaim` and `mass` are seconds. Without the first there is no second: nothing shall be waited for."""

    reclaim: float
    mass: float

    def of_mass(self) -> float | None:
        """The grace of a mass delete; None when none is held back."""
        return max(self.mass, self.reclaim) if self.reclaim and self.mass else None


@dataclass(slots=True, kw_only=True)
class _Pass:
    """What one pass found due.

    raising: by partition, what deletions are still to raise the floor to. waits: seconds until more is.
    tombstones, derived: what may go, once the snapshots of `expiring` have expired.
    fenced: those of `tombstones` that a request planned on the head may still name.
    begun: keys that an undelete has begun to bring back; None: not asked for yet. listed: by partition, the states of
    the table's snapshots; None: likewise. lacking: by partition, from which offset on nothing may go; None: likewise.
    """

    now_ms: int
    raising: Mapping[int, Mapping[int, int]]
    waits: list[float] = field(default_factory=list)
    tombstones: list[KnownSegment] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    expiring: set[int] = field(default_factory=set)
    fenced: list[KnownSegment] = field(default_factory=list)
    begun: Mapping[str, int] | None = None
    listed: Sequence[States] | None = None
    lacking: Mapping[int, int] | None = None

    def is_due(self, due_ms: int) -> bool:
        """Whether the time has come; notes the wait if not."""
        if due_ms > self.now_ms:
            self.waits.append((due_ms - self.now_ms) / 1000)
        return due_ms <= self.now_ms

    def hold(self) -> None:
        """Tombstones that lead to objects wait: another table may name those. To be called before derived files."""
        held = [known for known in self.tombstones if known.objects()]
        self.waits.extend(OTHER_TABLE_RECHECK_SECONDS for _ in held)
        self.tombstones = [known for known in self.tombstones if not known.objects()]
        self.fenced.clear()
        self.expiring.clear()


def _raising(result: RunResult, tombstoned: Sequence[KnownSegment]) -> dict[int, Mapping[int, int]]:
    deleted: dict[int, list[Segment]] = {}
    for known in tombstoned:
        if known.segment is not None and known.segment.state is SegmentState.DELETED:
            deleted.setdefault(known.key.partition, []).append(known.segment)
    return {at: still_to_raise(found, result.states.get(at, PartState())) for at, found in deleted.items()}


def _lacking_from(result: RunResult, head: Head, policy: Policy) -> dict[int, int]:
    """By partition, the base offset of the first segment that a requeue gave rows which the table lacks, where one is.

    What lies above it may hold the markers of its transactions.
    """
    files, found = by_partition(head.files), {}
    for number, segments in segments_by_partition(result.segments).items():
        bases = {known.listed.key: known.key.base for known in segments if known.requeued}
        if not bases:
            continue
        inputs = [known.segment for known in segments if known.segment is not None]
        state = result.states.get(number, PartState())
        repair = plan_repair(inputs, files[number], state, policy, bases.keys(), head.look)
        lacking = {name for piece in repair.add for name in sources_of(piece)}
        if repair.rewinds or repair.waiting:
            lacking |= repair.left
        if lacking:
            found[number] = min(bases[key] for key in lacking)
    return found


@dataclass(slots=True, kw_only=True)
class Reclaimer:
    """Reclaims one topic id. Remembers when files left the head; one thread at a time.

    copies: those of this process. policy: topic, and ms since the epoch → what becomes of rows that Kafka deleted.
    held: told what is held back as a mass delete. dry_run: count, change nothing.
    """

    store: ObjectStore
    catalog: Catalog
    graces: Graces
    copies: RunningCopies
    policy: Callable[[str, int], Policy]
    delayed: Callable[[Sequence[MassDelete]], None] = lambda _: None
    dry_run: bool = False
    clock_ms: Callable[[], int] = field(kw_only=True)
    _retained: RetainedFiles = field(default_factory=RetainedFiles)
    _left_ms: dict[str, int] = field(default_factory=dict)
    _first_seen: dict[str, int | None] = field(default_factory=dict)
    _listed: ListedStates = field(init=False)
    _started: bool = False

    def __post_init__(self) -> None:
        self._listed = ListedStates(self.store)

    def reclaim(self, result: RunResult, tally: Tally) -> float | None:
        """Deletes what is due and counts it; returns the seconds until more may be, None when nothing waits.

        Raises:
            BridgeError, SegmentError: and whatever else catalog and store raise; the next run finishes.
        """
        mass = self.graces.of_mass()
        holds = mass_deletes(result.segments, mass) if mass is not None else ()
        self.delayed(holds)
        due_ms = {key: item.due_ms for item in holds for key in item.keys}
        tombstoned = [known for known in result.segments if known.deletion is not None]
        at = None if result.head is None else result.head.snapshot_id
        self._first_seen = {known.listed.key: self._first_seen.get(known.listed.key, at) for known in tombstoned}
        retained = self._read_retained(result, tombstoned)
        gone = {path for path in retained.left() | self._left_ms.keys() if derived_head(path) is not None}
        left_ms, self._left_ms = self._left_ms, {}
        found = _Pass(now_ms=self.clock_ms() if tombstoned or gone else 0, raising=_raising(result, tombstoned))
        if result.head is None and any(known.live and known.data_files() for known in result.segments):
            # These rows have no table yet, or it is not found. It may keep deleted rows, and is to be made from them.
            tombstoned = [known for known in tombstoned if known.segment is None]
        for known in tombstoned:
            self._judge(known, result, retained, left_ms, due_ms.get(known.listed.key, 0), found)
        if self._others(found.tombstones, result.head):
            found.hold()
        for path in sorted(gone):
            self._judge_derived(path, at, retained, left_ms, found)
        tally.waiting += len(found.waits)
        self._act(found, result, tally)
        return min(found.waits, default=None)

    def _others(self, tombstones: Sequence[KnownSegment], head: Head | None) -> bool:
        """Whether another table of the topic id may still name what these lead to."""
        own = None if head is None else head.table.metadata.table_uuid
        stored = [known for known in tombstones if known.objects()]
        return bool(stored) and bool(other_tables(self.store, stored[0].key.topic_id, own))

    def _read_retained(self, result: RunResult, tombstoned: Sequence[KnownSegment]) -> Retained:
        """What kept snapshots name; read only when something may have to go."""
        wanted = not self._started or self._left_ms or result.files_removed
        if result.head is None or not (wanted or any(known.segment is not None for known in tombstoned)):
            return Retained()
        retained = self._retained.read(result.head)
        self._started = True
        return retained

    def _judge(
        self,
        known: KnownSegment,
        result: RunResult,
        retained: Retained,
        left_ms: Mapping[str, int],
        held_ms: int,
        found: _Pass,
    ) -> None:
        """Sorts one tombstone into what is due, what waits, and what is still needed."""
        if known.deletion is None:
            return
        due_ms = max(held_ms, known.deletion.time_ms + int(self._fence_seconds(known, result.head) * 1000))
        needed = TombstoneVerdict.FREE
        paths = [self.store.uri(stored.key) for stored in known.data_files()]
        if known.segment is not None and result.head is not None:
            if retained.head is not None and any(retained.head.names(normal_path(path)) for path in paths):
                return
            state = result.states.get(known.key.partition, PartState())
            waiting = result.waiting.get(known.key.partition)
            raising = found.raising.get(known.key.partition)
            needed = verdict(known.segment, state, None if waiting is None else waiting[0], raising)
            left = [self._left(path, retained, left_ms) for path in paths]
            if needed is TombstoneVerdict.NEEDED or None in left:
                return
            latest = max((time_ms for time_ms in left if time_ms is not None), default=0)
            due_ms = max(due_ms, latest + int(self.graces.reclaim * 1000))
        if not found.is_due(due_ms):
            return
        if self._comes_back(known, found):
            found.waits.append(OTHER_TABLE_RECHECK_SECONDS)
            return
        if known.key.segment_id in self.copies:
            found.waits.append(COPY_RECHECK_SECONDS)
            return
        if self._rollback_needs(known, result, found):
            found.waits.append(ROLLBACK_RECHECK_SECONDS)
            return
        head = None if result.head is None else result.head.snapshot_id
        if needed is TombstoneVerdict.FENCE and self._first_seen[known.listed.key] == head:
            found.fenced.append(known)
        found.tombstones.append(known)
        found.expiring |= {holder.snapshot_id for path in paths for holder in retained.holders(path)}

    def _comes_back(self, known: KnownSegment, found: _Pass) -> bool:
        """Whether an undelete that did not end was to bring it back. The record is read when the first thing is due."""
        if known.segment is None or known.deletion is None or known.deletion.reclaiming:
            return False
        if found.begun is None:
            found.begun = UndeleteRecord(self.store, known.key.topic_id).read().begun()
        return known.listed.key in found.begun

    def _rollback_needs(self, known: KnownSegment, result: RunResult, found: _Pass) -> bool:
        """Whether the table would need it after a rollback, or does. States are read when the first thing is due."""
        segment = known.segment
        if segment is None or segment.state is not SegmentState.DELETED or segment.leaving or result.head is None:
            return False  # a failed copy comes again; of what is leaving, objects may be gone
        policy = self.policy(known.owner.topic, found.now_ms)
        if isinstance(policy, Follow):
            return False
        number = known.key.partition
        if found.lacking is None:
            found.lacking = _lacking_from(result, result.head, policy)
        if number in found.lacking and segment.last >= found.lacking[number]:
            return True
        if found.listed is None:
            found.listed = self._states_listed(result.head, result.states)
        now = result.states.get(number, PartState())
        states = (listed.get(number, PartState()) for listed in found.listed)
        return any(needed_after_rollback(segment, state, now) for state in states)

    def _states_listed(self, head: Head, states: States) -> Sequence[States]:
        return self._listed.read(head, states)

    def _judge_derived(
        self, path: str, head: int | None, retained: Retained, left_ms: Mapping[str, int], found: _Pass
    ) -> None:
        """A derived file that is, or was, in an older snapshot and is not in the head."""
        left = self._left(path, retained, left_ms)
        key = stored_key(self.store, path)
        if left is None or key is None or derived_head(path) == (head or 0):
            return
        if found.is_due(left + int(self.graces.reclaim * 1000)):
            found.derived.append(key)
            found.expiring |= {holder.snapshot_id for holder in retained.holders(path)}

    def _left(self, path: str, retained: Retained, before: Mapping[str, int]) -> int | None:
        """When the file left the head, at the latest; None while a snapshot that may not expire names it.

        When the last snapshot that names it was replaced. Snapshots also go by their number, under load within minutes:
        then what an earlier pass saw counts, or the time of the oldest one, which does not name it any more.
        """
        name = normal_path(path)
        replaced = [holder.replaced_ms for holder in retained.holders(path)]
        known = [time_ms for time_ms in replaced if time_ms is not None]
        if len(known) < len(replaced):
            return None
        self._left_ms[name] = max(known) if known else before.get(name, retained.oldest_ms or 0)
        return self._left_ms[name]

    def _fence_seconds(self, known: KnownSegment, head: Head | None) -> float:
        """Seconds a tombstone lives at least.

        One that replaced no index must outlive every copy that could still finish: those of this process are known,
        one of another bridge ends with its deadline and the put it has begun. The same time is given to the first
        commit of a table that another bridge may be about to make.
        """
        grace = self.graces.reclaim
        late = COPY_SECONDS_MAX + LATE_PUT_SECONDS
        if known.segment is None:
            return max(grace, LATE_COPY_SECONDS if self.store.single_process else late)
        if head is None and known.data is not None and not self.store.single_process:
            return max(grace, late)
        return grace

    def _act(self, found: _Pass, result: RunResult, tally: Tally) -> None:
        """Fence, expiry, deletion, each only if the one before succeeded."""
        head = result.head
        if head is not None and found.fenced and not self.dry_run:
            passed = self._fence(head, result.states)
            if passed is None:
                found.waits.append(SWAP_RETRY_SECONDS)
                return
            head = passed
        if head is not None and found.expiring:
            if not self.dry_run and expire(self.catalog, head, found.expiring) is None:
                found.waits.append(SWAP_RETRY_SECONDS)
                return
            tally.objects["snapshot"] += len(found.expiring)
        self._remove_tombstones(found.tombstones, head, tally)
        self._remove_derived(found.derived, tally)

    def _fence(self, head: Head, states: Mapping[int, PartState]) -> Head | None:
        commit_id = uuid.uuid4().hex
        recorded = StateObjects(self.store).put(head.table, states, commit_id)
        return fence(self.catalog, head, recorded, commit_id=commit_id, as_of_ms=self.clock_ms())

    def _remove_tombstones(self, tombstones: Sequence[KnownSegment], head: Head | None, tally: Tally) -> None:
        objects: list[str] = []
        stones: list[str] = []
        marked = [
            known for known in tombstones if self.dry_run or known.segment is None or self._mark(known.listed.key)
        ]
        if self._others(marked, head):
            return  # recorded since it was looked for; what is recorded from here on plans with marked tombstones
        for known in marked:
            # A merged file has rows of other segments: it goes by the sweep, when nobody names it any more.
            objects.extend(stored.key for stored in known.own_objects())
            stones.append(known.listed.key)
            for stored in known.own_objects():
                tally.add("kept" if stored is known.kept else "data", stored.size)
            tally.add("tombstone", known.listed.size)
        if not self.dry_run:
            if stones:
                failpoints.hit("reclaim-objects", stones[0])
            self.store.delete_many(objects)
            if stones:
                failpoints.hit("reclaim-tombstones", stones[0])
            self.store.delete_many(stones)

    def _mark(self, key: str) -> bool:
        """Marks a tombstone as being reclaimed; False when it is none any more, or changes this very moment."""
        try:
            current = self.store.read(key)
        except ObjectNotFoundError:
            return False  # another bridge was faster
        if not is_tombstone(current.data):
            return False
        stone = tombstone_at(key, current.data)
        failpoints.hit("reclaim-mark", key)
        return stone.reclaiming or self.store.replace(key, replace(stone, reclaiming=True).encode(), current.version)

    def _remove_derived(self, keys: Sequence[str], tally: Tally) -> None:
        found: list[str] = []
        for key in keys:
            with contextlib.suppress(ObjectNotFoundError):
                tally.add("derived", self.store.size(key))
                found.append(key)
        if not self.dry_run:
            if found:
                failpoints.hit("reclaim-derived", found[0])
            self.store.delete_many(found)
            gone = set(found)
            self._left_ms = {path: at for path, at in self._left_ms.items() if stored_key(self.store, path) not in gone}
