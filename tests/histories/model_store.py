"""An object store as the publisher sees it, that misbehaves on request: indexes and tombstones by their real keys.

Index objects are not encoded: an entry holds what `read_known` would make of it. Data files hold rows by offset. Names
have the limit of most stores and of every file system: NAME_BYTES_MAX for each part of a key.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from converter.types import LeaderEpoch
from iceberg_catalog.plan.types import Batches, FileRef, Segment, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.errors import ObjectNotFoundError, StoreError
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment, KnownTombstone
from tests.histories.kafka_model import Batch, Due
from tests.histories.row_arrays import load_later

NAME_BYTES_MAX = 255
PAGE_KEYS = 3
ROOT = "s3://bucket"
OWNER_BYTES = b"\0" * 16

Rows = dict[int, Batch]


@dataclass(slots=True, eq=False)
class DataFile:
    """A stored data file. `runs`: the leader epochs that its footer tells."""

    key: str
    partition: int
    rows: Rows
    runs: tuple[LeaderEpoch, ...]

    @property
    def file_path(self) -> str:
        """As the table spells it."""
        return f"{ROOT}/{self.key}"


@dataclass(slots=True, eq=False)
class Entry:
    """What lies at an index key; `known` is without what the listing said of it."""

    known: KnownSegment
    version: int
    modified_ms: int


@dataclass(slots=True)
class Faults:
    """What the store does wrong, until it has done it.

    denied: how often one key answers 404 although the object is there; the first such request comes after `skip`
    others, and says which `key`. failing: requests until one
    fails. hidden: number of the key that the next listing leaves out. twice: the next listing gives each page twice.
    """

    denied: int = 0
    skip: int = 0
    key: str = ""
    failing: int = -1
    hidden: int = -1
    twice: bool = False
    hit: set[str] = field(default_factory=set)

    def request(self) -> None:
        """One request of any kind."""
        if self.failing == 0:
            self.hit.add("failing")
            self.failing = -1
            raise StoreError("the store fails")
        self.failing -= self.failing > 0

    def deny(self, key: str) -> None:
        """A request of one key."""
        self.request()
        if self.denied and self.skip == 0 and self.key in ("", key):
            self.denied, self.key = self.denied - 1, key
            self.hit.add("denied")
            raise ObjectNotFoundError(key)
        self.skip -= self.skip > 0


@dataclass(slots=True, eq=False)
class ModelStore:
    """The store of all bridges. `between`: called before each page of a listing but the first."""

    entries: dict[str, Entry] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    files: dict[str, DataFile] = field(default_factory=dict)
    removed: dict[str, DataFile] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    between: Callable[[], None] | None = None
    versions: int = 0
    single_process: bool = False
    root_uri: str = ROOT
    reads: int = 0

    # What the bridges' code calls

    def uri(self, key: str) -> str:
        """The path of a key."""
        return f"{ROOT}/{key}"

    def key(self, path: str) -> str | None:
        """The key of a path."""
        return path.removeprefix(f"{ROOT}/")

    def list_after(self, prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        """A listing in pages, each of them as the store is when it is asked for."""
        self.faults.request()
        hidden, self.faults.hidden = self.faults.hidden, -1
        times, self.faults.twice = 1 + self.faults.twice, False
        at, number = bisect_right(self.keys, after or prefix), 0
        while True:
            page = [key for key in self.keys[at : at + PAGE_KEYS] if key.startswith(prefix)]
            rows = [(key, self.entries[key]) for key in page]
            for _ in range(times):
                for count, (key, entry) in enumerate(rows):
                    if number + count == hidden:
                        self.faults.hit.add("hidden")
                    else:
                        yield listed(key, entry)
            if times == 2 and rows:
                self.faults.hit.add("twice")
            if len(page) < PAGE_KEYS:
                return
            number += len(page)
            if self.between is not None:
                self.between()
            self.faults.request()
            at = bisect_right(self.keys, page[-1])

    def list_folders(self, prefix: str) -> list[str]:
        """The partitions of a topic id."""
        self.faults.request()
        names = {key[len(prefix) :].partition("/")[0] for key in self.keys if key.startswith(prefix)}
        return [f"{prefix}{name}/" for name in sorted(names)]

    def stat(self, key: str) -> ListedObject:
        """What is at a key."""
        self.faults.deny(key)
        if key not in self.entries:
            raise ObjectNotFoundError(key)
        return listed(key, self.entries[key])

    def size(self, key: str) -> int:
        """Of a data file."""
        if key not in self.files:
            raise ObjectNotFoundError(key)
        return 1

    def delete_many(self, keys: list[str]) -> None:
        """Of any kind."""
        self.faults.request()
        for key in keys:
            if key in self.files:
                self.removed[key] = self.files.pop(key)
            if self.entries.pop(key, None) is not None:
                self.keys.remove(key)

    # What the world does

    def read_known(self, _store: object, _key: IndexKey, found: ListedObject) -> KnownSegment:
        """In place of rsm_bridge.storage.segments.known.read_known."""
        self.faults.deny(found.key)
        self.reads += 1
        entry = self.entries.get(found.key)
        if entry is None:
            raise ObjectNotFoundError(found.key)
        return replace(entry.known, listed=found)

    def put_index(self, known: KnownSegment, now_ms: int) -> bool:
        """Put if absent: a tombstone that came before wins."""
        key = str(known.key)
        if key in self.entries:
            return False
        self.versions += 1
        self.entries[key] = Entry(known, self.versions, now_ms)
        insort(self.keys, key)
        return True

    def put_tombstone(self, key: IndexKey, kind: SegmentState, now_ms: int) -> str:
        """As storage/segments/deleter.py: `deleted` wins over `withdrawn`, and a repetition changes nothing."""
        entry = self.entries.get(str(key))
        self.versions += 1
        if entry is None:
            stone = KnownSegment(
                key=key,
                listed=ListedObject(str(key), 1, now_ms),
                owner=Owner("c", "t", key.topic_id),
                value_format="raw",
                segment=None,
                data=None,
                kept=None,
                deletion=KnownTombstone(kind=kind, time_ms=now_ms, had_index=False),
            )
            self.entries[str(key)] = Entry(stone, self.versions, now_ms)
            insort(self.keys, str(key))
            return "unknown_id"
        known = entry.known
        if known.deletion is not None and not (
            known.deletion.kind is SegmentState.WITHDRAWN and kind is SegmentState.DELETED
        ):
            return "already_deleted"
        segment = None if known.segment is None else replace(known.segment, state=kind)
        deletion = KnownTombstone(kind=kind, time_ms=now_ms, had_index=segment is not None)
        entry.known = replace(known, segment=segment, deletion=deletion)
        entry.version, entry.modified_ms = self.versions, now_ms
        return "replaced"

    def mark(self, key: str) -> bool:
        """A tombstone is being reclaimed from now on (Reclaimer._mark)."""
        entry = self.entries.get(key)
        if entry is None or entry.known.deletion is None:
            return False
        if not entry.known.deletion.reclaiming:
            segment = entry.known.segment
            self.versions += 1
            entry.version = self.versions
            entry.known = replace(
                entry.known,
                deletion=replace(entry.known.deletion, reclaiming=True),
                segment=None if segment is None else replace(segment, leaving=True),
            )
        return True

    def put_file(self, key: str, partition: int, rows: Rows, runs: tuple[LeaderEpoch, ...]) -> DataFile:
        """A data file; refuses names that are too long.

        Raises:
            StoreError: as a file system and most S3 servers do.
        """
        if max(len(name.encode()) for name in key.split("/")) > NAME_BYTES_MAX:
            raise StoreError(f"File name too long: {key}")
        made = self.files[key] = DataFile(key, partition, rows, runs)
        return made


def listed(key: str, entry: Entry) -> ListedObject:
    """The row of a listing."""
    return ListedObject(key, 1, entry.modified_ms, str(entry.version))


def leader_epochs(runs: tuple[tuple[int, int], ...]) -> tuple[LeaderEpoch, ...]:
    """As the metadata of a segment has them."""
    return tuple(LeaderEpoch(epoch, start) for epoch, start in runs)


def data_of(batches: list[Batch], border: int) -> tuple[Rows, Rows]:
    """Rows of a data file and of its tail, which begins with batch `border` of those that hold rows."""
    parts = batches[:border], batches[border:]
    main, tail = ({offset: batch for batch in part for offset in range(batch.base, batch.last + 1)} for part in parts)
    return main, tail


def segment_of(
    name: str,
    due: Due,
    *,
    held: list[Batch],
    peeked: tuple[tuple[int, int, bool], ...],
) -> tuple[Segment, Rows, Rows]:
    """What a copy stores of a segment: its index, and the rows of its data file and of its tail."""
    told = {(pid, first) for pid, first, committed in peeked if committed}
    waiting = {pid: first for pid, first in due.open_end if (pid, first) not in told}
    border = next((n for n, b in enumerate(held) if b.pid >= 0 and b.base >= waiting.get(b.pid, 1 << 60)), 0)
    main, tail = data_of(held, border or len(held))
    runs: list[tuple[int, int]] = []
    for batch in due.stored:
        if not runs or runs[-1][0] != batch.epoch:
            runs.append((batch.epoch, batch.base))
    epochs = tuple(runs) or due.metadata_epochs  # without a batch nothing else tells
    load: Callable[[], Batches] = load_later(due.stored, frozenset(held), due.aborts)
    refs: list[Any] = [
        FileRef(first=min(rows), last=max(rows), rows=len(rows)) if rows else None for rows in (main, tail)
    ]
    made = Segment(
        id=name,
        base=due.base,
        last=due.end,
        runs=epochs,
        checkpoint=due.checkpoint,
        open_end=due.open_end,
        state=SegmentState.LIVE,
        main=refs[0],
        load=load,
        tail=refs[1],
        peeked=peeked,
    )
    return made, main, tail
