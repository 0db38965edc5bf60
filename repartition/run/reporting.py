"""What a run tells the bridge and `tierberg status` through the store: how far the projection is, what went wrong."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
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
    lost: Mapping[int, tuple[int, int]],
    table: Table | None,
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
        lost: offsets [first, end) by partition that this run found gone.
        table: the projection's, as it is now; None while there is none.
        clock: milliseconds since the epoch.

    Raises:
        StoreError: the store does not take it. The projection itself has its rows.
    """
    before, at = _known(store, topic_id, projection), clock()
    known = {number: item.offsets for number, item in before.lost.items()}
    losses = {n: ProjectionLoss(known.get(n, 0) + end - first, end, at) for n, (first, end) in lost.items()}
    read = {number: ReadTo(item.next, item.rewinds, item.repairs) for number, item in frontier.positions.items()}
    write_progress(
        store,
        replace(
            before,
            read=read,
            snapshot_id=snapshot_id,
            succeeded_ms=at,
            caught_up_ms=pinned_ms if complete else before.caught_up_ms,
            size=None if table is None else _size(table),
            failure=None,
            lost={**before.lost, **losses},
        ),
    )


def report_failure(
    store: ObjectStore,
    topic_id: bytes,
    projection: DeclaredProjection,
    error: RepartitionError,
    clock: Callable[[], int] = now_ms,
) -> None:
    """Says why the last run failed; what was read before stays. A store that does not answer is let be."""
    with contextlib.suppress(StoreError):
        before = _known(store, topic_id, projection)
        write_progress(
            store, replace(before, failure=ProjectionFailure(clock(), str(error), _ADVICE.get(error.kind, "")))
        )


def report_size(store: ObjectStore, topic_id: bytes, projection: DeclaredProjection, table: Table) -> None:
    """Says how large the projection is now, after maintenance; what was read before stays.

    Raises:
        StoreError: the store does not take it.
    """
    write_progress(store, replace(_known(store, topic_id, projection), size=_size(table)))


def _known(store: ObjectStore, topic_id: bytes, projection: DeclaredProjection) -> ProjectionProgress:
    nothing = ProjectionProgress(topic_id=topic_id, catalog=projection.catalog, table=projection.table)
    try:
        return read_one(store, projection.key(topic_id)) or nothing
    except StoreError:
        raise
    except BridgeError:  # damaged: it is written anew
        return nothing


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
