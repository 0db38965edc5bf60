"""One topic id's table and the bridges that publish and reclaim it: the product's own code on a store and a catalog
that are models.

Real: SegmentListing and Planning (listing, 404s, relisting, plan_ahead and plan), PlannedFiles and write_derived
(which file becomes what, and its key), Reclaimer with its clocks and graces. Model: encoding, Parquet, the catalog's
swap. A head is never changed, only followed by another (`Topic.swap`, the compare-and-swap).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock
from uuid import UUID

from converter.epochs import clipped, joined
from converter.types import LeaderEpoch
from iceberg_catalog.commit.head import Head, parse_file_name
from iceberg_catalog.commit.retained import KeptSnapshot, Retained
from iceberg_catalog.plan import lineage_record
from iceberg_catalog.plan.lineage import UNKNOWN
from iceberg_catalog.plan.types import LiveFile, PartState, Plan, Policy, Runs
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.segments import listing as segment_listing
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.listing import SegmentListing
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.tables.publish import planned_files, planning, rewritten
from rsm_bridge.tables.publish.planned_files import PlannedFiles
from rsm_bridge.tables.publish.planning import Planning, TablePlans
from rsm_bridge.tables.publish.rewritten import Cut
from rsm_bridge.tables.publish.table_run import RunResult
from rsm_bridge.tables.reclaim import reclaimer as reclaim
from rsm_bridge.tables.reclaim.reclaimer import Graces, Reclaimer
from tests.histories.kafka_model import Batch
from tests.histories.model_store import PAGE_KEYS, DataFile, ModelStore
from tests.histories.row_oracle import JUDGED

SNAPSHOTS_KEPT = 6
INDEX_READS = 6
#: How many epochs a state may have in most histories. The product's limit is 1,000.
EPOCHS_RECORDED = 24
#: What the product asks of a table that is none of the catalog: who it is.
MODEL_TABLE = SimpleNamespace(metadata=SimpleNamespace(table_uuid=UUID(int=1)))
RECLAIM_GRACE_SECONDS = 3600.0


@dataclass(slots=True, eq=False)
class TableHead:
    """One snapshot. `made_ms`: by the clock of the bridge that made it. broken: it names a file that was gone."""

    version: int = 0
    parent: int = -1
    made_ms: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    live: dict[str, LiveFile] = field(default_factory=dict)
    states: dict[int, PartState] = field(default_factory=dict)
    broken: bool = False
    horizon_ms: int | None = None

    def as_read(self) -> Head:
        """What the product reads of it."""
        return Head(
            table=cast(Any, MODEL_TABLE),
            snapshot_id=self.version or None,
            files=tuple(self.live.values()),
            look=self._look,
        )

    def _look(self, file: LiveFile) -> Runs:
        """The epochs that a file's footer tells (FileEpochs)."""
        told = clipped(self.files[file.path].runs, file.first, file.last)
        return tuple((run.epoch, run.start_offset) for run in told)

    def rows(self, partition: int) -> dict[int, Batch]:
        """The rows of a partition by offset."""
        files = (file for file in self.files.values() if file.partition == partition)
        return {offset: batch for file in files for offset, batch in file.rows.items()}


def live_file(file: DataFile) -> LiveFile:
    """A file of the head as LiveFiles reads it from a manifest."""
    assert parse_file_name(file.key.rpartition("/")[2]) is not None, f"not a data file's key: {file.key}"
    newest = max(batch.time_ms for batch in file.rows.values())
    return LiveFile(
        path=file.file_path,
        first=min(file.rows),
        last=max(file.rows),
        runs=None,
        partition=file.partition,
        max_timestamp_ms=newest,
    )


