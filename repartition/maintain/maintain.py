"""Maintenance of a projection's tables, in turn with its runs, by Iceberg's own procedures.

MERGE and compaction at the same time would fail each other; in turn neither does. Should another job run meanwhile, its
run is refused when it publishes, and it starts over; or the chore is refused, and left to the next round. Snapshots
stay for SNAPSHOT_AGE_MS, so no reader meets a file that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from converter.parquet import columns
from repartition.errors import RepartitionError, as_ours, first_line, lost_maintenance
from repartition.limits import (
    COMPACTION_DELETED_SHARE_MIN,
    COMPACTION_INPUT_FILES_MIN,
    COMPACTION_LOWEST_TIER_BYTES,
    COMPACTION_TIERS_APART,
    ORPHAN_AGE_MS,
    SNAPSHOT_AGE_MS,
    SNAPSHOTS_KEPT,
)
from repartition.maintain.due import (
    LAST_COMPACTION,
    LAST_EXPIRY,
    LAST_ORPHANS,
    LAST_RETENTION,
    Budget,
    Chore,
    due,
    facts_of,
)
from repartition.run.reporting import now_ms, report_maintenance
from repartition.run.run import LETTERS, ProjectionJob
from repartition.run.target import load_projection, quoted, run_branches, staged
from repartition.run.write import append
from rsm_bridge.config.layout_terms import row_order
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import MIB
from rsm_bridge.storage.lease import Lease, holder_name, kept, lease_key

#: What Iceberg calls its own column while it interleaves.
_OF_ZORDER: Final = "ICEZVALUE"
#: What `tierberg status` calls it, beside the chores: before any of them it is seen what is due.
_LOOK: Final = "look"
_BEATEN: Final = "another job was faster; the next round tries again"


@dataclass(frozen=True, slots=True)
class Done:
    """One chore. `said`: what it did, in the procedure's own figures."""

    chore: Chore
    seconds: float
    said: str


def maintain(job: ProjectionJob, budget: Budget, clock: Callable[[], int] = now_ms) -> list[Done]:
    """Does what is due while the budget lasts, unless another job is at it: projection first, then its dead letters.

    What fails is in the store, for `tierberg status`, until it goes well or is not due any more.

    Raises:
        RepartitionError: `spark`: a chore failed, or, with what kind that has, the table cannot be looked at; nothing
            is half done, the next pass goes on. `not_ours`: it is somebody else's by now.
        StoreError: the store does not answer.
    """
    if not budget.left():
        return []
    digest = job.projection.key(job.source.owner.topic_id).rpartition("/")[2].removesuffix(".json")
    lease = Lease(store=job.source.backend.store, key=lease_key(f"copy-{digest}"), holder=holder_name())
    try:
        chores = [(table, chore) for table in kept_tables(job) for chore in _due(table, clock())]
        if chores and not lease.acquire():
            return []
    except (RepartitionError, BridgeError) as error:
        _report(job, {_LOOK: as_ours(error)}, None)
        raise
    if not chores:
        _report(job, {}, set())
        return []
    done: list[Done] = []
    failed: dict[str, RepartitionError] = {}
    open_still = {f"{table.called}{chore}" for table, chore in chores}
    with kept(lease):
        for table, chore in chores:
            if not budget.left():
                break
            job.step(chore)
            began = time.monotonic()
            try:
                said = _do(table, chore, clock())
            except RepartitionError as error:
                failed[f"{table.called}{chore}"] = error  # the others have nothing to do with it
            else:
                done.append(Done(chore, time.monotonic() - began, f"{table.called}{said}"))
                if said != _BEATEN:
                    open_still.remove(f"{table.called}{chore}")
            budget.maintaining_s += time.monotonic() - began
        _report(job, failed, open_still, _as_it_is(kept_tables(job)[0]))
    if failed:
        raise next(iter(failed.values()))
    return done


def _as_it_is(projection: KeptTable) -> Any:
    """The table, for its size; None where the catalog does not answer: the next run says the size too."""
    with suppress(Exception):
        return projection.load()
    return None


