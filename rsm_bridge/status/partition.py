"""Judges one partition: how far it has come, and why no further. Pure.

What Kafka does not tell and is estimated here: whether a segment beyond the tiered end has closed. Kafka closes one
when a record's timestamp is `segment.ms` after the newest of the segment's first batch, when it would outgrow
`segment.bytes`, and, in an idle partition, when its newest record is older than the local retention. Producers choose
timestamps, and nobody says where that batch ends: by them alone nobody is called unless they tell the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_catalog.plan.lineage import UNKNOWN, Lineage
from rsm_bridge.limits import BELOW_FLOOR_UNASKED_SECONDS, CLOCK_SKEW_SECONDS_MAX, TOPIC_GONE_SECONDS
from rsm_bridge.metrics.progress.facts import Gap, KafkaPartition, StoredPartition, Withdrawn
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.copy_lag import CopyLag, copy_lag
from rsm_bridge.status.report import Finding, PartitionReport, worst_first
from rsm_bridge.words import age, moment, plural

#: Segments that must have closed before their copy counts as stuck: one that just closed is the usual case.
STUCK_SEGMENTS = 3
#: Kafka looks for work every 30 s and for idle segments every 5 min.
COPY_LATE_S = 900.0
#: transaction.max.timeout.ms and the coordinator's next look.
TRANSACTION_LATE_S = 1200.0
#: Transactions younger than this are the usual traffic.
TRANSACTION_SHOWN_S = 60.0
PUBLISH_LATE_S_MIN = 60.0
#: Columns of a busy topic with a small decode_budget may follow later for a while.
COLUMNS_LATE_S = 600.0
PUBLISH_LATE_INTERVALS = 10
#: How far compression may shrink records whose uncompressed size is all that is known.
COMPRESSION_MAX = 10
_GAPS_SHOWN = 3
_SKEW_MS = 1000 * CLOCK_SKEW_SECONDS_MAX
#: Nothing is tiered yet: older timestamps are of events, not of their records.
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One partition with all that is known of it.

    `config`: the topic's settings in Kafka, empty when not asked. `has_table`: rows of this topic go to a table.
    `copies`: Kafka is to copy its segments. `published_end`: the table's frontier, -1 before the first commit, None
    when the table could not be read. `gone`: Kafka was asked and has no topic of this id. `store_read`: False
    when the store did not answer, so that nobody knows what was copied. `unindexed`, `withdrawn`: as in StoredTopic.
    `damaged`: first and last offsets of the partition's indexes that cannot be read. `stopped`: the topic has some, in
    whatever partition, so that nothing of it is published.
    """

    topic: str
    partition: int
    now_ms: int
    freshness_target: float | None
    publish_interval: float
    config: Mapping[str, str]
    has_table: bool
    copies: bool
    kafka: KafkaPartition | None
    stored: StoredPartition | None
    published_end: int | None
    gone: bool = False
    store_read: bool = True
    unindexed: Gap | None = None
    withdrawn: Withdrawn | None = None
    damaged: Sequence[tuple[int, int]] = ()
    stopped: bool = False

    def finding(self, code: CauseCode, level: Level, said: str, since_ms: int | None = None) -> Finding:
        """A finding at this place."""
        return Finding(code=code, level=level, said=said, topic=self.topic, partition=self.partition, since_ms=since_ms)

    def seconds_since(self, then_ms: int) -> float:
        """Age in seconds, never negative."""
        return max(0.0, (self.now_ms - then_ms) / 1000)

    def setting(self, name: str) -> int | None:
        """A whole number of the topic's settings."""
        value = self.config.get(name, "")
        return int(value) if value.lstrip("-").isdigit() else None

    @property
    def reached(self) -> int | None:
        """First offset that was never tiered, or is no longer, as far as anybody can say."""
        known = [
            self.stored.tiered_end if self.stored is not None else None,
            published_reach(self.published_end, self.withdrawn),
            self.kafka.log_start if self.kafka is not None else None,
            *(last + 1 for _, last in self.damaged),
        ]
        return max((offset for offset in known if offset is not None), default=None)

    @property
    def withdrawn_ms(self) -> int | None:
        """When the first copy was withdrawn that has rows in the table, is needed, and was not made again."""
        if self.withdrawn is None or self.reached is None or self.published_end is None:
            return None
        return self.withdrawn.since_ms if self.reached < self.published_end else None

    @property
    def pending(self) -> int:
        """Offsets in Kafka beyond what is tiered."""
        if self.kafka is None or self.kafka.end is None or self.reached is None:
            return 0
        return max(0, self.kafka.end - self.reached)


