"""Finds what crashes left behind: objects of one topic id that no index, no tombstone and no kept snapshot leads to.

What may go, and why nothing can name it any more (publish rule R13):

| object | goes when |
|---|---|
| data file, kept bytes | no index or tombstone names it, and it is older than any copy can be: after its deadline a bridge puts no index, so none will come. The objects are listed first, the indexes after |
| a segment's own data file, after a merge | the same, and the merged file that the segment's index names instead is or was in the table: no plan made before the pointer was swapped can land any more |
| derived data file | it is of this table and the head it was planned on is not the head: its commit cannot land any more; both are in its key. Or its table is not recorded any more, and it is old |
| state object | it is older than the head's commit: its own commit was planned on an earlier head. And older than any copy can be: the time of that commit is some bridge's |
| manifest, metadata.json | the same: engines write here too. Only of files that are certainly this table's: others may have the folder too (metadata_files.py) |

The store's data is shared by all tables of the topic id: another namespace, another name, another catalog. What one of
them named once, by an index, another may name still. So while the store has a record of another table
(storage/table_records.py), only derived files of this table, its states, and kept bytes go; no other data file, and no
metadata, for `catalog.layout: inside` gives both one folder. Indexes are read before the records.

Each only while no kept snapshot names it, and a file that was in the table only `reclaim_grace` after it left it. While
the table is not found, which may be a wrong setting, data files stay. So do those with offsets of a file that the head
names and the store has no more (missing_files.py): they may be all that is left of its rows. And so do data files and
kept bytes of offsets that no index covers though others lie below and above: an index was lost there, and whoever
restores it needs them. What a crashed copy left lies where the next copy's index does, or above all.
Unfinished multipart uploads cannot be seen here; a rule of the bucket ends them.
"""  # noqa: E501

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from iceberg_catalog.commit.head import Head, recorded_states
from iceberg_catalog.commit.metadata_files import MetadataFile, unnamed_metadata
from iceberg_catalog.commit.retained import Retained, RetainedFiles, named_paths
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import CLOCK_SKEW_SECONDS_MAX, COPY_SECONDS_MAX, LATE_PUT_SECONDS
from rsm_bridge.metrics.tally import Kind, Tally
from rsm_bridge.storage.keys import (
    DATA_ROOT,
    KEPT_ROOT,
    derived_head,
    derived_table,
    index_prefix,
    is_stored_object,
    parse_index_key,
    state_prefix,
    stored_key,
    stored_range,
)
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_known
from rsm_bridge.storage.table_records import other_tables

