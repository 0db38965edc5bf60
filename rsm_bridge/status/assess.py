"""From facts to the report of `tierberg status`. Pure: the same facts give the same report, and nothing is asked here.

Three places a cause can have: the servers (this file), a topic (this file), a partition (partition.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rsm_bridge.limits import STORE_FREE_BYTES_MIN, TOPIC_GONE_SECONDS
from rsm_bridge.metrics.progress.facts import (
    Facts,
    KafkaFacts,
    KafkaTopic,
    LostTopic,
    Problem,
    StoredTopic,
    TableFacts,
    why_nothing,
)
from rsm_bridge.metrics.progress.own_cluster import Asked, asked, doubt
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.deletes import delayed_delete
from rsm_bridge.status.partition import Place, judge
from rsm_bridge.status.projection_findings import projection_findings, projection_reports
from rsm_bridge.status.report import Finding, PartitionReport, Report, TopicReport, worst_first
from rsm_bridge.words import plural, size

#: Kafka says of most internal topics that they are; the one of tiered storage itself is not among them.
_INTERNAL = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata", "__cluster_metadata"}
)
#: Kafka's own settings, for topics whose settings it does not show.
_USUAL = {"remote.storage.enable": "true", "segment.bytes": str(2**30), "segment.ms": str(7 * 86_400_000)}
_TABLE_CODES = {
    "state_missing": CauseCode.STATE_MISSING,
    "corrupt_state": CauseCode.STATE_DAMAGED,
    "owner_mismatch": CauseCode.TABLE_MISMATCH,
    "schema_mismatch": CauseCode.TABLE_MISMATCH,
}


def assess(facts: Facts) -> Report:
    """The report; topics worst first. Kafka's internal topics are left out unless one was asked for."""
    facts = replace(facts, kafka_clusters=facts.kafka_clusters | _clusters_in_kafka(facts))
    topics = [_topic(facts, kafka, stored) for kafka, stored in _pairs(facts) if _shown(facts, kafka, stored)]
    topics.extend(_lost_topics(facts))
    names = Counter(topic.topic for topic in topics)
    topics = [topic.told_apart() if names[topic.topic] > 1 else topic for topic in topics]
    findings = _servers(facts)
    unknown = facts.store_problem or facts.kafka_problem or facts.store_failed
    if facts.wanted is not None and not topics and not unknown:
        said = f"no topic {facts.wanted} is known"
        findings.append(Finding(code=CauseCode.NO_SUCH_TOPIC, level=Level.PERSON, said=said, topic=facts.wanted))
    ordered = sorted(topics, key=lambda topic: (-topic.level, topic.topic, topic.topic_id))
    return Report(facts.now_ms, facts.freshness_target, tuple(worst_first(findings)), tuple(ordered))


def _servers(facts: Facts) -> list[Finding]:
    found: list[Finding] = []
    for code, problem in (
        (CauseCode.STORE_AWAY, facts.store_problem),
        (CauseCode.CATALOG_AWAY, facts.catalog_problem),
        (CauseCode.BRIDGE_AWAY, facts.bridge_problem),
        (CauseCode.KAFKA_AWAY, facts.kafka_problem),
    ):
        if problem is None:
            continue
        if problem.kind in (CauseCode.KAFKA_CLIENT_MISSING, CauseCode.STORE_SLOW):
            code = CauseCode(problem.kind)
        found.append(_server(code, problem.message))
    if facts.kafka is not None and facts.kafka.unanswered is not None:
        found.append(_server(CauseCode.KAFKA_AWAY, facts.kafka.unanswered))
    if facts.kafka is None and facts.kafka_problem is None:
        found.append(_server(CauseCode.KAFKA_NOT_ASKED, "no bootstrap servers are configured"))
    full = list(_full(facts))
    found.extend(full)
    if facts.store_refusal is not None and facts.store_problem is None and not full:
        found.append(_server(CauseCode.STORE_REFUSES, f"its answer to the last copy: {facts.store_refusal}"))
    if facts.store_stalled is not None:
        found.append(_server(CauseCode.STORE_SLOW, facts.store_stalled))
    if facts.store_failed:
        topic_id, why = next(iter(facts.store_failed.items()))
        topics = facts.kafka.topics.values() if facts.kafka is not None else ()
        name = next((f"{topic.topic}, " for topic in topics if topic.topic_id == topic_id), "")
        said = f"{plural(len(facts.store_failed), 'topic')} could not be read; first {name}id {topic_id}: {why.message}"
        found.append(_server(CauseCode.TOPIC_UNREAD, said))
    found.extend(_server(CauseCode.PARTLY_READ, said) for said in (facts.store_unread, facts.tables_unread) if said)
    local = why_nothing(facts.kafka.broker_config) if facts.kafka is not None else None
    if local is not None:
        found.append(_server(CauseCode(local[0]), local[1]))
    return found


