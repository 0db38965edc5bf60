"""Where several topics, or projections, meet in one table's name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rsm_bridge.status.check.report import Remark, TopicCheck

_NAMED_MAX: Final = 5


def with_shared_tables(topics: Sequence[TopicCheck], catalog: str) -> list[TopicCheck]:
    """The topics with remarks on the names they share.

    Two topics' own tables do not collide: the later one gets a suffix. A projection writes into no table but its own.

    Args:
        topics: all that were checked. Those that are not tiered have no table.
        catalog: name of the one that has the topics' own tables.
    """
    tiered = [topic for topic in topics if topic.tiered is not False]
    owners: dict[str, list[str]] = defaultdict(list)
    writers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for topic in tiered:
        if topic.table is not None:
            owners[topic.table].append(topic.topic)
        for projection in topic.projections:
            writers[projection.catalog, projection.table].append(topic.topic)
    found = []
    for topic in topics:
        remarks = []
        if topic in tiered:
            remarks += _own(topic, owners)
            remarks += _projections(topic, owners, writers, catalog)
        found.append(replace(topic, remarks=(*topic.remarks, *remarks)) if remarks else topic)
    return found


def _own(topic: TopicCheck, owners: dict[str, list[str]]) -> list[Remark]:
    others = [name for name in owners.get(topic.table or "", ()) if name != topic.topic]
    if not others:
        return []
    text = (
        f"{_listed(others)} would have the table {topic.table} too: the first to be tiered has it, others get a suffix"
    )
    return [Remark("warning", text)]


def _projections(
    topic: TopicCheck, owners: dict[str, list[str]], writers: dict[tuple[str, str], list[str]], catalog: str
) -> list[Remark]:
    found = []
    for target in dict.fromkeys((projection.catalog, projection.table) for projection in topic.projections):
        name = f"projection {target[1]}"
        own = owners.get(target[1], []) if target[0] == catalog else []
        if own:
            whose = "the topic's own" if topic.topic in own else f"that of topic {_listed(own)}"
            found.append(Remark("error", f"{name}: this table is {whose}; give the projection another name"))
        sharing = writers[target]
        others = sorted(set(sharing) - {topic.topic})
        if sharing.count(topic.topic) > 1:
            found.append(Remark("error", f"{name}: two projections of the topic have this table; rename one"))
        if others:
            advice = "put {topic} into copies.table, or make a rule for each"
            found.append(Remark("error", f"{name}: projections of {_listed(others)} have this table too; {advice}"))
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")
