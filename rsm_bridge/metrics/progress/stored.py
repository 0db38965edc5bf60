"""How far one topic has come in store and table, from what is known of its segments. No requests but for batches.

Used twice: by `tierberg status`, which read the segments itself, and by the publisher after each run, for the gauges.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from converter.types import BoolArray, Cause, Int64Array
from iceberg_catalog.commit.foreign import foreign_commits
from iceberg_catalog.commit.head import Head, by_partition, normal_path
from iceberg_catalog.plan.file_epochs import Look, no_look
from iceberg_catalog.plan.hold import Hold
from iceberg_catalog.plan.lineage import UNKNOWN, of_segment
from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import BatchKind, Follow, LiveFile, PartState, Policy, Segment, SegmentState
from iceberg_catalog.tables.tables import data_root, stamped_format
from rsm_bridge.metrics.progress.facts import Gap, StoredPartition, TableFacts, UnfinishedTransaction, Withdrawn
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.projections.hold import WaitingProjection, hold_of
from rsm_bridge.storage.segments.known import KnownSegment, log_start_told, segments_by_partition


def stored_partitions(
    segments: Sequence[KnownSegment],
    states: Mapping[int, PartState] | None,
    files: Iterable[LiveFile] = (),
    policy: Policy | None = None,
    projections: Sequence[WaitingProjection] = (),
    *,
    complete: bool = True,
    planned: bool = False,
    look: Look = no_look,
    unread: Sequence[IndexKey] = (),
    blind: Collection[int] = (),
) -> dict[int, StoredPartition]:
    """Facts of every partition with a live segment.

    Args:
        segments: of one topic id.
        states: recorded with the table's head, empty when there is no table yet; None: not known, so nothing is said
            of publishing.
        files: live files of the head.
        policy: what the publisher does with rows that Kafka's retention deleted; None: it follows.
        projections: of the table, that those rows wait for.
        complete: every index of the topic was looked at, else the newest ones; gaps are not looked for then.
        planned: the states are what a plan has just made of these segments; it is not made again.
        look: reads a file's leader epochs, for the plan of a partition whose new leader is not in the table yet.
        unread: keys of indexes that cannot be read: what these may have explained is not said.
        blind: partitions of which nothing is said of publishing.

    Raises:
        BridgeError, SegmentError: the batches of a waiting segment cannot be read. What `look` raises passes.
    """
    groups = segments_by_partition(segments)
    of_partition = by_partition(files)
    # A topic without a single row gets no table, and then nothing waits for one.
    has_rows = bool(states) or any(known.live and known.data is not None for known in segments)
    found: dict[int, StoredPartition] = {}
    for number, group in sorted(groups.items()):
        live = [known for known in group if known.live and known.segment is not None]
        if live:
            state = states.get(number, PartState()) if states is not None and has_rows else None
            damaged = [key for key in unread if key.partition == number]
            if state is not None and (number in blind or any(key.last >= state.frontier for key in damaged)):
                state = None
            # Newest first: unless one at or below the frontier was reached, some ahead of it may be missing.
            if state is not None and not complete and not planned:
                state = state if min(known.key.last for known in group) < state.frontier else None
            reached = None if state is None else state.frontier
            conflict: int | None = None
            if state is not None and not planned:
                hold = hold_of(projections, number, group, int(time.time() * 1000))
                reached, conflict = _publishable(group, state, of_partition[number], policy or Follow(), hold, look)
            floor = 0 if states is None else states.get(number, PartState()).floor
            gaps = gaps_between(group, floor, damaged) if complete else ()
            if complete and not damaged and state is not None and not planned:
                gaps = (*rows_below(group, state, of_partition[number]), *gaps)
            cut = None if planned else _cut_start(live)
            covered = covered_from(group, floor, damaged) if complete else None
            found[number] = replace(
                _partition(live, state, reached, conflict, gaps), cut_start=cut, covered_from=covered
            )
            below = [] if planned else list(_below_floor(live, of_partition[number], floor))
            if below and isinstance(policy or Follow(), Follow):
                firsts, lasts, tiered = zip(*below, strict=True)
                found[number] = replace(
                    found[number], below_floor=(min(firsts), max(lasts)), below_floor_ms=max(tiered)
                )
    return found


def table_facts(head: Head, states: Mapping[int, PartState]) -> TableFacts:
    """What the head says of the table as a whole."""
    table = head.table
    snapshot = table.current_snapshot()
    data = normal_path(data_root(table))
    inside = data.startswith(normal_path(table.location()).rstrip("/") + "/")
    return TableFacts(
        name=".".join(table.name()),
        frontiers={number: state.frontier for number, state in states.items()},
        committed_ms=snapshot.timestamp_ms if snapshot is not None else None,
        foreign=head.foreign,
        foreign_commits=foreign_commits(table),
        data_inside=inside,
        values=stamped_format(table),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Records of live segments that are not in the table.

    batches: quarantined ones by cause; quarantined_key: an index that has some. verbatim: segments stored as they are
    because their conversion failed; verbatim_key: one of them. newest_ms: when the newest of all was tiered. by_rule:
    segments stored as they are because the rule of their topic said so then.
    """

    batches: Mapping[str, int]
    quarantined_key: str | None
    verbatim: int
    verbatim_key: str | None
    newest_ms: int | None = None
    by_rule: int = 0


