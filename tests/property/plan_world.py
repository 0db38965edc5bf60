"""A table, its object store, publishers that crash, and the maintenance beside them: what applies plans, as a model.

A head is never changed, only followed by another (`World.swap`, the compare-and-swap). Files are named by the object
that holds their rows: `s7.data` and `s7.tail` came with segment s7, `d3-9` was derived and `m3-9` merged on head 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from iceberg_catalog.plan import repair
from iceberg_catalog.plan.gaps import open_gaps
from iceberg_catalog.plan.hold import NO_HOLD, Hold, waiting
from iceberg_catalog.plan.inputs import spent
from iceberg_catalog.plan.judge import judged
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.plan import plan_ahead
from iceberg_catalog.plan.repair import Repair, plan_repair
from iceberg_catalog.plan.types import (
    Derive,
    FileRef,
    Follow,
    KeepUntil,
    LiveFile,
    PartState,
    Plan,
    Policy,
    Segment,
    SegmentState,
    UseMain,
    remembered,
)
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, still_to_raise, verdict
from tests.property.plan_kafka import Kafka, Remote
from tests.property.plan_projection import LEFT, Projection
from tests.worlds.plan_support import Model, Rows

SNAPSHOTS_KEPT = 3
#: What plans from the frontier on said, beside those of whole listings.
AHEAD: Counter[str] = Counter()


def repair_of(
    segments: Sequence[Segment], files: Sequence[LiveFile], state: PartState, policy: Policy, ids: Sequence[str]
) -> Repair:
    """What to add, and that it is the same for who reads every batch up to the end of the log."""

    def to_the_end(*given: Any, open_ends: object) -> Any:
        return judged(*given)

    found = plan_repair(segments, files, state, policy, ids)
    with patch.object(repair, "judged", to_the_end):
        assert found == plan_repair(segments, files, state, policy, ids), "the log above says otherwise"
    return found


@dataclass
class Table(Model):
    """One snapshot.

    gaps, lost: what the plan that made it said. broken: a file it was made from is gone. taken: the segments its state
    has taken in. planned: it was made by a plan.
    """

    version: int = 0
    parent: int = -1
    pointers: dict[str, str] = field(default_factory=dict)
    gaps: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    broken: bool = False
    taken: Mapping[str, Segment] = field(default_factory=dict)
    planned: bool = False

    def path(self, item: UseMain | Derive | None) -> str:
        if isinstance(item, UseMain):
            name = part(item.segment_id, item.tail)
            return self.pointers.get(name, f"reclaimed {name}")  # by a late plan only: `World.swap` refuses it
        self.serial += 1
        return f"d{self.parent}-{self.serial}"

    def following(self, number: int, pointers: dict[str, str]) -> Table:
        made = Table(self.policy, self.state, dict(self.files), self.serial + 100, [], self.hold, number, self.version)
        made.pointers, made.taken = pointers, self.taken
        return made

    def plan_ahead(self, segments: list[Segment]) -> Plan | None:
        return plan_ahead(segments, self.state, self.policy, self.hold)


def part(name: str, tail: bool) -> str:
    """What points to a segment's data file, or to its tail."""
    return f"{name}.tail" if tail else f"{name}.data"


def sources_of(item: UseMain | Derive, by_id: Mapping[str, Segment]) -> set[str]:
    """The parts of segments that a new file's rows come from."""
    if isinstance(item, UseMain):
        return {part(item.segment_id, item.tail)}
    found: set[str] = set()
    for name, first, last in item.ranges:
        tail = by_id[name].tail
        border = last + 1 if tail is None else tail.first
        found |= {part(name, tail) for tail, wanted in ((False, first < border), (True, last >= border)) if wanted}
    return found


def agreed(first: list[Segment], second: list[Segment]) -> list[Segment]:
    """What the second look shows, without what lies above all that the first did (tables/publish/planning.py)."""
    highest = max((item.last for item in first), default=-1)
    return [item for item in second if item.last <= highest]


def without_rows(segment: Segment) -> Segment:
    """The segment, stored verbatim."""
    batches = segment.load()
    bare = replace(batches, rows=np.zeros_like(batches.rows))
    return replace(segment, main=None, tail=None, load=lambda: bare)