#: No copy lives so long, whichever bridge and whatever its clock: seconds.
COPY_IS_OVER_SECONDS = COPY_SECONDS_MAX + LATE_PUT_SECONDS + CLOCK_SKEW_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a look found.

    objects: kind and listing. waiting: how many more will be due later. snapshots: those to expire so that files which
    a merge has replaced can go; a grace has passed since a query can have begun on one.
    """

    objects: tuple[tuple[Kind, ListedObject], ...] = ()
    metadata: tuple[MetadataFile, ...] = ()
    waiting: int = 0
    snapshots: frozenset[int] = frozenset()

    def count(self, tally: Tally) -> None:
        """Adds everything to a tally."""
        for kind, listed in self.objects:
            tally.add(kind, listed.size)
        for item in self.metadata:
            tally.add("metadata", item.size)
        tally.waiting += self.waiting


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Looks for leftovers of one topic id. Remembers what indexes name; one thread at a time.

    grace: `reclaim_grace`, seconds.
    """

    store: ObjectStore
    topic_id: bytes
    grace: float
    _indexes: dict[ListedObject, tuple[str, ...]] = field(default_factory=dict)
    _retained: RetainedFiles = field(default_factory=RetainedFiles)
    _left_ms: dict[str, int] = field(default_factory=dict)

    def stored(self) -> list[ListedObject]:
        """Data files and kept bytes of the topic id. To be called before the table's head is read."""
        topic = self.topic_id.hex()
        return [
            listed
            for root in (DATA_ROOT, KEPT_ROOT)
            for listed in self.store.list_after(f"{root}{topic}/")
            if is_stored_object(listed.key)
        ]

    def look(self, stored: Collection[ListedObject], head: Head | None, now_ms: int) -> Leftovers:
        """What may go.

        Args:
            stored: from :meth:`stored`, listed before `head` was read.
            head: of the topic's table; None without one.
            now_ms: milliseconds since the epoch by the store's clock, not ahead of it.

        Raises:
            BridgeError, SegmentError: and what the table's storage raises: nothing may be removed then.
        """
        retained = Retained() if head is None else self._retained.read(head)
        in_table = {stored_key(self.store, path) for path in named_paths(retained.snapshots)}
        by_index = self._named_by_indexes()
        own = None if head is None else head.table.metadata.table_uuid
        others = other_tables(self.store, self.topic_id, own)  # after the indexes: see storage/table_records.py
        merged = self._merged_ranges(in_table)
        holes = self._holes()
        unnamed = [item for item in stored if item.key not in in_table and item.key not in by_index]
        lacking = _lacking(self.store, stored, head)
        objects: list[tuple[Kind, ListedObject]] = []
        waiting = 0
        before, self._left_ms = self._left_ms, {}
        heads = _heads_to_be(head)
        for listed in unnamed:
            named = _may_be_named(listed.key, own, others)
            due_ms = None if named else self._due_ms(listed, head, heads, retained, before)
            held = stored_range(listed.key) in merged or _meets(listed.key, lacking) or _in_hole(listed.key, holes)
            if due_ms is not None and due_ms <= now_ms and not held:
                objects.append((_kind(listed.key), listed))
            else:
                waiting += 1
        if head is None or head.snapshot_id is None:
            return Leftovers(tuple(objects), (), waiting)
        before_ms = min(now_ms - int(COPY_IS_OVER_SECONDS * 1000), _settled_ms(head))
        objects.extend(("state", listed) for listed in self._states(head, before_ms))
        if others:
            return Leftovers(tuple(objects), (), waiting)
        expiring = self._holding(stored, by_index, retained, now_ms)
        return Leftovers(tuple(objects), tuple(unnamed_metadata(head.table, before_ms)), waiting, expiring)

    def _holding(
        self, stored: Iterable[ListedObject], by_index: Collection[str], retained: Retained, now_ms: int
    ) -> frozenset[int]:
        """Snapshots that alone keep files a merge has replaced; derived files are the reclaimer's."""
        left = {stored_key(self.store, path) for path in retained.left()}
        found: set[int] = set()
        for listed in stored:
            if listed.key in left and listed.key not in by_index and derived_head(listed.key) is None:
                holders = retained.holders(self.store.uri(listed.key))
                replaced = [holder.replaced_ms for holder in holders if holder.replaced_ms is not None]
                if len(replaced) == len(holders) and max(replaced) + int(self.grace * 1000) <= now_ms:
                    found |= {holder.snapshot_id for holder in holders}
        return frozenset(found)

    def _due_ms(
        self,
        listed: ListedObject,
        head: Head | None,
        heads: Collection[int],
        retained: Retained,
        before: Mapping[str, int],
    ) -> int | None:
        """When an object that nothing names may go; None: not on this head. `heads`: what may be it again."""
        own = head is not None and derived_table(listed.key) == head.table.metadata.table_uuid
        planned_on = derived_head(listed.key) if own else None
        if head is None:
            # A table that is not found names perhaps what no index names any more; kept bytes no table ever names.
            if not listed.key.startswith(KEPT_ROOT):
                return None
        elif own and planned_on in heads:
            return None
        # It may have been in the table. If so, it had left by the time of the oldest kept snapshot.
        left_ms = before.get(listed.key, retained.oldest_ms or 0)
        self._left_ms[listed.key] = left_ms
        over_ms = listed.modified_ms + int(COPY_IS_OVER_SECONDS * 1000) if planned_on is None else 0
        return max(left_ms + int(self.grace * 1000), over_ms)

    def _named_by_indexes(self) -> set[str]:
        """Keys that indexes, and those inside tombstones, name."""
        found: dict[ListedObject, tuple[str, ...]] = {}
        missing: list[str] = []
        for listed in self.store.list_after(index_prefix(self.topic_id)):
            key = parse_index_key(listed.key)
            if key is None:
                continue
            named = self._indexes.get(listed)
            if named is None:
                try:
                    named = tuple(read_known(self.store, key, listed).objects())
                except ObjectNotFoundError:
                    missing.append(listed.key)
                    continue
            found[listed] = named
        confirm_gone(self.store, missing)  # reclaimed between listing and reading, its objects before it
        self._indexes = found
        return {key for named in found.values() for key in named}

    def _merged_ranges(self, in_table: Collection[str | None]) -> set[tuple[int, int, int]]:
        """Partition and offsets of segments whose index names a merged file that no kept snapshot has."""
        found: set[tuple[int, int, int]] = set()
        for listed, named in self._indexes.items():
            key = parse_index_key(listed.key)
            if key is not None:
                own = (key.partition, key.base, key.last)
                found |= {own for name in named if name not in in_table and stored_range(name) != own}
        return found

    def _holes(self) -> dict[int, list[tuple[int, int]]]:
        """By partition the first and last offsets, ascending, that lie between two indexes and in none."""
        covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for listed in self._indexes:
            key = parse_index_key(listed.key)
            if key is not None:
                covered[key.partition].append((key.base, key.last))
        found: dict[int, list[tuple[int, int]]] = {}
        for partition, ranges in covered.items():
            ranges.sort()
            reached = accumulate((last for _, last in ranges), max)
            pairs = zip(reached, (base for base, _ in ranges[1:]), strict=False)
            found[partition] = [(last + 1, base - 1) for last, base in pairs if base > last + 1]
        return found

    def _states(self, head: Head, before_ms: int) -> list[ListedObject]:
        named = {reference.key for reference in recorded_states(head.table)}
        prefix = state_prefix(head.table.metadata.table_uuid)
        return [
            listed
            for listed in self.store.list_after(prefix)
            if listed.key not in named and listed.modified_ms < before_ms
        ]


