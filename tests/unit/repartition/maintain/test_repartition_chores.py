"""Which maintenance a projection needs, and how much it may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repartition.limits import EXPIRY_EVERY_MS, ORPHANS_EVERY_MS, RETENTION_EVERY_MS, SNAPSHOT_AGE_MS
from repartition.maintain.due import Budget, Chore, MaintenanceFacts, due

NOW = 1_700_000_000_000
IDLE = MaintenanceFacts(files_added=0, deletes_added=0, manifests=1, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (IDLE, ()),
        (
            MaintenanceFacts(
                files_added=20, deletes_added=0, manifests=1, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW
            ),
            ("compaction",),
        ),
        (
            MaintenanceFacts(
                files_added=19, deletes_added=4, manifests=50, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW
            ),
            (),
        ),
        (
            MaintenanceFacts(
                files_added=0, deletes_added=5, manifests=1, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW
            ),
            ("compaction",),
        ),
        (
            MaintenanceFacts(
                files_added=0, deletes_added=0, manifests=51, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW
            ),
            ("manifests",),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 5),
                orphans_ms=NOW,
                retention_ms=NOW,
            ),
            ("expiry",),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 5),
                orphans_ms=NOW,
                retention_ms=NOW,
                expiry_ms=NOW - EXPIRY_EVERY_MS + 1,
            ),
            (),
        ),
        (
            MaintenanceFacts(
                files_added=0, deletes_added=0, manifests=1, snapshots=(NOW,), orphans_ms=NOW, retention_ms=NOW, left=1
            ),
            ("expiry",),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW - SNAPSHOT_AGE_MS - 1, *[NOW] * 4),
                orphans_ms=NOW,
                retention_ms=NOW,
            ),
            (),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW - SNAPSHOT_AGE_MS, *[NOW] * 5),
                orphans_ms=NOW,
                retention_ms=NOW,
            ),
            (),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW,),
                orphans_ms=NOW - ORPHANS_EVERY_MS,
                retention_ms=NOW,
            ),
            ("orphans",),
        ),
        (
            MaintenanceFacts(
                files_added=0,
                deletes_added=0,
                manifests=1,
                snapshots=(NOW,),
                orphans_ms=NOW,
                retention_ms=NOW - RETENTION_EVERY_MS,
            ),
            ("retention",),
        ),
        (MaintenanceFacts(files_added=99, deletes_added=99, manifests=99, snapshots=()), ()),
    ],
)
def test_what_is_due(facts: MaintenanceFacts, expected: tuple[Chore, ...]) -> None:
    assert due(facts, NOW, retention=True) == expected


def test_rows_do_not_get_old_where_the_rule_has_no_retention() -> None:
    assert (
        due(
            MaintenanceFacts(
                files_added=0, deletes_added=0, manifests=1, snapshots=(NOW,), orphans_ms=NOW, retention_ms=0
            ),
            NOW,
            retention=False,
        )
        == ()
    )


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