@dataclass
class World:
    """One partition's table beside the Kafka that fills it.

    first_gone: head at which a tombstone was first seen. jumped: offsets in gaps; taken: of rows an engine took over;
    the table owes neither. withheld: of verbatim segments, owed after a requeue. converted: a verbatim segment with its
    rows;
    requeued: those whose index names their rows now. projection: of the table, that rows wait for.
    """

    kafka: Kafka
    policy: Policy
    head: Table = field(init=False)
    retained: list[Table] = field(default_factory=list)
    objects: set[str] = field(default_factory=set)
    pointers: dict[str, str] = field(default_factory=dict)
    pending: Table | None = None
    first_gone: dict[str, int] = field(default_factory=dict)
    jumped: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    withheld: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    converted: dict[str, Segment] = field(default_factory=dict)
    requeued: set[str] = field(default_factory=set)
    versions: int = 0
    rewinds: int = 0
    narrow: bool = False
    projection: Projection | None = None

    def __post_init__(self) -> None:
        self.head = Table(self.policy)

    # Kafka's side

    def store(self, made: Segment, *, finished: bool, verbatim: bool = False) -> None:
        """A copy's data file and index are durable."""
        if verbatim:
            self.converted[made.id] = made
            self.withheld |= set(range(made.base, made.last + 1))
            made = without_rows(made)
        else:
            self.write(made)
        self.kafka.remote[made.id] = Remote(made, finished)

    def write(self, segment: Segment, *, named: bool = True) -> None:
        """The segment's data files; an index names them, or the copy crashed before."""
        for tail, file in ((False, segment.main), (True, segment.tail)):
            if file is not None:
                self.objects.add(part(segment.id, tail))
                if named:
                    self.pointers[part(segment.id, tail)] = part(segment.id, tail)

    def verbatim(self) -> list[str]:
        """Live segments without rows that could have some."""
        return [
            name
            for name, item in self.kafka.remote.items()
            if item.segment.state == SegmentState.LIVE and name in self.converted
        ]

    def requeue(self, name: str, *, crash: bool = False) -> None:
        """A verbatim segment becomes rows; the index is swapped once the data file is durable, after a crash never."""
        if crash:
            self.write(self.converted[name], named=False)
            return
        segment = self.converted.pop(name)
        self.requeued.add(name)
        self.write(segment)
        self.kafka.remote[name].segment = segment

    def repair(self, *, crash: bool = False) -> bool:
        """Rows that the head lacks come below the frontier; whether there were any. A crash comes before the swap."""
        listing = self.kafka.listing()
        gives = [item.id for item in listing if item.state is SegmentState.LIVE or self.kept(item)]

        def missing(table: Table) -> Repair:
            files = [file for file, _ in table.files.values()]
            return repair_of(listing, files, table.state, self.policy, gives)

        found = missing(self.head)
        if not found.add:
            return False
        made = self.touched()
        made.serial = self.versions * 1000
        made.apply(Plan(add=tuple(found.add), state=replace(made.state, lineage=found.lineage)), listing)
        late = min(made.rows.keys() - self.head.rows.keys())
        made.state = replace(made.state, repairs=remembered(made.state.repairs, late))
        assert not missing(made).add, "not idempotent"
        self.objects |= {path for path in made.files if path.startswith("d")}
        assert crash or self.swap(made)
        return True

    def kept(self, segment: Segment) -> bool:
        """Whether it is deleted and its rows stay, and a requeue gave it some."""
        keeps = not isinstance(self.policy, Follow)
        return keeps and segment.state is SegmentState.DELETED and segment.id in self.requeued

    def lacks(self, segment: Segment) -> bool:
        """Whether a repair by it would add anything."""
        files = [file for file, _ in self.head.files.values()]
        found = repair_of(self.kafka.listing(), files, self.head.state, self.policy, [segment.id])
        return bool(found.add or found.waiting or found.rewinds)

    def touched(self) -> Table:
        """A head with the same files, as an engine's insert or another publisher makes one."""
        self.versions += 1
        return self.head.following(self.versions, dict(self.pointers))

    # Publishers

    def planned(self, head: Table, listing: list[Segment]) -> tuple[Plan, list[Segment]]:
        """The plan, and what it was made from: `listing`, or where that is not enough a second, later look.

        As tables/publish/planning.py does it: a hole is believed only in a listing that was begun after the first had
        ended, whether that one was whole or began at the frontier. One listing alone, slow, may miss on its first page
        a segment that was stored before another on its second.
        """
        head.policy, head.hold = self.policy, self.hold(None if self.narrow else listing)
        if self.narrow:
            listing = [item for item in listing if item.last >= head.state.frontier]
            made = head.plan_ahead(listing)
            if made is not None:
                return made, listing
        else:
            self.check_ahead(head, listing)
            result = head.plan(listing, relisted=False)
            if not result.need_relist:
                return result, listing
        known = self.kafka.listing()
        listing, head.hold = agreed(listing, known), self.hold(known)
        result = head.plan(listing, relisted=True)
        assert not result.need_relist
        return result, listing

    def hold(self, listing: list[Segment] | None) -> Hold:
        """What the plan is told of the projection. None: a run from the frontier on, with no deletions below it."""
        return NO_HOLD if self.projection is None else self.projection.hold(listing, self.kafka.deleted, self.kafka.now)

    def check_ahead(self, head: Table, listing: list[Segment]) -> None:
        """From the frontier on the plan is the same, be the deletes below it known of or not."""
        reaching = [item for item in listing if item.last >= head.state.frontier]
        below = [item for item in listing if item.last < head.state.frontier]
        news = [item for item in below if head.taken.get(item.id) is not item]
        before = [head.taken[item.id] for item in below if item.id in head.taken]
        hold, head.hold = head.hold, self.hold(None)
        for given, whole in ((reaching + news, listing), (reaching, before + reaching)):
            made = head.plan_ahead(given)
            AHEAD["silent" if made is None else "the same"] += 1
            if made is not None:
                expected = head.plan(whole, relisted=False)
                if (
                    isinstance(self.policy, KeepUntil) or self.projection
                ):  # what leaves by its age or when it is read may wait
                    made, expected = replace(made, remove=()), replace(expected, remove=())
                assert made == expected
        head.hold = hold

    def prepare(self, head: Table, listing: list[Segment]) -> Table | None:
        """Plan, and write what the plan derives. None: nothing to commit."""
        result, listing = self.planned(head, listing)
        if not result.changes(head.state):
            return None
        self.versions += 1
        made = head.following(self.versions, dict(self.pointers))
        made.serial = self.versions * 1000
        made.apply(result, listing)
        made.taken = {**head.taken, **{item.id: item for item in listing}}
        again = (made.plan_ahead(listing) if self.narrow else None) or made.plan(listing, relisted=True)
        if result.trim:
            # What was cut may have no row left above the floor, which only the cut file shows: it goes next.
            again = replace(again, remove=tuple(path for path in again.remove if not path.startswith("d")))
        # A projection may have read more than a head knows that is no longer the present one: its commit is refused.
        if self.projection is None or head is self.head:
            assert not again.changes(made.state), f"not idempotent: {again} after {result}"
        made.gaps, made.lost, made.planned = result.gaps, result.lost, True
        by_id = {segment.id: segment for segment in listing}
        used = {name for item in result.add for name in sources_of(item, by_id)}
        made.broken = any(self.pointers.get(name) not in self.objects for name in used)
        if head.state.frontier < 0:
            first = min([made.state.frontier, *(item.base for item in listing if self.gives_rows(item))])
            made.gaps += ((0, first - 1),)
        self.objects |= {path for path in made.files if path.startswith("d")}
        self.rewinds += result.rewind is not None
        return made

    def gives_rows(self, segment: Segment) -> bool:
        return segment.state == SegmentState.LIVE or (
            segment.state == SegmentState.DELETED
            and (self.projection is not None or not isinstance(self.policy, Follow))
        )

    def swap(self, made: Table) -> bool:
        """Whether it lands: only while the head is the one it was made from."""
        if made.parent != self.head.version:
            return False
        assert not made.broken, "a plan that names reclaimed files must not land"
        if self.projection is not None and made.planned:
            self.check_projection(self.projection, made)
        self.head = made
        self.retained = [*self.retained, made][-SNAPSHOTS_KEPT:]
        for first, last in made.gaps:
            self.jumped |= set(range(first, last + 1))
        for first, last in made.lost:
            self.lost |= set(range(first, last + 1))
        return True

    # Maintenance

    def tombstoned(self) -> list[str]:
        return [name for name, item in self.kafka.remote.items() if item.segment.state != SegmentState.LIVE]

    def reclaim(self, *, crash: bool) -> int:
        """R12, then R13. A crash comes after the first data file and before its tombstone."""
        done = 0
        named = {path for table in self.retained for path in table.files}
        gone = [self.kafka.remote[name].segment for name in self.tombstoned()]
        raising = still_to_raise((item for item in gone if item.state is SegmentState.DELETED), self.head.state)
        for name in self.tombstoned():
            seen = self.first_gone.setdefault(name, self.head.version)
            segment = self.kafka.remote[name].segment
            judged = verdict(segment, self.head.state, self.waiting(), raising)
            if judged is TombstoneVerdict.NEEDED or (judged is TombstoneVerdict.FENCE and seen == self.head.version):
                continue
            parts = {part(name, False), part(name, True)}
            own = {self.pointers[key] for key in parts if key in self.pointers}
            others = {key for other, key in self.pointers.items() if other not in parts}
            if own & named or (self.kept(segment) and self.lacks(segment)):
                continue
            assert segment.state is not SegmentState.DELETED or spent(segment, self.head.state), "a plan may name it"
            done += 1
            self.objects -= own - others
            if crash:
                return done
            del self.kafka.remote[name]
            for key in parts:
                self.pointers.pop(key, None)
        return done + self.sweep(named)

    def waiting(self) -> int | None:
        """The first offset below the floor that the head has for the projection (storage/projections/hold.py)."""
        state = self.head.state
        start, end = waiting(self.hold(self.kafka.listing()), Lineage(state.lineage, state.known_end), state)
        held = [file for file, _ in self.head.files.values() if file.last < state.floor]
        return start if any(file.last >= start and file.first < end for file in held) else None

    def sweep(self, named: set[str]) -> int:
        """Objects of nobody; a derived or merged one only when the head it was made on has passed."""
        wanted = named | set(self.pointers.values())
        current = f"{self.head.version}"
        loose = {key for key in self.objects - wanted if "." in key or key[1:].partition("-")[0] != current}
        self.objects -= loose
        return len(loose)

    def mergeable(self) -> list[tuple[str, str]]:
        """Neighbours with nothing between them that may come yet."""
        files = sorted((file for file, _ in self.head.files.values()), key=lambda file: file.first)
        listing = self.kafka.listing()
        whole = {
            item.id
            for item in listing
            if all(self.pointers.get(part(item.id, file is item.tail)) in self.head.files for file in item.files)
        }
        gaps = open_gaps(listing, files, self.head.state, self.policy, bare=self.converted.keys(), whole=whole)
        return [
            (one.path, two.path)
            for one, two in pairwise(files)
            if not any(first > one.last and last < two.first for first, last in gaps)
        ]

    def merge(self, one: str, two: str, crash: str) -> None:
        """R14: the file, the pointers, the table; then reclaiming does the rest."""
        files = self.head.files
        rows: Rows = files[one][1] | files[two][1]
        runs = tuple(sorted(dict(reversed([*(files[one][0].runs or ()), *(files[two][0].runs or ())])).items()))
        self.versions += 1
        made = self.head.following(self.versions, dict(self.pointers))
        path = f"m{self.head.version}-{self.versions}"
        self.objects.add(path)
        if crash == "file written":
            return
        for name, key in self.pointers.items():
            live = self.kafka.remote[name.partition(".")[0]].segment.state == SegmentState.LIVE
            if live and key in (one, two):  # a tombstone is never written again (rsm_bridge/tables/maintain/merge.py)
                self.pointers[name] = path
                self.never_own(name, FileRef(first=min(rows), last=max(rows), rows=len(rows), shared=True))
        if crash == "pointers swapped":
            return
        del made.files[one], made.files[two]
        made.add(path, rows, runs)
        self.swap(made)

    def never_own(self, name: str, merged: FileRef) -> None:
        """A merged file holds rows of other segments too: it must never be added as this one's own."""
        item = self.kafka.remote[name.partition(".")[0]]
        if name == part(item.segment.id, False):
            item.segment = replace(item.segment, main=merged)
        elif item.segment.tail is not None:
            item.segment = replace(item.segment, tail=replace(item.segment.tail, shared=True))

    def as_pointed(self, segment: Segment) -> Segment:
        """A segment as listed before, its rows where they lie now.

        A merge may have moved them. The store keeps the old files for hours then; this model does not.
        """
        now = self.kafka.remote.get(segment.id)
        if now is None or segment.main is None:
            return segment
        return replace(segment, main=now.segment.main, tail=now.segment.tail)

    # What must hold

    def check_projection(self, projection: Projection, made: Table) -> None:
        """I4: a row that Kafka deleted stays until the projection has read it or its time is over."""
        before, after = self.head, made.state
        start = projection.start(before.state)
        back = after.rewinds[-1][1] if after.rewinds != before.state.rewinds else after.frontier
        for offset in before.rows.keys() - made.rows.keys():
            if offset < min(after.floor, back):
                read = offset < start
                assert read or projection.over(offset, self.kafka.deleted, self.kafka.now), (
                    f"offset {offset} was not read"
                )
                LEFT["read" if read else "let go"] += 1
        LEFT["waited"] += any(start <= offset < after.floor for offset in made.rows)

    def check_objects(self) -> None:
        """I3: nothing a live segment or a retained snapshot needs is gone."""
        needed = {path for table in self.retained for path in table.files}
        needed |= {
            key
            for name, key in self.pointers.items()
            if self.kafka.remote[name.partition(".")[0]].segment.state == SegmentState.LIVE
        }
        assert needed <= self.objects, f"missing: {sorted(needed - self.objects)}"

    def check_rows(self) -> None:
        """Every row was returned by read_committed once, in that epoch."""
        ever = self.kafka.ever
        for offset, epoch in self.head.rows.items():
            assert epoch in ever.get(offset, ()), f"offset {offset} epoch {epoch} was never committed"