def published_reach(published_end: int | None, withdrawn: Withdrawn | None) -> int | None:
    """How far a table's frontier proves that segments were tiered: rows of copies that Kafka withdrew may be in it."""
    if published_end is None or withdrawn is None:
        return published_end
    return min(published_end, withdrawn.first)


def judge(place: Place) -> PartitionReport:
    """How far the partition has come and why no further."""
    findings = [*_broker(place), *_damaged(place), *_publishing(place), *_below_floor(place), *_gaps(place)]
    findings += _copying(place)
    lag_s = _lag(place)
    findings = [_against_target(place, finding, lag_s) for finding in findings]
    if not any(item.level >= Level.WAITS for item in findings):
        findings.append(_nothing_wrong(place))
    ordered = worst_first(findings)
    kafka, stored = place.kafka, place.stored
    closing = any(item.code in (CauseCode.COPYING, CauseCode.COPY_STUCK) for item in findings)
    closed_known = place.store_read and not closing and kafka is not None and kafka.end is not None
    return PartitionReport(
        partition=place.partition,
        log_start=kafka.log_start if kafka else None,
        produced_end=kafka.end if kafka else None,
        stable_end=kafka.stable_end if kafka else None,
        closed_end=place.reached if closed_known else None,
        tiered_end=stored.tiered_end if stored else None,
        published_end=place.published_end if place.published_end != -1 else None,
        newest_ms=kafka.newest_ms if kafka else None,
        pending_ms=kafka.pending_ms if kafka and place.pending else None,
        tiered_ms=stored.tiered_ms if stored else None,
        unpublished_ms=stored.unpublished_ms if stored else None,
        waiting=stored.open if stored else None,
        lag_s=lag_s,
        findings=tuple(ordered),
        gaps=stored.gaps if stored else (),
    )


def _nothing_wrong(place: Place) -> Finding:
    if not place.store_read:
        return place.finding(CauseCode.STORE_NOT_READ, Level.NOTE, "what is tiered is not known")
    if place.stored is None and (place.published_end is None or place.published_end < 0):
        return place.finding(CauseCode.NOTHING_PRODUCED, Level.OK, "there is nothing to tier")
    if place.published_end is None or place.published_end < 0 or not place.has_table:
        end = place.stored.tiered_end if place.stored is not None else 0
        return place.finding(CauseCode.TIERED, Level.OK, f"tiered up to offset {end}")
    if place.stopped:
        said = f"published up to offset {place.published_end}, and no further while an index of the topic is damaged"
        return place.finding(CauseCode.INDEX_DAMAGED, Level.NOTE, said)
    return place.finding(CauseCode.PUBLISHED, Level.OK, f"published up to offset {place.published_end}")


def _damaged(place: Place) -> list[Finding]:
    """Their keys say where indexes that cannot be read are; what they name, and what they explain, nobody knows."""
    if not place.damaged:
        return []
    where = _ranges([Gap(first, last, explained=False) for first, last in sorted(place.damaged)])
    said = f"{where} by their keys; what else is lost there is not known"
    return [place.finding(CauseCode.INDEX_DAMAGED, Level.PERSON, said)]


