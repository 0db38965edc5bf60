"""The report of `tierberg config check` for people and for programs. Fields of the JSON form are only ever added."""

from __future__ import annotations

import json
from typing import Any

from rsm_bridge.config.durations import duration_text
from rsm_bridge.status.check.report import ConfigReport, PartCheck, Remark, TopicCheck
from rsm_bridge.words import plural

SCHEMA_VERSION = 1
_MARKS = {"error": "!!", "warning": " !", "note": " i"}
_ORIGINS = {
    "registry-id": "each names its schema in the registry",
    "subject": "latest schema of a subject",
    "inline": "schema in the configuration",
    "inferred": "schema inferred from the first records",
}


def as_text(report: ConfigReport) -> str:
    """The report for a terminal, without escapes."""
    tiered = sum(topic.tiered is True for topic in report.topics)
    known = "" if any(topic.tiered is None for topic in report.topics) else f", {tiered} tiered"
    counts = f"{plural(report.count('error'), 'error')}, {plural(report.count('warning'), 'warning')}"
    sections = [[f"{plural(len(report.topics), 'topic')}{known}; {counts}"]]
    sections.append([_remark(remark) for remark in report.remarks])
    sections += [_topic(topic) for topic in report.topics]
    return "\n\n".join("\n".join(section) for section in sections if section)


def as_json(report: ConfigReport) -> str:
    """The report for programs: one object."""
    document = {
        "version": SCHEMA_VERSION,
        "generation": report.generation,
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "remarks": [_remark_fields(remark) for remark in report.remarks],
        "topics": [_topic_fields(topic) for topic in report.topics],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)


def _remark(remark: Remark) -> str:
    return f"{_MARKS[remark.level]} {remark.text}"


def _topic(topic: TopicCheck) -> list[str]:
    lines = [topic.topic]
    if topic.why_not is not None:
        lines.append(f"  tiered     no: {topic.why_not[1].removeprefix('not tiered: ')}")
    else:
        shown = {True: "yes", False: "no", None: "not known: Kafka was not asked, or does not have it"}
        lines.append(f"  tiered     {shown[topic.tiered]}")
    if topic.tiered is not False:
        rule = "none matches; the default" if topic.rule is None else f"topics.{topic.rule}, {topic.pattern!r}"
        lines.append(f"  rule       {rule}")
        lines.append(f"  mode       {topic.mode}")
    if topic.tiered is not False and topic.table is not None:
        keep = topic.table_retention
        retention = keep if isinstance(keep, str) else f"{duration_text(keep)} at least"
        lines.append(f"  values     {_part(topic.value)}")
        lines.append(f"  keys       {_part(topic.key)}")
        lines.append(f"  table      {topic.table}, rows stay: {retention}")
        lines += [f"  projection {each.table}, {each.mode}" for each in topic.projections]
    return lines + [f"  {_remark(remark)}" for remark in topic.remarks]


def _part(part: PartCheck) -> str:
    if part.origin is None:
        return part.format
    text = f"{part.format}; {_ORIGINS[part.origin]}"
    if part.subject is None:
        return text
    found = "none" if part.answered else "not known"
    if part.schema is not None:
        found = f"{part.schema[1]}, id {part.schema[0]}"
    return f"{text}; subject {part.subject}: {found}"


def _remark_fields(remark: Remark) -> dict[str, Any]:
    return {"level": remark.level, "text": remark.text}


def _part_fields(part: PartCheck) -> dict[str, Any]:
    schema = None if part.schema is None else {"id": part.schema[0], "kind": part.schema[1]}
    subject = {"subject": part.subject, "answered": part.answered, "schema": schema}
    return {"format": part.format, "from": part.origin, **subject}


def _topic_fields(topic: TopicCheck) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "tiered": topic.tiered,
        "why_not": None if topic.why_not is None else topic.why_not[0],
        "rule": topic.rule,
        "pattern": topic.pattern,
        "mode": topic.mode,
        "value": _part_fields(topic.value),
        "key": _part_fields(topic.key),
        "table": topic.table,
        "table_retention": topic.table_retention,
        "incompatible": topic.incompatible,
        "decode_budget": topic.decode_budget,
        "projections": [
            {"catalog": each.catalog, "table": each.table, "mode": each.mode} for each in topic.projections
        ],
        "remarks": [_remark_fields(remark) for remark in topic.remarks],
    }
