"""What a commit says about rewinds, gaps and lost rows, and that it stays small."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.limits import SUMMARY_RANGES_BYTES_MAX
from iceberg_catalog.plan.summary import joined, plan_summary
from iceberg_catalog.plan.types import Plan


def test_nothing_to_say_is_no_entry() -> None:
    assert plan_summary({0: Plan(), 1: Plan()}) == {}


def test_rewinds_gaps_and_lost_rows_are_named_by_partition() -> None:
    plans = {
        3: Plan(rewind=7, gaps=((5, 7), (20, 29))),
        10: Plan(rewind=0, lost=((1, 2), (3, 4), (9, 9))),
    }
    assert plan_summary(plans) == {
        "tierberg.rewind.3": "7",
        "tierberg.rewind.10": "0",
        "tierberg.gaps": '{"3":[[5,7],[20,29]]}',
        "tierberg.lost": '{"10":[[1,4],[9,9]]}',
    }


def test_what_has_no_room_is_counted() -> None:
    gaps = tuple((n * 1000, n * 1000 + 1) for n in range(10**6, 10**6 + 500))
    said = plan_summary({0: Plan(gaps=gaps), 1: Plan(gaps=((1, 2),))})
    named = json.loads(said["tierberg.gaps"])
    assert len(said["tierberg.gaps"]) <= SUMMARY_RANGES_BYTES_MAX
    assert sum(map(len, named.values())) + int(said["tierberg.gaps-omitted"]) == 501
    assert [tuple(item) for item in named["0"]] == list(gaps[: len(named["0"])])


def test_every_rewind_is_named_however_many() -> None:
    assert len(plan_summary({n: Plan(rewind=n) for n in range(1000)})) == 1000


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=20).map(
    lambda pairs: tuple(sorted((first, first + length) for first, length in pairs))
)


@given(RANGES)
def test_joined_ranges_hold_the_same_offsets_and_do_not_touch(ranges: tuple[tuple[int, int], ...]) -> None:
    result = joined(ranges)
    assert {o for first, last in result for o in range(first, last + 1)} == {
        o for first, last in ranges for o in range(first, last + 1)
    }
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(result))