def _broker(place: Place) -> list[Finding]:
    kafka, stored = place.kafka, place.stored
    if kafka is None:
        return []
    if not kafka.has_leader:
        return [place.finding(CauseCode.NO_LEADER, Level.PERSON, "the partition has no leader")]
    if stored is not None and kafka.end is not None and kafka.end < stored.tiered_end:
        said = f"Kafka's log ends at {kafka.end}, {stored.tiered_end - kafka.end} offsets below what is tiered"
        return [place.finding(CauseCode.KAFKA_BEHIND, Level.PERSON, said)]
    if stored is not None and (other := _other_epoch(kafka, stored)) is not None:
        return [place.finding(CauseCode.KAFKA_BEHIND, Level.PERSON, other)]
    if kafka.unread is not None and kafka.unread.why is not None:
        # While the store does not answer, nothing else is to be expected.
        said = f"the leader fails to serve offset {kafka.unread.offset}: {kafka.unread.why}"
        return [place.finding(CauseCode.HISTORY_UNREAD, Level.PERSON, said)] if place.store_read else []
    if kafka.unread is not None:
        cut = None if stored is None else stored.cut_start
        begins = "" if cut is None else f"; epochs of the newest copy begin at {cut}"
        start = kafka.log_start
        said = f"offset {kafka.unread.offset} is tiered, not below the log start {start}, and out of range{begins}"
        return [place.finding(CauseCode.EPOCHS_CUT, Level.PERSON, said)]
    if not kafka.start_has_epoch and place.pending and place.store_read:
        said = (
            f"the leader has no epoch for its log start {kafka.log_start}, and {plural(place.pending, 'offset')} wait"
        )
        return [place.finding(CauseCode.EPOCHS_MISSING, Level.PERSON, said)]
    return []


def _other_epoch(kafka: KafkaPartition, stored: StoredPartition) -> str | None:
    """Whether Kafka has another record where one is tiered: its log was cut below, and has grown again since."""
    offset, epoch = kafka.newest_offset, kafka.newest_epoch
    if offset is None or epoch is None:
        return None
    tiered = Lineage(stored.history, stored.tiered_end).epoch_at(offset)
    if tiered is None or tiered == UNKNOWN or epoch <= tiered:
        return None
    return f"offset {offset} is of leader epoch {epoch} in Kafka's log, and of epoch {tiered} in what is tiered"


def _publishing(place: Place) -> list[Finding]:
    stored, frontier = place.stored, place.published_end
    if stored is None or not place.has_table or frontier is None or stored.publishable_end is None:
        return []
    findings: list[Finding] = []
    if stored.publishable_end > frontier and stored.unpublished_ms is not None:
        waits = place.seconds_since(stored.unpublished_ms)
        late = waits > max(PUBLISH_LATE_S_MIN, PUBLISH_LATE_INTERVALS * place.publish_interval)
        said = f"offsets {max(frontier, stored.start)} to {stored.publishable_end - 1} wait for a commit {age(waits)}"
        said = f"{said}, and an index of the topic is damaged" if place.stopped else said
        code, level = (CauseCode.PUBLISH_STUCK, Level.PERSON) if late else (CauseCode.PUBLISHING, Level.WAITS)
        if stored.pending is not None:
            code, level = CauseCode.COLUMNS_WAIT, Level.PERSON if waits > COLUMNS_LATE_S else Level.WAITS
            said = f"{said}, first for the columns of their values: {stored.pending}"
        findings.append(place.finding(code, level, said, stored.unpublished_ms))
    if stored.conflict is not None:
        said = f"publishing stops at offset {stored.publishable_end} before {stored.conflict}"
        finding = place.finding(CauseCode.CONFLICTING_SEGMENT, Level.PERSON, said, stored.unpublished_ms)
        findings.append(replace(finding, named=(("KEY", stored.conflict),)))
    elif stored.open is not None:
        waits = place.seconds_since(stored.open.since_ms)
        said = (
            f"publishing waits at offset {stored.open.first_offset} for the marker of producer "
            f"{stored.open.producer_id}, tiered {age(waits)} ago"
        )
        findings.append(place.finding(CauseCode.WAITING_TRANSACTION, Level.WAITS, said, stored.open.since_ms))
    return findings


def _below_floor(place: Place) -> list[Finding]:
    """A deletion takes its segments one after another; what Kafka still has long after is not being deleted."""
    stored, kafka = place.stored, place.kafka
    if stored is None or stored.below_floor is None or stored.below_floor_ms is None or place.gone:
        return []
    first, last = stored.below_floor
    patience, unasked = TOPIC_GONE_SECONDS, ""
    if kafka is None:
        patience = BELOW_FLOOR_UNASKED_SECONDS
        unasked = ". Kafka, which was not asked, deletes such segments soon where it does not need them"
    elif kafka.log_start is None or kafka.log_start > last:
        return []
    else:
        first = max(first, kafka.log_start)
    if place.seconds_since(stored.below_floor_ms) <= patience:
        return []
    said = f"offsets {first} to {last} are tiered, and the table has no row of them{unasked}"
    return [place.finding(CauseCode.ROWS_BELOW_FLOOR, Level.PERSON, said, stored.below_floor_ms)]


