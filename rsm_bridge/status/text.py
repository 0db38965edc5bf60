"""The report of `tierberg status` for people and for programs.

For people: what needs somebody first, each cause once with what to do, then where every partition is. The JSON form is
described by `docs/status.schema.json`; fields are only ever added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.cures import PLAINLY, Called, advice, commands, filled
from rsm_bridge.status.report import (
    NOTHING_ACCEPTED,
    Accepted,
    Finding,
    PartitionReport,
    ProjectionReport,
    Report,
    TopicReport,
)
from rsm_bridge.words import age, plural, size

SCHEMA_VERSION = 1
_MARKS = {Level.PERSON: "!!", Level.WAITS: "..", Level.NOTE: " i", Level.OK: "ok"}
#: A topic's own settings keep it local: many topics have these, and one line names them all.
_LOCAL = frozenset({CauseCode.REMOTE_STORAGE_OFF, CauseCode.COMPACTED, CauseCode.INTERNAL_TOPIC})
_PLACES_SHOWN = 3
_PARTITIONS_SHOWN = 5
#: Of a topic id, in a column.
_ID_DIGITS = 8


def as_text(
    report: Report,
    accepted: Accepted = NOTHING_ACCEPTED,
    *,
    every_partition: bool = False,
    every_place: bool = False,
    called: Called = PLAINLY,
) -> str:
    """The report for a terminal, without escapes.

    every_partition: not only the worst ones of each topic. every_place: those, and not only the newest of each cause.
    called: how, for the commands in it.
    """
    every_partition = every_partition or every_place
    causes: list[str] = []
    for _, group in groupby(report.all_findings(), key=lambda finding: (finding.level, finding.code)):
        findings = list(group)
        if findings[0].level is not Level.OK and findings[0].code not in _LOCAL:
            for text in dict.fromkeys(item.advice for item in findings):
                alike = [item for item in findings if item.advice == text]
                known = [item for item in alike if accepted.has(item)]
                causes.extend(_cause_lines([item for item in alike if item not in known], called, every=every_place))
                causes.extend(_cause_lines(known, called, accepted=True, every=every_place))
    causes.extend(_local_lines(report, called))
    rows = [row for topic in report.topics for row in _rows(report, topic, every=every_partition)]
    projections = [row for topic in report.topics for row in projection_rows(topic, report.at_ms)]
    tables = [_table(head, lines) for head, lines in ((_HEAD, rows), (PROJECTION_HEAD, projections)) if lines]
    sections = [[_headline(report, accepted)], causes, *tables]
    return "\n\n".join("\n".join(section) for section in sections if section)


def as_json(report: Report, accepted: Accepted = NOTHING_ACCEPTED, called: Called = PLAINLY) -> str:
    """The report for programs: one object, see `docs/status.schema.json`."""
    level = report.level(accepted)
    document = {
        "version": SCHEMA_VERSION,
        "at_ms": report.at_ms,
        "level": level.name.lower(),
        "needs_person": level is Level.PERSON,
        "freshness_target_s": report.freshness_target,
        "findings": [_finding(finding, called) for finding in report.findings],
        "topics": [_topic(topic, called) for topic in report.topics],
    }
    return json.dumps(document, indent=2, sort_keys=True)


def _finding(finding: Finding, called: Called) -> dict[str, Any]:
    return {
        "code": str(finding.code),
        "level": finding.level.name.lower(),
        "topic": finding.topic,
        "partition": finding.partition,
        "said": filled(finding.said, finding, called),
        "since_ms": finding.since_ms,
        "advice": advice(finding, called),
    }


def _topic(topic: TopicReport, called: Called) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "clusters": list(topic.clusters),
        "table": topic.table,
        "committed_ms": topic.committed_ms,
        "tiered": topic.tiered,
        "level": topic.level.name.lower(),
        "foreign_files": topic.foreign_files,
        "quarantined_batches": topic.quarantined,
        "damaged_indexes": list(topic.damaged),
        "findings": [_finding(finding, called) for finding in topic.findings],
        "partitions": [_partition(partition, called) for partition in topic.partitions],
        "copies": [projection_document(projection) for projection in topic.projections],
    }


def _partition(partition: PartitionReport, called: Called) -> dict[str, Any]:
    waiting = partition.waiting
    return {
        "partition": partition.partition,
        "cause": str(partition.cause),
        "level": partition.level.name.lower(),
        "log_start": partition.log_start,
        "produced_end": partition.produced_end,
        "stable_end": partition.stable_end,
        "closed_end": partition.closed_end,
        "tiered_end": partition.tiered_end,
        "published_end": partition.published_end,
        "newest_ms": partition.newest_ms,
        "pending_ms": partition.pending_ms,
        "tiered_ms": partition.tiered_ms,
        "unpublished_ms": partition.unpublished_ms,
        "lag_s": round(partition.lag_s, 3),
        "waiting": None
        if waiting is None
        else {
            "first_offset": waiting.first_offset,
            "producer_id": waiting.producer_id,
            "since_ms": waiting.since_ms,
        },
        "gaps": [{"first": gap.first, "last": gap.last, "explained": gap.explained} for gap in partition.gaps],
        "findings": [_finding(finding, called) for finding in partition.findings],
    }


def _headline(report: Report, accepted: Accepted) -> str:
    urgent = [item for item in report.all_findings() if item.level is Level.PERSON and not accepted.has(item)]
    topics = [topic for topic in report.topics if topic.tiered]
    partitions = sum(len(topic.partitions) for topic in topics)
    where = f"{plural(len(topics), 'tiered topic')}, {plural(partitions, 'partition')}"
    if not urgent:
        return f"nobody is needed: {where}"
    return f"somebody is needed: {plural(len(urgent), 'finding')} in {where}"


def _cause_lines(findings: Sequence[Finding], called: Called, *, accepted: bool = False, every: bool) -> list[str]:
    """One cause: its code, the places it was found at, newest first, and once what to do. Nothing of no place."""
    if not findings:
        return []
    first = findings[0]
    mark = _MARKS[first.level] + (" (accepted)" if accepted else "")
    lines = [f"{mark} {first.code}: {CAUSES[first.code].meaning}"]
    shown = findings if every else findings[:_PLACES_SHOWN]
    lines.extend(f"     {_where(item)}{filled(item.said, item, called)}" for item in shown)
    if len(findings) > len(shown):
        lines.append(f"     and at {plural(len(findings) - len(shown), 'place')} more, older ones: --all shows them")
    if first.advice != "Nothing.":
        lines.append(f"     -> {advice(first, called)}")
        done = set(commands(first, called))
        others = dict.fromkeys(text for item in shown for text in commands(item, called))
        lines.extend(f"        and: `{text}`" for text in others if text not in done)
    return lines


def _where(finding: Finding) -> str:
    if finding.topic is None:
        return ""
    place = finding.topic if finding.partition is None else f"{finding.topic}-{finding.partition}"
    return f"{place}: " if finding.topic_id is None else f"{place} (id {finding.topic_id}): "


def _local_lines(report: Report, called: Called) -> list[str]:
    """Topics that are not tiered by their own settings: a line for each reason, with all their names."""
    lines: list[str] = []
    for code in CauseCode:
        found = [finding for finding in report.all_findings() if finding.code is code]
        if found and code in _LOCAL:
            lines.append(f"{_MARKS[Level.NOTE]} {code}: {CAUSES[code].meaning}")
            lines.append(f"     {', '.join(item.topic or '' for item in found)}")
            if len(report.topics) == 1:
                lines.append(f"     -> {advice(found[0], called)}")
    return lines


_HEAD = ("PARTITION", "PRODUCED", "CLOSED", "TIERED", "(AGE)", "PUBLISHED", "BEHIND", "CAUSE")


def _rows(report: Report, topic: TopicReport, *, every: bool) -> list[tuple[str, ...]]:
    ordered = sorted(topic.partitions, key=lambda item: (-item.level, -item.lag_s, item.partition))
    shown = ordered if every else ordered[:_PARTITIONS_SHOWN]
    which = f" ({topic.topic_id[:_ID_DIGITS]})" if topic.namesakes else ""
    rows: list[tuple[str, ...]] = [
        (
            f"{_MARKS[item.level]} {topic.topic}-{item.partition}{which}",
            _offset(item.produced_end),
            _offset(item.closed_end),
            _offset(item.tiered_end),
            "-" if item.tiered_ms is None else age(max(0, report.at_ms - item.tiered_ms) / 1000),
            _offset(item.published_end),
            "-" if item.lag_s == 0 else age(item.lag_s),
            str(item.cause),
        )
        for item in shown
    ]
    if len(ordered) > len(shown):
        rest = ordered[len(shown) :]
        worst = rest[0].level.name.lower()
        rows.append((f"   {topic.topic}{which}: {len(rest)} more, none worse than `{worst}`", *[""] * (len(_HEAD) - 1)))
    return rows


def _offset(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right. A row with one cell alone takes the line."""
    full = [row for row in rows if any(row[1:])]
    widths = [max(len(row[column]) for row in (head, *full)) for column in range(len(head))]
    lines = []
    for row in (("   " + head[0], *head[1:]), *rows):
        if not any(row[1:]):
            lines.append(row[0])
            continue
        cells = [row[0].ljust(max(widths[0], len(head[0]) + 3))]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


