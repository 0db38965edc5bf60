"""The copies of `tierberg status`: a line each for people, an object each for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rsm_bridge.progress_report import CopyReport, TopicReport
from rsm_bridge.progress_words import age

COPY_HEAD = ("COPY", "READ", "BEHIND", "(AGE)", "HELD ROWS", "LOST IN", "ROWS", "OF TABLE")


def copy_rows(topic: TopicReport, at_ms: int) -> list[tuple[str, ...]]:
    """One row per copy under `COPY_HEAD`. READ: how long ago its last good run ended. `at_ms`: of the report."""
    return [
        (
            f"   {copy.table}",
            "never" if copy.succeeded_ms is None else age(max(0, at_ms - copy.succeeded_ms) / 1000),
            f"{copy.lag_offsets}",
            "?" if copy.lag_s is None else "-" if copy.lag_s == 0 else age(copy.lag_s),
            "-" if copy.held is None else f"{copy.held.rows}",
            "-" if copy.held_s is None else age(copy.held_s),
            "?" if copy.size is None else f"{copy.size.rows}",
            topic.table or topic.topic,
        )
        for copy in topic.copies
    ]


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
