"""Whether a mass delete is what Kafka's retention does, or a matter for a person.

Over half of a table within ten minutes is usual for a topic whose few segments roll by time, or whose `retention.bytes`
is a few segments: each goes when its time is over, or when as much has come. Not usual is that much goes *at once* that
could have gone one after the other: a retention that was set too low by mistake, `deleteRecords`, a deleted topic. So
what Kafka says of the topic's retention is compared with what went; where Kafka does not answer, segments that went at
about the same age, or one of a partition, are taken for retention: what is not known is no alarm.
"""

from __future__ import annotations

from collections.abc import Mapping

from rsm_bridge.limits import CLOCK_SKEW_SECONDS_MAX, RETENTION_LATE_SECONDS
from rsm_bridge.progress_causes import CAUSES, CauseCode, Level
from rsm_bridge.progress_facts import HeldDelete, HeldPart, KafkaTopic
from rsm_bridge.progress_report import Finding
from rsm_bridge.progress_words import age, moment, plural

_SEGMENT_BYTES_USUAL = 1 << 30  # Kafka's default


def held_delete(held: HeldDelete, kafka: KafkaTopic | None, topic: str, now_ms: int, *, asked: bool) -> Finding:
    """The finding of one mass delete whose objects are still there.

    Args:
        held: what went.
        kafka: the topic as Kafka has it; None: Kafka did not answer, or has no such topic any more.
        topic: its name.
        now_ms: when the report was gathered.
        asked: Kafka answered.
    """
    said = f"{held.rows:,} of {held.table_rows:,} rows in {plural(held.segments, 'segment')}"
    said = f"{said} were deleted up to {moment(held.last_ms, now_ms)}"
    if now_ms >= held.due_ms:
        said = f"{said}; mass_delete_grace is over: their objects go as soon as nothing else needs them"
        return Finding(CauseCode.MASS_DELETE, Level.NOTE, said, topic, since_ms=held.last_ms)
    said = f"{said}, kept {age((held.due_ms - now_ms) / 1000)} more"
    if kafka is not None:
        why = _by_config(held, kafka.config)
    else:
        why = "they went as retention takes them; Kafka was not asked" if not asked and _in_turn(held) else None
    level = CAUSES[CauseCode.MASS_DELETE].level if why is None else Level.NOTE
    return Finding(
        CauseCode.MASS_DELETE, level, said if why is None else f"{said}; {why}", topic, since_ms=held.last_ms
    )


def _by_config(held: HeldDelete, config: Mapping[str, str]) -> str | None:
    """What of the topic's retention explains it."""
    retention = config.get("retention.ms", "")
    if held.ages_ms is not None and retention.isdigit():
        early, late = (age_ms - int(retention) for age_ms in held.ages_ms)
        if early >= -1000 * CLOCK_SKEW_SECONDS_MAX and late <= _late_ms(int(retention)):
            return f"their records were as old as retention.ms={retention} allows"
    size = config.get("retention.bytes", "")
    if size.isdigit() and held.parts:
        segment = int(config.get("segment.bytes", "") or _SEGMENT_BYTES_USUAL)
        if all(_by_size(part, int(size), segment) for part in held.parts):
            return f"retention.bytes={size} allows no more"
    return None


def _by_size(part: HeldPart, size: int, segment: int) -> bool:
    """Whether no more went than what was over, and as much is there as may stay: two segments are not tiered yet."""
    return part.old_bytes <= size + part.largest_bytes and part.live_bytes + 2 * segment >= size


def _in_turn(held: HeldDelete) -> bool:
    """Whether each went at about the same age, or was alone in its partition."""
    if held.parts and all(part.old_segments <= 1 for part in held.parts):
        return True
    return held.ages_ms is not None and held.ages_ms[1] - held.ages_ms[0] <= _late_ms(held.ages_ms[0])


def _late_ms(age_ms: int) -> float:
    """How much later than at this age Kafka may delete: while broker or bridge are away nothing is."""
    return max(1000 * RETENTION_LATE_SECONDS, age_ms / 2)