def _full(facts: Facts) -> Iterator[Finding]:
    """The store's disk must take the largest segment that Kafka may send next."""
    if facts.store_free_bytes is None:
        return
    topics = facts.kafka.topics.values() if facts.kafka is not None else ()
    sizes = [topic.config.get("segment.bytes", "") for topic in topics if why_local(topic) is None]
    needed = max([int(text) for text in sizes if text.isdigit()], default=0)
    if facts.store_free_bytes < max(needed, STORE_FREE_BYTES_MIN):
        of = f", and a segment may have {size(needed)}" if needed > STORE_FREE_BYTES_MIN else ""
        yield _server(CauseCode.STORE_FULL, f"{size(facts.store_free_bytes)} are free{of}")


def _server(code: CauseCode, said: str) -> Finding:
    return Finding(code=code, level=CAUSES[code].level, said=said)


def _pairs(facts: Facts) -> list[tuple[KafkaTopic | None, StoredTopic | None]]:
    """Topics by id, as Kafka and as the store have them."""
    in_kafka = {topic.topic_id: topic for topic in facts.kafka.topics.values()} if facts.kafka is not None else {}
    ids = sorted(in_kafka.keys() | facts.stored.keys())
    return [(in_kafka.get(topic_id), facts.stored.get(topic_id)) for topic_id in ids]


def _clusters_in_kafka(facts: Facts) -> frozenset[str]:
    """Names of clusters on topics that Kafka has by id."""
    known = (stored.clusters for kafka, stored in _pairs(facts) if kafka is not None and stored is not None)
    return frozenset().union(*known)


def _shown(facts: Facts, kafka: KafkaTopic | None, stored: StoredTopic | None) -> bool:
    name = kafka.topic if kafka is not None else stored.topic if stored is not None else ""
    if facts.wanted is not None:
        return name == facts.wanted
    return stored is not None or (kafka is not None and not _internal(kafka))


def _internal(kafka: KafkaTopic) -> bool:
    return kafka.internal or kafka.topic in _INTERNAL