def _report(
    job: ProjectionJob, failed: Mapping[str, RepartitionError], open_still: set[str] | None, table: Any = None
) -> None:
    store, topic_id = job.source.backend.store, job.source.owner.topic_id
    report_maintenance(store, topic_id, job.projection, failed=failed, open_still=open_still, table=table)


def _due(table: KeptTable, at_ms: int) -> tuple[Chore, ...]:
    try:
        found = table.load()
        if found is None:
            return ()
        facts = facts_of(found.metadata, lambda snapshot: len(snapshot.manifests(found.io)), at_ms)
    except RepartitionError:
        raise
    except Exception as error:  # whatever a client of catalog or store raises: other projections go on
        said = f"maintenance cannot look at the table, the next round tries again: {first_line(error)}"
        raise RepartitionError(as_ours(error).kind, said) from error
    return due(facts, at_ms, retention=table.job.rule.retention is not None)


def _do(table: KeptTable, chore: Chore, at_ms: int) -> str:
    try:
        return _CHORES[chore](table, at_ms)
    except Exception as error:
        raced = error.kind == "raced" if isinstance(error, RepartitionError) else lost_maintenance(error)
        if raced:
            return _BEATEN
        if isinstance(error, RepartitionError):
            raise
        raise RepartitionError("spark", f"{chore} failed, the next round tries again: {first_line(error)}") from error


def _retention(table: KeptTable, at_ms: int) -> str:
    oldest = _timestamp(at_ms - int((table.job.rule.retention or 0) * 1000))
    table.sql(f"DELETE FROM {table.quoted} WHERE {columns.TIMESTAMP} < {oldest}")
    _note(table, LAST_RETENTION, at_ms)
    return f"rows before {oldest} deleted"


def _compaction(table: KeptTable, at_ms: int) -> str:
    """Small files of a partition become one, and files with many deleted rows new ones.

    From the lowest tier up: a file that was made of others is not written anew before there are as many of its size.
    Delete files need no folding: of each data file there is one, which every run writes anew.
    """
    order = _order(table)
    how = f"strategy => 'sort', sort_order => '{order}', " if order else ""
    options = {
        "min-input-files": COMPACTION_INPUT_FILES_MIN,
        "delete-ratio-threshold": COMPACTION_DELETED_SHARE_MIN,
        "remove-dangling-deletes": "true",
        "rewrite-job-order": "files-desc",
    }
    were, are = 0, 0
    for bytes_max in tiers(table.job.rule.target_file_mib * MIB):
        given = _options({**options, "min-file-size-bytes": bytes_max})
        found = table.call("rewrite_data_files", f"{how}options => {given}")
        were, are = were + found["rewritten_data_files_count"], are + found["added_data_files_count"]
    if were:
        table.record_again()
    # Where no partition has enough small files, nothing tells that it was looked.
    _note(table, LAST_COMPACTION, at_ms)
    return f"{were} files became {are}"


def _order(table: KeptTable) -> str:
    """Of rows within what compaction writes, as its procedure takes it."""
    order, found = row_order(table.sort_by), table.load()
    # A column of this name would fail every compaction, and whoever writes events may name one so.
    if found is not None and any(name.upper() == _OF_ZORDER for name in found.schema().column_names):
        order = replace(order, interleaved=False)
    return order.sql()


