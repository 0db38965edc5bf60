"""`tierberg replay-dead-letters`: rows that did not decode are decoded again, and take the place of what they were.

1. Of each data file of the head that has dead letters these are read and decoded under the present rules. If none is
   better off, that is all.
2. A file with the same rows is written, those that decode now with their columns. Nothing names it.
3. The table: the one file out, the other in, one `overwrite`, the recorded state as it was; again on each new head that
   still has the file. On one that has not, its rows left or moved meanwhile: the new file is left to the sweep.

A file of a partition in which others have delete files stays as it is: they would not apply to the new file, and the
rows they delete would be back.

Rows come and go with their file in one swap, so none is ever doubled or lost, whoever else works on the table and
wherever this ends. What Kafka reads is not touched: the segment's index goes on naming its own data file.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from iceberg_catalog.commit.commit import Change, commit, recorded_as_of
from iceberg_catalog.commit.foreign_files import foreign_files, rows_deleted
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.plan.types import LiveFile
from iceberg_catalog.tables.data_file import data_file
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import MERGE_SECONDS_MAX, RUNS_TO_LAND_MAX
from rsm_bridge.storage.keys import rewritten_key, stored_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.state_objects import StateObjects, recorded_parts
from rsm_bridge.tables.maintain.dead_letters import Look, Revision, files_with_errors
from rsm_bridge.tables.maintain.merge import in_time
from rsm_bridge.tables.publish.planned_files import TableChangedError
from rsm_bridge.tables.publish.rewritten import Cut, Shape, copy_rows
from rsm_bridge.tables.publish.table_run import RetryRunError
from rsm_bridge.values.typed.table import TableColumns, TypedTable


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What was done to one table.

    Attributes:
        files: data files that have dead letters.
        replaced: those of them that another file stands for now.
        gone: those that left the table before they could be replaced.
        beside: those that stay as they are because of others' delete files.
        rows: decoded again.
        left: rows that stay dead letters, by the code they would have now.
    """

    files: int = 0
    replaced: int = 0
    gone: int = 0
    beside: int = 0
    rows: int = 0
    left: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Replay:
    """Decodes the dead letters of one topic id's table again. For one thread.

    Attributes:
        typed: the columns of the topic's values; for a dry run, of topics that are open for one.
    """

    store: ObjectStore
    catalog: Catalog
    topic_id: bytes
    typed: TypedTable
    _live: LiveFiles = field(default_factory=LiveFiles)

    def run(self, head: Head, *, dry_run: bool = False) -> Replayed:
        """All files of the head, one after the other; what was replaced stays so when a later one fails.

        Args:
            head: of the topic's table.
            dry_run: change nothing.

        Raises:
            ColumnsWaitError: registry or catalog do not answer in time.
            RetryRunError: a commit did not land in RUNS_TO_LAND_MAX tries.
            BridgeError, CatalogError: and what else catalog and storage raise. Nothing needs undoing: run it again.
        """
        done = Replayed()
        for file in files_with_errors(self.store, head):
            done.files += 1
            if _rows_deleted(head, file):
                done.beside += 1
            elif dry_run:
                _count(done, Revision(self.typed, None).look(self.store, self._key(file)))
            else:
                head = self._replay(head, file, done)
        return done

    def _replay(self, head: Head, file: LiveFile, done: Replayed) -> Head:
        """One file; returns the last head seen."""
        for _ in range(RUNS_TO_LAND_MAX):
            if not _has(head, file.path) or _rows_deleted(head, file):
                break
            revision = Revision(self.typed, TableColumns.of(head.table))
            try:
                found = revision.look(self.store, self._key(file))
                if not found.gained:
                    _count(done, found)
                    return head
                deadline = time.monotonic() + MERGE_SECONDS_MAX
                entry = self._written(head, file, revision)
            except TableChangedError:
                head = self._now(head)
                continue
            head = self._swapped(head, file, entry, deadline)
            if _has(head, entry.file_path):
                done.replaced += 1
                _count(done, found)
                return head
            break
        else:
            raise RetryRunError("the table kept getting other columns, run it again")
        if _has(head, file.path):
            done.beside += 1
        else:
            done.gone += 1
        return head

    def _written(self, head: Head, file: LiveFile, revision: Revision) -> DataFile:
        """The entry of a durable file with the rows of `file`, revised."""
        key = rewritten_key(self.topic_id, file.partition, file.first, file.last)
        columns = TableColumns.of(head.table)
        shape = Shape(schema=columns.rows, value_format=columns.value_format, revised=revision.rows)
        rows = copy_rows(self.store, key, [Cut(data_key=self._key(file), first=file.first, last=file.last)], shape)
        if rows is None or rows.left_out:
            raise BridgeError("corrupt_object", f"{file.path} has rows outside of offsets {file.first} to {file.last}")
        return data_file(head.table, self.store.uri(key), rows.size, rows.footer, file.partition)

    def _swapped(self, head: Head, file: LiveFile, entry: DataFile, deadline: float) -> Head:
        """Swaps the table, again on each new head that still has the file, and no rows of it deleted.

        Returns the head that has not, or has.
        """
        change = Change(replace=(file.path,), replacement=(entry,))
        error: Exception | None = None
        for _ in range(RUNS_TO_LAND_MAX):
            in_time(deadline)
            commit_id = uuid.uuid4().hex
            recorded = StateObjects(self.store).put(head.table, recorded_parts(self.store, head), commit_id)
            as_of_ms = recorded_as_of(head)
            outcome = commit(self.catalog, head, change, recorded, commit_id=commit_id, as_of_ms=as_of_ms)
            if outcome.kind == "committed" and outcome.table is not None:
                return self._live.read(outcome.table, outcome.manifests)
            error = outcome.error
            head = self._now(head)
            if not _has(head, file.path) or _rows_deleted(head, file):
                return head
        raise RetryRunError(f"dead letters were decoded and are not in the table yet, run it again: {error}")

    def _now(self, head: Head) -> Head:
        """The table's head as it is now."""
        return self._live.read(self.catalog.load_table(head.table.name()))

    def _key(self, file: LiveFile) -> str:
        key = stored_key(self.store, file.path)
        if key is None:
            raise BridgeError("internal", f"{file.path} lies outside of the store")
        return key


def _has(head: Head, path: str) -> bool:
    return any(file.path == path for file in head.files)


def _rows_deleted(head: Head, file: LiveFile) -> bool:
    return rows_deleted(foreign_files(head), file.partition)


def _count(done: Replayed, found: Look) -> None:
    done.rows += found.decoded
    done.left += found.left
