"""What a run tells the bridge and `tierberg status` through the store: how far the projection is, what went wrong."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table

from iceberg_catalog.plan.hold import ReadTo
from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import DeclaredProjection
from rsm_bridge.storage.projections.progress import (
    ProjectionFailure,
    ProjectionLoss,
    ProjectionProgress,
    ProjectionSize,
    read_one,
    write_progress,
)

_ADVICE: Final = {
    "rewound": "run `tierberg repartition TOPIC --repair`",
    "no_frontier": "where mode is append run `tierberg repartition TOPIC --repair`, which goes by the rows; otherwise "
    "drop the projection's table, and let it be filled again",
    "not_ours": "choose another `table` for the projection",
    "key_moved": "take a key that stays in its partition, or set key_order: timestamp",
    "bad_rule": "correct the projection's rule",
    "raced": "see who else commits to the projection's table while runs last, or let a run read less (`max_mib`)",
    "no_source": "nothing where an engine has dropped the table, for it comes back; where the topic is gone, take the "
    "projection out of the rule, or name another `table` for the topic that is in its place",
    "store_unavailable": "mend the store or its credentials; the next run goes on by itself",
    "unavailable": "mend the catalog or its credentials; the next run goes on by itself",
    "spark": "look into the job's log, where Spark says more; where memory ran out give it more, or set `max_mib`",
    **dict.fromkeys(
        ("corrupt_state", "state_missing", "schema_mismatch", "owner_mismatch", "corrupt_object", "not_found"),
        "see to the topic's own table first: `tierberg status TOPIC` says what is wrong with it",
    ),
    "unsupported_version": "upgrade this release",
}


def now_ms() -> int:
    """Since the epoch."""
    return time.time_ns() // 1_000_000


def report_run(
    store: ObjectStore,
    topic_id: bytes,
    projection: DeclaredProjection,
    frontier: Frontier,
    *,
    snapshot_id: int | None,
    pinned_ms: int,
    complete: bool,
    table: Table | None,
    letters: Table | None,
    clock: Callable[[], int] = now_ms,
) -> None:
    """Says that a run has read up to `frontier` of a snapshot of the topic's table.

    Args:
        store: the topic's.
        topic_id: 16 bytes.
        projection: which one.
        frontier: of the projection now.
        snapshot_id: of the topic's table.
        pinned_ms: when that was its head, since the epoch: what came after is not in it, however long the run took.
        complete: nothing of it is left unread.
        table: the projection's, as it is now; None while there is none.
        letters: that of its dead letters, the same.
        clock: milliseconds since the epoch.

    Raises:
        StoreError: the store does not take it. The projection itself has its rows.
    """
    at = clock()
    read = {number: ReadTo(item.next, item.rewinds, item.repairs) for number, item in frontier.positions.items()}
    buried = None if letters is None else _size(letters)

    def change(before: ProjectionProgress) -> ProjectionProgress:
        return replace(
            before,
            read=read,
            snapshot_id=snapshot_id,
            succeeded_ms=at,
            caught_up_ms=pinned_ms if complete else before.caught_up_ms,
            size=None if table is None else _size(table),
            failure=None,
            lost=_most(before.lost, frontier.lost),
            dead_letters=0 if buried is None else buried.rows,
        )

    write_progress(store, _nothing(topic_id, projection), change)


def lost_by_now(
    store: ObjectStore,
    projection: DeclaredProjection,
    before: Frontier,
    lost: Mapping[int, tuple[int, int]],
    clock: Callable[[], int] = now_ms,
) -> Mapping[int, ProjectionLoss]:
    """All that a projection will never have, by partition, for the commit that goes on behind it.

    Args:
        store: the topic's. Knows what was lost before the projection's commits said it.
        projection: which one.
        before: its frontier.
        lost: offsets [first, end) by partition that are found gone now.
        clock: milliseconds since the epoch.

    Raises:
        StoreError: the store does not answer.
    """
    progress, at = None, clock()
    try:
        progress = read_one(store, projection.key(before.topic_id))
    except StoreError:
        raise
    except BridgeError:  # damaged: the frontier alone knows
        pass
    known = _most(before.lost, {} if progress is None else progress.lost)
    offsets = {number: item.offsets for number, item in known.items()}
    return known | {n: ProjectionLoss(offsets.get(n, 0) + end - first, end, at) for n, (first, end) in lost.items()}


def report_failure(
    store: ObjectStore,
    topic_id: bytes,
    projection: DeclaredProjection,
    error: RepartitionError,
    clock: Callable[[], int] = now_ms,
) -> None:
    """Says why the last run failed; what was read before stays. A store that does not answer is let be."""
    failure = _failure(error, clock())
    with contextlib.suppress(StoreError):
        write_progress(store, _nothing(topic_id, projection), lambda before: replace(before, failure=failure))


def report_maintenance(
    store: ObjectStore,
    topic_id: bytes,
    projection: DeclaredProjection,
    *,
    failed: Mapping[str, RepartitionError],
    open_still: Collection[str] | None,
    table: Table | None,
    clock: Callable[[], int] = now_ms,
) -> None:
    """Says what maintenance has left undone, and how large the projection is now. What was read before stays.

    Args:
        store: the topic's. One that does not answer is let be.
        topic_id: 16 bytes.
        projection: which one.
        failed: chores that have failed now, by name.
        open_still: chores that are due and have not gone well; what failed of others before is over. None: not known.
        table: the projection's; None: its size is what it was.
        clock: milliseconds since the epoch.
    """
    failures = {chore: _failure(error, clock()) for chore, error in failed.items()}

    def change(before: ProjectionProgress) -> ProjectionProgress:
        known = before.failed_chores
        left = {chore: known[chore] for chore in known if open_still is None or chore in open_still}
        size = before.size if table is None else _size(table)
        return replace(before, failed_chores=left | failures, size=size)

    with contextlib.suppress(StoreError):
        write_progress(store, _nothing(topic_id, projection), change)


def _failure(error: RepartitionError, at_ms: int) -> ProjectionFailure:
    return ProjectionFailure(at_ms, str(error), _ADVICE.get(error.kind, ""))


def _nothing(topic_id: bytes, projection: DeclaredProjection) -> ProjectionProgress:
    return ProjectionProgress(topic_id=topic_id, catalog=projection.catalog, table=projection.table)


def _most(one: Mapping[int, ProjectionLoss], other: Mapping[int, ProjectionLoss]) -> dict[int, ProjectionLoss]:
    """Each has all that was lost up to some time: by partition, the one that has more."""
    return {
        number: max((each[number] for each in (one, other) if number in each), key=lambda item: item.offsets)
        for number in sorted(one.keys() | other.keys())
    }


def _size(table: Table) -> ProjectionSize | None:
    """By the totals of the head's summary, which every commit carries on.

    Rows are those of the data files less those that position deletes and deletion vectors take out. Deletes of files
    that compaction has replaced count until they go too.
    """
    head = table.current_snapshot()
    summary = None if head is None else head.summary
    if summary is None:
        return None
    names = ("total-records", "total-data-files", "total-files-size")
    found = [summary.additional_properties.get(name, "") for name in names]
    found.append(summary.additional_properties.get("total-position-deletes", "0"))
    if not all(item.isdecimal() for item in found):
        return None
    rows, files, size_bytes, deleted = map(int, found)
    return ProjectionSize(max(0, rows - deleted), files, size_bytes)
