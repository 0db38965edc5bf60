"""What becomes of files that the table names and the store has no more, after a restored catalog. Pure, one partition.

A catalog that was restored from a backup names what retention and merges have deleted since. Whether a file is gone is
a fact that the caller has made certain. Here is decided, for each of them:

| its rows | it |
|---|---|
| live segments have them all, each alive as a whole | leaves; the same commit adds the rows again from those segments (repair.py) |
| a live segment has some of them, and they cannot be added now: a marker is to come, a part of a dead branch | stays: another pass looks again |
| the next plan rewinds | leaves with all files above it, and the frontier goes back to it: that plan publishes them anew. It could not ask a file that is gone for its epochs. Not in an archive, where rows above may be of no live segment |
| no live segment has them | leaves if that is what retention does with rows that Kafka has deleted; stays under `Keep`, and while `KeepUntil` would keep it |

What stays is said, for every scan of the table meets it.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_catalog.plan.file_epochs import Look, no_look
from iceberg_catalog.plan.inputs import living
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.repair import plan_repair
from iceberg_catalog.plan.types import (
    Derive,
    Follow,
    KeepUntil,
    LiveFile,
    PartState,
    Policy,
    Segment,
    SegmentState,
    UseMain,
)
from iceberg_catalog.plan.walk import beginnings, raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """remove: paths whose rows are deleted. replace: paths whose rows come again by `add`. stay: what cannot go now.

    back: the frontier to record, whence the next plan publishes again; None: it stays.
    """

    remove: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    add: tuple[UseMain | Derive, ...] = ()
    stay: tuple[str, ...] = ()
    back: int | None = None


def plan_missing(
    segments: Sequence[Segment],
    files: Sequence[LiveFile],
    gone: Collection[str],
    state: PartState,
    policy: Policy,
    look: Look = no_look,
) -> Missing:
    """What to do with the files of one partition that are gone. But for `back` the recorded state stays as it is.

    Args:
        segments: every index of the partition, by a listing made after the head was read.
        files: our live files of the partition in the head.
        gone: paths of those that are certainly not in the store, and that no index there leads to.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted.
        look: gives the leader epochs of a file, as for `plan`.
    """
    ordered = sorted(segments, key=lambda item: (item.base, item.last, item.id))
    alive = living(ordered, fold(ordered, state), state)
    floor = raised(state.floor, alive, beginnings(ordered))
    live = [item.segment for item in alive if item.segment.state is SegmentState.LIVE]
    holders = [item for item in live if item.main is not None]
    leaving = {item.path: item for item in files if item.path in gone}
    while True:
        kept = [item for item in files if item.path not in leaving]
        wanted = {item.id for item in holders if any(_meet(item, file) for file in leaving.values())}
        # What lies below the floor stays as it is: none of it is to come that was not there.
        repair = plan_repair(ordered, kept, state, Follow(), wanted, look)
        if repair.rewinds:
            return _behind(files, leaving, holders, policy)
        waits = {item.id for item in holders if item.id in repair.left}
        stay = [
            path
            for path, file in leaving.items()
            if file.last >= state.frontier
            or any(item.id in waits and _meet(item, file) for item in holders)
            or not ((file.first >= floor and _held(file, live)) or _deleted(file, policy))
        ]
        if not stay:
            break
        leaving = {path: file for path, file in leaving.items() if path not in stay}
    again = [path for path, file in leaving.items() if any(_meet(item, file) for item in holders)]
    return Missing(
        remove=tuple(path for path in leaving if path not in again),
        replace=tuple(again),
        add=tuple(repair.add),
        stay=tuple(item.path for item in files if item.path in gone and item.path not in leaving),
    )


def _behind(
    files: Sequence[LiveFile], leaving: Mapping[str, LiveFile], holders: Sequence[Segment], policy: Policy
) -> Missing:
    """Before a rewind. No file may lie above a frontier: what is planned from there on does not look for any."""
    if not isinstance(policy, Follow):
        return Missing(stay=tuple(leaving))
    live = [item.first for item in leaving.values() if any(_meet(segment, item) for segment in holders)]
    back = min(live, default=None)
    again = [item.path for item in files if back is not None and item.first >= back]
    return Missing(remove=tuple(path for path in leaving if path not in again), replace=tuple(again), back=back)


def _meet(segment: Segment, file: LiveFile) -> bool:
    return segment.base <= file.last and segment.last >= file.first


def _held(file: LiveFile, segments: Iterable[Segment]) -> bool:
    """Whether segments, ascending by base, together hold every offset of the file."""
    at = file.first
    for item in segments:
        if item.base <= at:
            at = max(at, item.last + 1)
    return at > file.last


def _deleted(file: LiveFile, policy: Policy) -> bool:
    """Whether rows that no live segment has leave the table: R10, without a floor, for nothing tells of it any more."""
    if isinstance(policy, KeepUntil):
        return file.max_timestamp_ms is not None and file.max_timestamp_ms < policy.horizon_ms
    return isinstance(policy, Follow)
