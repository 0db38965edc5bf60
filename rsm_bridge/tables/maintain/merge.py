"""R14, carried out: small files of a table become larger ones, pointers first.

1. The merged file is written and durable. Nothing names it.
2. Proof: for every live segment all of whose rows are in it, an index that names it is made, and each batch is read
   back through that index and compared with its checksum. A file that fails is left to the sweep; that is all.
3. Those indexes take the place of the old ones, by compare-and-swap. From here on Kafka reads the merged file; the
   table still names the small ones, which are there.
4. The table: small files out, merged file in, one `overwrite`, the recorded state as it was.
5. What nothing names any more goes by the sweep (sweep.py), when it is old enough.

A fetch works at any moment: the files that an index ever named stay for hours. After a crash the next pass plans from
the head again. It merges the same small files into another file and makes the indexes name that one, wherever they
pointed; so a crash costs the space of one merged file until the sweep.

Kept bytes stay as they are: only Kafka reads them, and they would have to be merged for nobody. So does a partition in
which others have delete files: they would not apply to the merged file, and the rows they delete would be back.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from converter.errors import SegmentError
from converter.index.codec import decode_index
from converter.index.model import StoredObject
from converter.segment.repoint import repoint
from converter.types import Int64Array
from converter.values.proof.proven import unpack_proven
from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import Change, commit, recorded_as_of
from iceberg_catalog.commit.foreign_files import foreign_files, rows_deleted
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.plan.gaps import open_gaps
from iceberg_catalog.plan.lineage import Lineage, valid_end
from iceberg_catalog.plan.merge import Merge, MergeLimits, SmallFile, plan_merge
from iceberg_catalog.plan.types import LiveFile, PartState, Policy
from iceberg_catalog.tables.data_file import data_file, leaf_ids
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import MERGE_COMMITS_MAX, MERGE_SECONDS_MAX
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import rewritten_key, stored_key
from rsm_bridge.storage.object_store import ListedObject, ObjectStore, VersionedBytes
from rsm_bridge.storage.segments.chunks import cut
from rsm_bridge.storage.segments.index_at import directory_under
from rsm_bridge.storage.segments.known import KnownSegment, owner_of, segments_by_partition
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.state_objects import StateObjects, recorded_parts
from rsm_bridge.storage.tombstone import is_tombstone
from rsm_bridge.tables.publish.rewritten import CopiedRows, Cut, Shape, copy_rows
from rsm_bridge.values.typed.table import TableColumns


@dataclass(frozen=True, slots=True)
class _Merged:
    """A merged file: how an index names it, what it holds, and where its rows lie."""

    stored: StoredObject
    rows: CopiedRows
    schema: pa.Schema
    offsets: Int64Array


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An index that shall name the merged file: its segment, the version that was proven, its first row there."""

    known: KnownSegment
    version: str
    first_row: int