def _gaps(place: Place) -> list[Finding]:
    log_start = place.kafka.log_start if place.kafka is not None and place.kafka.log_start is not None else 0
    gaps = () if place.stored is None else place.stored.gaps
    if place.kafka is not None and place.stored is not None and place.stored.covered_from is not None:
        # Kafka moves the log start before it deletes: what it has above must be in the store.
        below = place.stored.covered_from
        first = max([log_start, *(last + 1 for _, last in place.damaged if last < below)])
        if first < below:
            gaps = (Gap(first, below - 1, explained=False), *(gap for gap in gaps if gap.last >= below))
    if place.unindexed is not None:
        gaps = (*gaps, place.unindexed)
    # Where the topic is gone, Kafka deletes its segments in an order of its own.
    known = [(gap, gap.explained or gap.last < log_start or place.gone) for gap in gaps]
    since_ms = None if place.stored is None else place.stored.tiered_ms
    findings = []
    for code, level, wanted in (
        (CauseCode.GAP_UNEXPLAINED, Level.PERSON, False),
        (CauseCode.GAP_EXPLAINED, Level.NOTE, True),
    ):
        some = [gap for gap, explained in known if explained is wanted]
        if some:
            findings.append(place.finding(code, level, f"no index covers {_ranges(some)}", since_ms))
    return findings


def _ranges(gaps: list[Gap]) -> str:
    """The newest, which are the highest, first."""
    shown = ", ".join(f"{gap.first} to {gap.last}" for gap in gaps[::-1][:_GAPS_SHOWN])
    more = len(gaps) - _GAPS_SHOWN
    return f"offsets {shown}" + (f" and {plural(more, 'lower stretch', 'lower stretches')}" if more > 0 else "")


def _copying(place: Place) -> list[Finding]:
    kafka = place.kafka
    if kafka is None or not place.copies or not place.pending or not kafka.has_leader:
        return []
    findings = _open_in_kafka(place, kafka)
    if not place.store_read:
        return findings
    closed = _closed_segments(place, kafka)
    idle_s = _idle_closed_s(place, kafka)
    since = "" if kafka.pending_ms is None else f", the first from {moment(kafka.pending_ms, place.now_ms)}"
    left = f"{plural(place.pending, 'offset')} not tiered{since}"
    again_s = 0.0
    if place.withdrawn_ms is not None:
        again_s = place.seconds_since(place.withdrawn_ms)
        left = f"{left}, rows of which are in the table from copies that Kafka withdrew {age(again_s)} ago"
    if closed >= 1 or idle_s > 0 or place.withdrawn_ms is not None:
        said = f"{left}; about {plural(max(1, int(closed)), 'segment')} closed by now, {_last_copy(place)}"
        if (held := _held_by_settings(place, kafka, closed)) is not None:
            said = f"{said}; each waits {held.said()}"
            return [*findings, place.finding(CauseCode.COPY_DELAYED, Level.WAITS, said, kafka.pending_ms)]
        late = closed >= STUCK_SEGMENTS or max(idle_s, again_s) > COPY_LATE_S
        stuck = late and _quiet_s(place, kafka) > COPY_LATE_S
        code, level = (CauseCode.COPY_STUCK, Level.PERSON) if stuck else (CauseCode.COPYING, Level.WAITS)
        findings.append(place.finding(code, level, said, kafka.pending_ms))
    else:
        said = f"{left}: nothing closed yet; {_rolls(place, kafka)}"
        findings.append(place.finding(CauseCode.NOTHING_CLOSED, Level.WAITS, said))
    return findings


