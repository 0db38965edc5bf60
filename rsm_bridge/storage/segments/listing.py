"""What is known of one topic id's segments between runs, and how little of the store is asked for what is new.

Three ways to look, from dear to cheap:

* `whole`: one listing of the topic id, a request for each LIST_PAGE_KEYS keys. Says everything.
* `ahead`: by partition, keys from the frontier on; keys begin with the last offset, so that is one request however long
  the history is.
* by notice: what was stored or deleted in this process is read by its key, without any listing.

Index objects are read once per version, by several readers at once. What is listed and cannot be read fails the run
(storage/listed_keys.py).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.limits import LIST_PAGE_KEYS
from rsm_bridge.storage.keys import IndexKey, index_prefix, parse_index_key, partition_of_folder
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, read_known

A = TypeVar("A")
B = TypeVar("B")
_Row = tuple[IndexKey, ListedObject]


@dataclass(frozen=True, slots=True)
class Notices:
    """Why a run is made.

    keys: what changed in this process. look: other bridges may have stored something. whole: a whole listing is due.
    """

    keys: frozenset[IndexKey] = frozenset()
    look: bool = False
    whole: bool = False


#: Looks at everything.
ALL = Notices(whole=True)


@dataclass(slots=True, kw_only=True)
class SegmentListing:
    """The segments of one topic id. One thread at a time, but for `readers`, which may serve others too.

    whole_seconds: what the latest whole listing took, without reading objects. begun: partitions were looked at before.
    """

    store: ObjectStore
    topic_id: bytes
    readers: Executor | None = None
    whole_seconds: float = 0.0
    begun: bool = False
    _known: dict[int, dict[str, KnownSegment]] = field(default_factory=lambda: defaultdict(dict))
    _unread: list[_Row] = field(default_factory=list)

    def known(self) -> list[KnownSegment]:
        """Everything known, partitions and keys ascending."""
        return [known for number in sorted(self._known) for known in self.of(number)]

    def of(self, number: int) -> list[KnownSegment]:
        """Everything known of one partition, keys ascending."""
        return [known for _, known in sorted(self._known[number].items())]

    def wants_whole(self, notices: Notices) -> bool:
        """Whether a whole listing is due, or costs no more requests than the partitions' own."""
        pages = 1 + sum(map(len, self._known.values())) // LIST_PAGE_KEYS
        return notices.whole or pages == 1 or (notices.look and pages <= len(self._known))

    def whole(self, reads_max: int | None = None) -> list[KnownSegment] | None:
        """All segments, by a listing made now.

        Args:
            reads_max: how many objects to read at most.

        Returns:
            None when there are more to read; the next call goes on, and lists again once all are read.

        Raises:
            BridgeError, SegmentError: an index is damaged, or listed and not there, or the store is away.
        """
        if reads_max is not None and self._unread:
            self._read(self._unread[:reads_max])
            self._unread = self._unread[reads_max:]
            return None
        started = time.monotonic()
        rows = self._rows(index_prefix(self.topic_id))
        self.whole_seconds = time.monotonic() - started
        missing = [row for row in rows if not self._has(row)]
        if reads_max is not None and len(missing) > reads_max:
            self._unread = missing
            return self.whole(reads_max)
        self._unread = []
        self._read(missing)
        kept = {listed.key for _, listed in rows}
        for number in list(self._known):
            self._drop(number, (key for key in self._known[number] if key not in kept))
        return self.known()

    def small(self) -> bool:
        """Whether a listing made now ends on its first page."""
        found = self.store.list_after(index_prefix(self.topic_id))
        return sum(1 for _ in islice(found, LIST_PAGE_KEYS)) < LIST_PAGE_KEYS

    def partition(self, number: int) -> list[KnownSegment]:
        """All segments of one partition, by a listing made now. Raises like :meth:`whole`."""
        rows = self._rows(index_prefix(self.topic_id, number))
        self._read([row for row in rows if not self._has(row)])
        kept = {listed.key for _, listed in rows}
        self._drop(number, (key for key in self._known[number] if key not in kept))
        return self.of(number)

    def ahead(self, frontiers: Mapping[int, int], notices: Notices) -> dict[int, list[KnownSegment]]:
        """By partition every segment that reaches to its frontier, and those below that notices name.

        Partitions of which nothing is new are left out, and those without a frontier are listed from their beginning.
        What lies above the frontier is as the store has it now. Raises like :meth:`whole`.
        """
        self.begun = True
        noticed: dict[int, set[IndexKey]] = defaultdict(set)
        for key in notices.keys:
            noticed[key.partition].add(key)
        rows: list[_Row] = []
        wanted: dict[int, set[str]] = {}
        for number in sorted(noticed.keys() | (self._partitions() if notices.look else set())):
            frontier, keys = max(frontiers.get(number, -1), 0), noticed.get(number, set())
            if notices.look or self._reaching(number, frontier) - {str(key) for key in keys}:
                listed = self._rows(index_prefix(self.topic_id, number), frontier)
                found = {item.key for _, item in listed}
                self._drop(number, self._reaching(number, frontier) - found)
                rows += [row for row in listed if not self._has(row)]
                keys = {key for key in keys if key.last < frontier}
                wanted[number] = found
            wanted[number] = wanted.get(number, set()) | {str(key) for key in keys}
            rows += self._asked(keys)
        self._read(rows)
        return {
            number: [self._known[number][key] for key in sorted(keys) if key in self._known[number]]
            for number, keys in wanted.items()
            if keys
        }

    def witness(self, notices: Notices = ALL) -> KnownSegment | None:
        """One that says whose topic id it is: live with rows if there is such a one, else the next best. None: nothing.

        Reads no further than it must: of a topic that never has rows, what is noticed. Raises like :meth:`whole`.
        """
        best = self._best()
        if best is not None and _says(best) == _ALL_OF_IT:
            return best
        if best is not None and not (notices.look or notices.whole):
            self._read(self._asked(notices.keys))
            return self._best()
        listed = self._listed(index_prefix(self.topic_id))
        while part := list(islice(listed, LIST_PAGE_KEYS)):
            self._read([row for row in part if not self._has(row)])
            read = [self._known[key.partition].get(item.key) for key, item in part]
            best = max([known for known in (best, *read) if known is not None], key=_says, default=None)
            if best is not None and _says(best) == _ALL_OF_IT:
                break
        return best

    def _best(self) -> KnownSegment | None:
        """Of what is known; looks no further than it must."""
        best: KnownSegment | None = None
        for known in (known for group in self._known.values() for known in group.values()):
            best = known if best is None or _says(known) > _says(best) else best
            if _says(best) == _ALL_OF_IT:
                break
        return best

    def _has(self, row: _Row) -> bool:
        known = self._known[row[0].partition].get(row[1].key)
        return known is not None and known.listed.same(row[1])

    def _reaching(self, number: int, frontier: int) -> set[str]:
        return {key for key, known in self._known[number].items() if known.key.last >= frontier}

    def _drop(self, number: int, keys: Iterable[str]) -> None:
        for key in list(keys):
            del self._known[number][key]

    def _partitions(self) -> set[int]:
        """The partitions the store has something of."""
        found = map(partition_of_folder, self.store.list_folders(index_prefix(self.topic_id)))
        return {number for number in found if number is not None}

    def _rows(self, prefix: str, frontier: int | None = None) -> list[_Row]:
        """What is listed under `prefix`, a partition's when there is a frontier: then from that last offset on."""
        return list(self._listed(prefix, None if frontier is None else f"{prefix}{frontier:020d}"))

    def _listed(self, prefix: str, after: str | None = None) -> Iterator[_Row]:
        for listed in self.store.list_after(prefix, after):
            key = parse_index_key(listed.key)
            if key is not None:
                yield key, listed

    def _asked(self, keys: Iterable[IndexKey]) -> list[_Row]:
        """What is at these keys now; forgets those at which nothing is any more."""
        ordered = sorted(keys, key=str)
        rows: list[_Row] = []
        missing: list[IndexKey] = []
        for key, listed in zip(ordered, self._each(self._stat, ordered), strict=True):
            if listed is not None:
                rows.append((key, listed))
            else:
                missing.append(key)
        self._forget([key for key in missing if str(key) in self._known[key.partition]])
        return rows

    def _stat(self, key: IndexKey) -> ListedObject | None:
        try:
            return self.store.stat(str(key))
        except ObjectNotFoundError:
            return None

    def _read(self, rows: Sequence[_Row]) -> None:
        missing: list[IndexKey] = []
        for (key, listed), known in zip(rows, self._each(self._read_one, rows), strict=True):
            if known is not None:
                self._known[key.partition][listed.key] = known
            else:
                missing.append(key)
        self._forget(missing)

    def _forget(self, missing: Sequence[IndexKey]) -> None:
        """What was known or listed, and could not be read: gone, if a listing made now says so too."""
        if missing:
            confirm_gone(self.store, [str(key) for key in missing])
        for key in missing:
            self._known[key.partition].pop(str(key), None)

    def _read_one(self, row: _Row) -> KnownSegment | None:
        try:
            return read_known(self.store, *row)
        except ObjectNotFoundError:
            return None

    def _each(self, work: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
        """`work` of each item, in order, by all readers; a page at a time, so that a failure leaves what was read."""
        if self.readers is None:
            yield from map(work, items)
            return
        for start in range(0, len(items), LIST_PAGE_KEYS):
            yield from self.readers.map(work, items[start : start + LIST_PAGE_KEYS])


_ALL_OF_IT = (True, True, True)


def _says(known: KnownSegment) -> tuple[bool, bool, bool]:
    return known.segment is not None, bool(known.data_files()), known.live