@dataclass(slots=True, kw_only=True)
class Merger:
    """Merges of one topic id's table.

    limits: what to merge. policy: at a time in milliseconds, of a topic's name. stopping: asked between merges.
    """

    store: ObjectStore
    catalog: Catalog
    topic_id: bytes
    limits: MergeLimits
    policy: Callable[[str, int], Policy]
    stopping: Callable[[], bool] = lambda: False

    def planned(
        self,
        head: Head,
        stored: Iterable[ListedObject],
        segments: Sequence[KnownSegment],
        states: Mapping[int, PartState],
        now_ms: int,
    ) -> list[tuple[int, Merge]]:
        """Merges to be done, with their partitions.

        Args:
            head: of the table.
            stored: the topic's data files as the store lists them; what is missing there is not merged.
            segments: every index and tombstone, read after the head.
            states: recorded with the head.
            now_ms: since the epoch.
        """
        if not segments:
            return []
        listed = {item.key: item for item in stored}
        files: dict[int, list[SmallFile]] = defaultdict(list)
        for file in head.files:
            found = listed.get(stored_key(self.store, file.path) or "")
            size, written_ms = (self.limits.small_bytes, 0) if found is None else (found.size, found.modified_ms)
            files[file.partition].append(SmallFile(file, size, written_ms))
        policy = self.policy(owner_of(segments).topic, now_ms)
        groups = segments_by_partition(segments)
        planned: list[tuple[int, Merge]] = []
        for partition in sorted(files):
            state = states.get(partition, PartState())
            # Most partitions have nothing to merge: only where there is, batches of segments may be read.
            if wanted := plan_merge(files[partition], state, policy, (), self.limits, now_ms):
                within = [(merge.first, merge.last) for merge in wanted]
                own = [item.file for item in files[partition]]
                apart = self._open_gaps(head, own, groups[partition], state, policy, within)
                merges = plan_merge(files[partition], state, policy, apart, self.limits, now_ms)
                planned += [(partition, merge) for merge in merges]
        return planned

    def _open_gaps(
        self,
        head: Head,
        files: Sequence[LiveFile],
        group: Sequence[KnownSegment],
        state: PartState,
        policy: Policy,
        within: Sequence[tuple[int, int]],
    ) -> list[tuple[int, int]]:
        named = {stored_key(self.store, file.path) for file in files}
        return open_gaps(
            [known.segment for known in group if known.segment is not None],
            files,
            state,
            policy,
            within=within,
            bare={known.listed.key for known in group if known.withheld},
            whole={known.listed.key for known in group if all(one.key in named for one in known.data_files())},
            look=head.look,
        )

    def run(
        self,
        live: LiveFiles,
        head: Head,
        planned: Iterable[tuple[int, Merge]],
        segments: Sequence[KnownSegment],
        tally: Tally,
    ) -> None:
        """Carries merges out; what was done is in `tally`.

        Raises:
            BridgeError, SegmentError, CatalogError: and what else catalog and storage raise. The next pass repairs.
        """
        with ThreadPoolExecutor(1) as helpers:
            for partition, merge in planned:
                if self.stopping():
                    return
                head = self._merge(live, head, partition, merge, segments, helpers, tally)

    def _merge(
        self,
        live: LiveFiles,
        head: Head,
        partition: int,
        merge: Merge,
        segments: Sequence[KnownSegment],
        helpers: Executor,
        tally: Tally,
    ) -> Head:
        deadline = time.monotonic() + MERGE_SECONDS_MAX
        state = recorded_parts(self.store, head).get(partition, PartState())
        mine = [known for known in segments if known.live and known.key.partition == partition]
        proven = any(known.proven for known in mine)
        columns = TableColumns.of(head.table)
        merged = self._write(
            partition, merge, Shape(schema=columns.rows, value_format=columns.value_format, proven=proven)
        )
        mine = [known for known in mine if known.value_format == columns.value_format]
        failpoints.hit("merge-written", merged.stored.key)
        reader = SegmentReader(self.store, helpers)
        pointers = list(self._proven(reader, merged, _whole(mine, merge, state)))
        for pointer in pointers:
            in_time(deadline)
            failpoints.hit("merge-pointer", pointer.known.listed.key)
            self._point(merged, pointer)
        failpoints.hit("merge-pointed", merged.stored.key)
        return self._commit(live, head, partition, merge, merged, deadline, tally)

    def _write(self, partition: int, merge: Merge, shape: Shape) -> _Merged:
        """The merged file, durable.

        Raises:
            BridgeError: `not_found` when a small file left the store, `corrupt_object` when rows are missing.
        """
        cuts = [Cut(data_key=self._key(file.path), first=file.first, last=file.last) for file in merge.files]
        key = rewritten_key(self.topic_id, partition, merge.first, merge.last)
        parts: list[Int64Array] = []
        rows = copy_rows(self.store, key, cuts, shape, parts)
        if rows is None:
            raise BridgeError("corrupt_object", f"files of offsets {merge.first} to {merge.last} have no rows")
        offsets = np.concatenate(parts)
        if rows.left_out or len(offsets) != rows.footer.num_rows or bool((np.diff(offsets) <= 0).any()):
            raise BridgeError("corrupt_object", f"files of offsets {merge.first} to {merge.last} are not what they say")
        return _Merged(StoredObject(key, rows.size, rows.crc32c), rows, shape.schema, offsets)

    def _key(self, path: str) -> str:
        key = stored_key(self.store, path)
        if key is None:
            raise BridgeError("internal", f"{path} lies outside of the store")
        return key

    def _proven(self, reader: SegmentReader, merged: _Merged, segments: Iterable[KnownSegment]) -> Iterator[_Pointer]:
        """Which indexes can name the merged file, each proven by reading the segment through it.

        Raises:
            SegmentError: `corrupt_object`: a segment does not come back from the merged file.
        """
        for known in segments:
            first = int(np.searchsorted(merged.offsets, known.key.base, side="left"))
            end = int(np.searchsorted(merged.offsets, known.key.last, side="right"))
            if known.rows == 0 or end - first != known.rows:
                continue  # some of its rows are not in the table: aborted, or below the floor
            current = self._index(known.listed.key)
            # Of values that are columns alone, the table may have lost some: their segment keeps its own file.
            if current is not None and _has_all(merged, directory_under(known.listed.key, current.data).proven):
                pages, schema = merged.rows.pages, merged.schema
                prove(reader, repoint(current.data, merged.stored, pages, schema, first, known.written_ms))
                yield _Pointer(known, current.version, first)

    def _index(self, key: str) -> VersionedBytes | None:
        """A live index; None when it was deleted meanwhile."""
        try:
            current = self.store.read(key)
        except ObjectNotFoundError:
            return None
        if is_tombstone(current.data):
            return None
        directory_under(key, current.data)
        return current

    def _point(self, merged: _Merged, pointer: _Pointer) -> None:
        """Swaps one pointer, unless the index was deleted, or written by another merge, since it was proven."""
        key, written_ms = pointer.known.listed.key, pointer.known.written_ms
        current = self._index(key)
        if current is not None and current.version == pointer.version:
            pages, schema = merged.rows.pages, merged.schema
            index = repoint(current.data, merged.stored, pages, schema, pointer.first_row, written_ms)
            self.store.replace(key, index, current.version)

    def _commit(
        self,
        live: LiveFiles,
        head: Head,
        partition: int,
        merge: Merge,
        merged: _Merged,
        deadline: float,
        tally: Tally,
    ) -> Head:
        """Swaps the table, again on each new head that still has all the small files, and no rows of them deleted.

        Returns the last head seen.
        """
        paths = tuple(file.path for file in merge.files)
        for _ in range(MERGE_COMMITS_MAX):
            if not {file.path for file in head.files}.issuperset(paths):
                return head
            if rows_deleted(foreign_files(head), partition):
                return head
            in_time(deadline)
            commit_id = uuid.uuid4().hex
            recorded = StateObjects(self.store).put(head.table, recorded_parts(self.store, head), commit_id)
            uri = self.store.uri(merged.stored.key)
            entry = data_file(head.table, uri, merged.stored.size, merged.rows.footer, partition)
            outcome = commit(
                self.catalog,
                head,
                Change(replace=paths, replacement=(entry,)),
                recorded,
                commit_id=commit_id,
                as_of_ms=recorded_as_of(head),
            )
            if outcome.kind == "committed" and outcome.table is not None:
                tally.merged += len(paths)
                tally.merged_into += 1
                return live.read(outcome.table)
            head = live.read(self.catalog.load_table(head.table.name()))
        return head