def _held_by_settings(place: Place, kafka: KafkaPartition, closed: float) -> CopyLag | None:
    """The topic's copy lag while the first closed segment need not be copied yet, with the time a copy may take."""
    lag = copy_lag(place.setting)
    if lag is None or kafka.newest_ms is None:
        return lag
    segment_ms, segment_bytes = place.setting("segment.ms") or 0, place.setting("segment.bytes") or 0
    # Its newest record is at most `segment.ms` younger than its first.
    newest_ms = kafka.newest_ms if kafka.pending_ms is None else min(kafka.newest_ms, kafka.pending_ms + segment_ms)
    behind = max(0.0, closed - 1) * segment_bytes
    return None if lag.due(newest_ms, behind, place.now_ms - int(1000 * COPY_LATE_S)) else lag


def _quiet_s(place: Place, kafka: KafkaPartition) -> float:
    """Seconds without a copy: since the last one, or since there was something to copy, whichever is later.

    A copy that was withdrawn is made again within moments, and is something to copy since then.
    A timestamp in the future says nothing. Where nothing else is known either, it may have been for ever: that there
    is no copy while the report looks twice must do.
    """
    pending_ms, tiered_ms = kafka.pending_ms, place.stored.tiered_ms if place.stored is not None else None
    future = pending_ms is not None and pending_ms > place.now_ms + _SKEW_MS
    known = (None if future else pending_ms, tiered_ms, place.withdrawn_ms)
    times = [time_ms for time_ms in known if time_ms is not None]
    return min(map(place.seconds_since, times), default=math.inf if future else 0.0)


def _last_copy(place: Place) -> str:
    if place.stored is not None:
        return f"the last copy was {age(place.seconds_since(place.stored.tiered_ms))} ago"
    if place.published_end is not None and place.published_end > 0:
        return f"nothing is left of what was copied below offset {place.published_end}"
    # Once retention has taken all that was tiered, nothing says that there was something.
    began_later = place.kafka is not None and bool(place.kafka.log_start)
    return "nothing of it is in the store" if began_later else "none was ever copied"


def _open_in_kafka(place: Place, kafka: KafkaPartition) -> list[Finding]:
    if not _is_open(kafka):
        return []
    if not _tells_since(place, kafka):
        said = f"a transaction that began at offset {kafka.stable_end} is open; timestamps do not tell since when"
        return [place.finding(CauseCode.OPEN_TRANSACTION, Level.WAITS, said)]
    waits = place.seconds_since(kafka.stable_ms or 0)
    if waits < TRANSACTION_SHOWN_S:
        return []
    said = f"a transaction that began at offset {kafka.stable_end} {age(waits)} ago is open"
    level = Level.PERSON if waits > TRANSACTION_LATE_S else Level.WAITS
    return [place.finding(CauseCode.OPEN_TRANSACTION, level, said, kafka.stable_ms)]


def _is_open(kafka: KafkaPartition) -> bool:
    """Whether a transaction is: Kafka copies no segment that reaches beyond the last stable offset."""
    return kafka.stable_end is not None and kafka.end is not None and kafka.stable_end < kafka.end


def _tells_since(place: Place, kafka: KafkaPartition) -> bool:
    """Whether the first unstable record's timestamp can be taken for the time at which its transaction began.

    The broker's own can. A producer's is believed where it is neither in the future nor older than what is tiered.
    """
    if kafka.stable_ms is None or kafka.stable_ms < 0:
        return False
    if place.config.get("message.timestamp.type") == "LogAppendTime":
        return True
    oldest = place.stored.record_ms if place.stored is not None else place.now_ms - _DAY_MS
    return oldest - _SKEW_MS <= kafka.stable_ms <= place.now_ms + _SKEW_MS


def _closed_segments(place: Place, kafka: KafkaPartition) -> float:
    """How many segments should have closed beyond the tiered end, by time or by size; one record is in none of them."""
    if _is_open(kafka):
        return min(_closed_by_size(place, kafka), place.pending - 1.0)
    by_time = _closed_by_time(place, kafka) if _tells_time(place, kafka) else 0.0
    return min(max(by_time, _closed_by_size(place, kafka), 0.0), place.pending - 1.0)


