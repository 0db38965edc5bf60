"""Whether rows of live segments are missing in the table below the frontier: those that a requeue would add to it now.

The plan never adds rows there (R11). They are missing where

* a requeue wrote the indexes, and died before its commit, or the table was rolled back to before that,
* its rows waited for a marker that is tiered by now,
* the frontier has passed a segment without rows that Kafka withdrew, and copied again with rows,
* a segment came after the frontier had passed a hole in its place.

Nothing has to be recorded for that: indexes, and names of the head's files, say it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from iceberg_catalog.commit.head import by_partition
from iceberg_catalog.plan.file_epochs import Look
from iceberg_catalog.plan.files import span
from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import FileRef, Follow, LiveFile, PartState, UseMain
from rsm_bridge.metrics.progress.facts import NotAdded
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


def not_added(
    segments: Sequence[KnownSegment], states: Mapping[int, PartState], files: Sequence[LiveFile], look: Look
) -> NotAdded | None:
    """What a requeue of the topic would add below the frontier, None if nothing.

    Batches are read only of segments whose rows the live files do not span.

    Args:
        segments: all of one topic id.
        states: recorded with the table's head.
        files: live files of the head, which has none of others.
        look: reads a file's leader epochs.

    Raises:
        BridgeError, SegmentError: batches cannot be read. What `look` raises passes.
    """
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    places: dict[str, tuple[int, int]] = {}
    for number, suspects in sorted(lacking(segments, states, files).items()):
        state, mine = states.get(number, PartState()), of_partition[number]
        by_id = {known.segment.id: known.segment for known in groups[number] if known.segment is not None}
        # The policy does not matter: it lets nothing go that lies at or above the floor, and nothing else is added.
        for piece in plan_repair(list(by_id.values()), mine, state, Follow(), suspects, look).add:
            key = piece.segment_id if isinstance(piece, UseMain) else piece.ranges[0][0]
            place = number, span(piece, by_id[key])[0]
            places[key] = min(place, places.get(key, place))
    if not places:
        return None
    return NotAdded(len(places), *min(places.values()))


def lacking(
    segments: Sequence[KnownSegment], states: Mapping[int, PartState], files: Sequence[LiveFile]
) -> dict[int, set[str]]:
    """By partition, keys of the live segments of which rows below the frontier may be missing: files do not span them.

    The arguments are those of :func:`not_added`.
    """
    of_partition = by_partition(files)
    found = {
        number: _not_spanned(group, states.get(number, PartState()), of_partition[number])
        for number, group in segments_by_partition(segments).items()
    }
    return {number: keys for number, keys in found.items() if keys}


def _not_spanned(group: Iterable[KnownSegment], state: PartState, files: Iterable[LiveFile]) -> set[str]:
    ordered = sorted(files, key=lambda file: file.first)
    lasts = [file.last for file in ordered]
    return {known.listed.key for known in group if known.live and not _spanned(known, state, ordered, lasts)}


def _spanned(known: KnownSegment, state: PartState, files: Sequence[LiveFile], lasts: Sequence[int]) -> bool:
    """Whether all rows that may be in the table lie within live files, so that none of them would be added."""
    refs = () if known.segment is None else known.segment.files
    return all(_within(ref, state, files, lasts) for ref in refs)


def _within(ref: FileRef, state: PartState, files: Sequence[LiveFile], lasts: Sequence[int]) -> bool:
    at, last = max(ref.first, state.floor), min(ref.last, state.frontier - 1)
    for number in range(bisect_left(lasts, at), len(files)):
        if at > last or files[number].first > at:
            break
        at = files[number].last + 1
    return at > last
