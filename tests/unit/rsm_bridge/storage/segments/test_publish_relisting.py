"""What a publisher run believes of a hole: only what two looks agree on, below what the first one knew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from iceberg_catalog.commit.head import Head
from iceberg_catalog.plan.types import PartState, UseMain
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import LISTINGS_MAX
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.listing import ALL, Notices
from rsm_bridge.tables.publish.planning import Planning, TablePlans, agreed
from tests.unit.rsm_bridge.storage.segments.test_maintain_hold_planning import NOW, known
from tests.worlds.plan_support import FOLLOW, plain, seg

BEGIN = known(seg("begin", [plain(0, 4)]))
TOP = known(seg("top", [plain(10, 14)]))
ABOVE = known(seg("above", [plain(15, 19)]))
COVERS = known(seg("covers", [plain(0, 19)]))
STATE = PartState(frontier=5, floor=0, lineage=((0, 0),), known_end=5)


@dataclass
class Listing:
    """Of one partition: what each listing shows, the last one again and again."""

    shown: list[list[KnownSegment]]
    noticed: list[KnownSegment]
    listings: int = field(default=0)

    def wants_whole(self, notices: Notices) -> bool:
        return notices.whole

    def ahead(self, *_: Any) -> dict[int, list[KnownSegment]]:
        return {0: self.noticed}

    def of(self, _number: int) -> list[KnownSegment]:
        return self.noticed

    def whole(self, *_: Any) -> list[KnownSegment]:
        self.listings += 1
        return self.shown[min(self.listings, len(self.shown)) - 1]

    def partition(self, _number: int) -> list[KnownSegment]:
        return self.whole()

    begun = True


def planned(listing: Listing, notices: Notices) -> TablePlans:
    planning = Planning(
        listing=cast(Any, listing),
        head=Head(table=cast(Any, None), snapshot_id=1, files=()),
        states={0: STATE},
        policy=FOLLOW,
        now_ms=NOW,
    )
    return planning.plan(notices, lambda: None)


def added(found: TablePlans) -> list[str]:
    return [piece.segment_id for piece in found.plans[0].add if isinstance(piece, UseMain)]


def test_a_copy_that_covers_the_hole_and_ends_above_fills_it() -> None:
    """Another bridge has stored it; this one has heard of `top` alone."""
    listing = Listing([[BEGIN, TOP, COVERS]], [TOP])
    found = planned(listing, Notices(frozenset([TOP.key])))
    assert (found.plans[0].gaps, found.plans[0].state.frontier) == ((), 20)
    assert listing.listings == 1


def test_what_has_come_above_waits_for_the_next_run() -> None:
    listing = Listing([[BEGIN, TOP], [BEGIN, TOP, ABOVE]], [])
    found = planned(listing, ALL)
    assert (found.plans[0].gaps, found.plans[0].state.frontier) == (((5, 9),), 15)
    assert added(found) == [TOP.listed.key]
    assert listing.listings == 2


def test_what_the_record_is_as_new_as_is_no_news() -> None:
    """Another bridge has published it, so it was stored before the head was read; this one has not heard of it."""
    recorded = PartState(frontier=15, floor=0, lineage=((0, 0),), known_end=15)
    assert agreed([BEGIN], [BEGIN, TOP, ABOVE], {0: recorded}) == [BEGIN, TOP]
    assert agreed([BEGIN], [BEGIN, TOP, ABOVE], {0: STATE}) == [BEGIN]


@pytest.mark.parametrize("last", [8, 14, 19])
def test_what_a_new_leader_has_below_is_listed_once_more(last: int) -> None:
    """What it stored before need not be shown yet."""
    late = known(seg("late", [plain(7, last, 1)], checkpoint=((0, 0), (1, 5))))
    first = known(seg("first", [plain(5, 6, 1)], checkpoint=((0, 0), (1, 5))))
    listing = Listing([[BEGIN, TOP], [BEGIN, late, TOP], [BEGIN, first, late, TOP]], [])
    found = planned(listing, ALL)
    assert found.plans[0].gaps == ()
    assert {first.listed.key, late.listed.key} <= set(added(found))
    assert listing.listings == 3


def test_leaders_that_never_stop_coming_below_fail_the_run() -> None:
    shown = [
        [BEGIN, TOP, *(known(seg(f"late{number}", [plain(6, 6, 1 + number)])) for number in range(count))]
        for count in range(LISTINGS_MAX + 1)
    ]
    listing = Listing(shown, [])
    with pytest.raises(StoreError, match=f"each of {LISTINGS_MAX} listings"):
        planned(listing, ALL)
    assert listing.listings == LISTINGS_MAX + 1
