"""The copies of `tierberg status`: a line each for people, an object each for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rsm_bridge.progress_report import CopyReport, TopicReport
from rsm_bridge.progress_words import age, size

COPY_HEAD = (
    "COPY",
    "SNAPSHOT",
    "LAST RUN",
    "BEHIND",
    "IN ROWS",
    "(AGE)",
    "HELD ROWS",
    "LOST IN",
    "ROWS",
    "FILES",
    "SIZE",
    "OF TABLE",
)


def copy_rows(topic: TopicReport, at_ms: int) -> list[tuple[str, ...]]:
    """One row per copy under `COPY_HEAD`, which docs/operations.md explains. `at_ms`: of the report."""
    return [
        (
            f"   {copy.table}",
            "-" if copy.snapshot_id is None else f"{copy.snapshot_id}",
            "never" if copy.succeeded_ms is None else age(max(0, at_ms - copy.succeeded_ms) / 1000),
            f"{copy.lag_offsets}",
            f"{copy.lag_rows}",
            "?" if copy.lag_s is None else "-" if copy.lag_s == 0 else age(copy.lag_s),
            "-" if copy.held is None else f"{copy.held.rows}",
            "-" if copy.held_s is None else age(copy.held_s),
            *_size(copy),
            topic.table or topic.topic,
        )
        for copy in topic.copies
    ]


def _size(copy: CopyReport) -> tuple[str, str, str]:
    if copy.size is None:
        return "?", "?", "?"
    return f"{copy.size.rows}", f"{copy.size.files}", size(copy.size.bytes)


def copy_document(copy: CopyReport) -> dict[str, Any]:
    """The object of docs/status.schema.json."""
    held = copy.held
    return {
        "table": copy.table,
        "catalog": copy.catalog,
        "snapshot_id": copy.snapshot_id,
        "table_snapshot_id": copy.table_snapshot_id,
        "succeeded_ms": copy.succeeded_ms,
        "caught_up_ms": copy.caught_up_ms,
        "lag_offsets": copy.lag_offsets,
        "lag_rows": copy.lag_rows,
        "lag_s": None if copy.lag_s is None else round(copy.lag_s, 3),
        "hold_s": copy.hold_s,
        "held_rows": 0 if held is None else held.rows,
        "held_files": 0 if held is None else held.files,
        "held_bytes": 0 if held is None else held.bytes,
        "held_until_ms": None if held is None else held.ends_ms,
        "size": None if copy.size is None else asdict(copy.size),
        "failure": None if copy.failure is None else asdict(copy.failure),
        "lost_offsets": copy.lost_offsets,
        "lost_ms": copy.lost_ms,
    }