def _topic(facts: Facts, kafka: KafkaTopic | None, stored: StoredTopic | None) -> TopicReport:
    name = kafka.topic if kafka is not None else stored.topic if stored is not None else ""
    local = why_local(kafka) if kafka is not None else None
    findings = [] if local is None else [_note(local, name)]
    copies = kafka is not None and local is None
    if kafka is not None and kafka.config_refused is not None and not _internal(kafka):
        # What has a copy was tiered when it was made.
        copies = stored is not None and stored.left > 0
        kafka = replace(kafka, config=_USUAL)
        said = f"its settings were asked for: {kafka.config_refused}"
        findings.append(Finding(code=CauseCode.SETTINGS_HIDDEN, level=Level.NOTE, said=said, topic=name))
    if stored is not None:
        findings.extend(_stored(facts, kafka, stored))
    elif kafka is not None and (lost := facts.lost.get(kafka.topic_id)) is not None:
        findings.append(_lacks(lost, kafka.topic_id))
    table = stored.table if stored is not None else None
    has_table = name not in facts.verbatim_topics or (stored is not None and _has_rows(stored))
    if name in facts.verbatim_topics and (local is None or stored is not None):
        findings.append(_verbatim(facts, name, table, has_rows=has_table))
    return TopicReport(
        topic=name,
        topic_id=kafka.topic_id if kafka is not None else stored.topic_id if stored is not None else "",
        table=table.name if table is not None else None,
        committed_ms=table.committed_ms if table is not None else None,
        tiered=copies or local is CauseCode.COPY_DISABLED or stored is not None,
        foreign_files=len(table.foreign) if table is not None else 0,
        quarantined=sum(stored.quarantined.values()) if stored is not None else 0,
        findings=tuple(worst_first(findings)),
        partitions=tuple(_partitions(facts, name, kafka, stored, has_table=has_table, copies=copies)),
        projections=projection_reports(stored.projections if stored is not None else (), facts.now_ms),
        damaged=tuple(key for key, _ in stored.damaged) if stored is not None else (),
        clusters=tuple(sorted(stored.clusters)) if stored is not None else (),
    )


def _lost_topics(facts: Facts) -> Iterator[TopicReport]:
    """Those that only the catalog tells of, because Kafka was not asked, or has none of this id."""
    in_kafka = {topic.topic_id for topic in facts.kafka.topics.values()} if facts.kafka is not None else set()
    for topic_id, lost in facts.lost.items():
        if topic_id not in in_kafka and facts.wanted in (None, lost.topic):
            yield TopicReport(
                topic=lost.topic,
                topic_id=topic_id,
                table=lost.table,
                committed_ms=None,
                tiered=True,
                foreign_files=0,
                quarantined=0,
                findings=(_lacks(lost, topic_id),),
                partitions=(),
            )


def _lacks(lost: LostTopic, topic_id: str) -> Finding:
    said = f"{lost.table} has {plural(lost.rows, 'row')}, and the store has no index of topic id {topic_id}"
    return Finding(code=CauseCode.STORE_LACKS, level=CAUSES[CauseCode.STORE_LACKS].level, said=said, topic=lost.topic)


def _note(code: CauseCode, topic: str) -> Finding:
    return Finding(code=code, level=CAUSES[code].level, said=CAUSES[code].meaning, topic=topic)


def _verbatim(facts: Facts, topic: str, table: TableFacts | None, *, has_rows: bool) -> Finding:
    said = "there is no table"
    if table is not None:
        said = f"{table.name} stays, with what was tiered before"
    elif has_rows or facts.catalog_problem is not None:
        said = "what was tiered before may have rows"
    return Finding(code=CauseCode.VERBATIM_RULE, level=CAUSES[CauseCode.VERBATIM_RULE].level, said=said, topic=topic)


def _has_rows(stored: StoredTopic) -> bool:
    """Whether rows of it are in a table, or go to one: of segments that were tiered under an earlier rule."""
    if stored.table is not None or stored.table_problem is not None:
        return True
    return any(part.publishable_end is not None for part in stored.partitions.values())


def why_local(kafka: KafkaTopic) -> CauseCode | None:
    """Why Kafka copies nothing of the topic; None when it does."""
    if _internal(kafka):
        return CauseCode.INTERNAL_TOPIC
    if kafka.config_refused is not None:
        return None
    if "compact" in kafka.config.get("cleanup.policy", ""):
        return CauseCode.COMPACTED
    if kafka.config.get("remote.storage.enable", "false") != "true":
        return CauseCode.REMOTE_STORAGE_OFF
    if kafka.config.get("remote.log.copy.disable", "false") == "true":
        return CauseCode.COPY_DISABLED
    return None


