"""R14: which small files of a partition become one. Pure, as the plan is.

A merged file holds the rows of neighbours in the log, all of them, so that it stands for exactly the offsets they stood
for. What it may not do is tie together what may have to part again:

| it never spans | because |
|---|---|
| the floor | rows leave by retention a file at a time (R10) |
| more than `span_ms` of record time, unless the policy is Keep | its newest row decides when all of them leave |
| a file below the floor, where the table follows Kafka | it leaves once no projection waits for its rows (hold.py) |
| a stretch that rows may yet come into (gaps.py) | they would be taken for there, or two files overlap (I1) |
| a file that is large, or young | it is what we want, or its neighbours are still coming |

Rows are written again each time they are merged. A group must be at least twice its largest file, so that happens no
more often than sizes double on the way from the smallest file to a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iceberg_catalog.plan.types import Follow, Keep, LiveFile, PartState, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """small_bytes: files from this size on are left alone; target_bytes: of a merged file, at most.

    files_min, files_max: files of one merge. age_ms: a younger file is left alone. span_ms: of record time.
    """

    small_bytes: int
    target_bytes: int
    files_min: int
    files_max: int
    age_ms: int
    span_ms: int


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A live file with what the store says of it. `written_ms`: since the epoch."""

    file: LiveFile
    size_bytes: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Files, ascending, whose rows become one file."""

    files: tuple[LiveFile, ...]

    @property
    def first(self) -> int:
        """First offset of its rows."""
        return self.files[0].first

    @property
    def last(self) -> int:
        """Last offset of its rows, inclusive."""
        return self.files[-1].last


def plan_merge(
    files: Sequence[SmallFile],
    state: PartState,
    policy: Policy,
    apart: Sequence[tuple[int, int]],
    limits: MergeLimits,
    now_ms: int,
) -> list[Merge]:
    """The merges of one partition, in the order of offsets; each can be done without the others.

    Args:
        files: all our live files of the partition in the head.
        state: recorded with the head.
        policy: what becomes of rows that Kafka's retention deleted.
        apart: offsets [first, last] that rows may come into (gaps.py).
        limits: what to merge.
        now_ms: since the epoch.
    """
    found: list[Merge] = []
    for neighbours in _stretches(files, state, policy, apart, limits, now_ms):
        found += _groups(neighbours, policy, limits)
    return found


def _stretches(
    files: Sequence[SmallFile],
    state: PartState,
    policy: Policy,
    apart: Sequence[tuple[int, int]],
    limits: MergeLimits,
    now_ms: int,
) -> Iterator[list[SmallFile]]:
    """Neighbours that may be merged as far as the log is concerned."""
    stretch: list[SmallFile] = []
    for item in sorted(files, key=lambda entry: entry.file.first):
        file = item.file
        good = (
            item.size_bytes < limits.small_bytes
            and item.written_ms + limits.age_ms <= now_ms
            and file.last < state.frontier
            and not file.first < state.floor <= file.last
            and (file.first >= state.floor or not isinstance(policy, Follow))
        )
        if stretch and not (good and _touching(stretch[-1].file, file, state.floor, apart)):
            yield stretch
            stretch = []
        if good:
            stretch.append(item)
    if stretch:
        yield stretch


def _touching(left: LiveFile, right: LiveFile, floor: int, apart: Sequence[tuple[int, int]]) -> bool:
    """Whether nothing that matters lies between two files."""
    held = any(max(first, left.last + 1) <= min(last, right.first - 1) for first, last in apart)
    return not held and not left.last < floor <= right.first


def _groups(files: Sequence[SmallFile], policy: Policy, limits: MergeLimits) -> Iterator[Merge]:
    at = 0
    while at < len(files):
        sizes = [item.size_bytes for item in _reach(files, at, policy, limits)]
        while _lopsided(sizes) and sizes.index(max(sizes)) >= limits.files_min:
            sizes = sizes[: sizes.index(max(sizes))]
        if _lopsided(sizes):
            at += sizes.index(max(sizes)) + 1
            continue
        group = [item.file for item in files[at : at + len(sizes)]]
        at += len(sizes)
        if len(group) >= limits.files_min:
            yield Merge(tuple(group))


def _lopsided(sizes: Sequence[int]) -> bool:
    """Whether one file is more than half of all."""
    return 2 * max(sizes) > sum(sizes)


def _reach(files: Sequence[SmallFile], start: int, policy: Policy, limits: MergeLimits) -> list[SmallFile]:
    """The files from one on that fit into a merge; one at least."""
    group: list[SmallFile] = []
    times: list[int] = []
    size = 0
    for item in files[start : start + limits.files_max]:
        if item.file.max_timestamp_ms is not None:
            times = [*times, item.file.max_timestamp_ms]
            times = [min(times), max(times)]
        far = bool(times) and times[-1] - times[0] > limits.span_ms and not isinstance(policy, Keep)
        size += item.size_bytes
        if group and (size > limits.target_bytes or far):
            break
        group.append(item)
    return group
