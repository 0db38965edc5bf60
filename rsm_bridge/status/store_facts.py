"""Reads the facts of store and catalog for `tierberg status`. Blocking; every loop looks at the clock.

Topics are the folders under `index/`. Of a topic's indexes the newest are read first, so that what waits for
publishing is known even when time runs out before years of history are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from pyiceberg.catalog import Catalog

from converter.errors import SegmentError
from converter.parquet.columns import ERROR
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.state import decode_state
from iceberg_catalog.commit.value_counts import values_by_file
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.file_epochs import no_look
from iceberg_catalog.plan.types import Batches, LiveFile, PartState, Policy, SegmentState
from iceberg_catalog.tables.names import Owner, PlainName, table_name
from iceberg_catalog.tables.tables import check_layout, find_table, rows_in
from rsm_bridge.config.retention import policy_at
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import STATUS_BATCHES_KEPT, STATUS_LOOKS_MAX, STATUS_READERS
from rsm_bridge.metrics.progress.facts import (
    DelayedDelete,
    NotAdded,
    NotBack,
    Problem,
    ProjectionFacts,
    StoredPartition,
    StoredTopic,
    TableFacts,
)
from rsm_bridge.metrics.progress.stored import left_out, stored_partitions, table_facts, unindexed, withdrawn, withheld
from rsm_bridge.status.delayed_deletes import delayed_deletes
from rsm_bridge.status.projections import projection_facts, waiting_projections
from rsm_bridge.storage.keys import IndexKey, index_prefix, parse_index_key
from rsm_bridge.storage.listed_keys import DeniedKeyError, confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore, first_line
from rsm_bridge.storage.projections.hold import WaitingProjection
from rsm_bridge.storage.segments.known import KnownSegment, read_known
from rsm_bridge.storage.segments.topic_segments import clusters_of, indexed_topic_ids
from rsm_bridge.storage.segments.undelete_record import Undeleted, UndeleteRecord
from rsm_bridge.storage.segments.withdrawn_rows import with_rows
from rsm_bridge.storage.table_records import TableRecord, read_records
from rsm_bridge.tables.maintain.requeue_away import lacking, not_added
from rsm_bridge.tables.maintain.undelete_away import leaving, rows_away

_Row = tuple[IndexKey, ListedObject]
_Found = KnownSegment | Problem | Literal["unread"] | None
_Made = tuple[dict[int, StoredPartition], NotAdded | None]


def problem_of(error: BaseException) -> Problem:
    """Kind and one sentence of any exception, and the table that it is about."""
    kind = getattr(error, "kind", None)
    said = f"{type(error).__name__}: {first_line(error)}"
    return Problem(kind if isinstance(kind, str) else "unavailable", said, getattr(error, "table", None))


@dataclass(slots=True, kw_only=True)
class ReadTopic:
    """What was read of one topic id. `segments` may be fewer than `listed` when time ran out, or the store denied some.

    damaged: what cannot be read, newest first; damaged_ms: when the newest of that was written. denied: keys that the
    store lists and denies.
    """

    topic_id: bytes
    topic: str
    listed: int
    segments: list[KnownSegment] = field(default_factory=list)
    damaged: list[tuple[str, Problem]] = field(default_factory=list)
    damaged_ms: int | None = None
    denied: list[str] = field(default_factory=list)

    @property
    def looked_at(self) -> int:
        """How many indexes time has sufficed for."""
        return len(self.segments) + len(self.damaged) + len(self.denied)

    @property
    def complete(self) -> bool:
        """Whether time has sufficed for all."""
        return self.looked_at == self.listed

    @property
    def unread(self) -> list[IndexKey]:
        """Those that cannot be read."""
        names = (*(name for name, _ in self.damaged), *self.denied)
        return [key for key in map(parse_index_key, names) if key is not None]

    def note(self, item: ListedObject, result: _Found) -> None:
        """Takes what is at a key that was listed: nothing any more, damage, a segment, or what nobody knows."""
        if result is None:
            self.listed -= 1
        elif isinstance(result, Problem):
            self.damaged.append((item.key, result))
            self.damaged_ms = max(self.damaged_ms or 0, item.modified_ms)
        elif isinstance(result, KnownSegment):
            self.segments.append(result)
        else:
            self.denied.append(item.key)


def readers() -> ThreadPoolExecutor:
    """Threads that read what one topic has, several objects at once."""
    return ThreadPoolExecutor(STATUS_READERS, thread_name_prefix="status")


def read_topics(store: ObjectStore, wanted: str | None, ends_at: float) -> Iterator[ReadTopic]:
    """Every topic of the store that :func:`read_topic` finds, with its arguments.

    Raises:
        StoreError: the store does not answer.
    """
    with readers() as pool:
        for topic_id in indexed_topic_ids(store):
            found = read_topic(store, topic_id, wanted, ends_at, pool)
            if found is not None:
                yield found


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
    found, trouble = _look(read, table, store, settings)
    for _ in range(STATUS_LOOKS_MAX - 1):
        if trouble is None:
            return found
        _renew(store, read)
        before = trouble
        found, trouble = _look(read, table, store, settings)
        if trouble is not None and trouble.same(before):
            return found
    return found if trouble is None else replace(found, table_problem=None, damaged=tuple(read.damaged), unsettled=True)


class UnreadBatchesError(Exception):
    """The batches of a segment that waits could not be read."""

    def __init__(self, segment: KnownSegment, problem: Problem) -> None:
        super().__init__(f"{segment.listed.key}: {problem.message}")
        self.segment = segment
        self.problem = problem


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


def _named(known: KnownSegment, kept: dict[str, Batches]) -> KnownSegment:
    """The same; when its batches cannot be read, the error says whose. `kept`: those that were read last."""
    if known.segment is None:
        return known
    load = known.segment.load

    def named() -> Batches:
        """Its batches."""
        if (found := kept.get(known.listed.key)) is not None:
            return found
        try:
            found = load()
        except StoreError:
            raise
        except (BridgeError, SegmentError) as error:
            raise UnreadBatchesError(known, problem_of(error)) from error
        kept[known.listed.key] = found
        if len(kept) > STATUS_BATCHES_KEPT:
            del kept[next(iter(kept))]
        return found

    return replace(known, segment=replace(known.segment, load=named))


def _look(
    read: ReadTopic, table: Callable[[KnownSegment], Head | None] | None, store: ObjectStore, settings: Settings
) -> tuple[StoredTopic, _Trouble | None]:
    # Before the table: one that is made meanwhile is then found, and no other one.
    recorded_tables = () if table is None else tuple(read_records(store, read.topic_id))
    head, states, facts, problem = _table(store, table, read.segments, lost=bool(recorded_tables))
    others = _others(recorded_tables, head)
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
    undeleted, undelete_problem = _undeleted(store, read.topic_id)
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
        unindexed=unindexed(read.segments, states, head.files, read.unread)
        if read.complete and states and head
        else {},
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
    kept: dict[str, Batches] = {}
    named = [_named(known, kept) for known in read.segments]
    if states is not None:
        _read_ahead(named, _asked_for(named, states, files, policy, may_requeue=may_requeue))

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


def _asked_for(
    segments: Sequence[KnownSegment],
    states: Mapping[int, PartState],
    files: Sequence[LiveFile],
    policy: Policy,
    *,
    may_requeue: bool,
) -> set[str]:
    """Keys of the segments whose batches will be asked for: those not published, and those that may lack rows."""
    start = PartState()
    found = {item.listed.key for item in segments if item.key.last >= states.get(item.key.partition, start).frontier}
    return found.union(*lacking(segments, states, files, policy).values()) if may_requeue else found


def _read_ahead(segments: Iterable[KnownSegment], keys: Container[str]) -> None:
    """Reads the batches of those with these keys, several at once; what cannot be read fails when it is asked for."""
    wanted = [known.segment for known in segments if known.segment is not None and known.listed.key in keys]
    with readers() as pool:
        for read in [pool.submit(segment.load) for segment in wanted[:STATUS_BATCHES_KEPT]]:
            with suppress(UnreadBatchesError):
                read.result()


def _told_all(read: ReadTopic, facts: TableFacts) -> bool:
    """Whether a requeue could tell what the table lacks: it reads every index, and refuses beside what others did."""
    return read.complete and not read.unread and not facts.foreign and facts.foreign_commits is None


def _table(
    store: ObjectStore,
    find: Callable[[KnownSegment], Head | None] | None,
    segments: Sequence[KnownSegment],
    *,
    lost: bool,
) -> tuple[Head | None, dict[int, PartState] | None, TableFacts | None, Problem | None]:
    """Head, state and facts of the table, or what is wrong with it. `lost`: there was one.

    Without a table the state is empty, of one that is lost None: then nothing is said of what waits for it.
    """
    if find is None or not segments:
        return None, None, None, None
    head: Head | None = None
    try:
        head = _head(find, segments)
        if head is None:
            return None, None if lost else {}, None, None
        states = recorded(store, head)
        return head, states, _with_rows(table_facts(head, states), head), None
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever metadata and its storage raise is one table's problem
        problem = problem_of(error)
        return head, None, None, problem if head is None else replace(problem, table=".".join(head.table.name()))


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
    """Finds and reads the table a segment belongs to."""

    def find(known: KnownSegment) -> Head | None:
        """The head of the segment's table, None without one. Raises where no bridge would write the table."""
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