def _has_all(merged: _Merged, packed: bytes) -> bool:
    """Whether it has every column that values are given back from. `packed`: an index's `proven`, empty without any."""
    encodings = unpack_proven(packed).encodings if packed else ()
    needed = {number for item in encodings for number in leaf_ids(item.columns)}
    return needed <= set(leaf_ids(merged.schema))


def _whole(segments: Iterable[KnownSegment], merge: Merge, state: PartState) -> list[KnownSegment]:
    """Segments that lie within a merge and are alive whole."""
    lineage = Lineage(state.lineage, state.known_end)
    return [
        known
        for known in segments
        if known.segment is not None
        and known.key.base <= merge.last
        and known.key.last >= merge.first
        and valid_end(known.segment.runs, known.key.base, known.key.last + 1, lineage) > known.key.last
    ]


def in_time(deadline: float) -> None:
    """To be asked before each step: after the deadline a sweep could have taken the file for a crash's.

    Args:
        deadline: at most MERGE_SECONDS_MAX after the file was begun; seconds of the monotonic clock.

    Raises:
        BridgeError: `deadline`.
    """
    if time.monotonic() >= deadline:
        raise BridgeError("deadline", f"a file took longer than {MERGE_SECONDS_MAX:g} s; the next pass begins anew")


def prove(reader: SegmentReader, index: bytes) -> None:
    """Reads a whole segment through an index that is in no store yet, and compares every batch with its checksum.

    Raises:
        SegmentError: `corrupt_object`.
        BridgeError: an object it names is missing or short, or the store is away.
    """
    directory, blocks = decode_index(index)
    served = 0
    for block in blocks:
        for first, end in pairwise(cut(block).starts):
            served += len(reader.chunk(directory, block, block.first_batch + first, block.first_batch + end - 1))
    if served != directory.summary.served_bytes:
        raise SegmentError("corrupt_object", f"{served} bytes are served, not {directory.summary.served_bytes}")
