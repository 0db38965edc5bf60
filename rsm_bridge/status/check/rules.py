"""Dry-runs the rules of `topics`: which topic becomes what, why one is not tiered, and what will not work.

Nothing is written anywhere. The registry is asked for topics that are tiered alone: what the others would need is
nobody's trouble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rsm_bridge.config.settings import Settings
from rsm_bridge.config.topics import TopicRule, matching
from rsm_bridge.metrics.progress.facts import KafkaFacts, why_nothing
from rsm_bridge.status.assess import why_local
from rsm_bridge.status.causes import CAUSES, CauseCode
from rsm_bridge.status.check.report import ConfigReport, PartCheck, ProjectionCheck, Remark, TopicCheck
from rsm_bridge.status.check.schemas import SchemaChecks
from rsm_bridge.status.check.shared_tables import with_shared_tables
from rsm_bridge.status.cures import PLAINLY, Called, advice
from rsm_bridge.status.report import Finding
from rsm_bridge.storage.projections.hold import declared_projections


def check(
    settings: Settings,
    kafka: KafkaFacts | None,
    names: Sequence[str],
    schemas: SchemaChecks,
    said: Iterable[Remark] = (),
    called: Called = PLAINLY,
) -> ConfigReport:
    """The report.

    Args:
        settings: the configuration.
        kafka: the live topics; None: Kafka was not asked or did not answer.
        names: only these topics; none: all that Kafka has, without its internal ones.
        schemas: looks up subjects and reads files.
        said: remarks that begin the report.
        called: how, for the commands in it.
    """
    remarks = list(said)
    told = None if kafka is None else why_nothing(kafka.broker_config)
    nothing = None if told is None else (CauseCode(told[0]), told[1])
    if nothing is not None:
        code, what = nothing
        remarks.append(Remark("error", f"{what}: {CAUSES[code].meaning}. {CAUSES[code].advice}"))
    wanted = sorted(set(names)) if names else _live(kafka)
    topics = [_topic(settings, kafka, name, nothing, schemas, called) for name in wanted]
    if kafka is not None and not names:
        remarks += _idle_rules(settings.topics, wanted)
    remarks += schemas.remarks
    return ConfigReport(settings.generation, tuple(remarks), tuple(with_shared_tables(topics, settings.catalog.name)))


def _live(kafka: KafkaFacts | None) -> list[str]:
    if kafka is None:
        return []
    return sorted(name for name, topic in kafka.topics.items() if why_local(topic) is not CauseCode.INTERNAL_TOPIC)


def _topic(
    settings: Settings,
    kafka: KafkaFacts | None,
    name: str,
    nothing: tuple[CauseCode, str] | None,
    schemas: SchemaChecks,
    called: Called,
) -> TopicCheck:
    remarks: list[Remark] = []
    cause: CauseCode | None = None
    tiered: bool | None = None
    if kafka is not None:
        live = kafka.topics.get(name)
        if live is None:
            remarks.append(Remark("error", "Kafka has no topic of this name; check the spelling"))
        else:
            cause = why_local(live) or (None if nothing is None else nothing[0])
            tiered = cause is None
            if cause is not None:
                found = Finding(code=cause, level=CAUSES[cause].level, said="", topic=name)
                remarks.append(Remark("note", advice(found, called)))
    place = matching(settings.topics, name)
    rule = settings.rule(name)
    value, key = PartCheck(format=rule.value_format), PartCheck(format=rule.key_format)
    if tiered is not False and rule.mode == "table":
        value, told = schemas.part(rule, "value", name, by_default=place is None)
        remarks += told
        key, told = schemas.part(rule, "key", name, by_default=place is None)
        remarks += told
    return TopicCheck(
        topic=name,
        tiered=tiered,
        why_not=None if cause is None else (str(cause), CAUSES[cause].meaning),
        rule=place,
        pattern=None if place is None else rule.pattern,
        mode=rule.mode,
        value=value,
        key=key,
        table=None if rule.mode == "verbatim" else f"{settings.catalog.namespace}.{rule.table_of(name)}",
        table_retention=rule.table_retention,
        incompatible=rule.incompatible,
        decode_budget=rule.decode_budget,
        projections=tuple(
            ProjectionCheck(projection.catalog, projection.table, projection.rule.mode)
            for projection in declared_projections(settings, name, rule.table_of(name))
        ),
        remarks=tuple(remarks),
    )


def _idle_rules(rules: Sequence[TopicRule], names: Sequence[str]) -> list[Remark]:
    """Rules that decide about no topic there is."""
    used = {matching(rules, name) for name in names}
    found: list[Remark] = []
    for place, rule in enumerate(rules):
        if place in used:
            continue
        taken = {matching(rules, name) for name in names if re.fullmatch(rule.pattern, name)}
        earlier = ", ".join(f"topics.{number}" for number in sorted(number for number in taken if number is not None))
        text = f"decides nothing: {earlier} matches the same topics first" if earlier else "matches no topic"
        found.append(Remark("warning", f"topics.{place}: {rule.pattern!r} {text}; check pattern and order"))
    return found
