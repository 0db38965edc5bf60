"""What is known of a topic's declared copies: their own progress beside what its table has and holds back for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from iceberg_catalog.commit.head import Head, by_partition
from iceberg_catalog.plan.hold import ReadTo, first_unread, living_ends, lost_below
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import LiveFile, PartState
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.metrics.progress.facts import CopyFacts, HeldRows, Problem
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import DeclaredCopy, WaitingCopy, declared_copies, deletions
from rsm_bridge.storage.projections.progress import CopyProgress, read_one
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


def copy_facts(
    settings: Settings,
    store: ObjectStore,
    head: Head,
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
    now_ms: int,
) -> tuple[CopyFacts, ...]:
    """Facts of every copy that the rules declare for one topic id.

    Args:
        settings: have the rules.
        store: has the progress.
        head: of the topic's table.
        states: recorded with it.
        segments: every index and tombstone of the topic id, at least one.
        now_ms: since the epoch.

    Raises:
        StoreError: the store does not answer.
    """
    owner = segments[0].owner
    found: list[CopyFacts] = []
    for copy in declared_copies(settings, owner.topic, head.table.name()[-1]):
        progress, damage = _progress(store, copy.key(owner.topic_id))
        read = {} if progress is None else progress.read
        keeps = settings.rule(owner.topic).table_retention == "keep"
        held = None if keeps else _held(copy, read, head.files, states, segments, now_ms)
        found.append(
            CopyFacts(
                table=copy.table,
                catalog=copy.catalog,
                hold_s=copy.rule.hold,
                progress=progress,
                damage=damage,
                snapshot_id=head.snapshot_id,
                held=held,
                **_lag(read, head.files, states, segments),
            )
        )
    return tuple(found)


def _progress(store: ObjectStore, key: str) -> tuple[CopyProgress | None, Problem | None]:
    try:
        return read_one(store, key), None
    except StoreError:
        raise
    except BridgeError as error:
        return None, Problem(error.kind, str(error))


class _Lag(TypedDict):
    lag_offsets: int
    lag_rows: int
    unread_ms: int | None


def _lag(
    read: Mapping[int, ReadTo],
    files: Sequence[LiveFile],
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
) -> _Lag:
    """What the table has that the copy has not read."""
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    offsets, rows = 0, 0
    tiered_ms: list[int] = []
    for number, state in states.items():
        start = first_unread(_read_of(read, number), state)
        if start >= state.frontier:
            continue
        offsets += state.frontier - start
        ahead = [file for file in of_partition[number] if start <= file.last and file.first < state.frontier]
        rows += sum(min(file.rows, file.last + 1 - max(file.first, start)) for file in ahead)
        tiered_ms += [
            known.listed.modified_ms
            for known in groups[number]
            if known.live and start <= known.key.last and known.key.base < state.frontier
        ]
    return _Lag(lag_offsets=offsets, lag_rows=rows, unread_ms=min(tiered_ms, default=None))


def _read_of(read: Mapping[int, ReadTo], number: int) -> ReadTo:
    return read.get(number, ReadTo())


def _held(
    copy: DeclaredCopy,
    read: Mapping[int, ReadTo],
    files: Sequence[LiveFile],
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
    now_ms: int,
) -> HeldRows | None:
    """What stays below the floor for this copy, and when the first of it may go unread; None: nothing."""
    limit_ms = int(copy.rule.hold * 1000)
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    held: list[LiveFile] = []
    ends_ms: list[int] = []
    for number, state in states.items():
        ends = living_ends(deletions(groups[number]), Lineage(state.lineage, state.known_end))
        start = max(first_unread(_read_of(read, number), state), lost_below(limit_ms, ends, now_ms))
        top = max((end for end, _ in ends), default=0)
        found = [file for file in of_partition[number] if file.last < state.floor and start <= file.last]
        found = [file for file in found if file.first < top]
        held += found
        ends_ms += [time_ms + limit_ms for end, time_ms in ends if found and end > start]
    if not held or not ends_ms or not limit_ms:
        return None
    return HeldRows(sum(item.rows for item in held), len(held), sum(item.size_bytes for item in held), min(ends_ms))


def waiting_copies(copies: Sequence[CopyFacts]) -> list[WaitingCopy]:
    """What the publish plan takes of them."""
    return [
        WaitingCopy(copy.table, int(copy.hold_s * 1000), {} if copy.progress is None else copy.progress.read)
        for copy in copies
        if copy.hold_s > 0
    ]
