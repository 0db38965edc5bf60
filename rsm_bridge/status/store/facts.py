"""What store and catalog tell of one topic, for `tierberg status`.

A store may take seconds for each answer, and some answers need another one first: what needs none is asked at once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.catalog import Catalog

from converter.parquet.columns import ERROR
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.state import decode_state
from iceberg_catalog.commit.value_counts import values_by_file
from iceberg_catalog.connect.open import threads_may_share
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.file_epochs import no_look
from iceberg_catalog.plan.types import PartState, Policy, SegmentState
from iceberg_catalog.tables.names import Owner, PlainName, table_name
from iceberg_catalog.tables.tables import check_layout, find_table, rows_in
from rsm_bridge.config.retention import policy_at
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import STATUS_LOOKS_MAX
from rsm_bridge.metrics.progress.facts import (
    DelayedDelete,
    Gap,
    NotAdded,
    NotBack,
    Problem,
    ProjectionFacts,
    StoredPartition,
    StoredTopic,
    TableFacts,
    problem_of,
)
from rsm_bridge.metrics.progress.stored import left_out, stored_partitions, table_facts, unindexed, withdrawn, withheld
from rsm_bridge.status.delayed_deletes import delayed_deletes
from rsm_bridge.status.store.batches import BatchesRead, UnreadBatchesError, asked_for
from rsm_bridge.status.store.lost import lost_objects
from rsm_bridge.status.store.projections import projection_facts, waiting_projections
from rsm_bridge.status.store.topic import ReadTopic, listed_indexes, renew
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import WaitingProjection
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.topic_segments import clusters_of
from rsm_bridge.storage.segments.undelete_record import Undeleted, UndeleteRecord
from rsm_bridge.storage.segments.withdrawn_rows import with_rows
from rsm_bridge.storage.table_records import UNKNOWN_NAME, TableRecord
from rsm_bridge.tables.maintain.requeue_away import not_added
from rsm_bridge.tables.maintain.undelete_away import leaving, rows_away

_Made = tuple[dict[int, StoredPartition], NotAdded | None]


def stored_topic(
    read: ReadTopic, table: Callable[[KnownSegment], Head | None] | None, store: ObjectStore, settings: Settings
) -> StoredTopic:
    """Facts of one topic. What looks damaged is looked at again: deletes, merges and commits go on meanwhile.

    Damage is said of an object that failed twice with the same content, and of a table whose head, loaded anew, fails
    in the same way. Where every look finds something else, nothing is said of publishing (`unsettled`).

    Args:
        read: its segments; renewed where they changed.
        table: finds the head of a segment's table; None: the catalog is away.
        store: has the recorded state, and batches of segments that wait.
        settings: have the topic's retention and the grace of mass deletes.

    Raises:
        StoreError: the store does not answer.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="status-lost") as beside:
        lost = beside.submit(lost_objects, store, read.topic_id, tuple(read.segments)) if read.complete else None
        found = _settled(read, table, store, settings)
    return found if lost is None else replace(found, lost=lost.result())


def _settled(
    read: ReadTopic, table: Callable[[KnownSegment], Head | None] | None, store: ObjectStore, settings: Settings
) -> StoredTopic:
    """What looks agree on."""
    found, trouble = _look(read, table, store, settings)
    for _ in range(STATUS_LOOKS_MAX - 1):
        if trouble is None:
            return found
        renew(store, read)
        before = trouble
        found, trouble = _look(read, table, store, settings)
        if trouble is not None and trouble.same(before):
            return found
    return found if trouble is None else replace(found, table_problem=None, damaged=tuple(read.damaged), unsettled=True)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """What one look stumbled over: the kind of the table's problem, the index whose batches could not be read."""

    table: str | None
    segment: KnownSegment | None

    def same(self, other: _Trouble) -> bool:
        """Whether the same was met again, of an index in the same content."""
        if self.table != other.table or (self.segment is None) != (other.segment is None):
            return False
        return self.segment is None or other.segment is None or self.segment.listed == other.segment.listed