def _closed_by_size(place: Place, kafka: KafkaPartition) -> float:
    segment_bytes, record_bytes = place.setting("segment.bytes"), _record_bytes(place, kafka)
    if record_bytes is None or not segment_bytes:
        return 0.0
    stable = place.pending
    if _is_open(kafka) and kafka.stable_end is not None and place.reached is not None:
        stable = max(0, kafka.stable_end - place.reached)
    return stable * record_bytes / segment_bytes


def _closed_by_time(place: Place, kafka: KafkaPartition) -> float:
    segment_ms = place.setting("segment.ms")
    if kafka.newest_ms is None or kafka.pending_ms is None or not segment_ms:
        return 0.0
    return (kafka.newest_ms - kafka.pending_ms) / segment_ms


def _tells_time(place: Place, kafka: KafkaPartition) -> bool:
    """Whether timestamps of what waits can be taken for the times at which it was appended.

    Brokers' own can. Producers' are believed where the newest of all is among what waits and not in the future, and
    the first that waits is not older than what is tiered: events of the past, in any order, are, sooner or later.
    """
    if kafka.newest_offset is not None and place.reached is not None and kafka.newest_offset < place.reached:
        return False
    if place.config.get("message.timestamp.type") == "LogAppendTime":
        return True
    if place.stored is None or kafka.pending_ms is None or kafka.newest_ms is None:
        return False
    in_order = kafka.pending_ms >= place.stored.record_ms - _SKEW_MS
    return in_order and kafka.newest_ms <= place.now_ms + _SKEW_MS


def _record_bytes(place: Place, kafka: KafkaPartition) -> float | None:
    """Log bytes of one offset: what tiered ones took, or at least what the first waiting record takes compressed."""
    stored = place.stored
    if stored is not None and stored.tiered_end > stored.start and stored.source_bytes:
        return stored.source_bytes / (stored.tiered_end - stored.start)
    return None if kafka.record_bytes is None else kafka.record_bytes / COMPRESSION_MAX


def _local_retention_ms(place: Place) -> int | None:
    """Milliseconds; None when nothing is deleted by time. -2 means that retention.ms counts."""
    local = place.setting("local.retention.ms")
    local = place.setting("retention.ms") if local == -2 else local
    return None if local is None or local < 0 else local


def _idle_closed_s(place: Place, kafka: KafkaPartition) -> float:
    """Seconds since local retention should have closed an idle partition's segment; 0 while it should not."""
    local = _local_retention_ms(place)
    if kafka.newest_ms is None or local is None or _is_open(kafka):
        return 0.0
    return place.seconds_since(kafka.newest_ms + local)


def _rolls(place: Place, kafka: KafkaPartition) -> str:
    """When the open segment closes."""
    segment_ms, segment_bytes, local = (
        place.setting("segment.ms"),
        place.setting("segment.bytes"),
        _local_retention_ms(place),
    )
    if kafka.pending_ms is None or segment_ms is None:
        return "when it closes is not known"
    due = kafka.pending_ms + segment_ms
    when = f"at {moment(due, place.now_ms)}" if due > place.now_ms else "with the next record, its time is over,"
    said = f"segment open since {moment(kafka.pending_ms, place.now_ms)}, rolls {when} (segment.ms={segment_ms})"
    if segment_bytes is not None:
        said += f" or at {segment_bytes} bytes"
    if kafka.newest_ms is not None and local is not None:
        said += f"; without more records at {moment(kafka.newest_ms + local, place.now_ms)}"
    return said


def _lag(place: Place) -> float:
    """Age in seconds of the oldest record known not to be in the table."""
    since: list[int] = []
    stored, kafka = place.stored, place.kafka
    if stored is not None and stored.unpublished_ms is not None and place.has_table:
        since.append(stored.unpublished_ms)
    # Rows of a copy that was withdrawn are in the table.
    if kafka is not None and place.pending and kafka.pending_ms is not None and place.withdrawn_ms is None:
        since.append(kafka.pending_ms)
    return place.seconds_since(min(since)) if since else 0.0


def _against_target(place: Place, finding: Finding, lag_s: float) -> Finding:
    target = place.freshness_target
    if target is None or lag_s <= target or finding.level is not Level.WAITS:
        return finding
    said = f"{finding.said}; {age(lag_s)} behind, freshness_target is {age(target)}"
    return place.finding(finding.code, Level.PERSON, said, finding.since_ms)