def _stored(facts: Facts, kafka: KafkaTopic | None, stored: StoredTopic) -> list[Finding]:
    """What store and table say of a topic as a whole."""
    name = stored.topic
    found: list[Finding] = []

    def add(code: CauseCode, said: str, since_ms: int | None = None, **named: str | None) -> None:
        """One more finding, of the cause's usual level; `named`: what capitals of its advice stand for."""
        known = tuple((word, value) for word, value in named.items() if value is not None)
        found.append(
            Finding(code=code, level=CAUSES[code].level, said=said, topic=name, since_ms=since_ms, named=known)
        )

    if facts.kafka is not None and kafka is None:
        found.append(_gone(facts, facts.kafka, stored))
    gone = any(item.code in (CauseCode.TOPIC_LEFT, CauseCode.TOPIC_GONE) for item in found)
    deleted = gone or (kafka is None and stored.forgotten)
    found.extend(_lost_tables(stored, of_deleted=deleted and not _catalog_lost(facts)))
    if stored.table_problem is not None:
        problem: Problem = stored.table_problem
        add(_TABLE_CODES.get(problem.kind, CauseCode.TABLE_UNREADABLE), problem.message, NAME=problem.table)
    if stored.others:
        uuid, table = stored.others[0]
        more = f", and {len(stored.others) - 1} more" if len(stored.others) > 1 else ""
        add(CauseCode.ANOTHER_TABLE, f"{table}, uuid {uuid}{more}", UUID=uuid)
    for code, said in _losses(kafka, stored):
        add(code, said)
    if stored.damaged:
        key, first = stored.damaged[0]
        why = first.message.replace(f"{key}: ", "")
        add(
            CauseCode.INDEX_DAMAGED,
            f"{plural(len(stored.damaged), 'index', 'indexes')} cannot be read, newest {key}: {why}",
            stored.damaged_ms,
        )
    told = _tells(facts, kafka, stored)
    found.extend(delayed_delete(delete, kafka, name, facts.now_ms, asked=told) for delete in stored.delayed_deletes)
    found.extend(_of_table(stored, facts.values.get(name)))
    if stored.quarantined:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(stored.quarantined.items()))
        batches = plural(sum(stored.quarantined.values()), "batch", "batches")
        add(
            CauseCode.QUARANTINED,
            f"{batches} withheld from the table: {causes}; last {stored.quarantined_key}",
            stored.withheld_ms,
            KEY=stored.quarantined_key,
        )
    for code, said, since_ms in _without_rows(stored, by_rule=name not in facts.verbatim_topics):
        add(code, said, since_ms)
    found.extend(projection_findings(stored.projections, name, facts.now_ms))
    if stored.unsettled:
        add(CauseCode.UNSETTLED, "what waits to be published could not be judged")
    if stored.indexes_read < stored.indexes:
        add(CauseCode.PARTLY_READ, f"{stored.indexes_read:,} of {stored.indexes:,} indexes were read")
    return found


def _without_rows(stored: StoredTopic, *, by_rule: bool) -> Iterator[tuple[CauseCode, str, int | None]]:
    """Segments that are not stored as others are. by_rule: also those that an earlier rule left without rows."""
    if stored.verbatim:
        said = f"{plural(stored.verbatim, 'segment')} stored as they are, without rows; last {stored.verbatim_key}"
        yield CauseCode.STORED_VERBATIM, said, stored.withheld_ms
    if stored.verbatim_by_rule and by_rule:
        yield CauseCode.STORED_BY_RULE, f"{plural(stored.verbatim_by_rule, 'segment')} without rows", None
    if stored.left_out:
        segments = plural(len(stored.left_out), "segment")
        said = f"{segments} stored without its producer snapshot; last {stored.left_out[0]}"
        yield CauseCode.FILES_LEFT_OUT, said, None


