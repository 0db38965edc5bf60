"""Which deletions a publisher run goes by when it holds rows back, with segments that were looked at in two steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from converter.index.model import StoredObject
from iceberg_catalog.commit.head import Head
from iceberg_catalog.plan.types import FileRef, LiveFile, PartState, Segment, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.projections.hold import WaitingProjection
from rsm_bridge.storage.segments.known import KnownSegment, KnownTombstone
from rsm_bridge.storage.segments.listing import Notices
from rsm_bridge.tables.publish.planning import Planning
from tests.worlds.plan_support import FOLLOW, gone, plain, seg

TOPIC = bytes(range(16))
NOW = 1_000_000


def known(segment: Segment, deleted_ms: int | None = None) -> KnownSegment:
    key = IndexKey(
        topic_id=TOPIC,
        partition=0,
        last=segment.last,
        base=segment.base,
        segment_id=segment.id.encode().rjust(16, b"\0"),
    )
    return KnownSegment(
        key=key,
        listed=ListedObject(str(key), 1, 0),
        owner=Owner("c", "orders", TOPIC),
        value_format="raw",
        segment=replace(segment, id=str(key)),
        data=StoredObject("data/x", 1, 0),
        kept=None,
        deletion=None
        if deleted_ms is None
        else KnownTombstone(kind=SegmentState.DELETED, time_ms=deleted_ms, had_index=True),
    )


@dataclass
class Listing:
    """Of one partition; a run by notice looks at `noticed` alone."""

    all: list[KnownSegment]
    noticed: list[KnownSegment]

    def wants_whole(self, _notices: Notices) -> bool:
        return False

    def ahead(self, *_: Any) -> dict[int, list[KnownSegment]]:
        return {0: self.noticed}

    def of(self, _number: int) -> list[KnownSegment]:
        return self.noticed

    def partition(self, _number: int) -> list[KnownSegment]:
        return self.all


def test_a_deletion_above_all_that_was_noticed_still_tells_since_when_rows_wait() -> None:
    """The notice of a lower segment leads to a listing of the partition; what is no newer than the record is in it."""
    deleted = known(gone(seg("deleted", [plain(10, 19)])), NOW - 10)
    late = known(seg("late", [plain(0, 4)]))
    assert late.segment is not None
    assert late.segment.main == FileRef(first=0, last=4, rows=5)
    file = LiveFile(path="f", first=10, last=14, runs=((0, 10),), partition=0)
    state = PartState(
        frontier=20, floor=20, lineage=((0, 21),), known_end=30
    )  # of a history that was first told from there on
    head = Head(table=cast(Any, None), snapshot_id=1, files=(file,))
    listing = cast(Any, Listing([late, deleted], [late]))
    for limit_ms, removed in ((1000, ()), (10, ("f",))):
        projections = (WaitingProjection("kafka.projection", limit_ms),)
        found = Planning(
            listing=listing, head=head, states={0: state}, policy=FOLLOW, now_ms=NOW, projections=projections
        ).plan(Notices(), lambda: None)
        assert found.segments == [late, deleted]
        assert found.plans[0].remove == removed
