"""Whether rows of segments are missing in the table below the frontier: those that a requeue would add to it now.

The plan never adds rows there (R11). They are missing where

* a requeue wrote the indexes, and died before its commit, or the table was rolled back to before that,
* its rows waited for a marker that is tiered by now,
* the frontier has passed a segment without rows that Kafka withdrew, and copied again with rows,
* a segment came after the frontier had passed a hole in its place.

Of live segments, that is. Where the table keeps what Kafka deleted, of deleted ones too that a requeue gave rows: those
the reclaimer leaves until the table has them (reclaim/reclaimer.py), of others nobody knows whether their objects stay.

Nothing has to be recorded for that: indexes, and names of the head's files, say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iceberg_catalog.commit.head import by_partition
from iceberg_catalog.plan.file_epochs import Look
from iceberg_catalog.plan.files import span, spanned
from iceberg_catalog.plan.repair import plan_repair, sources_of
from iceberg_catalog.plan.types import Follow, LiveFile, PartState, Policy
from iceberg_catalog.plan.walk import gives
from rsm_bridge.metrics.progress.facts import NotAdded
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


def not_added(
    segments: Sequence[KnownSegment],
    states: Mapping[int, PartState],
    files: Sequence[LiveFile],
    policy: Policy,
    look: Look,
    *,
    of_all: bool = True,
) -> NotAdded | None:
    """What a requeue of the topic would add below the frontier, None if nothing.

    Batches are read only of segments whose rows the live files do not span.

    Args:
        segments: all of one topic id.
        states: recorded with the table's head.
        files: live files of the head, which has none of others.
        policy: what becomes of rows that Kafka deleted.
        look: reads a file's leader epochs.
        of_all: as for `RepairRun.repair`.

    Raises:
        BridgeError, SegmentError: batches cannot be read. What `look` raises passes.
    """
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    places: dict[str, tuple[int, int]] = {}
    wanted = [known for known in segments if of_all or known.requeued]
    for number, suspects in sorted(lacking(wanted, states, files, policy).items()):
        state, mine = states.get(number, PartState()), of_partition[number]
        by_id = {known.segment.id: known.segment for known in groups[number] if known.segment is not None}
        for piece in plan_repair(list(by_id.values()), mine, state, policy, suspects, look).add:
            key = sources_of(piece)[0]
            place = number, span(piece, by_id[key])[0]
            places[key] = min(place, places.get(key, place))
    if not places:
        return None
    return NotAdded(len(places), *min(places.values()))


def lacking(
    segments: Sequence[KnownSegment], states: Mapping[int, PartState], files: Sequence[LiveFile], policy: Policy
) -> dict[int, set[str]]:
    """By partition, keys of the segments of which rows below the frontier may be missing: files do not span them.

    The arguments are those of :func:`not_added`.
    """
    of_partition = by_partition(files)
    found = {
        number: _not_spanned(group, states.get(number, PartState()), of_partition[number], policy)
        for number, group in segments_by_partition(segments).items()
    }
    return {number: keys for number, keys in found.items() if keys}


def may_give(known: KnownSegment, policy: Policy) -> bool:
    """Whether a requeue may take rows from it: it is live, or its rows stay and a requeue has converted them."""
    segment = known.segment
    return known.live or (known.requeued and segment is not None and gives(segment, policy) and not segment.leaving)


def _not_spanned(
    group: Iterable[KnownSegment], state: PartState, files: Iterable[LiveFile], policy: Policy
) -> set[str]:
    taken = sorted((file.first, file.last) for file in files)
    start, end = state.floor if isinstance(policy, Follow) else 0, state.frontier
    giving = (known for known in group if may_give(known, policy))
    return {known.listed.key for known in giving if not _spanned(known, start, end, taken)}


def _spanned(known: KnownSegment, start: int, end: int, taken: Sequence[tuple[int, int]]) -> bool:
    """Whether all rows that may be in the table lie within live files, so that none of them would be added."""
    refs = () if known.segment is None else known.segment.files
    return all(spanned(max(ref.first, start), min(ref.last, end - 1), taken) for ref in refs)