class ModelFiles(PlannedFiles):
    """The files of a plan; no schemas, no footers. A segment's own file comes from its index, be it there or not."""

    def __post_init__(self) -> None:
        """Nothing of the table's schema is read."""

    def _own(self, partition: int, piece: Any) -> Any:
        known = self.segments[piece.segment_id]
        stored = known.tail if piece.tail else known.data
        assert stored is not None, f"the plan wants rows of {piece.segment_id}, which has none"
        store = cast(ModelStore, self.store)
        return [store.files.get(stored.key) or store.removed[stored.key]]

    def _waits(self, known: Any, between: Any) -> bool:
        return False

    def _cut(self, known: Any, stored: Any, first: int, last: int, *, pending: bool) -> Cut:
        return Cut(data_key=stored.key, first=first, last=last)

    def _shape(self, pending: bool) -> Any:
        return None


@dataclass(slots=True, eq=False)
class Written:
    """What copy_rows returns."""

    size: int
    footer: DataFile


def copy_rows(store: Any, key: str, cuts: Sequence[Cut], *_: Any, **__: Any) -> Written | None:
    """In place of rsm_bridge.tables.publish.rewritten.copy_rows."""
    rows: dict[int, Batch] = {}
    runs: tuple[LeaderEpoch, ...] = ()
    partition = int(key.split("/")[2])
    for cut in cuts:
        source = store.files.get(cut.data_key)
        if source is None:
            raise ObjectNotFoundError(cut.data_key)
        runs = joined(runs, clipped(source.runs, cut.first, cut.last))
        rows |= {offset: row for offset, row in source.rows.items() if cut.first <= offset <= cut.last}
    return Written(1, store.put_file(key, partition, rows, runs)) if rows else None


def taken_as_footer(_table: object, _uri: str, _size: int, footer: Any, *_: Any, **__: Any) -> Any:
    """In place of iceberg_catalog.tables.data_file.data_file: the model's footer is the file."""
    return footer


@contextmanager
def model_parts(store: ModelStore, epochs_recorded: int) -> Iterator[None]:
    """Puts the model's parts where the product encodes, decodes and counts pages."""
    parts: list[tuple[Any, str, Any]] = [
        (segment_listing, "read_known", store.read_known),
        (segment_listing, "LIST_PAGE_KEYS", PAGE_KEYS),
        (planning, "INDEX_READS_MAX", INDEX_READS),
        (lineage_record, "LINEAGE_ENTRIES_MAX", epochs_recorded),
        (rewritten, "copy_rows", copy_rows),
        (planned_files, "data_file", taken_as_footer),
        (reclaim, "expire", lambda topic, _, snapshots: topic.expire(snapshots)),
    ]
    patches = [mock.patch.object(*part) for part in parts]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


class ModelReclaimer(Reclaimer):
    """The reclaimer on a topic of the model; `catalog` is the topic."""

    def _read_retained(self, result: RunResult, tombstoned: Any) -> Retained:
        return cast(Topic, self.catalog).kept()

    def _others(self, tombstones: Any, head: Head | None) -> bool:
        """The model has one table of a topic id."""
        return False

    def _comes_back(self, known: Any, found: Any) -> bool:
        """The model has no undeletes."""
        return False

    def _states_listed(self, head: Head, states: Mapping[int, PartState]) -> list[Mapping[int, PartState]]:
        return [item.states for item in cast(Topic, self.catalog).retained]

    def _fence(self, head: Head, states: Mapping[int, PartState]) -> Head | None:
        return cast(Topic, self.catalog).fence(head, self.clock_ms())

    def _mark(self, key: str) -> bool:
        return cast(ModelStore, self.store).mark(key)


@dataclass(slots=True, eq=False)
class Bridge:
    """A process: what it remembers of a topic, and its clock's error in ms."""

    number: int
    offset_ms: int = 0
    listing: SegmentListing | None = None
    reclaimer: Reclaimer | None = None
    noticed: set[IndexKey] = field(default_factory=set)

    def restart(self) -> None:
        """Forgets everything."""
        self.listing, self.reclaimer = None, None
        self.noticed = set()


