"""What the publish plan reads and says. One partition of one topic id; offsets are Kafka's, `end`/`last` inclusive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from converter.types import BoolArray, Int64Array, UInt8Array
from iceberg_catalog.limits import EVENTS_KEPT

Peeked = tuple[int, int, bool]
"""A transaction whose end was read from transaction indexes of later segments: producer id, first offset, committed."""

Events = tuple[tuple[int, int], ...]
"""What happened below the frontier: (how many had happened by then, first offset of it), the newest EVENTS_KEPT."""

Runs = tuple[tuple[int, int], ...]  # (leader epoch, first offset), ascending; taken from batches, not from rows


@dataclass(frozen=True, slots=True)
class Follow:
    """Rows leave when Kafka's retention deletes them."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows never leave by retention: the table is an archive."""


@dataclass(frozen=True, slots=True)
class KeepUntil:
    """Rows leave once Kafka has deleted them and they are older than `horizon_ms` since the epoch: the later of both.

    Never sooner than under Follow: the file of a segment Kafka still has is the very object Kafka reads, so nothing
    would be won by taking it out of the table. A file leaves when its newest row is that old; if that is so before it
    came, it does not come.
    """

    horizon_ms: int


@dataclass(frozen=True, slots=True)
class Holding:
    """As `policy` says, but files with offsets of [start, end) stay: projections wait for them. Made by hold.py."""

    policy: Follow | KeepUntil
    start: int
    end: int


Policy = Follow | Keep | KeepUntil | Holding


class BatchKind(IntEnum):
    """What a batch is to the plan."""

    PLAIN = 0  # counts at once (also: other control batches, which have no rows)
    TXN = 1  # counts once its producer's next marker says commit
    COMMIT = 2
    ABORT = 3


class SegmentState(IntEnum):
    """R4. What Kafka has said about the segment id."""

    LIVE = 0
    WITHDRAWN = 1  # deleted without custom metadata: a failed or unfinished copy; never becomes DELETED by its age
    DELETED = 2  # deleted with custom metadata: retention, or the topic is going


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Batches:
    """The batches of one segment in offset order, one array element each.

    `rows`: the data file holds its records. `max_timestamp_ms`: since the epoch, negative where there is none.
    `aborts`: the segment's transaction index, shape (n, 3): producer id, first offset, the marker's offset; None where
    it is not known.
    """

    base: Int64Array
    last: Int64Array
    epoch: npt.NDArray[np.int32]
    producer_id: Int64Array
    kind: UInt8Array  # BatchKind
    rows: BoolArray
    max_timestamp_ms: Int64Array
    aborts: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """A segment's data file or its tail: first and last offset of its rows, and how many there are (> 0).

    shared: it was merged with others' and holds their rows too, so it is never added as this segment's own. pending: it
    lacks columns that its rows are to have in the table, so neither is it added: a derived file is.
    """

    first: int
    last: int
    rows: int
    shared: bool = False
    pending: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Segment:
    """One index object, of offsets `base` to `last`.

    `checkpoint` is the leader-epoch checkpoint that came with the copy, `open_end` what its producer snapshot lists as
    open at the segment's end: (producer id, first offset), or None when the snapshot was absent or damaged. `conflict`:
    its markers contradict what the broker's files say; it waits until it is deleted. `runs` are the leader-epoch runs
    of its own batches. Rows from the first undecided one on may lie in a data file of their own, `tail`; all others,
    and all where there is none, in `main`. `peeked`: which of `open_end` are known to have ended, and how. `load` gives
    the batches; the plan calls it at most once, and only for segments that reach to the frontier or above. `main` is
    None when the segment has no rows or is stored verbatim. `leaving`: deleted, and its objects are being removed.
    """

    id: str
    base: int
    last: int
    runs: Runs
    checkpoint: Runs
    open_end: tuple[tuple[int, int], ...] | None
    state: SegmentState
    main: FileRef | None
    load: Callable[[], Batches] = field(repr=False)
    conflict: bool = False
    tail: FileRef | None = None
    peeked: tuple[Peeked, ...] = ()
    leaving: bool = False

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Its data files, ascending."""
        return tuple(file for file in (self.main, self.tail) if file is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of the table's head, from its manifest entry; `first` and `last` are offsets of rows.

    runs: None where they are in the file alone (file_epochs.py). max_timestamp_ms: the newest row's, since the epoch;
    None when no row has one. size_bytes, rows: of the object.
    """

    path: str
    first: int
    last: int
    runs: Runs | None
    partition: int
    max_timestamp_ms: int | None = None
    size_bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartState:
    """What the plan remembers per partition, committed in the same swap as the files.

    frontier: the next offset to publish, -1 before the first publish. floor: offsets below are gone by retention.
    lineage: leader-epoch history as (epoch, start), cut where nothing below matters (lineage_record.py). known_end:
    offset after the last one the lineage speaks of.
    peeked: transactions below the frontier that were decided without their marker, which is above it. rewinds, repairs:
    rows from that offset on were taken back, or came late; for readers that go by offsets.
    """

    frontier: int = -1
    floor: int = 0
    lineage: Runs = ()
    known_end: int = 0
    peeked: tuple[Peeked, ...] = ()
    rewinds: Events = ()
    repairs: Events = ()


