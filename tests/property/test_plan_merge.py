"""R14: which files a merge joins, and that it never ties together what may have to part."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.plan.merge import Merge, MergeLimits, SmallFile, plan_merge
from iceberg_catalog.plan.types import Follow, Keep, KeepUntil, LiveFile, PartState, Policy
from tests.support.examples import examples
from tests.worlds.plan_support import FOLLOW, KEEP

LIMITS = MergeLimits(small_bytes=100, target_bytes=1000, files_min=4, files_max=50, age_ms=10, span_ms=1000)
NOW = 1_000_000


def small(number: int, size: int = 20, **changes: Any) -> SmallFile:
    """File `number` holds offsets [10 n, 10 n + 9], a millisecond of records."""
    file = LiveFile(
        path=f"f{number}",
        first=10 * number,
        last=10 * number + 9,
        runs=((0, 10 * number),),
        partition=0,
        max_timestamp_ms=500 + number,
    )
    return SmallFile(replace(file, **changes), size, 0)


def state(frontier: int = 10**6, floor: int = 0, lineage: tuple[tuple[int, int], ...] = ((0, 0),)) -> PartState:
    return PartState(frontier=frontier, floor=floor, lineage=lineage, known_end=10**6)


def merged(
    files: list[SmallFile],
    at: PartState | None = None,
    policy: Policy = FOLLOW,
    withheld: tuple[tuple[int, int], ...] = (),
    limits: MergeLimits = LIMITS,
) -> list[list[str]]:
    found = plan_merge(files, at or state(), policy, withheld, limits, NOW)
    return [[file.path for file in merge.files] for merge in found]


def names(first: int, end: int) -> list[str]:
    return [f"f{number}" for number in range(first, end)]


def test_neighbours_become_one_file_whatever_their_order() -> None:
    files = [small(number) for number in (3, 0, 4, 2, 1)]
    assert merged(files) == [names(0, 5)]
    (merge,) = plan_merge(files, state(), FOLLOW, (), LIMITS, NOW)
    assert (merge.first, merge.last) == (0, 49)


def test_too_few_files_stay() -> None:
    assert merged([small(number) for number in range(3)]) == []


def test_a_merged_file_is_at_most_the_target() -> None:
    assert merged([small(number, 90) for number in range(24)]) == [names(0, 11), names(11, 22)]


def test_large_files_stay_and_part_their_neighbours() -> None:
    files = [small(number) for number in range(9)]
    files[4] = small(4, 100)
    assert merged(files) == [names(0, 4), names(5, 9)]


def test_young_files_stay() -> None:
    files = [small(number) for number in range(6)]
    files[5] = replace(files[5], written_ms=NOW - 9)
    assert merged(files) == [names(0, 5)]
    assert merged([*files[:4], replace(files[4], written_ms=NOW - 10)]) == [names(0, 5)]


def test_a_file_that_is_most_of_its_group_is_not_written_again() -> None:
    assert merged([small(0, 90), *(small(number, 5) for number in range(1, 8))]) == [names(1, 8)]
    assert merged([*(small(number, 5) for number in range(7)), small(7, 90)]) == [names(0, 7)]
    assert merged([small(0, 50), *(small(number, 10) for number in range(1, 6))]) == [names(0, 6)]


def test_never_over_the_floor() -> None:
    files = [small(number) for number in range(12)]
    assert merged(files, state(floor=50)) == [names(5, 12)]
    assert merged(files, state(floor=50), KEEP) == [names(0, 5), names(5, 12)]
    assert merged(files, state(floor=54), KeepUntil(0)) == [names(0, 5), names(6, 12)]
    assert merged(files, state(floor=54)) == [names(6, 12)]


def test_never_over_more_record_time_than_wanted_unless_the_table_keeps_all() -> None:
    files = [small(number, max_timestamp_ms=300 * number) for number in range(8)]
    assert merged(files) == [names(0, 4), names(4, 8)]
    assert merged(files, policy=KeepUntil(0)) == [names(0, 4), names(4, 8)]
    assert merged(files, policy=KEEP) == [names(0, 8)]
    timeless = [small(number, max_timestamp_ms=None) for number in range(8)]
    assert merged(timeless) == [names(0, 8)]


def test_never_over_a_verbatim_segment() -> None:
    files = [small(number) for number in range(10) if number != 5]
    assert merged(files) == [[*names(0, 5), *names(6, 10)]]
    assert merged(files, withheld=((50, 59),)) == [names(0, 5), names(6, 10)]
    # One that reaches beyond the hole, into what another copy has rows of.
    assert merged(files, withheld=((45, 52),)) == [names(0, 5), names(6, 10)]


def test_nothing_above_the_frontier() -> None:
    files = [small(number) for number in range(8)]
    assert merged(files, state(frontier=60)) == [names(0, 6)]
    assert merged(files, state(frontier=65)) == [names(0, 6)]


def test_any_number_of_leader_changes_is_spanned() -> None:
    files = [small(number, runs=None) for number in range(50)]
    lineage = tuple((number, 10 * number) for number in range(50))
    assert merged(files, state(lineage=lineage)) == [names(0, 50)]


FILES = st.lists(
    st.tuples(
        st.integers(1, 5),  # offsets
        st.integers(0, 3),  # offsets without rows before it
        st.integers(1, 120),  # bytes
        st.integers(0, 40),  # milliseconds since the one before
        st.booleans(),  # the leader changed
        st.booleans() | st.just(True),  # old enough
    ),
    max_size=60,
)


@examples(400)
@given(
    shapes=FILES,
    floor=st.integers(0, 200),
    behind=st.integers(0, 40),
    withheld=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6)), max_size=5),
    policy=st.sampled_from([FOLLOW, KEEP, KeepUntil(100)]),
    span=st.sampled_from([50, 1000]),
)
def test_whatever_is_planned_is_allowed(
    shapes: list[tuple[int, int, int, int, bool, bool]],
    floor: int,
    behind: int,
    withheld: list[tuple[int, int]],
    policy: Policy,
    span: int,
) -> None:
    files, lineage, offset, time_ms = [], [(0, 0)], 0, 0
    for count, hole, size, pause, changed, old in shapes:
        offset, time_ms = offset + hole, time_ms + pause
        if changed:
            lineage.append((len(lineage), offset))
        file = LiveFile(
            path=f"f{offset}",
            first=offset,
            last=offset + count - 1,
            runs=((lineage[-1][0], offset),),
            partition=0,
            max_timestamp_ms=time_ms,
        )
        files.append(SmallFile(file, size, 0 if old else NOW))
        offset += count
    at = PartState(frontier=offset - behind, floor=floor, lineage=tuple(lineage), known_end=offset)
    apart = [(first, first + length) for first, length in withheld]
    limits = replace(LIMITS, span_ms=span)
    found = plan_merge(files, at, policy, apart, limits, NOW)
    by_path = {item.file.path: item for item in files}
    assert len({file.path for merge in found for file in merge.files}) == sum(len(merge.files) for merge in found)
    for merge in found:
        check(merge, [by_path[file.path] for file in merge.files], at, policy, apart, limits)


def check(
    merge: Merge,
    parts: list[SmallFile],
    at: PartState,
    policy: Policy,
    apart: list[tuple[int, int]],
    limits: MergeLimits,
) -> None:
    sizes = [part.size_bytes for part in parts]
    assert limits.files_min <= len(parts) <= limits.files_max
    assert sum(sizes) <= limits.target_bytes
    assert 2 * max(sizes) <= sum(sizes)
    assert max(sizes) < limits.small_bytes
    assert all(part.written_ms + limits.age_ms <= NOW for part in parts)
    assert merge.last < at.frontier
    assert merge.first >= at.floor or (merge.last < at.floor and not isinstance(policy, Follow))
    times = [part.file.max_timestamp_ms for part in parts if part.file.max_timestamp_ms is not None]
    assert isinstance(policy, Keep) or max(times) - min(times) <= limits.span_ms
    for left, right in pairwise(parts):
        assert left.file.last < right.file.first
        hole = range(left.file.last + 1, right.file.first)
        assert not any(first <= offset <= last for offset in hole for first, last in apart)
