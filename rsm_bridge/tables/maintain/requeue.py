"""`tierberg requeue`: segments that were stored as they are get their rows.

1. Each is converted from its kept bytes (converter/segment/add_rows.py) into a data file; nothing names it yet. The new
   index is proven by reading the whole segment through it, and takes the old one's place by compare-and-swap. What
   Kafka is served stays the same bytes.
2. Rows at or above the frontier come with the next run of the publisher, as of any segment.
3. Rows below it the plan would never add: a commit of our own does (iceberg_catalog/plan/repair.py), an `append` whose
   summary says `tierberg.repair.<partition>` = `first-last`, for incremental readers that are past these offsets. So
   do, where a topic is named, those of any other live segment that the table lacks (requeue_away.py): not of all
   topics at once, for rows may be missing because an engine deleted them, and nothing tells so any more.
4. Rows below it whose transaction has no marker in any segment yet, and those behind them, nobody would add later: they
   are counted, and come when it is run again.

A crash is repaired by running it again: a converted segment is known by its index, and what is in the table already is
not added a second time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

from pyiceberg.manifest import DataFile

from converter.index.codec import decode_index
from converter.parquet.columns import row_schema
from converter.segment.add_rows import add_rows, marked_as_late
from converter.types import BatchFlag, BatchTable, ConvertOptions
from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import Change, recorded_as_of
from iceberg_catalog.commit.head import by_partition, parse_file_name
from iceberg_catalog.plan.repair import plan_repair, sources_of
from iceberg_catalog.plan.summary import REPAIR
from iceberg_catalog.plan.types import Follow, PartState, Policy, remembered
from iceberg_catalog.tables.schema import expected_field_ids
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_SECONDS_MAX, UPLOAD_PART_BYTES
from rsm_bridge.storage.keys import data_key, new_attempt_id
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.index_at import directory_under
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.tombstone import is_tombstone
from rsm_bridge.tables.maintain.beside_engines import refuse_beside_engines
from rsm_bridge.tables.maintain.merge import prove
from rsm_bridge.tables.maintain.requeue_away import lacking
from rsm_bridge.tables.publish.planned_files import NoColumnsYetError, TableChangedError
from rsm_bridge.tables.publish.table_run import RetryRunError, RunResult, TableRun

_PENDING = "requeued"


@dataclass(slots=True)
class Requeued:
    """What was done. `failed`: index keys and why they stay as they are.

    `rows`: in the new data files. `undecided`: those of them that only other segments decide; of aborted transactions
    they never come into the table.
    """

    segments: int = 0
    rows: int = 0
    undecided: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def convert(
    store: ObjectStore, segments: Sequence[KnownSegment], options: ConvertOptions, *, typed: bool = False
) -> Requeued:
    """Step 1 for all of them; one that cannot be converted does not hold up the others.

    Args:
        store: of the segments.
        segments: stored verbatim.
        options: of the topic's rule.
        typed: whether the rows need columns of their values, which the repair then gives them.

    Raises:
        BridgeError: `store_unavailable`.
    """
    done = Requeued()
    with ThreadPoolExecutor(1) as helpers:
        reader = SegmentReader(store, helpers)
        for known in segments:
            try:
                made = _convert_one(reader, known, options, _PENDING if typed else None)
            except BridgeError as error:
                if error.kind == "store_unavailable":
                    raise
                done.failed.append((known.listed.key, str(error)))
            except Exception as error:  # noqa: BLE001 an error of ours stored it verbatim, and may be there still
                done.failed.append((known.listed.key, str(error) or type(error).__name__))
            else:
                if made is not None:
                    directory, blocks = decode_index(made)
                    done.segments += 1
                    done.rows += directory.summary.rows
                    done.undecided += sum(_undecided_rows(block.batches) for block in blocks)
    return done


def _convert_one(
    reader: SegmentReader, known: KnownSegment, options: ConvertOptions, pending: str | None
) -> bytes | None:
    """The segment's index now; None when it was deleted or written anew meanwhile."""
    store, key = reader.store, known.listed.key
    deadline = time.monotonic() + COPY_SECONDS_MAX
    current = store.read(key)
    if is_tombstone(current.data) or known.kept is None:
        return None
    stored_as = data_key(directory_under(key, current.data).metadata, new_attempt_id())
    schema = row_schema(options.value_format, expected_field_ids(options.value_format))
    with store.open_upload(stored_as) as upload:
        pieces = _pieces(store, known.kept.key, known.kept.size)
        out = cast(BinaryIO, upload)
        index = add_rows(current.data, pieces, options, schema, out, stored_as, pending, known.written_ms)
        if upload.size:
            upload.commit()
    prove(reader, index)
    failpoints.hit("requeue-written", key)
    if time.monotonic() >= deadline:
        raise BridgeError("deadline", "converting took longer than a copy may")
    return index if store.replace(key, index, current.version) else None