def withheld(segments: Iterable[KnownSegment]) -> Withheld:
    """Counts what the table misses; of several keys the one that was tiered last is named."""
    batches: Counter[str] = Counter()
    quarantined: list[ListedObject] = []
    failed: list[ListedObject] = []
    by_rule = 0
    for known in segments:
        if not known.live or known.counts is None:
            continue
        causes = dict(known.counts.quarantined)
        if Cause.INTERNAL in causes:
            failed.append(known.listed)
        elif known.withheld and known.counts.source_bytes:
            by_rule += 1
        if found := {cause.name.lower(): count for cause, count in causes.items() if cause is not Cause.INTERNAL}:
            quarantined.append(known.listed)
            batches.update(found)
    newest_ms = max((item.modified_ms for item in (*quarantined, *failed)), default=None)
    return Withheld(
        batches=dict(batches),
        quarantined_key=_newest(quarantined),
        verbatim=len(failed),
        verbatim_key=_newest(failed),
        newest_ms=newest_ms,
        by_rule=by_rule,
    )


def left_out(segments: Iterable[KnownSegment]) -> tuple[str, ...]:
    """Index keys of live segments that files beside the log were left out of, those tiered last first."""
    found = [known.listed for known in segments if known.live and known.counts is not None and known.counts.left_out]
    return tuple(item.key for item in sorted(found, key=lambda item: (item.modified_ms, item.key), reverse=True))


def _newness(segment: Segment) -> tuple[int, int]:
    """Which of two segments is of the newer history: by the epoch of its last batch, then by its end."""
    return segment.runs[-1][0] if segment.runs else UNKNOWN, segment.last


def _newest(items: Sequence[ListedObject]) -> str | None:
    return max(items, key=lambda item: (item.modified_ms, item.key)).key if items else None


def _publishable(
    group: Sequence[KnownSegment],
    state: PartState,
    files: Sequence[LiveFile],
    policy: Policy,
    hold: Hold,
    look: Look,
) -> tuple[int, int | None]:
    """The frontier that the publisher's next run reaches, and where markers contradict Kafka's files."""
    if all(known.key.last < state.frontier for known in group):
        return state.frontier, None
    inputs = [known.segment for known in group if known.segment is not None]
    made = plan(inputs, files, state, policy, relisted=True, hold=hold, look=look)
    return made.state.frontier, made.conflict


def _partition(
    live: Sequence[KnownSegment],
    state: PartState | None,
    reached: int | None,
    contradicted: int | None,
    gaps: tuple[Gap, ...],
) -> StoredPartition:
    newest = of_segment(max((known.segment for known in live if known.segment), key=_newness))
    tiered_end = newest.end
    ahead = [known for known in live if state is not None and known.key.last >= state.frontier]
    waiting, conflict = None, None
    if reached is not None and reached < tiered_end:
        waiting, conflict = _held_back(live, reached, contradicted)
    counts = [known.counts for known in live if known.counts is not None]
    return StoredPartition(
        segments=len(live),
        start=min(known.key.base for known in live),
        tiered_end=tiered_end,
        history=newest.entries,
        tiered_ms=max(known.written_ms for known in live),
        record_ms=max((count.record_ms for count in counts), default=-1),
        source_bytes=sum(count.source_bytes for count in counts),
        publishable_end=reached,
        unpublished_ms=min((known.written_ms for known in ahead), default=None),
        open=waiting,
        conflict=conflict,
        gaps=gaps,
        pending=min(ahead, key=lambda known: known.key.base).pending if ahead else None,
    )


def _below_floor(live: Sequence[KnownSegment], files: Iterable[LiveFile], floor: int) -> Iterator[tuple[int, int, int]]:
    """Rows of live segments below the floor that the table lacks: first and last offset, when the segment was tiered.

    A segment may lie there in part only: what Kafka deleted ended elsewhere. The table may still have its rows, for
    they leave a file at a time.
    """
    spans = sorted((file.first, file.last) for file in files if file.first < floor)
    for known in live:
        for file in known.segment.files if known.segment is not None else ():
            first, last = file.first, min(file.last, floor - 1)
            for start, end in spans:
                first = end + 1 if start <= first <= end else first
            for start, end in reversed(spans):
                last = start - 1 if start <= last <= end else last
            # Not every offset has a row. The first does, but where a merged file tells the segment's own first offset.
            begins = first == file.first and (last == file.last or not file.shared)
            if first <= last and (begins or file.rows == file.last - file.first + 1):
                yield first, last, known.written_ms


