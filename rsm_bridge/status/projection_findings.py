"""From facts of a projection to its line in the report, and to what somebody has to know of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rsm_bridge.config.projections import DEAD_LETTERS
from rsm_bridge.limits import PROJECTION_BEHIND_SECONDS
from rsm_bridge.metrics.progress.facts import ProjectionFacts, WaitingRows
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.report import Finding, ProjectionReport
from rsm_bridge.storage.projections.progress import ProjectionFailure, ProjectionLoss
from rsm_bridge.words import age, moment, plural

#: Wait for a job, and are a matter for a person once they have waited too long.
_RAISED: Final = frozenset({CauseCode.COPY_NEVER_RAN, CauseCode.COPY_BEHIND})


def projection_reports(projections: Iterable[ProjectionFacts], now_ms: int) -> tuple[ProjectionReport, ...]:
    """One per declared projection."""
    return tuple(_report(projection, now_ms) for projection in projections)


def _report(projection: ProjectionFacts, now_ms: int) -> ProjectionReport:
    progress, waiting = projection.progress, projection.waiting
    caught_up_ms = None if progress is None else progress.caught_up_ms
    behind = None if caught_up_ms is None else max(0, now_ms - caught_up_ms) / 1000
    return ProjectionReport(
        table=projection.table,
        catalog=projection.catalog,
        snapshot_id=None if progress is None else progress.snapshot_id,
        table_snapshot_id=projection.snapshot_id,
        succeeded_ms=None if progress is None else progress.succeeded_ms,
        caught_up_ms=caught_up_ms,
        lag_offsets=projection.lag_offsets,
        lag_rows=projection.lag_rows,
        lag_s=behind if projection.lag_offsets else 0.0,
        hold_s=projection.hold_s,
        waiting=waiting,
        waiting_s=None if waiting is None else max(0, waiting.ends_ms - now_ms) / 1000,
        size=None if progress is None else progress.size,
        failure=None if progress is None else progress.failure,
        failed_chores={} if progress is None else progress.failed_chores,
        dead_letters=0 if progress is None else progress.dead_letters,
        lost_offsets=sum(item.offsets for item in _losses(projection)),
        lost_ms=max((item.at_ms for item in _losses(projection)), default=None),
    )


def _losses(projection: ProjectionFacts) -> list[ProjectionLoss]:
    return [] if projection.progress is None else list(projection.progress.lost.values())


def projection_findings(projections: Iterable[ProjectionFacts], topic: str, now_ms: int) -> Iterator[Finding]:
    """What is to be known of projections, in no order."""
    for projection in projections:
        late = _is_late(projection, now_ms)
        for code, said in _causes(projection, now_ms, late=late):
            level = Level.PERSON if late and code in _RAISED else CAUSES[code].level
            yield Finding(code=code, level=level, said=f"{projection.table}: {said}", topic=topic)


def _is_late(projection: ProjectionFacts, now_ms: int) -> bool:
    """Whether it has lacked something for so long that no job can be at it, or that one is too slow."""
    progress = projection.progress
    if not projection.lag_offsets:
        return False
    # A back-fill in portions is behind for as long as it takes: there the last run that went well counts.
    had = None if progress is None else progress.caught_up_ms
    if progress is not None and had is None:
        had = progress.succeeded_ms
    since_ms = max((at for at in (projection.unread_ms, had) if at is not None), default=now_ms)
    return now_ms - since_ms > 1000 * max(PROJECTION_BEHIND_SECONDS, projection.hold_s / 2)


def _causes(projection: ProjectionFacts, now_ms: int, *, late: bool) -> Iterator[tuple[CauseCode, str]]:
    progress = projection.progress
    if projection.damage is not None:
        yield CauseCode.COPY_PROGRESS_DAMAGED, projection.damage.message
    elif progress is None:
        yield CauseCode.COPY_NEVER_RAN, f"{_lag(projection)} of the table wait for its first run"
    elif progress.failure is not None:
        yield CauseCode.COPY_FAILED, _failed(progress.failure, now_ms)
    for chore, failure in sorted(progress.failed_chores.items()) if progress is not None else ():
        yield CauseCode.COPY_MAINTENANCE_FAILED, f"{chore}, {_failed(failure, now_ms)}"
    if progress is not None and progress.dead_letters:
        letters = plural(progress.dead_letters, "dead letter")
        yield CauseCode.COPY_DEAD_LETTERS, f"{letters} in {projection.table}{DEAD_LETTERS}"
    if progress is not None and progress.lost:
        where = ", ".join(f"partition {number} below {item.end}" for number, item in sorted(progress.lost.items()))
        offsets = plural(sum(item.offsets for item in _losses(projection)), "offset")
        met_ms = max(item.at_ms for item in _losses(projection))
        yield CauseCode.COPY_LOST_ROWS, f"{offsets} in all, {where}; last met {moment(met_ms, now_ms)}"
    if projection.waiting is not None:
        yield _waits(projection, projection.waiting, now_ms)
    if projection.lag_offsets and progress is not None and (late or projection.waiting is None):
        since = "it has never caught up" if progress.caught_up_ms is None else _since(progress.caught_up_ms, now_ms)
        yield CauseCode.COPY_BEHIND, f"{_lag(projection)} behind, {since}"


def _failed(failure: ProjectionFailure, now_ms: int) -> str:
    advice = f" ({failure.advice})" if failure.advice else ""
    return f"{moment(failure.at_ms, now_ms)}: {failure.message}{advice}"


def _lag(projection: ProjectionFacts) -> str:
    return f"{plural(projection.lag_offsets, 'offset')}, {plural(projection.lag_rows, 'row')}"


def _since(caught_up_ms: int, now_ms: int) -> str:
    return f"it last had everything {age(max(0, now_ms - caught_up_ms) / 1000)} ago"


def _waits(projection: ProjectionFacts, waiting: WaitingRows, now_ms: int) -> tuple[CauseCode, str]:
    """Half of the time has passed, or not."""
    left = max(0, waiting.ends_ms - now_ms) / 1000
    code = CauseCode.COPY_LOSES_ROWS if left <= projection.hold_s / 2 else CauseCode.COPY_HOLDS_ROWS
    rows = f"{plural(waiting.rows, 'row')} in {plural(waiting.files, 'file')} stay for it that Kafka has deleted"
    return code, f"rows will be lost to this projection in {age(left)} unless it runs; {rows}"