def _lost_tables(stored: StoredTopic, *, of_deleted: bool) -> Iterator[Finding]:
    """`of_deleted`: the topic is, so no bridge makes a table anew, and each lost one must be ended by a person."""
    code = CauseCode.TABLE_LOST
    for uuid, name in stored.lost_tables if of_deleted else stored.lost_tables[:1]:
        named = (("UUID", uuid),) if of_deleted else ()
        said = f"{name}, uuid {uuid}"
        yield Finding(
            code=code, level=CAUSES[code].level, said=said, topic=stored.topic, named=named, of_deleted=of_deleted
        )


def _catalog_lost(facts: Facts) -> bool:
    """Whether it has no table at all, and lacks that of a topic which lives: then nobody dropped a table."""
    if facts.topics_unread:
        return False
    in_kafka = None if facts.kafka is None else {topic.topic_id for topic in facts.kafka.topics.values()}
    live = [
        stored
        for topic_id, stored in facts.stored.items()
        if not stored.forgotten and (in_kafka is None or topic_id in in_kafka)
    ]
    return any(stored.lost_tables for stored in live) and all(stored.table is None for stored in facts.stored.values())


def _losses(kafka: KafkaTopic | None, stored: StoredTopic) -> Iterator[tuple[CauseCode, str]]:
    """What is not there and should be, or cannot be read, and what is there and should not."""
    if stored.undelete_problem is not None:
        yield CauseCode.UNDELETE_DAMAGED, stored.undelete_problem.message
    if stored.not_back is not None:
        back = stored.not_back
        said = f"{plural(back.segments, 'segment')} with {plural(back.rows, 'row')} that an undelete was to bring back"
        yield CauseCode.UNDELETE_NOT_IN_TABLE, f"{said}; still deleted: {back.still}" if back.still else said
    if stored.not_added is not None:
        late = stored.not_added
        said = f"{plural(late.segments, 'segment')} with rows that the table lacks"
        yield CauseCode.ROWS_NOT_IN_TABLE, f"{said}; first partition {late.partition} offset {late.offset}"
    if stored.lost:
        yield CauseCode.OBJECTS_LOST, f"{plural(len(stored.lost), 'object')}, first {stored.lost[0]}"
    off = kafka is not None and why_local(kafka) is CauseCode.REMOTE_STORAGE_OFF
    if kafka is not None and off and stored.undelete_problem is None and (left := _left(kafka, stored)):
        yield CauseCode.SEGMENTS_LEFT, f"{plural(left, 'segment')} of it"


def _left(kafka: KafkaTopic, stored: StoredTopic) -> int:
    """Live segments of partitions of which all that is tiered lies below the log start; none that an undelete made."""
    found = 0
    for number, part in stored.partitions.items():
        log_start = kafka.partitions[number].log_start if number in kafka.partitions else None
        live = part.segments - stored.restored.get(number, 0)
        found += live if log_start is not None and part.tiered_end <= log_start else 0
    return found


def _gone(facts: Facts, kafka: KafkaFacts, stored: StoredTopic) -> Finding:
    """A topic id that Kafka did not name: another cluster's, being deleted, deleted, left in part, or not shown."""
    code, said = CauseCode.TOPIC_GONE, f"Kafka has no topic {stored.topic} with id {stored.topic_id}"
    if stored.topic in kafka.hidden:
        code, said = CauseCode.TOPIC_HIDDEN, f"it was asked for topic {stored.topic}"
    else:
        if stored.left:
            said = f"{said}; {plural(stored.left, 'segment')} of it are live"
        if stored.left_withdrawn:
            copies = plural(stored.left_withdrawn, "withdrawn copy", "withdrawn copies")
            said = f"{said}; rows of {copies} are in the table"
        quiet = (facts.now_ms - (stored.deleted_ms or 0)) / 1000
        if asked(stored.clusters, facts.kafka_clusters) is not Asked.OWN:
            code, said = CauseCode.OTHER_CLUSTER, f"{said}; {doubt(stored.clusters, facts.kafka_clusters)}"
        elif stored.undelete_problem is not None:
            said = f"{said}; what an undelete brought back is not told from what was left"
        elif (stored.left or stored.left_withdrawn) and quiet > TOPIC_GONE_SECONDS:
            code = CauseCode.TOPIC_LEFT
    named = () if stored.table is None else (("NAME", stored.table.name),)
    return Finding(
        code=code, level=CAUSES[code].level, said=said, topic=stored.topic, since_ms=stored.deleted_ms, named=named
    )