def _settled_ms(head: Head) -> int:
    """What was written before this time belongs to commits that were planned on earlier heads."""
    current = head.table.current_snapshot()
    return 0 if current is None else current.timestamp_ms - int(CLOCK_SKEW_SECONDS_MAX * 1000)


def _may_be_named(key: str, own: uuid.UUID | None, others: Collection[uuid.UUID]) -> bool:
    """Whether an object that no index names may be named by another table of the topic id.

    own: this table; None: it is not found. others: what else is recorded.
    """
    if key.startswith(KEPT_ROOT):
        return False  # only indexes name kept bytes
    table = derived_table(key)
    return bool(others) if table is None else table != own and table in others


def _heads_to_be(head: Head | None) -> set[int]:
    """Ids on which a planned commit may still land: somebody may roll the table back, or forward, to any snapshot.

    0 is the empty table's, which nobody can go back to.
    """
    if head is None or head.snapshot_id is None:
        return {0}
    return {item.snapshot_id for item in head.table.metadata.snapshots}


def _lacking(store: ObjectStore, stored: Iterable[ListedObject], head: Head | None) -> dict[int, tuple[int, int]]:
    """By partition the lowest and the highest offset of the head's files that are not listed."""
    listed = {item.key for item in stored}
    found: dict[int, tuple[int, int]] = {}
    for file in () if head is None else head.files:
        if stored_key(store, file.path) not in listed:
            first, last = found.get(file.partition, (file.first, file.last))
            found[file.partition] = (min(first, file.first), max(last, file.last))
    return found


def _meets(key: str, lacking: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a data file may have rows of files that are not there."""
    named = stored_range(key)
    if named is None or named[0] not in lacking or not key.startswith(DATA_ROOT):
        return False
    first, last = lacking[named[0]]
    return named[1] <= last and named[2] >= first


def _in_hole(key: str, holes: Mapping[int, Sequence[tuple[int, int]]]) -> bool:
    """Whether it is of offsets of which some are in no index; not a derived file, which no index names."""
    named = stored_range(key)
    if named is None or derived_head(key) is not None:
        return False
    partition, first, last = named
    return any(start <= last and first <= end for start, end in holes.get(partition, ()))


def _kind(key: str) -> Kind:
    if key.startswith(KEPT_ROOT):
        return "kept"
    return "data" if derived_head(key) is None else "derived"
