"""An alarm is believed when it was seen twice and nothing moved in between. Pure.

One look at several servers is never one moment: brokers restart, leaders move, a commit lands between two reads. And
an age is a difference of two clocks: records carry their producers' time, index objects the store's. What is the same
after a pause on our own clock, longer than the healthy system takes for its next step, is no such coincidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from rsm_bridge.limits import (
    STATUS_COPY_WATCH_SECONDS,
    STATUS_LEADER_WATCH_SECONDS,
    STATUS_PUBLISH_WATCH_SECONDS,
    STATUS_SERVER_WATCH_SECONDS,
)
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.report import Accepted, Finding, PartitionReport, Report, TopicReport, worst_first

_C = CauseCode
_MOMENT: Final = 1.0
#: Seconds after which a cause must still be there. What is not here is read from one object, or from settings.
WATCH_SECONDS: Final[dict[CauseCode, float]] = {
    _C.STORE_AWAY: STATUS_SERVER_WATCH_SECONDS,
    _C.STORE_SLOW: STATUS_SERVER_WATCH_SECONDS,
    _C.TOPIC_UNREAD: STATUS_SERVER_WATCH_SECONDS,
    _C.CATALOG_AWAY: STATUS_SERVER_WATCH_SECONDS,
    _C.BRIDGE_AWAY: STATUS_SERVER_WATCH_SECONDS,
    _C.KAFKA_AWAY: STATUS_SERVER_WATCH_SECONDS,
    _C.NO_SUCH_TOPIC: _MOMENT,
    _C.STATE_MISSING: _MOMENT,
    _C.STATE_DAMAGED: _MOMENT,
    _C.TABLE_MISMATCH: _MOMENT,
    _C.TABLE_UNREADABLE: _MOMENT,
    _C.TABLE_LOST: STATUS_PUBLISH_WATCH_SECONDS,
    _C.STORE_LACKS: _MOMENT,
    _C.INDEX_DAMAGED: _MOMENT,
    _C.UNDELETE_DAMAGED: _MOMENT,
    _C.UNDELETE_NOT_IN_TABLE: STATUS_PUBLISH_WATCH_SECONDS,
    _C.ROWS_NOT_IN_TABLE: STATUS_PUBLISH_WATCH_SECONDS,
    _C.OBJECTS_LOST: _MOMENT,
    _C.SEGMENTS_LEFT: STATUS_COPY_WATCH_SECONDS,
    _C.COPY_PROGRESS_DAMAGED: _MOMENT,
    _C.ROWS_BELOW_FLOOR: _MOMENT,
    _C.GAP_UNEXPLAINED: _MOMENT,
    _C.CONFLICTING_SEGMENT: _MOMENT,
    _C.NO_LEADER: STATUS_LEADER_WATCH_SECONDS,
    _C.EPOCHS_CUT: STATUS_LEADER_WATCH_SECONDS,
    _C.HISTORY_UNREAD: STATUS_LEADER_WATCH_SECONDS,
    _C.EPOCHS_MISSING: STATUS_LEADER_WATCH_SECONDS,
    _C.KAFKA_BEHIND: STATUS_LEADER_WATCH_SECONDS,
    _C.PUBLISH_STUCK: STATUS_PUBLISH_WATCH_SECONDS,
    _C.COLUMNS_WAIT: STATUS_PUBLISH_WATCH_SECONDS,
    _C.TOPIC_LEFT: STATUS_COPY_WATCH_SECONDS,
    _C.COPY_STUCK: STATUS_COPY_WATCH_SECONDS,
    _C.OPEN_TRANSACTION: STATUS_COPY_WATCH_SECONDS,
}

#: One trouble by several names: which of them is told depends on which request was under way.
_OF_STORE: Final = frozenset({_C.STORE_AWAY, _C.STORE_SLOW, _C.TOPIC_UNREAD, _C.TABLE_UNREADABLE})
#: What only says that a server did not answer, or not in time.
SERVERS: Final = frozenset({_C.STORE_AWAY, _C.STORE_SLOW, _C.CATALOG_AWAY, _C.BRIDGE_AWAY, _C.KAFKA_AWAY})


def watch(report: Report, accepted: Accepted, publish_interval: float) -> tuple[float, list[Finding]]:
    """Seconds to the second look, 0 when none is needed, and the findings that ask for it.

    Args:
        report: of the first look.
        accepted: causes that do not count.
        publish_interval: seconds, of the settings.
    """
    found = [
        item
        for item in report.all_findings()
        if item.level is Level.PERSON and item.code in WATCH_SECONDS and not accepted.has(item)
    ]
    seconds = max([WATCH_SECONDS[item.code] for item in found], default=0.0)
    if any(item.code in (_C.PUBLISH_STUCK, _C.COLUMNS_WAIT) for item in found):
        seconds = max(seconds, min(2 * publish_interval + _MOMENT, STATUS_COPY_WATCH_SECONDS))
    return seconds, found


def unsure(before: Report, after: Report) -> bool:
    """Whether the second look met a server that does not answer, and the first one did not: nothing is known then."""
    marks = dict(_marks(before))
    return any(
        item.level is Level.PERSON and item.code in SERVERS and _name(topic, item) not in marks
        for topic, _, item in _places(after)
    )


def confirmed(after: Report, *before: Report) -> Report:
    """The last look; alarms that none before it had, or whose place has moved since all of them, wait."""
    marks: dict[_Mark, set[object]] = {}
    for look in before:
        for name, reached in _marks(look):
            marks.setdefault(name, set()).add(reached)
    topics = [_topic(topic, marks) for topic in after.topics]
    findings = [_judged(item, None, marks) for item in after.findings]
    ordered = sorted(topics, key=lambda topic: (-topic.level, topic.topic, topic.topic_id))
    return replace(after, findings=tuple(worst_first(findings)), topics=tuple(ordered))


_Mark = tuple[CauseCode, str | None, str, int | None]


def _marks(report: Report) -> Iterable[tuple[_Mark, object]]:
    """What was a matter for a person, and how far its place had come."""
    for topic, partition, item in _places(report):
        if item.level is Level.PERSON:
            yield _name(topic, item), _reached(item, partition)


def _places(report: Report) -> Iterable[tuple[TopicReport | None, PartitionReport | None, Finding]]:
    for item in report.findings:
        yield None, None, item
    for topic in report.topics:
        for item in topic.findings:
            yield topic, None, item
        for partition in topic.partitions:
            for item in partition.findings:
                yield topic, partition, item


def _name(topic: TopicReport | None, item: Finding) -> _Mark:
    if item.code in _OF_STORE:
        return _C.STORE_AWAY, None, "", None
    return item.code, item.topic, "" if topic is None else topic.topic_id, item.partition


def _reached(item: Finding, partition: PartitionReport | None) -> object:
    """What moves where the cause is a wrong guess; None: nothing does."""
    if item.code in (_C.TOPIC_LEFT, _C.GAP_UNEXPLAINED):
        return item.said  # how many segments are left; which offsets lack an index
    if partition is None:
        return None
    return {
        _C.COPY_STUCK: partition.tiered_end,
        _C.OPEN_TRANSACTION: partition.stable_end,
        _C.PUBLISH_STUCK: partition.published_end,
        _C.COLUMNS_WAIT: partition.published_end,
    }.get(item.code)


def _topic(topic: TopicReport, marks: Mapping[_Mark, AbstractSet[object]]) -> TopicReport:
    partitions = []
    for partition in topic.partitions:
        findings = [_judged(item, topic, marks, partition) for item in partition.findings]
        partitions.append(replace(partition, findings=tuple(worst_first(findings))))
    findings = [_judged(item, topic, marks) for item in topic.findings]
    return replace(topic, findings=tuple(worst_first(findings)), partitions=tuple(partitions))


def _judged(
    item: Finding,
    topic: TopicReport | None,
    marks: Mapping[_Mark, AbstractSet[object]],
    partition: PartitionReport | None = None,
) -> Finding:
    if item.level is not Level.PERSON or item.code not in WATCH_SECONDS:
        return item
    name = _name(topic, item)
    if _reached(item, partition) in marks.get(name, ()):
        return item
    moved = "it has moved since the first look" if name in marks else "the first look did not have it"
    return replace(item, level=Level.WAITS, said=f"{item.said}; {moved}, ask again")