def _tells(facts: Facts, kafka: KafkaTopic | None, stored: StoredTopic) -> bool:
    """Whether Kafka's answer says something of the topic: it has it, or would if it were there."""
    if facts.kafka is None or stored.topic in facts.kafka.hidden:
        return False
    return kafka is not None or asked(stored.clusters, facts.kafka_clusters) is not Asked.ANOTHER


def _of_table(stored: StoredTopic, values: str | None) -> Iterator[Finding]:
    """What is to be known of the table itself; `values`: what the topic's rule would have a new one made for."""
    table = stored.table
    if table is None:
        return
    said: list[tuple[CauseCode, str]] = []
    if table.foreign:
        files = f"{plural(len(table.foreign), 'file')} not written by Tierberg, first {table.foreign[0]}"
        said.append((CauseCode.FOREIGN_FILES, files))
    if table.foreign_commits is not None:
        done = ", ".join(table.foreign_commits.operations) or "snapshots that have expired"
        commits = f"others committed {done} after snapshot {table.foreign_commits.since}"
        said.append((CauseCode.FOREIGN_COMMITS, commits))
    if table.data_inside:
        said.append((CauseCode.DATA_INSIDE_TABLE, f"data files of {table.name} lie under its own location"))
    if values not in (None, table.values) and stored.partitions:
        said.append((CauseCode.VALUES_DIFFER, f"the rule says {values}, {table.name} was made for {table.values}"))
    if table.dead_letters:
        said.append((CauseCode.DEAD_LETTERS, f"{table.dead_letters:,} of {table.rows:,} rows of {table.name}"))
    for code, what in said:
        yield Finding(code=code, level=CAUSES[code].level, said=what, topic=stored.topic)


def _partitions(
    facts: Facts,
    name: str,
    kafka: KafkaTopic | None,
    stored: StoredTopic | None,
    *,
    has_table: bool,
    copies: bool,
) -> list[PartitionReport]:
    if not copies and stored is None:
        return []
    in_kafka = kafka.partitions if kafka is not None else {}
    in_store = stored.partitions if stored is not None else {}
    frontiers = _frontiers(facts, stored)
    damaged = stored.damaged_offsets if stored is not None else {}
    config: Mapping[str, str] = kafka.config if kafka is not None else {}
    return [
        judge(
            Place(
                topic=name,
                partition=number,
                now_ms=facts.now_ms,
                freshness_target=facts.freshness_target,
                publish_interval=facts.publish_interval,
                config=config,
                has_table=has_table,
                copies=copies,
                kafka=in_kafka.get(number),
                stored=in_store.get(number),
                published_end=None if frontiers is None else frontiers.get(number, -1),
                gone=kafka is None and stored is not None and _tells(facts, kafka, stored),
                store_read=facts.store_problem is None and (kafka is None or kafka.topic_id not in facts.topics_unread),
                unindexed=None if stored is None else stored.unindexed.get(number),
                withdrawn=None if stored is None else stored.withdrawn.get(number),
                damaged=damaged.get(number, ()),
                stopped=stored is not None and bool(stored.damaged),
            )
        )
        for number in sorted(
            in_kafka.keys() | in_store.keys() | damaged.keys() | (stored.unindexed.keys() if stored else set())
        )
    ]


def _frontiers(facts: Facts, stored: StoredTopic | None) -> Mapping[int, int] | None:
    """None when the table could not be read; empty when there is none yet."""
    if stored is None or stored.table_problem is not None or facts.catalog_problem is not None:
        return None
    return stored.table.frontiers if stored.table is not None else {}
