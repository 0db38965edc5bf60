"""The plans of one run: from what a whole listing shows, or from what is new at and above the frontiers.

The listing a plan is made from starts after the head was read (publish rule P2). A hole in it is believed only once
everything was listed again (P4), and only below what an earlier look had shown: of what was stored since, the pages of
a listing may again show the later and miss the earlier. What has come meanwhile above all that is left to the next run;
what reaches below counts, but where it shows a new leader, all is listed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from iceberg_catalog.commit.head import Head, by_partition
from iceberg_catalog.plan.lineage import Lineage, of_segment
from iceberg_catalog.plan.plan import plan, plan_ahead
from iceberg_catalog.plan.types import LiveFile, PartState, Plan, Policy, Segment
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import INDEX_READS_MAX, LISTINGS_MAX, PENDING_RUN_MAX
from rsm_bridge.storage.projections.hold import WaitingProjection, hold_of
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.storage.segments.listing import Notices, SegmentListing


@dataclass(frozen=True, slots=True)
class TablePlans:
    """Plans by partition, and the segments they were made from.

    `complete`: those are all of the topic id. `more`: pending segments are left to the next run.
    """

    segments: Sequence[KnownSegment]
    plans: Mapping[int, Plan]
    complete: bool
    more: bool = False


@dataclass(slots=True, kw_only=True)
class Planning:
    """Plans on one head.

    `states`: recorded with it. `now_ms`: since the epoch. `no_columns_yet`: index keys of pending segments that cannot
    have their columns now; the plan stops before them, as before one whose markers contradict the broker's files.
    `projections`: that rows wait for which Kafka's retention deleted. `whole`: as of TableRun.
    """

    listing: SegmentListing
    head: Head
    states: Mapping[int, PartState]
    policy: Policy
    now_ms: int
    no_columns_yet: Container[str] = ()
    projections: Sequence[WaitingProjection] = ()
    whole: bool = False
    _more: bool = field(default=False, init=False)
    _files: dict[int, list[LiveFile]] | None = field(default=None, init=False)

    def plan(self, notices: Notices, listed: Callable[[], None]) -> TablePlans:
        """Lists as much as is needed, and plans. `listed` is called after the first look at the store.

        Raises:
            BridgeError, SegmentError: an index is damaged, or the store is away.
        """
        if self.whole or self.listing.wants_whole(notices):
            segments = self._everything()
            if segments is not None:
                listed()
                return replace(self._whole(segments), more=self._more)
            notices = replace(notices, look=True)
        found = self.listing.ahead({number: state.frontier for number, state in self.states.items()}, notices)
        listed()
        plans = {number: self._ahead(number, found) for number in sorted(found)}
        return TablePlans(
            [known for group in found.values() for known in group], plans, complete=False, more=self._more
        )

    def _everything(self) -> list[KnownSegment] | None:
        """All segments; None: later, what is new comes first, or there are more to read than one run may."""
        if self.whole:
            return self.listing.whole()
        return None if self._comes_first() else self.listing.whole(INDEX_READS_MAX)

    def _comes_first(self) -> bool:
        """Whether what is new is published before all is listed: after a start, where the history is long."""
        return not self.listing.begun and bool(self.states) and not self.listing.small()

    def _whole(self, segments: Sequence[KnownSegment]) -> TablePlans:
        plans = self._all(segments, segments, relisted=False)
        if any(item.need_relist for item in plans.values()):
            segments, known = self._settled(segments, lambda: self.listing.whole() or ())
            plans = self._all(segments, known, relisted=True)
        return TablePlans(segments, plans, complete=True)

    def _all(
        self, segments: Sequence[KnownSegment], known: Sequence[KnownSegment], *, relisted: bool
    ) -> dict[int, Plan]:
        groups, listed = segments_by_partition(segments), segments_by_partition(known)
        return {
            number: self._one(number, groups[number], listed[number], relisted=relisted)
            for number in sorted(groups.keys() | self._files_by_partition().keys() | self.states.keys())
        }

    def _ahead(self, number: int, found: dict[int, list[KnownSegment]]) -> Plan:
        state = self.states.get(number, PartState())
        hold = hold_of(self.projections, number, None, self.now_ms)
        inputs = self._inputs(found[number])
        made = plan_ahead(inputs, state, self.policy, hold)
        if made is None:
            found[number], known = self._settled(self.listing.of(number), lambda: self.listing.partition(number))
            made = self._one(number, found[number], known, relisted=True)
        return made

    def _settled(
        self, first: Sequence[KnownSegment], again: Callable[[], Sequence[KnownSegment]]
    ) -> tuple[list[KnownSegment], Sequence[KnownSegment]]:
        """What may be believed of a listing made after `first` was known, and that listing.

        Raises:
            StoreError: there was one more leader each time.
        """
        for _ in range(LISTINGS_MAX):
            second = again()
            believed = agreed(first, second, self.states)
            if believed is not None:
                return believed, second
            first = second
        raise StoreError(
            f"each of {LISTINGS_MAX} listings of a topic showed copies of a leader that none before had shown, below "
            "others; nothing is decided about it until two listings agree"
        )

    def _one(
        self, number: int, segments: Sequence[KnownSegment], known: Sequence[KnownSegment], *, relisted: bool
    ) -> Plan:
        """From `segments`; `known` are all of the partition, for some of those that were deleted may not be agreed."""
        state = self.states.get(number, PartState())
        hold = hold_of(self.projections, number, known, self.now_ms)
        return plan(
            self._inputs(segments),
            self._of(number),
            state,
            self.policy,
            relisted=relisted,
            hold=hold,
            look=self.head.look,
        )

    def _inputs(self, segments: Sequence[KnownSegment]) -> list[Segment]:
        left = PENDING_RUN_MAX
        inputs: list[Segment] = []
        for known in sorted(segments, key=lambda item: item.key.base):
            if known.segment is None:
                continue
            item = known.segment
            if (
                known.pending is not None
                and known.key.last >= self.states.get(known.key.partition, PartState()).frontier
            ):
                waits = left == 0 or known.listed.key in self.no_columns_yet
                self._more |= left == 0
                left -= not waits
                item = replace(item, conflict=item.conflict or waits)
            inputs.append(item)
        return inputs

    def _of(self, number: int) -> list[LiveFile]:
        return self._files_by_partition().get(number, [])

    def _files_by_partition(self) -> dict[int, list[LiveFile]]:
        if self._files is None:
            self._files = by_partition(self.head.files)
        return self._files


def agreed(
    first: Sequence[KnownSegment], second: Sequence[KnownSegment], states: Mapping[int, PartState]
) -> list[KnownSegment] | None:
    """What the second look shows, without what is new and lies above all that the first one knew of its partition.

    None: a leader that nobody knew of has copies below that, and more of them may be stored that were not shown yet.
    What the recorded history is as new as is not new: it was stored before the head was read, with all below it. A look
    at what a new leader stored below the frontier does not show it, and what it decides must not be missed.
    """
    records = {number: Lineage(state.lineage, state.known_end).rank for number, state in states.items()}
    highest: dict[int, int] = {}
    epochs = {number: rank[0] for number, rank in records.items()}
    for known in first:
        number = known.key.partition
        highest[number] = max(highest.get(number, -1), known.key.last)
        epochs[number] = max(epochs.get(number, NOTHING[0]), _rank(known)[0])
    seen = {known.listed.key for known in first}
    found: list[KnownSegment] = []
    for known in second:
        number, rank = known.key.partition, _rank(known)
        if known.key.base > highest.get(number, -1) and known.listed.key not in seen:
            if known.segment is None or rank > records.get(number, NOTHING):
                continue
        elif rank[0] > epochs.get(number, NOTHING[0]):
            return None
        found.append(known)
    return found


def _rank(known: KnownSegment) -> tuple[int, int]:
    return NOTHING if known.segment is None else of_segment(known.segment).rank


#: Of a partition without a record.
NOTHING = Lineage().rank
