"""One publisher run of one table: head → listing → plan → derived files → one commit (iceberg_catalog/plan/plan.py).

Every failure ends the run; the next one starts from the table's head again, so nothing here needs undoing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from converter.errors import TierbergError
from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import Change, commit, recorded_retention
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.state import StateRef, decode_state
from iceberg_catalog.plan.summary import RETENTION, plan_summary
from iceberg_catalog.plan.types import PartState, Plan, Policy
from iceberg_catalog.tables.tables import check_layout
from rsm_bridge.config.retention import policy_at
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import PLANS_PER_RUN_MAX, RUNS_TO_LAND_MAX
from rsm_bridge.storage.backend import topic_table
from rsm_bridge.storage.clock import local_ms
from rsm_bridge.storage.keys import derived_head
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import WaitingProjection, files_kept_for
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.listing import ALL, Notices, SegmentListing
from rsm_bridge.storage.state_objects import StateObjects
from rsm_bridge.storage.table_records import record_table
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.publish.planned_files import NoColumnsYetError, PlannedFiles, TableChangedError
from rsm_bridge.tables.publish.planning import Planning
from rsm_bridge.turns import TurnBusyError

T = TypeVar("T")


class PlanAgainError(Exception):
    """Pending segments that a plan wanted have to wait; the next plan stops before them."""


class RetryRunError(TierbergError):
    """The commit did not land for sure: start again from the head.

    Attributes:
        conflict: it was not made, or refused, because others were first; otherwise nobody knows.
    """

    kind = "raced"

    def __init__(self, message: str, *, conflict: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run leaves behind. `head` is None while the topic has no table.

    `files_added` and `files_removed` count data files, `files_derived` those of the added ones that were written anew,
    `rewinds` partitions, `gaps` stretches of offsets never uploaded, `lost` batches of transactions without a marker.
    `complete`: `segments` are all of the topic id, else those the run looked at. `listing_seconds`: what the latest
    whole listing took. `no_columns_yet`: index keys of pending segments that cannot have their columns now, and why.
    `more`: others are left to the next run. `waiting`: by partition, the first offset below the floor that projections
    of the table have not read, and the bytes of the files that stay for them; known where the run is complete.
    """

    head: Head | None
    states: Mapping[int, PartState]
    segments: Sequence[KnownSegment]
    files_added: int = 0
    files_removed: int = 0
    rewinds: int = 0
    gaps: int = 0
    lost: int = 0
    files_derived: int = 0
    complete: bool = True
    listing_seconds: float = 0.0
    no_columns_yet: Mapping[str, str] = field(default_factory=dict)
    more: bool = False
    waiting: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TableRun:
    """Runs of one topic id. Keeps what it read of immutable objects; one thread at a time.

    store, catalog: where segments and table are. topic_id: Kafka's, 16 bytes. context: the rules of all tables.
    readers: threads that read indexes at once; None: one after the other. whole: each run lists all of the topic first,
    as a command needs that has one run, or that puts states back, so that the head has files above their frontiers.
    by_command: somebody runs it beside the bridges, perhaps by other rules than theirs.
    """

    store: ObjectStore
    catalog: Catalog
    topic_id: bytes
    context: TableContext
    readers: Executor | None = None
    whole: bool = False
    by_command: bool = False
    _no_columns_yet: dict[str, str] = field(default_factory=dict, init=False)
    _live: LiveFiles = field(default_factory=LiveFiles)
    _whose: KnownSegment | None = field(default=None, init=False)
    _files: PlannedFiles | None = field(default=None, init=False)
    _recorded: tuple[StateRef, dict[int, PartState]] | None = field(default=None, init=False)
    _as_of_ms: int = field(default=0, init=False)
    _table_uuid: uuid.UUID | None = field(default=None, init=False)
    _had_none: bool = field(default=False, init=False)
    _listing: SegmentListing = field(init=False)
    _state_objects: StateObjects = field(init=False)

    def __post_init__(self) -> None:
        self._listing = SegmentListing(store=self.store, topic_id=self.topic_id, readers=self.readers)
        self._state_objects = StateObjects(self.store)

    def run(self, notices: Notices = ALL) -> RunResult:
        """Brings the table up to what the store holds, as far as `notices` ask to look.

        Raises:
            RetryRunError: the commit was refused or its outcome is unknown.
            CatalogError, BridgeError, SegmentError: and whatever else catalog and store raise.
        """
        self._no_columns_yet = {}
        for _ in range(PLANS_PER_RUN_MAX):
            try:
                return self._run(notices)
            except (PlanAgainError, TableChangedError):
                continue
            except TurnBusyError as error:
                raise RetryRunError(str(error), conflict=True) from error
        raise RetryRunError("the table or what waits for columns kept changing", conflict=True)

    def _run(self, notices: Notices) -> RunResult:
        table = self._table(notices)
        if table is None:
            self._had_none, self._table_uuid = True, None
            if notices.look or notices.whole:
                return RunResult(head=None, states={}, segments=self._listing.whole() or ())
            return RunResult(head=None, states={}, segments=self._listing.known(), complete=False)
        if self._is_new(table):
            notices = ALL
        head = self._live.read(table)
        states = self._states(head)
        self._as_of_ms = local_ms()
        failpoints.hit("head-read", self.topic_id.hex())
        projections = self._projections(table)
        policy, now_ms = self._policy(projections)
        planning = Planning(
            listing=self._listing,
            head=head,
            states=states,
            policy=policy,
            now_ms=now_ms,
            no_columns_yet=self._no_columns_yet,
            projections=projections,
            whole=self.whole,
        )
        found = planning.plan(notices, lambda: failpoints.hit("listed", self.topic_id.hex()))
        if not any(item.changes(states.get(number, PartState())) for number, item in found.plans.items()):
            result = RunResult(head=head, states=states, segments=found.segments)
        else:
            result = self._apply(head, states, found.segments, found.plans)
        return replace(
            result,
            complete=found.complete,
            listing_seconds=self._listing.whole_seconds,
            no_columns_yet=dict(self._no_columns_yet),
            more=found.more,
            waiting=waiting_files(result, projections, now_ms) if found.complete else {},
        )

    def _is_new(self, table: Table) -> bool:
        """Records the table before this process first lists for it: see storage/table_records.py.

        Whether something may have been listed before it was recorded: that may have gone.
        """
        if self._table_uuid == table.metadata.table_uuid:
            return False
        name = ".".join(table.name())
        is_new = record_table(self.store, self.topic_id, table.metadata.table_uuid, name)
        had_none, self._had_none, self._table_uuid = self._had_none, False, table.metadata.table_uuid
        return is_new or had_none

    def _policy(self, projections: Sequence[WaitingProjection] = ()) -> tuple[Policy, int]:
        """What becomes of rows that Kafka deleted, and the time it goes by, in milliseconds since the epoch."""
        retention = "follow-kafka" if self._whose is None else self.context.retention(self._whose.owner.topic)
        now_ms = self.context.clock_ms() if projections or not isinstance(retention, str) else self._as_of_ms
        return policy_at(retention, now_ms), now_ms

    def until_landed(self, attempt: Callable[[], T], missing: str) -> T:
        """What `attempt` returns, made again while its commit does not land.

        Args:
            attempt: a run, and what belongs to it.
            missing: what is not so yet when it never landed; begins the error's sentence.

        Raises:
            RetryRunError: it did not in RUNS_TO_LAND_MAX tries. What else `attempt` raises passes through.
        """
        error: RetryRunError | None = None
        for _ in range(RUNS_TO_LAND_MAX):
            try:
                return attempt()
            except RetryRunError as refused:
                error = refused
        raise RetryRunError(f"{missing}, run it again: {error}")

    def _table(self, notices: Notices) -> Table | None:
        """The topic's table; created when a live segment has rows for it."""
        self._whose = self._listing.witness(notices)
        if self._whose is None:
            return None
        owner = self._whose.owner
        table = self.context.table(self.catalog, owner)
        if table is not None:
            if _has_rows(self._whose):
                check_layout(table)
            return table
        if not _has_rows(self._whose):
            return None
        # What is remembered may have been deleted since, the table with it: only what is stored now makes a new one.
        self._listing.whole()
        self._whose = self._listing.witness()
        if self._whose is None or not _has_rows(self._whose):
            return None
        given = self.context
        return topic_table(
            self.store,
            self.catalog,
            owner,
            self._whose.value_format if given.values is None else given.values(owner.topic),
            namespace=given.namespace,
            layout=given.layout,
            plain=given.plain,
        )

    def _projections(self, table: Table) -> Sequence[WaitingProjection]:
        return () if self._whose is None else self.context.projections(self._whose.owner, table.name()[-1])

    def _states(self, head: Head) -> dict[int, PartState]:
        if head.state is None:
            return {}
        if self._recorded is None or self._recorded[0] != head.state:
            data = self.store.read(head.state.key).data
            self._recorded = head.state, decode_state(data, head.state.sha256)
        return dict(self._recorded[1])

    def _planned_files(self, head: Head, segments: Sequence[KnownSegment]) -> PlannedFiles:
        """Those of the latest plan on this head, with what was written for it."""
        by_id = {known.listed.key: known for known in segments}
        if self._files is not None and self._files.head is head:
            self._files.segments = by_id
            return self._files
        typed = None if self._whose is None else self.context.typed(self._whose.owner)
        if typed is not None:
            typed.saw(head.table)
        self._files = PlannedFiles(
            store=self.store,
            head=head,
            topic_id=self.topic_id,
            segments=by_id,
            typed=typed,
            generation=self.context.generation,
            look_up_seconds=self.context.look_up_seconds,
            now=lambda: self._schema_id(head.table),
        )
        return self._files

    def _schema_id(self, table: Table) -> int:
        return self.catalog.load_table(table.name()).metadata.current_schema_id

    def _apply(
        self, head: Head, states: Mapping[int, PartState], segments: Sequence[KnownSegment], plans: Mapping[int, Plan]
    ) -> RunResult:
        append: list[DataFile] = []
        delete: list[str] = []
        replaced: list[str] = []
        replacement: list[DataFile] = []
        no_columns_yet: dict[str, str] = {}
        files = self._planned_files(head, segments)
        by_path = {file.path: file for file in head.files}
        for partition, item in plans.items():
            try:
                for piece in item.add:
                    append.extend(files.added(partition, piece))
            except NoColumnsYetError as error:
                no_columns_yet[error.key] = str(error)
            delete.extend(item.remove)
            replaced.extend(item.replace)
            for trim in item.trim:
                replaced.append(trim.path)
                replacement.extend(files.trimmed(partition, by_path[trim.path], trim))
        if no_columns_yet:
            self._no_columns_yet |= no_columns_yet
            raise PlanAgainError
        if delete and self.by_command:
            self._refuse_other_retention(head)
        new_states = {**states, **{partition: item.state for partition, item in plans.items()}}
        change = Change(
            append=tuple(append), delete=tuple(delete), replace=tuple(replaced), replacement=tuple(replacement)
        )
        midst = {**states, **{number: item.midst for number, item in plans.items() if item.midst is not None}}
        committed = self._commit(head, change, new_states, plan_summary(plans), midst)
        return RunResult(
            head=committed,
            states=new_states,
            segments=segments,
            files_added=len(append) + len(replacement),
            files_removed=len(delete) + len(replaced),
            rewinds=sum(item.rewind is not None for item in plans.values()),
            gaps=sum(len(item.gaps) for item in plans.values()),
            lost=sum(len(item.lost) for item in plans.values()),
            files_derived=sum(derived_head(file.file_path) is not None for file in (*append, *replacement)),
        )

    def _retention(self) -> dict[str, str]:
        """The rule of the topic, as the summary of a commit says it."""
        return {} if self._whose is None else {RETENTION: str(self.context.retention(self._whose.owner.topic))}

    def _refuse_other_retention(self, head: Head) -> None:
        """Rows that an archive keeps are gone for good once a run by another rule has taken them."""
        kept_by, ours = recorded_retention(head), self._retention().get(RETENTION)
        if kept_by not in (None, ours):
            raise SettingsError(
                f"table {'.'.join(head.table.name())} is kept by `table_retention: {kept_by}`, and these settings say "
                f"{ours}: rows would leave it that its bridges keep. Give the bridges' own settings by --config; after "
                "a change of the rule let a bridge publish by it first"
            )

    def _commit(
        self,
        head: Head,
        change: Change,
        states: Mapping[int, PartState],
        summary: Mapping[str, str],
        midst: Mapping[int, PartState] | None = None,
    ) -> Head:
        """Commits a change and the states after it.

        `midst`: what the snapshots before the last record, which lack its rows; None: what the head does.
        """
        commit_id = uuid.uuid4().hex
        recorded = self._state_objects.put(head.table, states, commit_id)
        between = None
        if midst is not None and self._recorded is not None and midst != self._recorded[1] and len(change.steps()) > 1:
            between = self._state_objects.put(head.table, midst, commit_id)
        swept = self._state_objects.before_commit(head.table)
        failpoints.hit("before-commit", self.topic_id.hex())
        outcome = commit(
            self.catalog,
            head,
            change,
            recorded,
            commit_id=commit_id,
            as_of_ms=self._as_of_ms,
            # A command's rule is not that of the bridges, which the next command is compared with.
            summary=summary if self.by_command else {**summary, **self._retention()},
            midst=between,
        )
        if outcome.kind != "committed" or outcome.table is None:
            failpoints.hit("refused", self.topic_id.hex())
            refused = outcome.kind == "conflict"
            raise RetryRunError(f"the commit ended as {outcome.kind}: {outcome.error}", conflict=refused)
        self._recorded = recorded, dict(states)
        self._files = None  # entries of wide files are megabytes
        self._state_objects.after_commit(outcome.table, swept)
        return self._live.read(outcome.table, outcome.manifests)


def waiting_files(
    result: RunResult, projections: Sequence[WaitingProjection], now_ms: int
) -> dict[int, tuple[int, int]]:
    """`RunResult.waiting` of a result with all segments of the topic id."""
    files = () if result.head is None else result.head.files
    kept = files_kept_for(files, result.states, result.segments, projections, now_ms)
    return {number: (start, sum(file.size_bytes for file in found)) for number, (start, found) in kept.items()}


def _has_rows(known: KnownSegment) -> bool:
    return known.live and bool(known.data_files())
