"""When a copy of a table is somebody's matter: rows held for it, and how long it has been behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.storage.projections.progress import CopyProgress
from tests.support.status_facts import DAY, HOUR, NOW
from tests.unit.rsm_bridge.metrics.progress.test_status_causes import C, copied, found, held


@pytest.mark.parametrize(
    ("left_ms", "code"), [(7 * DAY // 2, C.COPY_LOSES_ROWS), (7 * DAY // 2 + 1, C.COPY_HOLDS_ROWS)]
)
def test_half_of_the_hold_is_when_somebody_is_told(left_ms: int, code: CauseCode) -> None:
    assert [item.code for item in assess(copied(held=held(left_ms))).all_findings() if "copy" in item.code] == [code]


def test_a_copy_that_has_everything_is_no_finding() -> None:
    report = assess(copied(lag_offsets=0))
    assert not [item for item in report.all_findings() if "copy" in item.code]
    (copy,) = report.topics[0].copies
    assert (copy.lag_s, copy.snapshot_id, copy.table_snapshot_id, copy.held_s) == (0.0, 7, 8, None)
    assert assess(copied()).topics[0].copies[0].lag_s == 3600.0
    assert assess(copied(progress=None)).topics[0].copies[0].lag_s is None


WEEKS = 14 * DAY
OLD = CopyProgress(
    topic_id=bytes(16),
    catalog="tierberg",
    table="kafka.copy",
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
def test_a_copy_that_is_behind_for_long_needs_a_person(
    hold_ms: int, since_ms: int, level: Level, progress: CopyProgress | None
) -> None:
    """No row is held for it, and nothing else would ever tell that its job is dead."""
    report = assess(copied(progress=progress, hold_s=hold_ms / 1000, unread_ms=NOW - since_ms))
    (item,) = (item for item in report.all_findings() if "copy" in item.code)
    assert (item.code, item.level) == (C.COPY_NEVER_RAN if progress is None else C.COPY_BEHIND, level)


def test_what_was_read_lately_is_behind_since_then() -> None:
    """Old segments, but a copy that had everything an hour ago, or that reads on and on."""
    for progress in (
        replace(OLD, succeeded_ms=NOW - HOUR, caught_up_ms=NOW - HOUR),
        replace(OLD, succeeded_ms=NOW - HOUR, caught_up_ms=None),
    ):
        report = assess(copied(progress=progress, unread_ms=NOW - WEEKS))
        assert [item.level for item in found(report, C.COPY_BEHIND)] == [Level.WAITS]
    slow = replace(OLD, succeeded_ms=NOW - HOUR)
    assert [item.level for item in found(assess(copied(progress=slow)), C.COPY_BEHIND)] == [Level.PERSON]


def test_rows_that_are_held_do_not_hide_that_a_copy_is_long_behind() -> None:
    report = assess(copied(progress=OLD, held=held(6 * DAY)))
    assert [item.level for item in found(report, C.COPY_HOLDS_ROWS)] == [Level.WAITS]
    assert [item.level for item in found(report, C.COPY_BEHIND)] == [Level.PERSON]
