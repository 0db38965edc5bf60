"""Which maintenance a copy needs, and how much it may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repartition.limits import EXPIRY_EVERY_MS, ORPHANS_EVERY_MS, RETENTION_EVERY_MS, SNAPSHOT_AGE_MS
from repartition.maintain.due import Budget, Chore, Facts, due

NOW = 1_700_000_000_000
IDLE = Facts(0, 0, 1, (NOW,), orphans_ms=NOW, retention_ms=NOW)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (IDLE, ()),
        (Facts(20, 0, 1, (NOW,), NOW, NOW), ("compaction",)),
        (Facts(19, 4, 50, (NOW,), NOW, NOW), ()),
        (Facts(0, 5, 1, (NOW,), NOW, NOW), ("compaction",)),
        (Facts(0, 0, 51, (NOW,), NOW, NOW), ("manifests",)),
        (Facts(0, 0, 1, (NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 5), NOW, NOW), ("expiry",)),
        (Facts(0, 0, 1, (NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 5), NOW, NOW, NOW - EXPIRY_EVERY_MS + 1), ()),
        (Facts(0, 0, 1, (NOW,), NOW, NOW, left=1), ("expiry",)),
        (Facts(0, 0, 1, (NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 4), NOW, NOW), ()),
        (Facts(0, 0, 1, (NOW - SNAPSHOT_AGE_MS, *[NOW] * 5), NOW, NOW), ()),
        (Facts(0, 0, 1, (NOW,), NOW - ORPHANS_EVERY_MS, NOW), ("orphans",)),
        (Facts(0, 0, 1, (NOW,), NOW, NOW - RETENTION_EVERY_MS), ("retention",)),
        (Facts(99, 99, 99, ()), ()),
    ],
)
def test_what_is_due(facts: Facts, expected: tuple[Chore, ...]) -> None:
    assert due(facts, NOW, retention=True) == expected


def test_rows_do_not_get_old_where_the_rule_has_no_retention() -> None:
    assert due(Facts(0, 0, 1, (NOW,), NOW, 0), NOW, retention=False) == ()


@given(st.floats(0, 0.9), st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=30))
def test_maintenance_takes_its_share_and_one_chore_more(share: float, rounds: list[tuple[float, float]]) -> None:
    budget = Budget(share)
    longest = 0.0
    for working, chore in rounds:
        budget.working_s += working
        if budget.left():
            budget.maintaining_s += chore
            longest = max(longest, chore)
        whole = budget.working_s + budget.maintaining_s
        assert budget.maintaining_s <= share * whole + longest + 1e-9
        assert budget.per_hour() == pytest.approx(3600 * budget.maintaining_s / whole if whole else 0)
    assert not Budget(share).left(), "nothing was worked yet"