PROJECTION_HEAD = (
    "PROJECTION",
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


def projection_rows(topic: TopicReport, at_ms: int) -> list[tuple[str, ...]]:
    """One row per projection under `PROJECTION_HEAD`, which docs/operations.md explains. `at_ms`: of the report."""
    return [
        (
            f"   {projection.table}",
            "-" if projection.snapshot_id is None else f"{projection.snapshot_id}",
            "never" if projection.succeeded_ms is None else age(max(0, at_ms - projection.succeeded_ms) / 1000),
            f"{projection.lag_offsets}",
            f"{projection.lag_rows}",
            "?" if projection.lag_s is None else "-" if projection.lag_s == 0 else age(projection.lag_s),
            "-" if projection.waiting is None else f"{projection.waiting.rows}",
            "-" if projection.waiting_s is None else age(projection.waiting_s),
            *_size(projection),
            topic.table or topic.topic,
        )
        for projection in topic.projections
    ]


def _size(projection: ProjectionReport) -> tuple[str, str, str]:
    if projection.size is None:
        return "?", "?", "?"
    return f"{projection.size.rows}", f"{projection.size.files}", size(projection.size.bytes)


def projection_document(projection: ProjectionReport) -> dict[str, Any]:
    """The object of docs/status.schema.json."""
    waiting = projection.waiting
    return {
        "table": projection.table,
        "catalog": projection.catalog,
        "snapshot_id": projection.snapshot_id,
        "table_snapshot_id": projection.table_snapshot_id,
        "succeeded_ms": projection.succeeded_ms,
        "caught_up_ms": projection.caught_up_ms,
        "lag_offsets": projection.lag_offsets,
        "lag_rows": projection.lag_rows,
        "lag_s": None if projection.lag_s is None else round(projection.lag_s, 3),
        "hold_s": projection.hold_s,
        "held_rows": 0 if waiting is None else waiting.rows,
        "held_files": 0 if waiting is None else waiting.files,
        "held_bytes": 0 if waiting is None else waiting.bytes,
        "held_until_ms": None if waiting is None else waiting.ends_ms,
        "size": None if projection.size is None else asdict(projection.size),
        "failure": None if projection.failure is None else asdict(projection.failure),
        "failed_chores": {chore: asdict(failure) for chore, failure in sorted(projection.failed_chores.items())},
        "dead_letters": projection.dead_letters,
        "lost_offsets": projection.lost_offsets,
        "lost_ms": projection.lost_ms,
    }