def _look(
    read: ReadTopic, table: Callable[[KnownSegment], Head | None] | None, store: ObjectStore, settings: Settings
) -> tuple[StoredTopic, _Trouble | None]:
    with ThreadPoolExecutor(1, thread_name_prefix="status-undelete") as beside:
        undelete = beside.submit(_undeleted, store, read.topic_id)
        head, states, facts, problem = _table(store, table, read)
    undeleted, undelete_problem = undelete.result()
    others = () if table is None else _others(read.tables, head)
    now_ms = int(time.time() * 1000)
    projections: tuple[ProjectionFacts, ...] = ()
    if read.complete and head is not None and states is not None:
        projections = projection_facts(settings, store, head, states, read.segments, now_ms)
    policy = policy_at(settings.rule(read.topic).table_retention, now_ms)
    may_requeue = facts is not None and settings.rule(read.topic).mode != "verbatim" and _told_all(read, facts)
    made, failed, footer = _partitions(
        read, head, states, policy, waiting_projections(projections), may_requeue=may_requeue
    )
    partitions, late = made
    problem = footer or problem
    damaged = [*((item.segment.listed.key, item.problem) for item in failed), *read.damaged]
    unread = failed[0].segment if failed else None
    missing = withheld(read.segments)
    restored = undeleted.restored
    found = StoredTopic(
        topic=read.topic,
        topic_id=read.topic_id.hex(),
        clusters=clusters_of(read.segments),
        partitions=partitions,
        quarantined=missing.batches,
        quarantined_key=missing.quarantined_key,
        verbatim=missing.verbatim,
        verbatim_key=missing.verbatim_key,
        verbatim_by_rule=missing.by_rule,
        delayed_deletes=_delayed(read, states or {}, settings, restored - undeleted.begun().keys())
        if read.complete
        else (),
        indexes=read.listed,
        indexes_read=len(read.segments) + len(read.damaged),
        damaged=tuple(damaged),
        table=facts,
        table_problem=problem,
        projections=projections,
        left=sum(known.live and known.listed.key not in restored for known in read.segments),
        restored=Counter(known.key.partition for known in read.segments if known.live and known.listed.key in restored),
        left_out=left_out(read.segments),
        others=others if head is not None else (),
        lost_tables=others if head is None and problem is None and read.segments else (),
        left_withdrawn=len(with_rows(read.segments, head.files, states)) if head is not None and states else 0,
        deleted_ms=_deleted_ms(read.segments),
        forgotten=read.complete and not read.unread and _forgotten(read.segments),
        withheld_ms=missing.newest_ms,
        unindexed=_unindexed(store, read, states, head) if read.complete and states and head else {},
        damaged_ms=max([*(item.segment.listed.modified_ms for item in failed), read.damaged_ms or 0]) or None,
        withdrawn=withdrawn(read.segments, read.unread) if read.complete else {},
        undelete_problem=undelete_problem,
        not_back=None if head is None or states is None else _not_back(undeleted, read.segments, head, states),
        not_added=late,
    )
    if problem is None and unread is None:
        return found, None
    return found, _Trouble(None if problem is None else problem.kind, unread)


