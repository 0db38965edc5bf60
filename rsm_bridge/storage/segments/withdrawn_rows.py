"""Rows that were published from copies which Kafka withdrew, and has not made again.

A withdrawal never lifts the floor (publish rule R4): Kafka makes the copy again, or deletes a segment above it. Of a
topic that is gone it does neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iceberg_catalog.commit.head import by_partition
from iceberg_catalog.plan.types import LiveFile, PartState, SegmentState
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


def with_rows(
    segments: Iterable[KnownSegment], files: Iterable[LiveFile], states: Mapping[int, PartState]
) -> list[KnownSegment]:
    """The withdrawn copies that rows of the table may be of, which no deletion has reached.

    Args:
        segments: of one topic id.
        files: live files of its table's head.
        states: recorded with the head. Rows below a floor were deleted: what is left of those stays for other reasons.
    """
    of_partition = by_partition(files)
    found: list[KnownSegment] = []
    for number, group in segments_by_partition(segments).items():
        floor = states.get(number, PartState()).floor
        rows = [(file.first, file.last) for file in of_partition[number] if file.last >= floor]
        found += [
            known
            for known in group
            if known.deletion is not None
            and known.deletion.kind is SegmentState.WITHDRAWN
            and known.segment is not None
            and known.key.last >= floor
            and any(first <= known.key.last and last >= known.key.base for first, last in rows)
        ]
    return found
