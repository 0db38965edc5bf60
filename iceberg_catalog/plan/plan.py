"""What a partition's table must become, from what is in the store, what the table has and what was recorded with it.

A pure function of one partition of one topic id. It is applied by compare-and-swap on the head it was made from, and
made again after any failure; crash recovery, retries, leader changes, lost replies and deletes are all this one act.
`plan` applied to its own result says nothing new.

Order of a run: read the head first, list indexes after, plan. The other way round a swap would not protect a plan made
from an old listing and a new head.

| rule | says | why |
|---|---|---|
| R1 lineage | the newest leader-epoch history wins, completed by what has its first epoch, then by older ones (lineage.py); recorded from the epoch on that holds the least of floor, frontier, the table's lowest row and, in an archive, the lowest deleted segment, at most LINEAGE_ENTRIES_MAX epochs (lineage_record.py) | higher epoch per offset is wrong; every restart is an epoch |
| R2 validity | the newest run of a segment that agrees with the lineage proves all before it | log matching |
| R3 rewind | where the recorded lineage is left, or a file shows by its own epochs that it died below, published rows go; from the first offset of a transaction open there | its marker was on the dead branch, unless a hole that a repeated listing shows too may have held it; a shortened record does not tell all, nothing may be cut away below what is published again, and a hole right below the divergence may hold rows of the living branch. Rows of a deleted segment, where both histories are the same from some offset on, stay: nothing gives them again |
| R4 deletes | with custom metadata: DELETED (retention); without: WITHDRAWN (failed copy, will be uploaded again, whenever that is: it never gets old) | taking one for the other loses rows for ever; no clock tells them apart |
| R5 floor | everything below a DELETED segment's valid end is gone, unless a leader that has lost since may have deleted it for its old epochs; it never sinks by a late upload | log start rose before Kafka deleted |
| R6 inputs | new rows come from LIVE, and unless the policy is `Follow` and no projection waits, from DELETED segments the recorded state has not taken in; all serve for decisions | a marker may lie in a deleted segment; what was taken in may be reclaimed |
| R7 walk | from the frontier on; a stretch nobody has, below a valid segment, is a gap for good once the listing was repeated and all it names was read (rsm_bridge/storage/listed_keys.py); a segment that is dead in part is read only then too | Kafka copies in order; one paged listing may miss a segment, and what is listed is not gone because a read denies it |
| R8 decide | the next marker of the same producer id decides (decide.py), until it is tiered what was peeked at copy time (peeked.py); a hole or a producer snapshot ends what no marker will; a newer one shows which markers are dead (decide.py) | a marker may never come, or not be there any more |
| R9 frontier | the first row nothing decides yet, or the end of the walk; never below the (rewound) old one; where markers contradict the broker's files (in one segment: the copy saw it; across segments: cross_check.py) the partition stops | row-exact waiting |
| R10 remove | what reaches above the rewound frontier goes or is cut there, files wholly below the floor as the policy says, once no projection of the table waits for them (hold.py) | rows leave by floor a file at a time |
| R11 add | exactly the committed rows from the old frontier to the new; a segment's own file if all its rows are wanted, else a derived one | every offset once |

R12 and R13 (what may be deleted from the store) are rsm_bridge/tables/reclaim/rules.py and rsm_bridge/tables/reclaim/reclaimer.py. R15: the topic id is part of every key, and a
plan never sees two.

The plan from a listing that begins at the frontier, where that is enough.

Why so little is enough: what was taken in below the frontier is in the recorded state. No row is ever added below it
(R11), its lineage is recorded (R1), the markers of rows that wait lie above it (R8). What is listed from the frontier
on holds every row that may come, every marker that may decide it, and every producer snapshot in between. A view that
lacks what somebody has just stored is always allowed: it is the store as it was a moment ago.

What can lie below the frontier and change the table all the same is a delete (R5) or a history that leaves the
recorded one (R1, R3). What a delete says hangs on all copies of the partition: whoever made it may have lost since,
and what shows that may lie below the frontier. A new leader shows by its epoch, in any segment of it that is seen. So
for a deletion that tells something, for a hole, and whenever the result would touch the recorded history, nothing is
said, and the caller lists the whole partition. What nobody notices, a new leader's segments that all end below the
frontier or a delete that another bridge was told of, waits for the next whole listing.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from iceberg_catalog.plan.file_epochs import Endings, Look, no_look
from iceberg_catalog.plan.files import first_waiting, incoming, outgoing, span
from iceberg_catalog.plan.hold import NO_HOLD, Hold, holding
from iceberg_catalog.plan.inputs import Input, living
from iceberg_catalog.plan.judge import Judgement, judged
from iceberg_catalog.plan.lineage import Lineage, of_segment
from iceberg_catalog.plan.lineage_record import fold, read_record, recorded
from iceberg_catalog.plan.rewind import lone, rewound
from iceberg_catalog.plan.types import (
    Derive,
    Follow,
    LiveFile,
    PartState,
    Peeked,
    Plan,
    Policy,
    Segment,
    SegmentState,
    Trim,
    UseMain,
    remembered,
)
from iceberg_catalog.plan.walk import Walk, beginnings, raised, sources, walked


def plan(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    state: PartState,
    policy: Policy,
    *,
    relisted: bool,
    hold: Hold = NO_HOLD,
    look: Look = no_look,
) -> Plan:
    """What one commit must do to this partition.

    Args:
        segments: every index of the partition that reaches to the frontier or above, or is tombstoned; more is fine.
        files: our live files of the partition in the head.
        state: recorded with the head; the default if there is none.
        policy: what becomes of rows that Kafka's retention deleted.
        relisted: the listing was made again after a first one had ended, so a hole in it is real.
        hold: which of those rows stay because projections of the table have not read them.
        look: gives the leader epochs of a file that does not tell them; asked only where the recorded lineage is left.

    Returns:
        A plan. With `need_relist` nothing else in it may be applied.
    """
    if state.frontier < 0 and files:
        state = replace(state, frontier=max(item.last for item in files) + 1)
    ordered = sorted(segments, key=lambda item: (item.base, item.last, item.id))
    lineage = fold(ordered, state)
    alive = living(ordered, lineage, state)
    record = read_record(state, [of_segment(item) for item in ordered])
    rewind, frontier, floor = rewound(endings := Endings(record, lineage, look), files, alive, state)
    if rewind is not None and not relisted:
        return Plan(state=state, need_relist=True)
    floor = raised(floor, alive, beginnings(ordered))
    stays = holding(policy, hold, lineage, state, floor, rewind)
    read = _read(alive, frontier, floor, stays, state.peeked, relisted=relisted)
    if read is None:
        return Plan(state=state, need_relist=True)
    walk, seen = read.walk, read.seen
    if disputed := read.frontier < frontier:
        rewind = frontier = read.frontier
        stays = holding(policy, hold, lineage, state, floor, rewind)
    began = frontier
    remove, replaced, trim = outgoing(files, frontier, floor, stays, lone(endings, alive, disputed=disputed))
    kept = _kept(files, {*remove, *replaced}, trim)
    end = min(first_waiting(seen.stretches, walk.pos), seen.stop)
    frontier = max(frontier, end)
    add = incoming(seen.stretches, end, kept, floor, stays)
    lowest = min([floor, *_owed((item.segment for item in alive), policy), *(first for first, _ in kept)])
    least = min([frontier, lowest, *_firsts(add, ordered)])
    return Plan(
        add=tuple(add),
        remove=tuple(remove),
        replace=tuple(replaced),
        trim=tuple(trim),
        state=replace(
            state,
            frontier=frontier,
            floor=floor,
            lineage=recorded(lineage, state, floor, least),
            known_end=lineage.end,
            peeked=tuple(sorted({*read.peeked, *(item for item, base in seen.peeked if base < frontier)})),
            rewinds=state.rewinds if rewind is None else remembered(state.rewinds, rewind),
        ),
        rewind=rewind,
        gaps=_gaps(walk, frontier, kept),
        lost=tuple(part for part in seen.lost if part[0] < frontier),
        conflict=seen.conflict,
        midst=_midst(state, began, lowest, floor, lineage if rewind is None else None),
    )


def _kept(files: Sequence[LiveFile], leaving: Collection[str], trim: Sequence[Trim]) -> list[tuple[int, int]]:
    """First and last offset of each file that stays, as it is or cut."""
    cut = {item.path: item for item in trim}
    whole = [(item.first, item.last) for item in files if item.path not in leaving and item.path not in cut]
    return sorted([*whole, *(part for item in files if item.path in cut for part in cut[item.path].kept(item))])


def _gaps(walk: Walk, frontier: int, kept: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Those that the frontier passes, [first, last], without what a file has that stays."""
    return tuple(part for gap in walk.gaps if gap[1] < frontier for part in _without(gap, kept))


