"""Whether rows that a requeue has made are missing in the table: those that a requeue would add to it now.

A requeue writes the indexes first, and commits after that: one that dies in between leaves segments that look like any
others, with rows below the frontier that the plan never adds. A rollback of the table to before its commit does the
same, and so do rows that waited for a marker, once it is tiered. Their indexes still say that the rows came late, so
nothing else has to be recorded.
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
    segments: Iterable[KnownSegment], states: Mapping[int, PartState], files: Iterable[LiveFile], look: Look
) -> NotAdded | None:
    """What a requeue of the topic would add below the frontier, None if nothing.

    Batches are read only of segments that a requeue gave rows and whose rows the live files do not span.

    Args:
        segments: all of one topic id.
        states: recorded with the table's head.
        files: live files of the head, which has none of others.
        look: reads a file's leader epochs.

    Raises:
        BridgeError, SegmentError: batches cannot be read. What `look` raises passes.
    """
    of_partition = by_partition(files)
    places: dict[str, tuple[int, int]] = {}
    for number, group in sorted(segments_by_partition(segments).items()):
        state, mine = states.get(number, PartState()), sorted(of_partition[number], key=lambda file: file.first)
        lasts = [file.last for file in mine]
        suspects = {
            known.listed.key
            for known in group
            if known.live and known.requeued and not _spanned(known, state, mine, lasts)
        }
        if not suspects:
            continue
        by_id = {known.segment.id: known.segment for known in group if known.segment is not None}
        # The policy does not matter: it lets nothing go that lies at or above the floor, and nothing else is added.
        for piece in plan_repair(list(by_id.values()), mine, state, Follow(), suspects, look).add:
            key = piece.segment_id if isinstance(piece, UseMain) else piece.ranges[0][0]
            place = number, span(piece, by_id[key])[0]
            places[key] = min(place, places.get(key, place))
    if not places:
        return None
    return NotAdded(len(places), *min(places.values()))


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