def _cut_start(live: Sequence[KnownSegment]) -> int | None:
    """Where the newest copy's leader epochs begin, if live segments lie wholly below.

    Kafka cuts them at the log start, and then deletes what lies below; that both stay is a leader with a cut history.
    """
    known = [item.segment for item in live if item.segment is not None and item.segment.checkpoint]
    if not known:
        return None
    start = max(known, key=lambda segment: of_segment(segment).rank).checkpoint[0][1]
    return start if any(item.key.last < start for item in live) else None


def _held_back(
    live: Sequence[KnownSegment], end: int, contradicted: int | None
) -> tuple[UnfinishedTransaction | None, str | None]:
    """What publishing waits for at offset `end`: a transaction, or a segment where markers contradict the broker.

    contradicted: where they do across segments.
    """
    tail = sorted((known for known in live if known.key.last >= end), key=lambda known: known.key.base)
    for known in tail:
        across = contradicted is not None and contradicted <= end and known.key.last >= contradicted
        if known.segment is not None and (across or known.segment.conflict) and known.key.base <= end:
            return None, known.listed.key
    return open_transaction(tail, end), None


def open_transaction(tail: Sequence[KnownSegment], end: int) -> UnfinishedTransaction | None:
    """The first transactional batch of `tail` (ascending) that reaches `end` and whose producer has no marker there."""
    inputs = [(known, known.segment.load()) for known in tail if known.segment is not None]
    if not inputs:
        return None
    base, last, producer, kind = (
        np.concatenate([getattr(batches, name) for _, batches in inputs])
        for name in ("base", "last", "producer_id", "kind")
    )
    marker = (kind == BatchKind.COMMIT) | (kind == BatchKind.ABORT)
    ids, places = np.unique(producer, return_inverse=True)
    last_marker = np.full(len(ids), -1, dtype=np.int64)
    np.maximum.at(last_marker, places[marker], base[marker])
    waits = np.flatnonzero((kind == BatchKind.TXN) & (last >= end) & (base > last_marker[places]))
    if not len(waits):
        return None
    first = waits[np.argmin(base[waits])]
    offset = int(base[first])
    since = min(known.written_ms for known, _ in inputs if known.key.base <= offset <= known.key.last)
    return UnfinishedTransaction(offset, int(producer[first]), since)


def gaps_between(group: Iterable[KnownSegment], floor: int = 0, unread: Iterable[IndexKey] = ()) -> tuple[Gap, ...]:
    """Offsets between the partition's live segments that no index covers, deleted ones included, withdrawn ones not.

    Below the lowest live one tombstones go in any order. floor: of the table's state; below it a deletion was seen.
    unread: indexes that cannot be read count as covers. One that alone lies above a gap may have told why it is there.
    """
    group = list(group)
    lowest = min((known.key.base for known in group if known.live), default=0)
    read = [known.segment for known in group if known.segment is not None and _counts_as_cover(known)]
    covers = sorted([*((item.base, item.last) for item in read), *((key.base, key.last) for key in unread)])
    highest = max((segment.base for segment in read), default=0)
    found: list[Gap] = []
    reach, told = None, max(floor, log_start_told(read))
    for base, end in covers:
        if reach is not None and reach < base <= highest and base > lowest:
            found.append(Gap(reach, base - 1, explained=base <= told))
        reach = max(end + 1, reach or 0)
    return tuple(found)


def rows_below(group: Sequence[KnownSegment], state: PartState, files: Iterable[LiveFile]) -> tuple[Gap, ...]:
    """Offsets below the lowest live segment where the table has rows that Kafka may ask for, and no index covers them.

    Without an answer of Kafka's that is what tells a lost index from one that retention deleted: rows of that leave
    before its tombstone does. What a copy that was withdrawn covers has not been made again yet.

    Args:
        group: all of the partition, at least one of them live.
        state: recorded with the table's head.
        files: live files of the head in this partition. Of a file that has not a row at every offset only the first
            and the last row's are known.
    """
    lowest = min(known.key.base for known in group if known.live)
    low = max(state.floor, log_start_told(_segments(group)))
    edges = {low, *(known.key.last + 1 for known in group if low <= known.key.last + 1 < lowest)}
    marks: set[int] = set()
    for file in files:
        if file.first < lowest and file.last >= low:
            marks.update((file.first, file.last))
            if file.rows == file.last - file.first + 1:
                marks.update(offset for offset in edges if file.first <= offset <= file.last)
    offsets = np.array(sorted(offset for offset in marks if offset < lowest), dtype=np.int64)
    if not len(offsets):
        return ()
    bases = sorted({known.key.base for known in group})
    found: dict[int, int] = {}
    for offset in rows_without_index(offsets, state, group).tolist():
        found.setdefault(bases[bisect_right(bases, offset)] - 1, offset)
    return tuple(Gap(first, last, explained=False) for last, first in found.items())