def read_topic(
    store: ObjectStore, topic_id: bytes, wanted: str | None, ends_at: float, pool: ThreadPoolExecutor
) -> ReadTopic | None:
    """One topic; None where it has nothing any more, or another name.

    Args:
        store: to read.
        topic_id: of a topic that has anything there.
        wanted: name of a topic; None: any.
        ends_at: monotonic seconds; behind it one of its indexes is read.
        pool: of :func:`readers`.

    Raises:
        StoreError: the store does not answer.
    """
    listed = _listed(store, topic_id)
    found = ReadTopic(topic_id=topic_id, topic="", listed=len(listed))
    for known in _read_each(store, listed, ends_at, pool, found):
        if not found.topic:
            found.topic = known.owner.topic
            if wanted is not None and found.topic != wanted:
                return None
        found.segments.append(known)
    found.topic = found.topic or topic_id.hex()
    # Objects that were reclaimed between listing and reading are no longer part of the topic.
    return found if found.listed else None


def _listed(store: ObjectStore, topic_id: bytes) -> list[_Row]:
    """Index keys of a topic, newest first."""
    rows = [
        (key, item)
        for item in store.list_after(index_prefix(topic_id))
        if (key := parse_index_key(item.key)) is not None
    ]
    return sorted(rows, key=lambda row: row[0].last, reverse=True)