def tiers(target_bytes: int) -> list[int]:
    """Below how many bytes a file is small, tier by tier; in the last one it is small for a file of `target_bytes`."""
    found = [target_bytes * 3 // 4]
    while found[0] > COMPACTION_LOWEST_TIER_BYTES * COMPACTION_TIERS_APART:
        found.insert(0, found[0] // COMPACTION_TIERS_APART)
    return found


def _options(given: Mapping[str, object]) -> str:
    return "map(" + ", ".join(f"'{key}', '{value}'" for key, value in given.items()) + ")"


def _manifests(table: KeptTable, _at_ms: int) -> str:
    found = table.call("rewrite_manifests", "use_caching => false")
    return f"{found['rewritten_manifests_count']} manifests became {found['added_manifests_count']}"


def _expiry(table: KeptTable, at_ms: int) -> str:
    left = run_branches(table.load().metadata, at_ms - ORPHAN_AGE_MS)
    for branch in left:
        table.sql(f"ALTER TABLE {table.quoted} DROP BRANCH IF EXISTS `{branch}`")
    oldest = _timestamp(at_ms - SNAPSHOT_AGE_MS)
    found = table.call("expire_snapshots", f"older_than => {oldest}, retain_last => {SNAPSHOTS_KEPT}")
    _note(table, LAST_EXPIRY, at_ms)
    return f"{len(left)} branches of dead runs dropped, {found['deleted_data_files_count']} data files expired"


def _orphans(table: KeptTable, at_ms: int) -> str:
    # Listed by the table's own client, which is set up for its store.
    given = f"older_than => {_timestamp(at_ms - ORPHAN_AGE_MS)}, prefix_listing => true"
    rows = table.call_rows("remove_orphan_files", given)
    _note(table, LAST_ORPHANS, at_ms)
    return f"{len(rows)} files of nobody removed"


def _note(table: KeptTable, key: str, at_ms: int) -> None:
    table.sql(f"ALTER TABLE {table.quoted} SET TBLPROPERTIES ('{key}' = '{at_ms}')")


def _timestamp(at_ms: int) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


_CHORES: dict[Chore, Callable[[KeptTable, int], str]] = {
    "retention": _retention,
    "compaction": _compaction,
    "manifests": _manifests,
    "expiry": _expiry,
    "orphans": _orphans,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """One of them.

    Attributes:
        job: the projection's.
        name: namespaces first.
        kind: as the table's stamp says.
        sort_by: what compaction sorts by.
        called: what it is called before what a chore says; empty: nothing.
    """

    job: ProjectionJob
    name: tuple[str, ...]
    kind: str
    sort_by: tuple[str, ...] = ()
    called: str = ""

    @property
    def quoted(self) -> str:
        """As a table in Spark's SQL."""
        return quoted(self.job.target.spark_name, *self.name)

    def load(self) -> Any:
        """PyIceberg's table; None: there is none.

        Raises:
            RepartitionError: `not_ours`.
        """
        return load_projection(self.job.target.catalog, self.name, self.job.source.owner, self.kind)

    def sql(self, text: str) -> None:
        """One statement."""
        self.job.session.sql(text)

    def call(self, procedure: str, arguments: str) -> Any:
        """The one row that a procedure of the catalog answers for this table."""
        return self.call_rows(procedure, arguments)[0]

    def call_rows(self, procedure: str, arguments: str) -> list[Any]:
        """All rows of that."""
        # With the catalog's name: else Spark takes a namespace for one first, and warns of it with a stack trace.
        system = quoted(self.job.target.spark_name)
        found = self.job.session.sql(f"CALL {system}.system.{procedure}(table => '{self.quoted}', {arguments})")
        rows: list[Any] = found.collect()
        return rows

    def record_again(self) -> None:
        """Writes the frontier to the head, so that the snapshot which said it may expire with what it names.

        Raises:
            RepartitionError: `raced` if a run has published meanwhile: its frontier is further.
        """
        job, target = self.job, self.job.target
        found = job.recorded(job.source.owner, self.name, self.kind)
        with staged(job.session, target.spark_name, self.name, found.snapshot_id) as (branch, publish):
            append(job.session.table(branch).where("false"), branch, found.frontier)
            publish()


def kept_tables(job: ProjectionJob) -> tuple[KeptTable, KeptTable]:
    """Of one projection; either may not be there yet."""
    return (
        KeptTable(job=job, name=job.name, kind=job.rule.mode, sort_by=job.rule.sort_by),
        KeptTable(job=job, name=job.letters_name, kind=LETTERS, called="dead letters: "),
    )
