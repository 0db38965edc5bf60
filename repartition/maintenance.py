"""Maintenance of a copy's table, in turn with its runs, by Iceberg's own procedures.

MERGE and compaction at the same time would fail each other; in turn neither does. Should another job run meanwhile, its
run is refused when it publishes, and it starts over; or the chore is refused, and left to the next round. Snapshots
stay for SNAPSHOT_AGE_MS, so no reader meets a file that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from converter import columns
from repartition.chores import LAST_ORPHANS, LAST_RETENTION, Budget, Chore, due, facts_of
from repartition.errors import RepartitionError, first_line, lost_maintenance
from repartition.job import CopyJob
from repartition.limits import (
    COMPACTION_INPUT_FILES_MIN,
    ORPHAN_AGE_MS,
    SNAPSHOT_AGE_MS,
    SNAPSHOTS_KEPT,
)
from repartition.reporting import now_ms
from repartition.target import load_copy, quoted
from rsm_bridge.copy_layout import sort_term
from rsm_bridge.lease import Lease, kept, lease_key
from rsm_bridge.maintain_service import holder_name


@dataclass(frozen=True, slots=True)
class Done:
    """One chore. `said`: what it did, in the procedure's own figures."""

    chore: Chore
    seconds: float
    said: str


def maintain(job: CopyJob, budget: Budget, clock: Callable[[], int] = now_ms) -> list[Done]:
    """Does what is due while the budget lasts, unless another job is at it.

    Raises:
        RepartitionError: `spark`: a chore failed, or the table cannot be looked at; nothing is half done, the next pass
            goes on. `not_ours`: it is somebody else's by now.
        StoreError: the store does not answer.
    """
    digest = job.copy.key(job.source.owner.topic_id).rpartition("/")[2].removesuffix(".json")
    lease = Lease(job.source.place.store, lease_key(f"copy-{digest}"), holder_name())
    if not budget.left():
        return []
    chores = _due(job, clock())
    if not chores or not lease.acquire():
        return []
    done: list[Done] = []
    with kept(lease):
        for chore in chores:
            if not budget.left():
                break
            job.step(chore)
            began = time.monotonic()
            try:
                said = _CHORES[chore](job, clock())
            except Exception as error:
                if not lost_maintenance(error):
                    raise RepartitionError(
                        "spark", f"{chore} failed, the next round tries again: {first_line(error)}"
                    ) from error
                said = "another job was faster; the next round tries again"
            done.append(Done(chore, time.monotonic() - began, said))
            budget.maintaining_s += done[-1].seconds
    return done


def _due(job: CopyJob, at_ms: int) -> tuple[Chore, ...]:
    try:
        table = load_copy(job.target.catalog, job.name, job.source.owner, job.rule.mode)
        if table is None:
            return ()
        facts = facts_of(table.metadata, lambda snapshot: len(snapshot.manifests(table.io)))
    except RepartitionError:
        raise
    except Exception as error:  # whatever a client of catalog or store raises: other copies go on
        said = f"maintenance cannot look at the table, the next round tries again: {first_line(error)}"
        raise RepartitionError("spark", said) from error
    return due(facts, at_ms, retention=job.rule.retention is not None)


def _retention(job: CopyJob, at_ms: int) -> str:
    name = quoted(job.target.spark_name, *job.name)
    oldest = _timestamp(at_ms - int((job.rule.retention or 0) * 1000))
    job.session.sql(f"DELETE FROM {name} WHERE {columns.TIMESTAMP} < {oldest}")
    _note(job, LAST_RETENTION, at_ms)
    return f"rows before {oldest} deleted"


def _compaction(job: CopyJob, _at_ms: int) -> str:
    order = ", ".join(sort_term(text).sql() for text in job.rule.sort_by)
    how = f"strategy => 'sort', sort_order => '{order}', " if order else ""
    found = job.call(
        "rewrite_data_files",
        f"{how}options => map('min-input-files', '{COMPACTION_INPUT_FILES_MIN}', 'delete-file-threshold', '1', "
        "'remove-dangling-deletes', 'true')",
    )
    job.record_again()
    return f"{found['rewritten_data_files_count']} files became {found['added_data_files_count']}"


def _manifests(job: CopyJob, _at_ms: int) -> str:
    found = job.call("rewrite_manifests", "use_caching => false")
    return f"{found['rewritten_manifests_count']} manifests became {found['added_manifests_count']}"


def _expiry(job: CopyJob, at_ms: int) -> str:
    oldest = _timestamp(at_ms - SNAPSHOT_AGE_MS)
    found = job.call("expire_snapshots", f"older_than => {oldest}, retain_last => {SNAPSHOTS_KEPT}")
    return f"{found['deleted_data_files_count']} data files expired"


def _orphans(job: CopyJob, at_ms: int) -> str:
    # Listed by the table's own client, which is set up for its store.
    given = f"older_than => {_timestamp(at_ms - ORPHAN_AGE_MS)}, prefix_listing => true"
    rows = job.call_rows("remove_orphan_files", given)
    _note(job, LAST_ORPHANS, at_ms)
    return f"{len(rows)} files of nobody removed"


def _note(job: CopyJob, key: str, at_ms: int) -> None:
    job.session.sql(f"ALTER TABLE {quoted(job.target.spark_name, *job.name)} SET TBLPROPERTIES ('{key}' = '{at_ms}')")


def _timestamp(at_ms: int) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


_CHORES: dict[Chore, Callable[[CopyJob, int], str]] = {
    "retention": _retention,
    "compaction": _compaction,
    "manifests": _manifests,
    "expiry": _expiry,
    "orphans": _orphans,
}