def counted(events: Events) -> int:
    """How many there have been."""
    return events[-1][0] if events else 0


def remembered(events: Events, offset: int) -> Events:
    """With one more, at this offset."""
    return (*events, (counted(events) + 1, offset))[-EVENTS_KEPT:]


def first_differing(events: Events, others: Events) -> int | None:
    """First offset of what happened in one of two histories of a table and not in the other; None: nothing.

    0 where too much has happened since for anybody to remember.
    """
    if events == others:
        return None
    if events and others and not set(events) & set(others):
        return 0
    return min(offset for _, offset in set(events) ^ set(others))


def events_since(events: Events, seen: int) -> list[int]:
    """First offsets of the events after the first `seen` ones; 0 stands for those that are not remembered any more."""
    new = [offset for number, offset in events if number > seen]
    forgotten = bool(new) and events[0][0] > seen + 1
    return [*new, *([0] if forgotten else [])]


@dataclass(frozen=True, slots=True)
class UseMain:
    """Add the segment's own data file, or its tail, as it is."""

    segment_id: str
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Derive:
    """Write one new file with the rows whose offsets lie in these ranges, taken from the segments' data files.

    `ranges` are (segment id, first offset, last offset), ascending, both ends inclusive.
    """

    ranges: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Trim:
    """Replace the file by derived ones: of its rows below `keep_below`, and of those from `keep_from` on."""

    path: str
    keep_below: int
    keep_from: int = (1 << 63) - 1

    def kept(self, file: LiveFile) -> list[tuple[int, int]]:
        """First and last offset of each of those."""
        parts = ((file.first, min(self.keep_below - 1, file.last)), (max(self.keep_from, file.first), file.last))
        return [(first, last) for first, last in parts if first <= last]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one commit shall do to one partition.

    remove: paths whose rows are all below the floor (retention). replace: paths that go because another branch of the
    log won (rewind). trim: files cut. gaps: stretches [first, last] never uploaded, jumped over for good.
    lost: offsets of transactional rows whose marker fell into a gap. conflict: offset before which the partition stops,
    because Kafka's files and the markers in the log contradict each other there. need_relist: list again, then plan
    again with relisted=True; nothing else of this plan may be applied. state: to record with the commit. midst: to
    record with the snapshots of the commit before the last, which lack its new rows; None: as it was.
    """

    add: tuple[UseMain | Derive, ...] = ()
    remove: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    trim: tuple[Trim, ...] = ()
    state: PartState = PartState()
    rewind: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    need_relist: bool = False
    conflict: int | None = None
    midst: PartState | None = None

    def changes(self, state: PartState) -> bool:
        """Whether anything must be committed, `state` being the recorded one."""
        return bool(self.add or self.remove or self.replace or self.trim) or self.state != state