@dataclass(slots=True, eq=False)
class Topic:
    """One topic id: the table's head and the snapshots that are kept, newest last."""

    store: ModelStore
    topic_id: bytes
    head: TableHead = field(default_factory=TableHead)
    retained: list[TableHead] = field(default_factory=list)
    versions: int = 0

    def following(self, head: TableHead, made_ms: int) -> TableHead:
        """A head to come after another, equal to it so far."""
        self.versions += 1
        return TableHead(self.versions, head.version, made_ms, dict(head.files), dict(head.live), dict(head.states))

    def list_midst(self, heads: Iterable[TableHead | None]) -> list[TableHead | None]:
        """Lists the snapshots within the commit that landed last, in their order."""
        found = list(heads)
        self.retained[-1:-1] = [head for head in found if head is not None]
        return found

    def swap(self, made: TableHead) -> bool:
        """Whether it lands: only while the head is the one it was made from."""
        if made.parent != self.head.version:
            return False
        broken = made.broken or any(file.key not in self.store.files for file in made.files.values())
        assert not broken, "a plan that names reclaimed files must not land"
        self.head = made
        self.retained = [*self.retained, made][-SNAPSHOTS_KEPT:]
        return True

    def touch(self, made_ms: int) -> None:
        """Another commit changes nothing of ours."""
        assert self.swap(self.following(self.head, made_ms))

    def kept(self) -> Retained:
        """The snapshots, as the reclaimer reads them."""
        following = [*(item.made_ms for item in self.retained[1:]), *[None] * bool(self.retained)]
        kept = tuple(
            KeptSnapshot(item.version, replaced, (frozenset(item.files),))
            for item, replaced in zip(self.retained, following, strict=True)
        )
        oldest = min((item.made_ms for item in self.retained), default=None)
        return Retained(kept, kept[-1] if kept else None, oldest)

    def expire(self, snapshots: set[int]) -> Head | None:
        """Those leave; a commit of its own."""
        self.retained = [item for item in self.retained if item.version not in snapshots or item is self.head]
        return self.head.as_read()

    def fence(self, head: Head, made_ms: int) -> Head | None:
        """An empty commit after `head`; None: it did not land."""
        if (head.snapshot_id or 0) != self.head.version:
            return None
        self.touch(made_ms)
        return self.head.as_read()