def _undecided_rows(batches: BatchTable) -> int:
    return int(batches["row_count"][(batches["flags"] & BatchFlag.UNDECIDED) != 0].sum())


def _pieces(store: ObjectStore, key: str, size: int) -> Iterator[memoryview]:
    for start in range(0, size, UPLOAD_PART_BYTES):
        yield store.get_range(key, start, min(UPLOAD_PART_BYTES, size - start))


@dataclass(frozen=True, slots=True)
class Repaired:
    """Files that came below the frontier, and rows there that wait for the end of a transaction."""

    files: int = 0
    waiting: int = 0


class RepairRun(TableRun):
    """Publisher runs that add rows below the frontier too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.by_command = True

    def repair(self, *, of_all: bool) -> Repaired:
        """Steps 2 and 3, and 4. of_all: of whatever segments may give, or of those alone that a requeue gave rows.

        Raises:
            RetryRunError: the commit did not land in RUNS_TO_LAND_MAX tries.
            BridgeError: `bad_request`: rows are missing below the frontier, and the table holds what others did.
            CatalogError, BridgeError, SegmentError: and what else catalog and store raise: run it again.
        """
        return self.until_landed(lambda: self._attempt(of_all=of_all), "not all rows are in the table yet")

    def _attempt(self, *, of_all: bool) -> Repaired:
        published = self.run()
        try:
            return self._repair(published, of_all=of_all)
        except (NoColumnsYetError, TableChangedError) as error:
            raise RetryRunError(str(error) or "the table has got other columns") from error

    def _repair(self, published: RunResult, *, of_all: bool) -> Repaired:
        head, states = published.head, published.states
        if head is None:
            return Repaired()
        policy, _ = self._policy()
        self._as_of_ms = recorded_as_of(head)  # rows below the frontier make the table no younger
        known = self._listing.whole() or ()
        files, groups = by_partition(head.files), segments_by_partition(known)
        files_of_plan = self._planned_files(head, known)
        append: list[DataFile] = []
        summary: dict[str, str] = {}
        repaired = dict(states)
        waiting = 0
        wanted = [item for item in known if of_all or item.requeued]
        for partition, suspects in sorted(lacking(wanted, states, head.files, policy).items()):
            inputs = [item.segment for item in groups[partition] if item.segment is not None]
            state = states.get(partition, PartState())
            repair = plan_repair(inputs, files[partition], state, policy, suspects, head.look)
            waiting += repair.waiting
            if repair.add:
                refuse_beside_engines(head, [partition])
            made = [file for piece in repair.add for file in files_of_plan.added(partition, piece)]
            if made:
                self._mark(groups[partition], {name for piece in repair.add for name in sources_of(piece)}, policy)
                append += made
                first, last = _range(made)
                summary[f"{REPAIR}{partition}"] = f"{first}-{last}"
                repairs = remembered(state.repairs, first)
                repaired[partition] = replace(state, repairs=repairs, lineage=repair.lineage)
        if append:
            failpoints.hit("requeue-repair", self.topic_id.hex())
            self._commit(head, Change(append=tuple(append)), repaired, summary)
        return Repaired(len(append), waiting)

    def _mark(self, segments: Sequence[KnownSegment], sources: set[str], policy: Policy) -> None:
        """Has the indexes say that their rows came late: a rollback takes them away, and Kafka may delete the segment.

        Where the table keeps deleted rows, these are owed then (reclaim/reclaimer.py). A crash after it marks in vain.
        """
        if isinstance(policy, Follow):
            return
        for known in segments:
            if known.listed.key not in sources or known.requeued:
                continue
            current = self.store.read(known.listed.key)
            marked = None if is_tombstone(current.data) else marked_as_late(current.data, known.written_ms)
            if marked is None or not self.store.replace(known.listed.key, marked, current.version):
                raise RetryRunError(f"{known.listed.key} has changed meanwhile")


def _range(files: Sequence[DataFile]) -> tuple[int, int]:
    """First and last offset the files may have rows of."""
    named = [parse_file_name(file.file_path.rpartition("/")[2]) for file in files]
    ranges = [(item[0], item[1]) for item in named if item is not None]
    return min(first for first, _ in ranges), max(last for _, last in ranges)
