"""One publisher run of one table: head → listing → plan → derived files → one commit (iceberg_catalog/plan.py).

Every failure ends the run; the next one starts from the table's head again, so nothing here needs undoing.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog import failpoints
from iceberg_catalog.commit import Change, commit
from iceberg_catalog.commit_summary import plan_summary
from iceberg_catalog.datafile import data_file
from iceberg_catalog.livefiles import Head, LiveFiles
from iceberg_catalog.names import Owner
from iceberg_catalog.plan import plan
from iceberg_catalog.plan_types import (
    Derive,
    Follow,
    LiveFile,
    PartState,
    Plan,
    Policy,
    Segment,
    SegmentState,
    UseMain,
)
from iceberg_catalog.state import decode_state
from iceberg_catalog.tables import ensure_table, find_table
from rsm_bridge.derived import Cut, DerivedFile, write_derived
from rsm_bridge.errors import BridgeError
from rsm_bridge.known_segments import KnownSegment, read_footer, read_known
from rsm_bridge.layout import index_prefix, parse_index_key, table_folder
from rsm_bridge.limits import WITHDRAWN_SECONDS
from rsm_bridge.retention import follow_kafka, policy_at
from rsm_bridge.settings import TableLayout
from rsm_bridge.state_objects import StateObjects
from rsm_bridge.store import ObjectStore


class RetryRunError(Exception):
    """The commit did not land for sure: start again from the head."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run leaves behind. `head` is None while the topic has no table.

    `files_added` and `files_removed` count data files, `rewinds` partitions, `gaps` stretches of offsets never
    uploaded, `lost` batches of transactions without a marker.
    """

    head: Head | None
    states: Mapping[int, PartState]
    segments: Sequence[KnownSegment]
    files_added: int = 0
    files_removed: int = 0
    rewinds: int = 0
    gaps: int = 0
    lost: int = 0


@dataclass(slots=True)
class TableRun:
    """Runs of one topic id. Keeps what it read of immutable objects; one thread at a time.

    retention: `table_retention` of a topic name, in seconds if it is a duration.
    """

    store: ObjectStore
    catalog: Catalog
    topic_id: bytes
    namespace: str
    layout: TableLayout = "outside"
    retention: Callable[[str], str | float] = follow_kafka
    _live: LiveFiles = field(default_factory=LiveFiles)
    _known: dict[str, KnownSegment] = field(default_factory=dict)
    _as_of_ms: int = field(default=0, init=False)
    _state_objects: StateObjects = field(init=False)

    def __post_init__(self) -> None:
        self._state_objects = StateObjects(self.store)

    def run(self) -> RunResult:
        """Brings the table up to what the store holds.

        Raises:
            RetryRunError: the commit was refused or its outcome is unknown.
            CatalogError, BridgeError, SegmentError: and whatever else catalog and store raise.
        """
        segments = self._list()
        if not segments:
            return RunResult(None, {}, segments)
        table = self._table(segments)
        if table is None:
            return RunResult(None, {}, segments)
        head = self._live.read(table)
        states = self._states(head)
        self._as_of_ms = int(time.time() * 1000)
        failpoints.hit("head-read", self.topic_id.hex())
        # The listing that counts starts after the head was read (publish rule P2).
        segments = self._list()
        failpoints.hit("listed", self.topic_id.hex())
        plans = self._plans(segments, head, states, relisted=False)
        if any(item.need_relist for item in plans.values()):
            segments = self._list()
            plans = self._plans(segments, head, states, relisted=True)
        if not any(item.changes(states.get(number, PartState())) for number, item in plans.items()):
            return RunResult(head, states, segments)
        return self._apply(head, states, segments, plans)

    def _list(self) -> list[KnownSegment]:
        """All segments of the topic id; objects that did not change since the last run are not read again."""
        found: dict[str, KnownSegment] = {}
        for listed in self.store.list_after(index_prefix(self.topic_id)):
            key = parse_index_key(listed.key)
            if key is None:
                continue
            known = self._known.get(listed.key)
            if known is None or known.listed != listed:
                try:
                    known = read_known(self.store, key, listed)
                except BridgeError as error:
                    if error.kind == "not_found":
                        continue  # reclaimed between listing and reading
                    raise
                self._known[listed.key] = known  # also when the listing fails further on: it is not read again
            found[listed.key] = known
        self._known = found
        return list(found.values())

    def _table(self, segments: Sequence[KnownSegment]) -> Table | None:
        """The topic's table; created when a live segment has rows for it."""
        owner, value_format = owner_of(segments)
        if any(known.live and known.data is not None for known in segments):
            # Inside: the folder that holds the topic's data files anyway is the table's location.
            inside = self.store.uri(table_folder(self.topic_id)) if self.layout == "inside" else None
            return ensure_table(
                self.catalog,
                owner,
                value_format,
                data_path=inside or self.store.uri("data"),
                namespace=self.namespace,
                location=inside,
            )
        return find_table(self.catalog, owner, namespace=self.namespace)

    def _states(self, head: Head) -> dict[int, PartState]:
        if head.state is None:
            return {}
        return decode_state(self.store.read(head.state.key).data, head.state.sha256)

    def _plans(
        self, segments: Sequence[KnownSegment], head: Head, states: Mapping[int, PartState], *, relisted: bool
    ) -> dict[int, Plan]:
        by_partition: dict[int, list[KnownSegment]] = defaultdict(list)
        for known in segments:
            by_partition[known.key.partition].append(known)
        files: dict[int, list[LiveFile]] = defaultdict(list)
        for file in head.files:
            files[file.partition].append(file)
        now_ms = self._as_of_ms
        policy: Policy = Follow()
        if segments:
            policy = policy_at(self.retention(owner_of(segments)[0].topic), now_ms)
        return {
            partition: plan(
                [_aged(known, known.segment, now_ms) for known in by_partition[partition] if known.segment is not None],
                files[partition],
                states.get(partition, PartState()),
                policy,
                relisted=relisted,
            )
            for partition in sorted(by_partition.keys() | files.keys() | states.keys())
        }

    def _apply(
        self, head: Head, states: Mapping[int, PartState], segments: Sequence[KnownSegment], plans: Mapping[int, Plan]
    ) -> RunResult:
        by_id = {known.listed.key: known for known in segments}
        by_path = {file.path: file for file in head.files}
        append: list[DataFile] = []
        delete: list[str] = []
        replaced: list[str] = []
        replacement: list[DataFile] = []
        for partition, item in plans.items():
            for piece in item.add:
                append.extend(self._added(head, partition, piece, by_id))
            delete.extend(item.remove)
            replaced.extend(item.replace)
            for trim in item.trim:
                replaced.append(trim.path)
                replacement.extend(self._trimmed(head, partition, by_path[trim.path], trim.keep_below, by_id))
        new_states = {**states, **{partition: item.state for partition, item in plans.items()}}
        change = Change(tuple(append), tuple(delete), tuple(replaced), tuple(replacement))
        committed = self._commit(head, change, new_states, plan_summary(plans))
        return RunResult(
            committed,
            new_states,
            segments,
            len(append) + len(replacement),
            len(delete) + len(replaced),
            sum(item.rewind is not None for item in plans.values()),
            sum(len(item.gaps) for item in plans.values()),
            sum(len(item.lost) for item in plans.values()),
        )

    def _commit(self, head: Head, change: Change, states: Mapping[int, PartState], summary: Mapping[str, str]) -> Head:
        commit_id = uuid.uuid4().hex
        recorded = self._state_objects.put(head.table, states, commit_id)
        swept = self._state_objects.before_commit(head.table)
        failpoints.hit("before-commit", self.topic_id.hex())
        outcome = commit(
            self.catalog,
            head,
            change,
            recorded,
            commit_id=commit_id,
            as_of_ms=self._as_of_ms,
            summary=summary,
        )
        if outcome.kind != "committed" or outcome.table is None:
            failpoints.hit("refused", self.topic_id.hex())
            raise RetryRunError(f"the commit ended as {outcome.kind}: {outcome.error}")
        self._state_objects.after_commit(outcome.table, swept)
        return self._live.read(outcome.table)

    def _added(
        self, head: Head, partition: int, piece: UseMain | Derive, by_id: Mapping[str, KnownSegment]
    ) -> list[DataFile]:
        if isinstance(piece, UseMain):
            known = by_id[piece.segment_id]
            stored = known.tail if piece.tail else known.data
            if stored is None:
                raise BridgeError("internal", f"the plan wants rows of {piece.segment_id}, which has none")
            footer = read_footer(self.store, known, tail=piece.tail)
            return [data_file(head.table, self.store.uri(stored.key), stored.size, footer, partition)]
        cuts: list[Cut] = []
        runs: list[tuple[int, int]] = []
        for segment_id, first, last in piece.ranges:
            known = by_id[segment_id]
            if known.data is not None and known.segment is not None:
                cuts.extend(Cut(stored.key, *part) for stored, *part in known.rows_between(first, last))
                runs.extend(run for run in known.segment.runs if run not in runs)
        return self._derive(head, partition, cuts, tuple(sorted(runs)), by_id) if cuts else []

    def _trimmed(
        self, head: Head, partition: int, file: LiveFile, keep_below: int, by_id: Mapping[str, KnownSegment]
    ) -> list[DataFile]:
        key = self.store.key(file.path)
        if key is None:
            raise BridgeError("internal", f"{file.path} lies outside of the store")
        return self._derive(head, partition, [Cut(key, file.first, keep_below - 1)], file.runs, by_id)

    def _derive(
        self,
        head: Head,
        partition: int,
        cuts: list[Cut],
        runs: tuple[tuple[int, int], ...],
        by_id: Mapping[str, KnownSegment],
    ) -> list[DataFile]:
        _, value_format = owner_of(list(by_id.values()))
        written: DerivedFile | None = write_derived(
            self.store,
            cuts,
            value_format,
            topic_id=self.topic_id,
            partition=partition,
            runs=runs,
            head_snapshot=head.snapshot_id,
        )
        if written is None:
            return []
        return [data_file(head.table, self.store.uri(written.key), written.size, written.footer, partition)]


def owner_of(segments: Sequence[KnownSegment]) -> tuple[Owner, ValueFormat]:
    """Whose table it is, and its value format: a segment with an index says so best."""
    best = max(segments, key=lambda known: (known.segment is not None, known.data is not None))
    return best.owner, best.value_format


def _aged(known: KnownSegment, segment: Segment, now_ms: int) -> Segment:
    """The plan's segment; a withdrawal that was never followed by a new copy counts as deleted (rule R4)."""
    deletion = known.deletion
    if (
        deletion is not None
        and deletion.kind is SegmentState.WITHDRAWN
        and now_ms - deletion.time_ms > WITHDRAWN_SECONDS * 1000
    ):
        return replace(segment, state=SegmentState.DELETED)
    return segment