def covered_from(group: Iterable[KnownSegment], floor: int = 0, unread: Iterable[IndexKey] = ()) -> int:
    """Down to which offset it is explained that nothing is live below the lowest live segment.

    By deleted ones, by the floor, or by a copy from a log that began there: another leader's may begin below.
    unread: indexes that cannot be read, which may be of deleted ones.
    """
    group = list(group)
    start = min(known.key.base for known in group if known.live)
    covers = [*(known.key for known in group if _counts_as_cover(known)), *unread]
    for key in sorted(covers, key=lambda item: item.last, reverse=True):
        if key.last >= start - 1:
            start = min(start, key.base)
    told = log_start_told(_segments(group))
    return 0 if start <= max(floor, told) else start


def unindexed(
    segments: Iterable[KnownSegment],
    states: Mapping[int, PartState],
    files: Iterable[LiveFile],
    unread: Sequence[IndexKey] = (),
) -> dict[int, Gap]:
    """By partition, offsets from the end of every index, live or deleted, to the frontier, if the table has rows there.

    Not below the floor. Rows of what was deleted or withdrawn leave before its index does.

    Args:
        segments: all of the topic id. A copy that Kafka withdrew counts: another will come.
        states: recorded with the table's head.
        files: live files of the head.
        unread: indexes that are there and cannot be read.
    """
    of_partition = by_partition(files)
    ends: Counter[int] = Counter()
    for key in (*(known.key for known in segments), *unread):
        ends[key.partition] = max(ends[key.partition], key.last + 1)
    found: dict[int, Gap] = {}
    for number, state in states.items():
        known_end = ends[number]
        first = max(known_end, state.floor)
        if any(file.last >= first for file in of_partition[number]):
            found[number] = Gap(first, state.frontier - 1, explained=False)
    return found


def _segments(group: Iterable[KnownSegment]) -> Iterator[Segment]:
    return (known.segment for known in group if known.segment is not None)


def withdrawn(segments: Iterable[KnownSegment], unread: Sequence[IndexKey] = ()) -> dict[int, Withdrawn]:
    """By partition, what above every other index only copies have that Kafka withdrew: it is no longer tiered.

    Their rows may be in the table until Kafka has made the copy again. unread: indexes that cannot be read.
    """
    found: dict[int, Withdrawn] = {}
    for number, group in segments_by_partition(segments).items():
        ends = [known.key.last + 1 for known in group if _counts_as_cover(known)]
        end = max([*ends, *(key.last + 1 for key in unread if key.partition == number)], default=0)
        taken = [
            (known.key.base, known.deletion.time_ms)
            for known in group
            if known.deletion is not None
            and known.deletion.kind is SegmentState.WITHDRAWN
            and known.segment is not None
            and known.key.last >= end
        ]
        if taken:
            first = max(end, min(base for base, _ in taken))
            found[number] = Withdrawn(first, min(time_ms for _, time_ms in taken))
    return found


def _counts_as_cover(known: KnownSegment) -> bool:
    return known.live or (known.deletion is not None and known.deletion.kind.name == "DELETED")


def rows_without_index(offsets: Int64Array, state: PartState, known: Sequence[KnownSegment]) -> Int64Array:
    """Which of a partition's rows, by ascending offsets, have no index although Kafka may ask for them.

    Not those of an archive, below the floor, nor those below a log start that a copy told: a copy that Kafka withdrew
    leaves its rows there when their records were deleted before Kafka copied them again.

    Args:
        offsets: of all rows of the partition.
        state: recorded with the table's head.
        known: all of the partition, deleted and withdrawn ones too.
    """
    told = log_start_told(item.segment for item in known if item.segment is not None)
    rows = offsets[offsets >= max(state.floor, told)]
    return rows[~_covered(rows, ((item.key.base, item.key.last) for item in known))]


def _covered(offsets: Int64Array, ranges: Iterable[tuple[int, int]]) -> BoolArray:
    """Which of the offsets, ascending, lie in one of the ranges [first, last]."""
    covered = np.zeros(len(offsets), dtype=np.bool_)
    for first, last in ranges:
        covered[np.searchsorted(offsets, first) : np.searchsorted(offsets, last, side="right")] = True
    return covered