@dataclass(slots=True, eq=False)
class Run:
    """One publisher run of one bridge: what rsm_bridge.tables.publish.table_run.TableRun does, up to the commit."""

    topic: Topic
    bridge: Bridge
    policy: Policy
    now_ms: int
    horizon_ms: int | None
    head: TableHead = field(init=False)
    read: Head = field(init=False)
    planning: Planning = field(init=False)
    found: TablePlans | None = None
    cut: dict[str, DataFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bridge.listing is None:
            self.bridge.listing = SegmentListing(store=cast(Any, self.topic.store), topic_id=self.topic.topic_id)
        self.head = self.topic.head
        self.read = self.head.as_read()
        self.planning = Planning(
            listing=self.bridge.listing,
            head=self.read,
            states=dict(self.head.states),
            policy=self.policy,
            now_ms=self.now_ms,
        )

    def changes(self, found: TablePlans) -> bool:
        """Whether there is something to commit."""
        self.found = found
        return any(item.changes(self.head.states.get(number, PartState())) for number, item in found.plans.items())

    def prepare(self) -> TableHead:
        """Writes what the plans derive, and makes the head they want.

        Raises:
            BridgeError: a name was too long, the store failed, or a source was reclaimed meanwhile.
        """
        assert self.found is not None
        by_id = {known.listed.key: known for known in self.found.segments}
        files = ModelFiles(
            store=cast(Any, self.topic.store),
            head=self.read,
            topic_id=self.topic.topic_id,
            segments=by_id,
            typed=None,
            generation=0,
            now=lambda: 0,
        )
        made = self.topic.following(self.head, self.now_ms)
        made.horizon_ms = self.horizon_ms
        for partition, item in self.found.plans.items():
            self._apply(made, partition, item, files)
        made.states |= {partition: item.state for partition, item in self.found.plans.items()}
        made.broken = any(file.key not in self.topic.store.files for file in made.files.values())
        return made

    def _apply(self, made: TableHead, partition: int, item: Plan, files: ModelFiles) -> None:
        added = [file for piece in item.add for file in cast(list[DataFile], files.added(partition, piece))]
        for trim in item.trim:
            cut = cast(list[DataFile], files.trimmed(partition, made.live[trim.path], trim))
            self.cut |= {file.file_path: file for file in cut}
            added += cut
        for path in (*item.remove, *item.replace, *(trim.path for trim in item.trim)):
            del made.files[path], made.live[path]
        for file in added:
            assert file.file_path not in made.files, f"{file.file_path} twice"
            made.files[file.file_path] = file
            made.live[file.file_path] = live_file(file)

    def midst(self, made: TableHead, *, deleted: bool) -> TableHead | None:
        """What somebody makes the head of who rolls back `made` to a snapshot within its commit (Change.steps).

        `deleted`: to the one without the files that retention removes; else to the one before. None: it has none.
        """
        assert self.found is not None
        plans = self.found.plans
        replaced = {path for item in plans.values() for path in item.replace}
        replaced |= {trim.path for item in plans.values() for trim in item.trim}
        removed = {path for item in plans.values() for path in item.remove}
        if not (removed if deleted else replaced) or (not removed and not any(item.add for item in plans.values())):
            return None
        head = self.topic.following(made, self.now_ms)
        leaves = replaced | removed if deleted else replaced
        head.files = {path: file for path, file in self.head.files.items() if path not in leaves} | self.cut
        head.live = {path: live_file(file) for path, file in head.files.items()}
        midst = {number: item.midst for number, item in plans.items() if item.midst is not None}
        head.states = {**self.head.states, **midst} if self.head.version else dict(made.states)
        head.broken = any(file.key not in self.topic.store.files for file in head.files.values())
        return head

    def result(self, head: TableHead) -> RunResult:
        """For the reclaimer."""
        assert self.found is not None
        return RunResult(
            head=head.as_read(), states=dict(head.states), segments=self.found.segments, complete=self.found.complete
        )

    def reclaim(self, result: RunResult, clock_ms: int) -> int:
        """A pass of the reclaimer; how many objects it removed."""
        if self.bridge.reclaimer is None:
            self.bridge.reclaimer = ModelReclaimer(
                store=cast(Any, self.topic.store),
                catalog=cast(Any, self.topic),
                graces=Graces(RECLAIM_GRACE_SECONDS, 0),
                copies=RunningCopies(),
                policy=lambda _topic, _now_ms: self.policy,
                clock_ms=lambda: clock_ms,
            )
        self.bridge.reclaimer.clock_ms = lambda: clock_ms
        tally = Tally()
        self.bridge.reclaimer.reclaim(result, tally)
        return sum(tally.objects.values())


def overlaps(head: TableHead) -> list[tuple[LiveFile, LiveFile]]:
    """Files of one partition that share offsets."""
    ordered = sorted(head.live.values(), key=lambda file: (file.partition, file.first))
    return [(one, two) for one, two in pairwise(ordered) if one.partition == two.partition and one.last >= two.first]


def left_behind(head: TableHead, gone_ends: Sequence[int], epochs_recorded: int) -> list[str]:
    """Files that stay though Kafka has deleted all of them. `gone_ends`: by partition, where what is deleted ends.

    In the hole of a shortened record it may be impossible to know that they were of the living log
    (iceberg_catalog/plan/lineage_record.py); they are counted, and not returned.
    """
    left: list[str] = []
    for file in head.live.values():
        record = head.states[file.partition].lineage
        known_from = record[1][1] if len(record) >= epochs_recorded - 1 and record[0][0] == UNKNOWN else 0
        if file.last < min(gone_ends[file.partition], known_from):
            JUDGED["stays in the hole of a shortened record"] += 1
        elif file.last < gone_ends[file.partition]:
            left.append(file.path)
    return left


__all__ = [
    "Bridge",
    "BridgeError",
    "KnownSegment",
    "Run",
    "Runs",
    "StoreError",
    "TableHead",
    "Topic",
    "left_behind",
    "model_parts",
]
