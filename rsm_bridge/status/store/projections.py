"""What is known of a topic's declared projections: their progress, and what its table has and holds back for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from iceberg_catalog.commit.head import Head, by_partition
from iceberg_catalog.plan.hold import ReadTo, first_unread, living_ends, lost_below
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import LiveFile, PartState
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.metrics.progress.facts import Problem, ProjectionFacts, WaitingRows
from rsm_bridge.status.store.topic import readers
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import DeclaredProjection, WaitingProjection, declared_projections, deletions
from rsm_bridge.storage.projections.progress import ProjectionProgress, read_one
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


def projection_facts(
    settings: Settings,
    store: ObjectStore,
    head: Head,
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
    now_ms: int,
) -> tuple[ProjectionFacts, ...]:
    """Facts of every projection that the rules declare for one topic id.

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
    found: list[ProjectionFacts] = []
    declared = tuple(declared_projections(settings, owner.topic, head.table.name()[-1]))
    with readers() as pool:
        read_each = list(pool.map(lambda item: _progress(store, item.key(owner.topic_id)), declared))
    for projection, (progress, damage) in zip(declared, read_each, strict=True):
        read = {} if progress is None else progress.read
        keeps = settings.rule(owner.topic).table_retention == "keep"
        waiting = None if keeps else _waiting(projection, read, head.files, states, segments, now_ms)
        found.append(
            ProjectionFacts(
                table=projection.table,
                catalog=projection.catalog,
                hold_s=projection.rule.hold,
                progress=progress,
                damage=damage,
                snapshot_id=head.snapshot_id,
                waiting=waiting,
                **_lag(read, head.files, states, segments),
            )
        )
    return tuple(found)


def _progress(store: ObjectStore, key: str) -> tuple[ProjectionProgress | None, Problem | None]:
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
    """What the table has that the projection has not read."""
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
            known.listed.modified_ms if known.requeued else known.written_ms  # late rows are as old as their repair
            for known in groups[number]
            if known.live and start <= known.key.last and known.key.base < state.frontier
        ]
    return _Lag(lag_offsets=offsets, lag_rows=rows, unread_ms=min(tiered_ms, default=None))


def _read_of(read: Mapping[int, ReadTo], number: int) -> ReadTo:
    return read.get(number, ReadTo())


def _waiting(
    projection: DeclaredProjection,
    read: Mapping[int, ReadTo],
    files: Sequence[LiveFile],
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
    now_ms: int,
) -> WaitingRows | None:
    """What stays below the floor for this projection, and when the first of it may go unread; None: nothing."""
    limit_ms = int(projection.rule.hold * 1000)
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    waiting: list[LiveFile] = []
    ends_ms: list[int] = []
    for number, state in states.items():
        ends = living_ends(deletions(groups[number]), Lineage(state.lineage, state.known_end))
        start = max(first_unread(_read_of(read, number), state), lost_below(limit_ms, ends, now_ms))
        top = max((end for end, _ in ends), default=0)
        found = [file for file in of_partition[number] if file.last < state.floor and start <= file.last]
        found = [file for file in found if file.first < top]
        waiting += found
        ends_ms += [time_ms + limit_ms for end, time_ms in ends if found and end > start]
    if not waiting or not ends_ms or not limit_ms:
        return None
    return WaitingRows(
        sum(item.rows for item in waiting), len(waiting), sum(item.size_bytes for item in waiting), min(ends_ms)
    )


def waiting_projections(projections: Sequence[ProjectionFacts]) -> list[WaitingProjection]:
    """What the publish plan takes of them."""
    return [
        WaitingProjection(
            projection.table,
            int(projection.hold_s * 1000),
            {} if projection.progress is None else projection.progress.read,
        )
        for projection in projections
        if projection.hold_s > 0
    ]