def _without(gap: tuple[int, int], kept: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of a gap none of the ranges has; all [first, last]."""
    found, (start, end) = list[tuple[int, int]](), gap
    for first, last in kept:
        if first <= end and last >= start:
            found.append((start, first - 1))
            start = last + 1
    return [(first, last) for first, last in (*found, (start, end)) if first <= last]


def _owed(segments: Iterable[Segment], policy: Policy) -> list[int]:
    """Where deleted segments begin whose rows stay: those that came late may have to come again (repair.py)."""
    if isinstance(policy, Follow):
        return []
    return [item.base for item in segments if item.state is SegmentState.DELETED and item.main is not None]


def _owed_below(segments: Iterable[Segment], state: PartState, policy: Policy) -> bool:
    """Whether a deleted segment whose rows stay begins below the record: others may tell its history (R1)."""
    return bool(state.lineage) and any(base < state.lineage[0][1] for base in _owed(segments, policy))


def _midst(state: PartState, frontier: int, lowest: int, floor: int, lineage: Lineage | None) -> PartState | None:
    """Plan.midst. `lineage`: the living one; None where the recorded one was left: it is to show that again."""
    midst = replace(state, frontier=frontier, floor=floor)
    if lineage is not None:
        midst = replace(midst, lineage=recorded(lineage, state, floor, min(lowest, frontier)), known_end=lineage.end)
    return None if midst == state else midst


def _firsts(add: Sequence[UseMain | Derive], segments: Sequence[Segment]) -> list[int]:
    """The lowest offset of each new file."""
    by_id = {item.id: item for item in segments}
    sources = [piece.segment_id if isinstance(piece, UseMain) else piece.ranges[0][0] for piece in add]
    return [span(piece, by_id[source])[0] for piece, source in zip(add, sources, strict=True)]


@dataclass(frozen=True, slots=True)
class _Read:
    """The log from `frontier` on. `peeked`: transactions below it whose marker is still to come."""

    walk: Walk
    seen: Judgement
    frontier: int
    peeked: tuple[Peeked, ...]


def _read(
    alive: Sequence[Input], frontier: int, floor: int, policy: Policy, peeked: tuple[Peeked, ...], *, relisted: bool
) -> _Read | None:
    """Walks and judges. Where a marker says otherwise than what was peeked, again from before that was believed.

    None: a hole was met, or a segment that is dead in part: list again. Rows that no segment has any more stay: nothing
    could take their place.
    """
    givers = sources(alive, policy)
    while True:
        peeked = tuple(item for item in peeked if item[1] < frontier)
        walk = walked(alive, frontier, floor, policy, relisted=relisted)
        # What a dead branch had aborted, its copy has no rows of; another copy may, and one listing may miss that.
        if walk is None or not (
            relisted or all(item.source.valid_end > item.source.segment.last for item in walk.stretches)
        ):
            return None
        seen = judged(alive, walk, frontier, peeked)
        peeked = seen.marked.open
        wanted = max(min(seen.marked.wrong, default=frontier), floor if isinstance(policy, Follow) else 0)
        start = min([frontier, *(max(item.segment.base, wanted) for item in givers if item.valid_end > wanted)])
        if wanted < start and not relisted:
            return None
        if start == frontier:
            return _Read(walk, seen, frontier, peeked)
        frontier = start


def plan_ahead(segments: Sequence[Segment], state: PartState, policy: Policy, hold: Hold = NO_HOLD) -> Plan | None:
    """What one commit must do to this partition, or None when its whole listing is needed to tell.

    Args:
        segments: every index whose last offset is the frontier or above; any others, deletions most of all.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted. Rows that leave by their age alone, or because no
            projection waits for them any more, are left to the next plan from a whole listing.
        hold: which of those rows stay because projections have not read them. Without all tombstones of the partition
            its deletions are not known.

    Returns:
        What `plan` says of all indexes of the partition, given that those left out are the ones it knew when `state`
        was made. It removes no file.
    """
    if state.frontier < 0 or _owed_below(segments, state, policy):
        return None
    made = plan(segments, (), state, policy, relisted=False, hold=hold)
    if made.need_relist or made.rewind is not None or made.state.floor != state.floor:
        return None
    return made if made.state.lineage == state.lineage else None