def _partitions(
    read: ReadTopic,
    head: Head | None,
    states: dict[int, PartState] | None,
    policy: Policy,
    projections: Sequence[WaitingProjection],
    *,
    may_requeue: bool,
) -> tuple[_Made, list[UnreadBatchesError], Problem | None]:
    """Every partition and what a requeue would add, whose batches failed, and what is wrong with a footer.

    Of a partition whose batches cannot be read nothing is said of publishing, of the others all.
    """
    failed: list[UnreadBatchesError] = []
    files, look = ((), no_look) if head is None else (head.files, head.look)
    expected = asked_for(read.segments, states, files, policy, may_requeue=may_requeue) if states is not None else ()
    batches = BatchesRead(expected)
    named = [batches.of(known) for known in read.segments]

    def made(states: dict[int, PartState] | None) -> _Made:
        blind = {item.segment.key.partition for item in failed}
        read_of = partial(stored_partitions, complete=read.complete, look=look, unread=read.unread, blind=blind)
        late = None
        if may_requeue and states is not None and not blind:
            late = not_added(named, states, files, policy, look)
        return read_of(named, states, files, policy, projections), late

    while True:
        try:
            return made(states), failed, None
        except UnreadBatchesError as error:
            failed.append(error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a footer that nobody can read is this table's problem
            return made(None), failed, problem_of(error)


def _told_all(read: ReadTopic, facts: TableFacts) -> bool:
    """Whether a requeue could tell what the table lacks: it reads every index, and refuses beside what others did."""
    return read.complete and not read.unread and not facts.foreign and facts.foreign_commits is None


def _unindexed(store: ObjectStore, read: ReadTopic, states: Mapping[int, PartState], head: Head) -> dict[int, Gap]:
    """As `unindexed`. The head is younger than the listing: what was published in between is listed by now."""
    found = unindexed(read.segments, states, head.files, read.unread)
    listed = [key for key, _ in listed_indexes(store, read.topic_id)] if found else []
    left: dict[int, Gap] = {}
    for number, gap in found.items():
        above = (key.base for key in listed if key.partition == number and key.last >= gap.first)
        last = min(gap.last, min(above, default=gap.last + 1) - 1)
        if any(file.partition == number and file.first <= last and file.last >= gap.first for file in head.files):
            left[number] = replace(gap, last=last)
    return left


def _table(
    store: ObjectStore, find: Callable[[KnownSegment], Head | None] | None, read: ReadTopic
) -> tuple[Head | None, dict[int, PartState] | None, TableFacts | None, Problem | None]:
    """Head, state and facts of the table, or what is wrong with it.

    Without a table the state is empty, of one that is lost None: then nothing is said of what waits for it.
    """
    if find is None or not read.segments:
        return None, None, None, None
    head: Head | None = None
    try:
        head = _head(find, read.segments)
        if head is None:
            return None, None if read.tables else {}, None, None
        states = recorded(store, head)
        return head, states, _with_rows(table_facts(head, states), head), None
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever metadata and its storage raise is one table's problem
        problem = problem_of(error)
        names = {item.table for item in read.tables} if head is None else {".".join(head.table.name())}
        if head is not None or (problem.table is None and len(names) == 1 and UNKNOWN_NAME not in names):
            problem = replace(problem, table=min(names))
        return head, None, None, problem


def _with_rows(facts: TableFacts, head: Head) -> TableFacts:
    """With how many rows it has, and how many of them have no columns."""
    dead = sum(errors or 0 for _, errors in values_by_file(head, ERROR))
    return replace(facts, rows=rows_in(head.table), dead_letters=dead)


def _others(recorded_tables: Iterable[TableRecord], head: Head | None) -> tuple[tuple[str, str], ...]:
    own = None if head is None else head.table.metadata.table_uuid
    return tuple((str(item.table_uuid), item.table) for item in recorded_tables if item.table_uuid != own)


def _head(find: Callable[[KnownSegment], Head | None], segments: Iterable[KnownSegment]) -> Head | None:
    """Of the table that one of the segments' owners has: of a broker that got another cluster name there are two."""
    witnesses: dict[Owner, KnownSegment] = {}
    for known in segments:
        witnesses.setdefault(known.owner, known)
    return next((head for known in witnesses.values() if (head := find(known)) is not None), None)


def _deleted_ms(segments: Iterable[KnownSegment]) -> int | None:
    """When Kafka last deleted a segment; it withdraws failed copies all the time."""
    deletions = [known.deletion for known in segments if known.deletion is not None]
    return max((item.time_ms for item in deletions if item.kind is SegmentState.DELETED), default=None)


def _forgotten(segments: Sequence[KnownSegment]) -> bool:
    return any(known.forgotten for known in segments) and not any(known.live for known in segments)


def _delayed(
    read: ReadTopic, states: Mapping[int, PartState], settings: Settings, restored: frozenset[str]
) -> tuple[DelayedDelete, ...]:
    stays = settings.rule(read.topic).table_retention
    if stays == "keep":
        return ()  # no row has left for Kafka's delete
    stays_ms = 0 if isinstance(stays, str) else int(stays * 1000)
    grace = settings.mass_delete_grace
    return delayed_deletes(read.segments, states, grace, restored=restored, stays_ms=stays_ms, unread=read.unread)


def _undeleted(store: ObjectStore, topic_id: bytes) -> tuple[Undeleted, Problem | None]:
    """What undeletes brought back, and Kafka does not know any more; or why the record of it cannot be read."""
    try:
        return UndeleteRecord(store, topic_id).read(), None
    except StoreError:
        raise
    except BridgeError as error:
        return Undeleted({}), Problem(error.kind, str(error))


def _not_back(
    undeleted: Undeleted, segments: Iterable[KnownSegment], head: Head, states: Mapping[int, PartState]
) -> NotBack | None:
    """What was to come back: live below a floor of before, or of an undelete that did not end, still deleted."""
    lives, begun = undeleted.not_in(states), undeleted.begun()
    found = [
        known
        for known in segments
        if (known.listed.key in lives if known.live else known.listed.key in begun and not leaving(known))
        and rows_away(known, head.files)
    ]
    if not found:
        return None
    return NotBack(len(found), sum(known.rows for known in found), sum(not known.live for known in found))


def head_of(catalog: Catalog, namespace: str, plain: PlainName = table_name) -> Callable[[KnownSegment], Head | None]:
    """Finds and reads the table a segment belongs to; for several threads at once."""
    turn = nullcontext() if threads_may_share(catalog) else threading.Lock()

    def find(known: KnownSegment) -> Head | None:
        """The head of the segment's table, None without one. Raises where no bridge would write the table."""
        with turn:
            found = find_table(catalog, known.owner, namespace=namespace, plain=plain)
        if found is None:
            return None
        check_layout(found)
        return LiveFiles().read(found)

    return find


def recorded(store: ObjectStore, head: Head) -> dict[int, PartState]:
    """The state recorded with a head. Raises CatalogError `corrupt_state`; `StoreError` when the store is away."""
    if head.state is None:
        return {}
    try:
        data = store.read(head.state.key).data
    except BridgeError as error:
        if isinstance(error, StoreError):
            raise
        raise CatalogError("corrupt_state", f"the state object {head.state.key} is gone") from error
    return decode_state(data, head.state.sha256)