def _renew(store: ObjectStore, read: ReadTopic) -> None:
    """Reads anew what has changed since it was read; what time had not sufficed for stays unread."""
    rows = _listed(store, read.topic_id)
    known = {item.listed.key: item for item in read.segments}
    newest = rows if read.complete else rows[: read.looked_at]
    read.listed, read.segments, read.damaged, read.damaged_ms, read.denied = len(rows), [], [], None, []
    for key, item in newest:
        had = known.get(item.key)
        if had is not None and had.listed.same(item):
            read.segments.append(had)
        else:
            read.note(item, _read_one(store, key, item))


def _read_each(
    store: ObjectStore, listed: Sequence[_Row], ends_at: float, pool: ThreadPoolExecutor, found: ReadTopic
) -> Iterable[KnownSegment]:
    """Reads in bunches; the first one is a single object, which says whose topic it is."""
    start, size = 0, 1
    while start < len(listed) and (start == 0 or time.monotonic() < ends_at):
        bunch = listed[start : start + size]
        for (_, item), result in zip(bunch, pool.map(lambda pair: _read_one(store, *pair), bunch), strict=True):
            if isinstance(result, KnownSegment):
                yield result
            else:
                found.note(item, result)
        start, size = start + size, 8 * STATUS_READERS


def _read_one(store: ObjectStore, key: IndexKey, listed: ListedObject) -> _Found:
    """What is at a key; None: nothing any more. Damage must be met twice in the same content.

    A tombstone or a merged index may take an index's place between two reads of it. A key that is not there must have
    left the listing too: what a store lists and denies is neither gone nor damaged, but unread.
    """
    failed: ListedObject | None = None
    while True:
        try:
            return read_known(store, key, listed)
        except StoreError:
            raise
        except ObjectNotFoundError:
            return _gone(store, listed.key)
        except (BridgeError, SegmentError) as error:
            problem = problem_of(error)
        try:
            listed = store.stat(listed.key)
        except ObjectNotFoundError:
            return _gone(store, listed.key)
        if failed is not None and listed.same(failed):
            return problem
        failed = listed


def _gone(store: ObjectStore, key: str) -> Literal["unread"] | None:
    try:
        confirm_gone(store, [key])
    except DeniedKeyError:
        return "unread"
    return None
