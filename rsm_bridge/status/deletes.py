"""Whether a mass delete is what Kafka's retention does, or a matter for a person.

Over half of a table within ten minutes is usual for a topic whose few segments roll by time, or whose `retention.bytes`
is a few segments: each goes when its time is over, or when as much has come. Not usual is that much goes *at once* that
could have gone one after the other: a retention that was set too low by mistake, `deleteRecords`, a deleted topic.

* By time: no record was younger than `retention.ms`, and none could have gone much earlier. Kafka deletes only what is
  tiered, from the lowest offset on: a segment that rolled late, with the next batch of a nightly job say, goes late,
  and so does one behind another. While broker or bridge are away nothing is tiered or deleted; the longest pause
  between two copies is allowed for that.
* By size: what went of a partition is no more than it may have, and as much as it may have was left, tiered or not.
  What was left may have gone since, by its time or as more came.
* Neither lets the log start rise beyond what is tiered; `deleteRecords` does.

What goes by time leaves less for size to explain. Where Kafka does not answer, the youngest that went stands for
`retention.ms`, and the only old segment of a partition is taken for retention: what is not known is no alarm.
"""

from __future__ import annotations

from rsm_bridge.limits import CLOCK_SKEW_SECONDS_MAX, RETENTION_LATE_SECONDS
from rsm_bridge.metrics.progress.facts import DelayedDelete, DelayedPart, DelayedSegment, KafkaTopic
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.report import Finding
from rsm_bridge.words import age, moment, plural


def delayed_delete(delete: DelayedDelete, kafka: KafkaTopic | None, topic: str, now_ms: int, *, asked: bool) -> Finding:
    """The finding of one mass delete whose objects are still there.

    Args:
        delete: what went.
        kafka: the topic as Kafka has it; None: Kafka did not answer, or has no such topic any more.
        topic: its name.
        now_ms: when the report was gathered.
        asked: Kafka answered.
    """
    how = " were deleted by topic forget" if delete.forgotten else ", over half of the table's, were deleted"
    said = f"{delete.rows:,} rows in {plural(delete.segments, 'segment')}{how} up to {moment(delete.last_ms, now_ms)}"
    if now_ms >= delete.due_ms:
        said = f"{said}; mass_delete_grace is over: their objects go as soon as nothing else needs them"
        return Finding(code=CauseCode.MASS_DELETE, level=Level.NOTE, said=said, topic=topic, since_ms=delete.last_ms)
    said = f"{said}, kept {age((delete.due_ms - now_ms) / 1000)} more"
    level = CAUSES[CauseCode.MASS_DELETE].level
    if delete.forgotten and kafka is None:
        level = Level.NOTE  # somebody has just decided it
    elif delete.forgotten:
        said = f"{said}; Kafka has the topic, and its consumers miss them"
    if delete.restored:
        said = (
            f"{said}; {delete.restored} of the segments had been undeleted, and leave with what is deleted above them"
        )
    if delete.restored and not delete.parts:
        level = Level.NOTE
    elif delete.unsure:
        level, said = Level.NOTE, f"{said}; or under half: an index that cannot be read may have as many"
    elif kafka is not None and delete.parts and all(_usual(part, kafka) for part in delete.parts):
        level, said = Level.NOTE, f"{said}; the topic's {_settings(kafka)} would take as much"
    elif kafka is None and not asked and _like_retention(delete):
        level, said = Level.NOTE, f"{said}; they went as retention takes them, and Kafka was not asked"
    return Finding(code=CauseCode.MASS_DELETE, level=level, said=said, topic=topic, since_ms=delete.last_ms)


def _settings(kafka: KafkaTopic) -> str:
    names = ("retention.ms", "retention.bytes")
    return ", ".join(f"{name}={kafka.config[name]}" for name in names if kafka.config.get(name, "").isdigit())


def _usual(part: DelayedPart, kafka: KafkaTopic) -> bool:
    """Whether the topic's retention explains what went of a partition."""
    retention, size = (kafka.config.get(name, "") for name in ("retention.ms", "retention.bytes"))
    left = [item for item in part.segments if not retention.isdigit() or not _in_time(item, int(retention), part)]
    if not left or not size.isdigit():
        return not left
    old, there = sum(item.bytes for item in left if item.old), float(part.left_bytes + part.largest_bytes)
    told = kafka.partitions.get(part.partition)
    if told is not None and told.end is not None and told.log_start is not None:
        if told.log_start > part.tiered_end:
            return False
        there += max(0, told.end - part.tiered_end) * part.bytes_per_offset
    return old <= int(size) + part.largest_bytes and there >= int(size)


def _in_time(item: DelayedSegment, retention_ms: int, part: DelayedPart) -> bool:
    """Whether its time was over, and Kafka could not have deleted it much earlier."""
    if item.age_ms is None or item.age_ms < retention_ms - 1000 * CLOCK_SKEW_SECONDS_MAX:
        return False
    late_ms = min(item.age_ms - retention_ms, item.tiered_ms)
    return late_ms <= max(1000 * RETENTION_LATE_SECONDS, retention_ms / 2, part.pause_ms)


def _like_retention(delete: DelayedDelete) -> bool:
    """Whether each went when its time was over, if that of the youngest was, or was the only old one of a partition."""
    if delete.parts and all(sum(item.old for item in part.segments) <= 1 for part in delete.parts):
        return True
    gone = [(item, part) for part in delete.parts for item in part.segments]
    ages = [item.age_ms for item, _ in gone if item.age_ms is not None]
    return len(ages) == len(gone) > 0 and all(_in_time(item, min(ages), part) for item, part in gone)
