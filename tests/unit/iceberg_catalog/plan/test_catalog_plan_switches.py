"""Each rule of the plan is needed: with it off, a fixed test turns red. The switches are here, not in the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from iceberg_catalog.plan import decide, files, inputs, judge, lineage, lineage_record, plan, rewind
from iceberg_catalog.plan import hold as plan_hold
from iceberg_catalog.plan import peeked as plan_peeked
from iceberg_catalog.plan import walk as plan_walk
from iceberg_catalog.plan.inputs import Input
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import FileRef, PartState, Peeked, Runs, Segment, SegmentState, UseMain
from rsm_bridge.tables.reclaim import rules as reclaim_rules
from rsm_bridge.tables.reclaim.rules import TombstoneVerdict, verdict
from tests.unit.iceberg_catalog.plan import test_catalog_cross_check as checks
from tests.unit.iceberg_catalog.plan import test_catalog_lineage_record as records
from tests.unit.iceberg_catalog.plan import test_catalog_plan_branches as branches
from tests.unit.iceberg_catalog.plan import test_catalog_plan_counterexamples as found
from tests.unit.iceberg_catalog.plan import test_catalog_plan_hold as holds
from tests.unit.iceberg_catalog.plan import test_catalog_plan_lineage as lineages
from tests.unit.iceberg_catalog.plan import test_catalog_plan_peeked as peeks
from tests.unit.iceberg_catalog.plan import test_catalog_plan_retention as retention
from tests.unit.iceberg_catalog.plan import test_catalog_plan_rules as rules
from tests.worlds.plan_support import FOLLOW, KEEP


@dataclass(frozen=True)
class Switch:
    """A rule, what takes its place (module or class, and name → stand-in), and the test that must notice."""

    rule: str
    instead: Mapping[tuple[ModuleType | type, str], Callable[..., Any]]
    test: Callable[[], None]


def highest_epoch_per_offset(segments: Sequence[Segment], _state: PartState) -> Lineage:
    best: dict[int, int] = {}
    for segment in segments:
        ends = [*(start for _, start in segment.runs[1:]), segment.last + 1]
        for (epoch, start), end in zip(segment.runs, ends, strict=True):
            for offset in range(start, end):
                best[offset] = max(epoch, best.get(offset, -1))
    entries = [(best[o], o) for o in sorted(best) if best.get(o - 1) != best[o]]
    return Lineage(tuple(entries), max(best) + 1)


def completed_without_holes(newer: Lineage, older: Lineage) -> Lineage:
    epoch, first = newer.entries[0]
    kept = tuple(entry for entry in older.entries if entry[1] < first and entry[0] <= epoch)
    return Lineage((*kept, *newer.entries), newer.end)


def cut_at_the_floor(living: Lineage, state: PartState, floor: int, _least: int) -> Runs:
    return lineage_record.recorded(living, state, floor, floor)


def completed_by_any_branch(segments: Sequence[Segment], state: PartState) -> Lineage:
    return lineage_record.fold(segments, replace(state, floor=-1))


def all_alive(segments: Iterable[Segment], *_: object) -> list[Input]:
    return [Input(segment=segment, valid_end=segment.last + 1) for segment in segments]


def peeked_for_ever(alive: Sequence[Input], _edge: int) -> list[tuple[Peeked, int]]:
    return [(told, decide.NEVER) for item in alive for told in item.segment.peeked]


def from_the_newer_epoch(old: Lineage, new: Lineage) -> int | None:
    point = lineage.divergence(old, new)
    newer = [start for epoch, start in new.entries if point is not None and epoch > (old.epoch_at(point) or 0)]
    return min(newer, default=point)


def withdrawals_raise(floor: int, alive: Sequence[Input], _begun: object) -> int:
    return max([floor, *(item.valid_end for item in alive if item.segment.state != SegmentState.LIVE)])


def live_only(alive: Sequence[Input], *_: object) -> list[Input]:
    return [item for item in alive if item.segment.state == SegmentState.LIVE]


def stopped_at_the_first_gap(*args: Any, **named: Any) -> plan_walk.Walk | None:
    walk = plan_walk.walked(*args, **named)
    if walk is None or not walk.gaps:
        return walk
    end = walk.gaps[0][0]
    return plan_walk.Walk([item for item in walk.stretches if item.end <= end], [], end)


def walked_from_the_floor(alive: Any, _frontier: int, floor: int, *rest: Any, **named: Any) -> plan_walk.Walk | None:
    return plan_walk.walked(alive, floor, floor, *rest, **named)


def kept_as_they_are(*args: Any) -> tuple[list[str], list[str], list[Any]]:
    remove, _, _ = files.outgoing(*args)
    return remove, [], []


def holes_ignored(view: decide.View, ends: Any) -> Any:
    return decide.decide(replace(view, stretch=np.zeros_like(view.stretch)), ends)


def any_producers_marker(view: decide.View, ends: Any) -> Any:
    return decide.decide(replace(view, producer_id=np.zeros_like(view.producer_id)), ends)


def unfenced(segment: Segment, state: PartState) -> TombstoneVerdict:
    judged = verdict(segment, state)
    return TombstoneVerdict.FREE if judged is TombstoneVerdict.FENCE else judged


def fits_though_merged(fits: Callable[..., bool], file: FileRef, *rest: Any) -> bool:
    return fits(replace(file, shared=False), *rest)


def live_only_sources(alive: Sequence[Input], _policy: object) -> list[Input]:
    return live_only([item for item in alive if not item.spent])


def ends_dead_or_alive(deletions: Sequence[plan_hold.Deletion], _lineage: Lineage) -> list[tuple[int, int]]:
    return [(item.end + 1, item.time_ms) for item in deletions]


def waits_for_ever(policy: Any, hold: plan_hold.Hold, *rest: Any) -> Any:
    return plan_hold.holding(policy, replace(hold, deletions=None), *rest)


def by_own_deletion(limit_ms: int, ends: Sequence[tuple[int, int]], now_ms: int) -> int:
    """Each deletion tells of its own offsets only: what is lost ends below the first that may still wait."""
    still = [end for end, time_ms in ends if time_ms + limit_ms > now_ms]
    return max((end for end, _ in ends if end < min(still, default=decide.NEVER)), default=0)


def spent_by_the_state(spent: Callable[..., bool], segment: Segment, state: PartState) -> bool:
    return spent(replace(segment, leaving=False), state)


SWITCHES = [
    Switch(
        "R1 lineage, not the highest epoch per offset",
        {(plan, "fold"): highest_epoch_per_offset},
        found.test_c1_epochs_are_no_total_order_per_offset,
    ),
    Switch(
        "R1 the recorded lineage counts too",
        {(plan, "fold"): lambda segments, _: lineage_record.fold(segments, PartState())},
        found.test_c3_a_dead_branch_does_not_come_back_when_its_better_is_deleted,
    ),
    Switch(
        "R1 a cut checkpoint leaves a hole",
        {(lineage_record, "completed"): completed_without_holes},
        lineages.test_a_checkpoint_cut_at_the_log_start_leaves_an_unknown_hole,
    ),
    Switch(
        "R1 the record is cut at the floor",
        {(plan, "recorded"): lambda lineage, *_: lineage.entries},
        records.test_a_thousand_partitions_with_a_hundred_epochs_below_the_floor_are_a_small_state,
    ),
    Switch(
        "R1 the record is not cut above rows of the table",
        {(plan, "recorded"): cut_at_the_floor},
        records.test_an_archive_keeps_what_proves_its_files,
    ),
    Switch(
        "R1 the record is not cut above rows that wait",
        {(plan, "recorded"): cut_at_the_floor},
        records.test_what_waits_for_its_marker_below_the_floor_of_an_archive_is_not_cut,
    ),
    Switch(
        "R1 below its cut only the same log completes the record",
        {(records, "fold"): completed_by_any_branch},
        records.test_a_dead_branch_below_the_cut_stays_dead,
    ),
    Switch(
        "R1 an index of the same log completes a shortened record",
        {(plan, "read_record"): lambda state, _told: Lineage(state.lineage, state.known_end)},
        records.test_an_older_epoch_that_wins_back_over_more_epochs_than_are_recorded,
    ),
    Switch(
        "R2 validity",
        {(plan, "living"): all_alive},
        lineages.test_a_dead_branch_that_was_never_published_adds_nothing,
    ),
    Switch(
        "R3 rewind",
        {(plan, "rewound"): lambda _ends, _files, _alive, state: (None, state.frontier, state.floor)},
        lineages.test_an_unclean_election_replaces_published_rows,
    ),
    Switch(
        "R3 from where the histories differ, though an older epoch has won back",
        {(rewind, "divergence"): from_the_newer_epoch},
        found.test_c17_an_older_epoch_that_wins_back_is_published_from_its_first_offset_on,
    ),
    Switch(
        "R3 rewind to the transactions open there",
        {(rewind, "open_at"): lambda _end, _alive: []},
        found.test_c2_a_rewind_goes_to_the_first_offset_of_a_transaction_open_there,
    ),
    Switch(
        "R4 a withdrawn copy is not retention",
        {(plan, "raised"): withdrawals_raise},
        found.test_c7_a_failed_copy_taken_again_is_not_lost,
    ),
    Switch(
        "R5 floor",
        {(plan, "raised"): lambda floor, *_: floor},
        found.test_c13_offsets_retention_removed_do_not_come_back,
    ),
    Switch(
        "R6 under keep, rows of deleted segments",
        {(plan_walk, "sources"): live_only},
        partial(found.test_c5_a_marker_in_a_deleted_segment_still_decides, KEEP),
    ),
    Switch(
        "R6 deleted segments decide",
        {(plan, "judged"): lambda alive, *rest: judge.judged(live_only(alive), *rest)},
        partial(found.test_c5_a_marker_in_a_deleted_segment_still_decides, KEEP),
    ),
    Switch(
        "R6 what waits for a projection comes from deleted segments too",
        {(plan_walk, "sources"): live_only_sources},
        holds.test_what_was_deleted_before_it_was_published_comes_while_a_projection_waits,
    ),
    Switch(
        "R7 one listing is not believed",
        {(plan, "walked"): lambda *args, **_: plan_walk.walked(*args, relisted=True)},
        found.test_c8_a_segment_the_first_listing_missed_is_not_a_gap,
    ),
    Switch(
        "R7 a gap is jumped",
        {(plan, "walked"): stopped_at_the_first_gap},
        rules.test_a_gap_asks_for_another_listing_and_is_then_jumped,
    ),
    Switch(
        "R8 a hole ends transactions",
        {(judge, "decide"): holes_ignored},
        found.test_c4_a_marker_lost_in_a_gap_is_not_replaced_by_the_next_one,
    ),
    Switch(
        "R8 a producer snapshot ends transactions",
        {(judge, "decide"): lambda view, _ends: decide.decide(view, ())},
        found.test_c14_a_row_whose_death_nothing_shows_does_not_hold_the_frontier,
    ),
    Switch(
        "R8 a producer's own marker",
        {(judge, "decide"): any_producers_marker},
        rules.test_markers_of_other_producers_decide_nothing,
    ),
    Switch(
        "R8 what was peeked decides until the marker is there",
        {(judge, "applied"): lambda _view, verdicts, *_: plan_peeked.Applied(verdicts)},
        peeks.test_what_is_known_to_be_committed_is_published_as_it_is,
    ),
    Switch(
        "R8 what was peeked is about the segment's own batches",
        {(plan_peeked, "_known"): peeked_for_ever},
        peeks.test_rows_of_a_newer_epoch_were_not_what_an_older_leader_saw_committed,
    ),
    Switch(
        "R8 what was peeked is about one transaction only",
        {(plan_peeked, "_known"): peeked_for_ever},
        peeks.test_the_next_transaction_of_the_producer_waits,
    ),
    Switch(
        "R8 a marker that a newer snapshot shows dead",
        {(judge, "dead_markers"): lambda view, _ends: np.zeros(len(view.base), dtype=np.bool_)},
        found.test_c16_a_dead_marker_below_the_log_start_decides_nothing,
    ),
    Switch(
        "R3 a marker that says otherwise than what was peeked",
        {(judge, "checked"): lambda peeked, *_, **__: plan_peeked.Checked(tuple(peeked))},
        partial(peeks.test_a_marker_that_says_otherwise_is_right, True),
    ),
    Switch(
        "R9 markers against Kafka's files across segments",
        {(judge, "contradiction"): lambda *_: None},
        checks.test_an_abort_that_the_transaction_index_does_not_list,
    ),
    Switch(
        "R1 who has an epoch has all below it",
        {(lineage_record, "rooted"): lambda newer, _: newer},
        branches.test_who_has_an_epoch_has_all_below_it_whichever_branch_was_stronger_meanwhile,
    ),
    Switch(
        "R3 rows below the frontier that nobody has read",
        {(rewind, "_unread"): lambda start, *_: start},
        partial(branches.test_rows_below_the_frontier_that_nobody_has_read_come_with_a_rewind, FOLLOW, between=True),
    ),
    Switch(
        "R5 a branch that lost deletes for its old epochs",
        {(plan, "beginnings"): lambda _: {}},
        partial(branches.test_what_a_branch_that_lost_deleted_for_its_old_epochs_raises_no_floor, FOLLOW),
    ),
    Switch(
        "R7 a copy that lacks rows ends where a whole one begins",
        {(inputs.Cover, "until"): lambda _, item: item.valid_end},
        partial(branches.test_a_copy_that_lacks_rows_ends_where_a_whole_one_begins, FOLLOW, between=False),
    ),
    Switch(
        "R9 undecided rows wait",
        {(plan, "first_waiting"): lambda _judged, end: end},
        rules.test_rows_below_an_undecided_transaction_come_at_once_and_the_others_later,
    ),
    Switch(
        "R9 rows below a waiting one do not wait",
        {(plan, "first_waiting"): lambda judged, end: judged[0][0].start if judged else end},
        rules.test_rows_below_an_undecided_transaction_come_at_once_and_the_others_later,
    ),
    Switch(
        "R10 retention removes",
        {(files, "expired"): lambda *_: False},
        rules.test_retention_removes_a_file_and_raises_the_floor,
    ),
    Switch(
        "R10 what a dead branch left is cut",
        {(plan, "outgoing"): kept_as_they_are},
        lineages.test_an_unclean_election_replaces_published_rows,
    ),
    Switch(
        "R10 rows wait for projections",
        {(plan, "holding"): lambda policy, *_: policy},
        holds.test_rows_that_a_projection_has_not_read_stay,
    ),
    Switch(
        "R10 rows wait for projections until they are read",
        {(plan_hold, "first_unread"): lambda *_: 0},
        holds.test_rows_that_it_has_read_leave,
    ),
    Switch(
        "R10 rows wait for projections as long as the limit says",
        {(plan_hold, "lost_below"): lambda *_: 0},
        holds.test_nothing_waits_longer_than_the_limit,
    ),
    Switch(
        "R10 rows wait from the first deletion above them on",
        {(plan_hold, "lost_below"): by_own_deletion},
        holds.test_a_deletion_further_up_tells_since_when_those_below_are_gone,
    ),
    Switch(
        "R10 the dead part of a deletion tells nothing",
        {(plan_hold, "living_ends"): ends_dead_or_alive},
        holds.test_the_dead_part_of_a_deleted_segment_tells_nothing,
    ),
    Switch(
        "R10 what no deletion tells of does not wait",
        {(plan, "holding"): waits_for_ever},
        holds.test_what_no_deletion_tells_of_does_not_wait,
    ),
    Switch(
        "R10 a projection reads again what was taken back",
        {(plan_hold, "first_unread"): lambda read, *_: read.next},
        partial(holds.test_what_was_taken_back_or_came_late_is_to_be_read_again, "rewinds"),
    ),
    Switch(
        "R10 a projection reads again what came late",
        {(plan_hold, "first_unread"): lambda read, *_: read.next},
        partial(holds.test_what_was_taken_back_or_came_late_is_to_be_read_again, "repairs"),
    ),
    Switch(
        "R10 a projection reads again what this plan takes back",
        {(plan, "holding"): lambda *given: plan_hold.holding(*given[:5])},
        holds.test_rows_of_the_new_branch_wait_in_the_very_plan_that_rewinds,
    ),
    Switch(
        "R11 never below the frontier",
        {(plan, "walked"): walked_from_the_floor},
        found.test_c12_a_late_upload_below_the_frontier_is_never_added,
    ),
    Switch(
        "R11 a segment's own file only if all its rows are wanted",
        {(files, "_pieces"): lambda stretch, *_: [UseMain(stretch.source.segment.id)]},
        rules.test_interleaved_transactions_become_exact_ranges,
    ),
    Switch(
        "R11 a merged file is nobody's own",
        {(files, "_fits"): partial(fits_though_merged, files._fits)},
        rules.test_a_merged_file_is_never_added_as_a_segments_own,
    ),
    Switch(
        "R12 no row from what may be gone",
        {(inputs, "spent"): lambda *_: False},
        retention.test_a_rewind_takes_no_row_from_a_deletion_that_was_taken_in,
    ),
    Switch(
        "R12 no row from what is being removed",
        {(inputs, "spent"): partial(spent_by_the_state, inputs.spent)},
        holds.test_no_row_comes_from_a_deletion_whose_objects_are_being_removed,
    ),
    Switch(
        "R12 tombstones that tell since when rows wait",
        {(holds, "verdict"): lambda segment, state, waiting=None: verdict(segment, state)},
        holds.test_a_tombstone_above_rows_that_wait_tells_since_when,
    ),
    Switch(
        "R12 the fence",
        {(found, "verdict"): unfenced},
        found.test_c10_a_withdrawn_copy_outlives_plans_made_while_it_was_live,
    ),
    Switch(
        "R12 only a state that has seen the segment judges it",
        {(reclaim_rules, "of_segment"): lambda _: Lineage()},
        found.test_c11_a_head_that_has_not_seen_an_epoch_cannot_judge_its_segments,
    ),
    Switch(
        "R12 a deleted segment that is to be published is kept",
        {(reclaim_rules, "valid_end"): lambda _runs, base, _end, _lineage: base},
        partial(found.test_what_retention_deleted_is_needed_until_the_frontier_has_passed_it, KEEP),
    ),
]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.rule)
def test_a_rule_switched_off_turns_its_test_red(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    switch.test()
    for (module, name), stand_in in switch.instead.items():
        monkeypatch.setattr(module, name, stand_in)
    with pytest.raises(AssertionError):
        switch.test()


def test_every_rule_of_the_plan_has_a_switch() -> None:
    rows = re.findall(r"^\| (R\d+) ", plan.__doc__ or "", re.MULTILINE)
    assert len(rows) == len(set(rows)) >= 11
    assert {switch.rule.split()[0] for switch in SWITCHES} == {*rows, "R12"}
