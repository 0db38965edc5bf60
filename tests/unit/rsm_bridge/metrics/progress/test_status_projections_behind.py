"""When a projection of a table is somebody's matter: rows held for it, and how long it has been behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.storage.projections.progress import ProjectionProgress
from tests.support.status_facts import DAY, HOUR, NOW
from tests.unit.rsm_bridge.metrics.progress.test_status_causes import C, found, held, projected


@pytest.mark.parametrize(
    ("left_ms", "code"), [(7 * DAY // 2, C.COPY_LOSES_ROWS), (7 * DAY // 2 + 1, C.COPY_HOLDS_ROWS)]
)
def test_half_of_the_hold_is_when_somebody_is_told(left_ms: int, code: CauseCode) -> None:
    found = assess(projected(waiting=held(left_ms))).all_findings()
    assert [item.code for item in found if "copy" in item.code] == [code]


def test_a_projection_that_has_everything_is_no_finding() -> None:
    report = assess(projected(lag_offsets=0))
    assert not [item for item in report.all_findings() if "copy" in item.code]
    (projection,) = report.topics[0].projections
    assert (projection.lag_s, projection.snapshot_id, projection.table_snapshot_id, projection.waiting_s) == (
        0.0,
        7,
        8,
        None,
    )
    assert assess(projected()).topics[0].projections[0].lag_s == 3600.0
    assert assess(projected(progress=None)).topics[0].projections[0].lag_s is None


WEEKS = 14 * DAY
OLD = ProjectionProgress(
    topic_id=bytes(16),
    catalog="tierberg",
    table="kafka.projection",
    read={},
    snapshot_id=7,
    succeeded_ms=NOW - WEEKS,
    caught_up_ms=NOW - WEEKS,
)


@pytest.mark.parametrize(
    ("hold_ms", "since_ms", "level"),
    [
        (0, DAY, Level.WAITS),
        (0, DAY + 1, Level.PERSON),
        (HOUR, DAY, Level.WAITS),
        (HOUR, DAY + 1, Level.PERSON),
        (7 * DAY, 7 * DAY // 2, Level.WAITS),
        (7 * DAY, 7 * DAY // 2 + 1, Level.PERSON),
    ],
)
@pytest.mark.parametrize("progress", [None, OLD])
def test_a_projection_that_is_behind_for_long_needs_a_person(
    hold_ms: int, since_ms: int, level: Level, progress: ProjectionProgress | None
) -> None:
    """No row is held for it, and nothing else would ever tell that its job is dead."""
    report = assess(projected(progress=progress, hold_s=hold_ms / 1000, unread_ms=NOW - since_ms))
    (item,) = (item for item in report.all_findings() if "copy" in item.code)
    assert (item.code, item.level) == (C.COPY_NEVER_RAN if progress is None else C.COPY_BEHIND, level)


def test_what_was_read_lately_is_behind_since_then() -> None:
    """Old segments, but a projection that had everything an hour ago, or that reads on and on."""
    for progress in (
        replace(OLD, succeeded_ms=NOW - HOUR, caught_up_ms=NOW - HOUR),
        replace(OLD, succeeded_ms=NOW - HOUR, caught_up_ms=None),
    ):
        report = assess(projected(progress=progress, unread_ms=NOW - WEEKS))
        assert [item.level for item in found(report, C.COPY_BEHIND)] == [Level.WAITS]
    slow = replace(OLD, succeeded_ms=NOW - HOUR)
    assert [item.level for item in found(assess(projected(progress=slow)), C.COPY_BEHIND)] == [Level.PERSON]


def test_rows_that_are_held_do_not_hide_that_a_projection_is_long_behind() -> None:
    report = assess(projected(progress=OLD, waiting=held(6 * DAY)))
    assert [item.level for item in found(report, C.COPY_HOLDS_ROWS)] == [Level.WAITS]
    assert [item.level for item in found(report, C.COPY_BEHIND)] == [Level.PERSON]
