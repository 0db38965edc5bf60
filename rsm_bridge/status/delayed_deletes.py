"""What the mass deletes of a topic took of each partition, and what they left, from what the store and table have now.

What was left goes on its way, and is reclaimed long before the mass delete is: only the offsets still tell of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise
from statistics import median

from iceberg_catalog.plan.types import FileRef, PartState, SegmentState
from rsm_bridge.limits import CLOCK_SKEW_SECONDS_MAX, MASS_DELETE_WINDOW_SECONDS
from rsm_bridge.metrics.progress.facts import DelayedDelete, DelayedPart, DelayedSegment
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.tables.reclaim.mass_delete import MassDelete, mass_deletes


def delayed_deletes(
    segments: Sequence[KnownSegment],
    states: Mapping[int, PartState],
    grace: float,
    *,
    restored: AbstractSet[str] = frozenset(),
    stays_ms: int = 0,
    unread: Sequence[IndexKey] = (),
) -> tuple[DelayedDelete, ...]:
    """The mass deletes whose objects are still there, oldest first.

    Args:
        segments: all of the topic id, live and tombstoned.
        states: recorded with the table; empty when they cannot be read.
        grace: `mass_delete_grace`, seconds.
        restored: index keys of what undeletes brought back: Kafka has not got it, and it leaves again with what Kafka
            deletes above it, or by `undelete --undo`.
        stays_ms: `table_retention`: rows that were younger when Kafka deleted them are in the table still.
        unread: indexes that cannot be read. What is over half of the table even if each is live, with a row at each of
            its offsets, is a mass delete, whatever they say; of others that is not sure.
    """
    living = _as_live(segments, unread)
    sure = {key for mass in _masses([*segments, *living], grace, restored, stays_ms) for key in mass.keys}
    groups = segments_by_partition([item for item in segments if item.listed.key not in restored])
    made: list[DelayedDelete] = []
    for mass in _masses(segments, grace, restored, stays_ms):
        parts: list[DelayedPart] = []
        for number, group in groups.items():
            gone = [item for item in group if item.listed.key in mass.keys]
            if gone:
                left = [item for item in group if item.live or _deleted_after(item, mass.last_ms)]
                known_end = states.get(number, PartState()).known_end
                known_end = max([known_end, *(key.last + 1 for key in unread if key.partition == number)])
                parts.append(_part(number, gone, left, mass, known_end))
        again = len(mass.keys & restored)
        delete = DelayedDelete(
            segments=len(mass.keys),
            rows=mass.rows,
            last_ms=mass.last_ms,
            due_ms=mass.due_ms,
            parts=tuple(parts),
            restored=again,
        )
        made.append(replace(delete, unsure=not mass.keys & sure))
    return tuple(sorted([*made, *_forgotten(segments, grace, stays_ms)], key=lambda item: item.last_ms))


def _forgotten(segments: Sequence[KnownSegment], grace: float, stays_ms: int) -> Iterator[DelayedDelete]:
    """What `tierberg topic forget` took of each mass delete."""
    rows = [replace(item, deletion=None) if _stays(item, stays_ms) else item for item in segments]
    for mass in mass_deletes(rows, grace):
        taken = [item for item in rows if item.listed.key in mass.keys and item.forgotten]
        if taken:
            yield DelayedDelete(
                segments=len(taken),
                rows=sum(item.rows for item in taken),
                last_ms=mass.last_ms,
                due_ms=mass.due_ms,
                forgotten=True,
            )


def _masses(
    segments: Sequence[KnownSegment], grace: float, restored: AbstractSet[str], stays_ms: int
) -> Sequence[MassDelete]:
    rows = [replace(item, deletion=None) if _stays(item, stays_ms) else item for item in segments]
    found = mass_deletes([item for item in rows if item.live or item.listed.key not in restored], grace, by_kafka=True)
    told = {key for mass in found for key in mass.keys}
    again = [mass for mass in mass_deletes(rows, grace, by_kafka=True) if mass.keys & restored and not mass.keys & told]
    return sorted([*found, *again], key=lambda mass: mass.last_ms)


def _as_live(segments: Sequence[KnownSegment], unread: Sequence[IndexKey]) -> list[KnownSegment]:
    """Stand-ins for what cannot be read: as old, and with as many rows, as can be."""
    whole = next((item for item in segments if item.segment is not None), None)
    if whole is None or whole.segment is None:
        return []
    made: list[KnownSegment] = []
    for key in unread:
        rows = FileRef(first=key.base, last=key.last, rows=key.last - key.base + 1)
        segment = replace(whole.segment, base=key.base, last=key.last, main=rows, tail=None)
        listed = ListedObject(str(key), 0, 0)
        made.append(replace(whole, key=key, listed=listed, segment=segment, deletion=None, counts=None))
    return made


def _stays(item: KnownSegment, stays_ms: int) -> bool:
    if item.deletion is None or item.counts is None or not stays_ms:
        return False
    return item.counts.record_ms + stays_ms > item.deletion.time_ms


def _deleted_after(item: KnownSegment, at_ms: int) -> bool:
    deletion = item.deletion
    return deletion is not None and deletion.kind is SegmentState.DELETED and deletion.time_ms > at_ms


def _part(
    number: int, gone: Sequence[KnownSegment], left: Sequence[KnownSegment], mass: MassDelete, known_end: int
) -> DelayedPart:
    """`left`: what is live now, or was deleted later and is there still. `known_end`: of all that was published."""
    told = [(item, item.counts) for item in (*gone, *left) if item.counts is not None]
    sizes = [counts.source_bytes for _, counts in told]
    per_offset = sum(sizes) / sum(item.key.last - item.key.base + 1 for item in (*gone, *left))
    tiered_end = max(known_end, *(item.key.last + 1 for item in (*gone, *left)))
    # What was produced later was not there. Producers' clocks may be ahead: records are then newer than their copies.
    ahead_ms = max(0, int(median(counts.record_ms - counts.copied_ms for _, counts in told))) if told else 0
    until_ms = mass.last_ms + int(1000 * CLOCK_SKEW_SECONDS_MAX) + ahead_ms
    known = [item.counts for item in left if item.counts is not None]
    there = sum(
        counts.source_bytes for counts in known if counts.record_ms <= until_ms or counts.copied_ms <= mass.last_ms
    )
    start = max(item.key.last for item in gone) + 1
    offsets = sum(item.key.last - max(item.key.base, start) + 1 for item in left if item.key.last >= start)
    reclaimed = max(0, tiered_end - start - offsets) * per_offset
    copied = sorted(counts.copied_ms for _, counts in told if counts.copied_ms <= mass.first_ms)
    return DelayedPart(
        partition=number,
        segments=_went(gone, mass),
        left_bytes=there + int(reclaimed),
        largest_bytes=max(sizes, default=0),
        tiered_end=tiered_end,
        bytes_per_offset=per_offset,
        pause_ms=max((later - earlier for earlier, later in pairwise([*copied, mass.first_ms])), default=0),
    )


def _went(gone: Sequence[KnownSegment], mass: MassDelete) -> tuple[DelayedSegment, ...]:
    """Each with the age of the newest record up to it: Kafka deletes from the lowest offset on."""
    before_ms = mass.first_ms - int(MASS_DELETE_WINDOW_SECONDS * 1000)
    went: list[DelayedSegment] = []
    newest_ms: int | None = 0
    for item in sorted(gone, key=lambda item: item.key.base):
        if item.deletion is not None and item.counts is not None:
            at, counts = item.deletion.time_ms, item.counts
            newest_ms = None if newest_ms is None or counts.record_ms < 0 else max(newest_ms, counts.record_ms)
            age_ms = None if newest_ms is None else at - newest_ms
            went.append(
                DelayedSegment(counts.source_bytes, age_ms, at - counts.copied_ms, old=counts.copied_ms <= before_ms)
            )
    return tuple(went)
