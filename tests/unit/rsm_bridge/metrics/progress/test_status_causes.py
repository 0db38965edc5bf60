"""Every cause `tierberg status` can name: facts that have it, facts that just do not, and its line in the manual."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit.foreign import ForeignCommits
from rsm_bridge.limits import TOPIC_GONE_SECONDS
from rsm_bridge.metrics.progress.facts import (
    DelayedDelete,
    Facts,
    Gap,
    LostTopic,
    NotAdded,
    NotBack,
    Problem,
    ProjectionFacts,
    StoredTopic,
    UnfinishedTransaction,
    Unread,
    WaitingRows,
)
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.report import Accepted, Finding, Report
from rsm_bridge.status.text import as_json, as_text
from rsm_bridge.storage.projections.progress import ProjectionFailure, ProjectionLoss, ProjectionProgress
from tests.support.status_facts import (
    BROKER,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    beside,
    facts,
    kafka,
    kafka_partition,
    kafka_topic,
    pending,
    stored,
    stored_partition,
    table,
)

OPERATIONS = Path(__file__).resolve().parents[5] / "docs" / "operations.md"
AWAY = Problem("unavailable", "no route to host")
WAITING = UnfinishedTransaction(first_offset=90, producer_id=7, since_ms=NOW - 30_000)

OTHER_TOPIC, BESIDE = kafka_topic(topic="other", topic_id="cd" * 16), beside()


@dataclass(frozen=True)
class Case:
    """Facts with exactly this cause beside harmless ones; `says` is in the sentence."""

    facts: Facts
    level: Level
    says: str


def waiting(**changes: object) -> StoredTopic:
    """Publishing has reached offset 80 and cannot go on."""
    part = stored_partition(publishable_end=80, unpublished_ms=NOW - 30_000, **changes)
    return stored(part, table=table(frontiers={0: 80}))


def unpublished(seconds: int, **changes: object) -> StoredTopic:
    """Everything could be published, and offsets from 80 on are not."""
    part = stored_partition(unpublished_ms=NOW - seconds * 1000, **changes)
    return stored(part, table=table(frontiers={0: 80}))


def without_table(kind: str) -> StoredTopic:
    part = stored_partition(publishable_end=None)
    return stored(part, table=None, table_problem=Problem(kind, "what it said"))


def local(**config: str) -> Facts:
    """A topic of which nothing was ever tiered."""
    given = {key.replace("_", "."): value for key, value in config.items()}
    return facts(stored={}, kafka=kafka(kafka_topic(config=given)))


def told(**changes: object) -> Facts:
    """A projection whose job says this, and nothing else."""
    progress = ProjectionProgress(topic_id=bytes(16), catalog="a", table="b")
    return projected(progress=replace(progress, **changes))  # type: ignore[arg-type]


def projected(**changes: object) -> Facts:
    """A projection that has read all but ten offsets, an hour ago."""
    progress = ProjectionProgress(
        topic_id=bytes(16),
        catalog="tierberg",
        table="kafka.projection",
        read={},
        snapshot_id=7,
        succeeded_ms=NOW - HOUR,
        caught_up_ms=NOW - HOUR,
    )
    projection = ProjectionFacts(
        table="kafka.projection",
        catalog="tierberg",
        hold_s=7 * DAY / 1000,
        progress=progress,
        damage=None,
        snapshot_id=8,
        lag_offsets=10,
        lag_rows=8,
    )
    return facts(stored(projections=(replace(projection, **changes),)))  # type: ignore[arg-type]


def held(left_ms: int) -> WaitingRows:
    return WaitingRows(1234, 5, 100, NOW + left_ms)


C = CauseCode
CASES: dict[CauseCode, Case] = {
    C.COPY_LOSES_ROWS: Case(
        projected(waiting=held(2 * DAY + 3 * HOUR)),
        Level.PERSON,
        "kafka.projection: rows will be lost to this projection in 2 d 3 h unless it runs; 1,234 rows in 5 files stay",
    ),
    C.COPY_HOLDS_ROWS: Case(
        projected(waiting=held(6 * DAY)), Level.WAITS, "lost to this projection in 6 d unless it runs"
    ),
    C.COPY_LOST_ROWS: Case(
        told(lost={2: ProjectionLoss(5, 9, NOW - DAY), 0: ProjectionLoss(1, 1, NOW)}),
        Level.NOTE,
        "kafka.projection: 6 offsets in all, partition 0 below 1, partition 2 below 9; last met",
    ),
    C.COPY_FAILED: Case(
        told(failure=ProjectionFailure(NOW - HOUR, "bad SQL", "mend it")), Level.PERSON, "bad SQL (mend it)"
    ),
    C.COPY_MAINTENANCE_FAILED: Case(
        told(failed_chores={"dead letters: orphans": ProjectionFailure(NOW - HOUR, "AccessDenied", "mend it")}),
        Level.PERSON,
        "kafka.projection: dead letters: orphans, ",
    ),
    C.COPY_DEAD_LETTERS: Case(
        told(dead_letters=1234),
        Level.NOTE,
        "kafka.projection: 1,234 dead letters in kafka.projection__dead_letters",
    ),
    C.COPY_PROGRESS_DAMAGED: Case(
        projected(progress=None, damage=Problem("corrupt_object", "fails its checksum")),
        Level.PERSON,
        "kafka.projection: fails its checksum",
    ),
    C.COPY_NEVER_RAN: Case(projected(progress=None), Level.WAITS, "10 offsets, 8 rows of the table wait for its first"),
    C.COPY_BEHIND: Case(projected(), Level.WAITS, "10 offsets, 8 rows behind, it last had everything 1 h ago"),
    C.STORE_AWAY: Case(facts(stored={}, store_problem=AWAY), Level.PERSON, "no route to host"),
    C.STORE_SLOW: Case(facts(stored={}, store_problem=Problem("store_slow", "none of 3")), Level.PERSON, "none of 3"),
    C.TOPIC_UNREAD: Case(facts(store_failed={"ab": AWAY}), Level.PERSON, "1 topic could not be read; first id ab"),
    C.STORE_FULL: Case(facts(store_free_bytes=64 * 1024**2 - 1), Level.PERSON, "64 MiB are free"),
    C.STORE_REFUSES: Case(facts(store_refusal="Read-only file system"), Level.PERSON, "Read-only file system"),
    C.CATALOG_AWAY: Case(
        facts(stored(stored_partition(publishable_end=None), table=None), catalog_problem=AWAY),
        Level.PERSON,
        "no route to host",
    ),
    C.BRIDGE_AWAY: Case(facts(bridge_problem=AWAY), Level.PERSON, "no route to host"),
    C.KAFKA_AWAY: Case(facts(kafka=None, kafka_problem=AWAY), Level.PERSON, "no route to host"),
    C.KAFKA_CLIENT_MISSING: Case(
        facts(kafka=None, kafka_problem=Problem("kafka_client_missing", "confluent-kafka is not installed")),
        Level.NOTE,
        "not installed",
    ),
    C.KAFKA_NOT_ASKED: Case(facts(kafka=None), Level.NOTE, "no bootstrap servers"),
    C.BROKER_NOT_TIERING: Case(
        facts(kafka=kafka(broker_config={**BROKER, "remote.log.storage.system.enable": "false"})),
        Level.PERSON,
        "remote.log.storage.system.enable=false",
    ),
    C.OTHER_PLUGIN: Case(
        facts(kafka=kafka(broker_config={**BROKER, "remote.log.storage.manager.class.name": "io.other.Rsm"})),
        Level.PERSON,
        "io.other.Rsm",
    ),
    C.NO_SUCH_TOPIC: Case(facts(wanted="oders"), Level.PERSON, "oders"),
    C.REMOTE_STORAGE_OFF: Case(local(remote_storage_enable="false"), Level.NOTE, "remote.storage.enable"),
    C.COMPACTED: Case(local(cleanup_policy="compact,delete"), Level.NOTE, "cleanup.policy"),
    C.INTERNAL_TOPIC: Case(
        facts(stored={}, kafka=kafka(kafka_topic(topic="__remote_log_metadata")), wanted="__remote_log_metadata"),
        Level.NOTE,
        "internal",
    ),
    C.COPY_DISABLED: Case(
        facts(kafka=kafka(kafka_topic(config={"remote.log.copy.disable": "true"}))), Level.NOTE, "copy.disable"
    ),
    C.VERBATIM_RULE: Case(
        facts(stored(stored_partition(publishable_end=None), table=None), verbatim_topics=frozenset({"orders"})),
        Level.NOTE,
        "there is no table",
    ),
    C.TOPIC_LEFT: Case(
        facts(stored(left=2, deleted_ms=NOW - 11 * MINUTE), BESIDE[0], kafka=kafka(BESIDE[1])),
        Level.PERSON,
        "2 segments of it are live",
    ),
    C.OTHER_CLUSTER: Case(
        facts(stored(left=2), beside(clusters=frozenset({"test"}))[0], kafka=kafka(BESIDE[1])),
        Level.NOTE,
        "2 segments of it are live; its segments are of cluster production, and topics of this store that Kafka has "
        "are of cluster test",
    ),
    C.TOPIC_HIDDEN: Case(
        facts(
            stored(left=2),
            kafka=replace(kafka(kafka_topic(topic="other", topic_id="cd" * 16)), hidden=frozenset({"orders"})),
        ),
        Level.NOTE,
        "asked for topic orders",
    ),
    C.SETTINGS_HIDDEN: Case(
        facts(stored(left=2), kafka=kafka(replace(kafka_topic(), config={}, config_refused="not authorized"))),
        Level.NOTE,
        "not authorized",
    ),
    C.TOPIC_GONE: Case(facts(stored(), BESIDE[0], kafka=kafka(BESIDE[1])), Level.NOTE, "ab" * 16),
    C.STATE_MISSING: Case(facts(without_table("state_missing")), Level.PERSON, "what it said"),
    C.STATE_DAMAGED: Case(facts(without_table("corrupt_state")), Level.PERSON, "what it said"),
    C.TABLE_MISMATCH: Case(facts(without_table("owner_mismatch")), Level.PERSON, "what it said"),
    C.TABLE_UNREADABLE: Case(facts(without_table("unavailable")), Level.PERSON, "what it said"),
    C.INDEX_DAMAGED: Case(
        facts(stored(table=None, damaged=(("index/k", Problem("corrupt_object", "fails its checksum")),))),
        Level.PERSON,
        "1 index cannot be read, newest index/k: fails its checksum",
    ),
    C.UNDELETE_DAMAGED: Case(
        facts(stored(undelete_problem=Problem("corrupt_object", "undelete/k does not parse"))),
        Level.PERSON,
        "undelete/k does not parse",
    ),
    C.UNDELETE_NOT_IN_TABLE: Case(
        facts(stored(not_back=NotBack(8, 24, 3))),
        Level.PERSON,
        "8 segments with 24 rows that an undelete was to bring back; still deleted: 3",
    ),
    C.ROWS_NOT_IN_TABLE: Case(
        facts(stored(not_added=NotAdded(2, 1, 30))),
        Level.PERSON,
        "2 segments with rows that the table lacks; first partition 1 offset 30",
    ),
    C.OBJECTS_LOST: Case(facts(stored(lost=("data/a", "kept/b"))), Level.PERSON, "2 objects, first data/a"),
    C.SEGMENTS_LEFT: Case(
        facts(kafka=kafka(kafka_topic(kafka_partition(log_start=100), config={"remote.storage.enable": "false"}))),
        Level.PERSON,
        "2 segments of it",
    ),
    C.TABLE_LOST: Case(
        facts(stored(stored_partition(publishable_end=None), table=None, lost_tables=(("0e", "kafka.orders"),))),
        Level.PERSON,
        "kafka.orders, uuid 0e",
    ),
    C.STORE_LACKS: Case(
        facts(stored={}, lost={"ab" * 16: LostTopic("orders", "kafka.orders", 810)}),
        Level.PERSON,
        "kafka.orders has 810 rows",
    ),
    C.ANOTHER_TABLE: Case(
        facts(stored(others=(("6f1c", "lakehouse.orders"), ("7a", "x.orders")))),
        Level.PERSON,
        "lakehouse.orders, uuid 6f1c, and 1 more",
    ),
    C.MASS_DELETE: Case(
        facts(
            stored(delayed_deletes=(DelayedDelete(segments=3, rows=900, last_ms=NOW - HOUR, due_ms=NOW + 23 * HOUR),))
        ),
        Level.PERSON,
        "900 rows in 3 segments, over half of the table's, were deleted up to 21:13:20 UTC, kept 23 h more",
    ),
    C.FOREIGN_FILES: Case(
        facts(stored(table=table(foreign=("s3://b/x.parquet", "s3://b/y.parquet")))), Level.PERSON, "2 files"
    ),
    C.FOREIGN_COMMITS: Case(
        facts(stored(table=table(foreign_commits=ForeignCommits(41, ("delete", "append"))))),
        Level.PERSON,
        "others committed delete, append after snapshot 41",
    ),
    C.VALUES_DIFFER: Case(
        facts(values={"orders": "string"}), Level.NOTE, "the rule says string, kafka.orders was made for raw"
    ),
    C.QUARANTINED: Case(facts(stored(quarantined={"bad_crc": 2, "undecodable": 1})), Level.PERSON, "3 batches"),
    C.FILES_LEFT_OUT: Case(facts(stored(left_out=("index/k", "index/j"))), Level.PERSON, "2 segments stored without"),
    C.STORED_VERBATIM: Case(facts(stored(verbatim=1)), Level.PERSON, "1 segment"),
    C.STORED_BY_RULE: Case(facts(stored(verbatim_by_rule=2)), Level.NOTE, "2 segments without rows"),
    C.DATA_INSIDE_TABLE: Case(facts(stored(table=table(data_inside=True))), Level.NOTE, "kafka.orders"),
    C.PARTLY_READ: Case(facts(stored(indexes=5000)), Level.NOTE, "2 of 5,000"),
    C.UNSETTLED: Case(facts(stored(unsettled=True)), Level.NOTE, "could not be judged"),
    C.NO_LEADER: Case(facts(kafka=kafka(kafka_topic(kafka_partition(has_leader=False)))), Level.PERSON, "no leader"),
    C.EPOCHS_MISSING: Case(
        facts(kafka=kafka(kafka_topic(kafka_partition(end=160, stable_end=160, start_has_epoch=False)))),
        Level.PERSON,
        "no epoch for its log start 0, and 60 offsets wait",
    ),
    C.KAFKA_BEHIND: Case(facts(kafka=kafka(kafka_topic(kafka_partition(end=60)))), Level.PERSON, "40 offsets below"),
    C.HISTORY_UNREAD: Case(
        facts(kafka=kafka(kafka_topic(kafka_partition(unread=Unread(60, "Unknown broker error"))))),
        Level.PERSON,
        "fails to serve offset 60: Unknown broker error",
    ),
    C.EPOCHS_CUT: Case(
        facts(
            stored(stored_partition(cut_start=60)), kafka=kafka(kafka_topic(kafka_partition(unread=Unread(0, None))))
        ),
        Level.PERSON,
        "offset 0 is tiered, not below the log start 0, and out of range; epochs of the newest copy begin at 60",
    ),
    C.CONFLICTING_SEGMENT: Case(facts(waiting(conflict="index/k")), Level.PERSON, "offset 80 before index/k"),
    C.COPY_STUCK: Case(
        facts(kafka=pending(end=100 + 4 * 1100, pending_ms=NOW - HOUR)), Level.PERSON, "about 4 segments closed"
    ),
    C.PUBLISH_STUCK: Case(facts(unpublished(90)), Level.PERSON, "offsets 80 to 99 wait for a commit 1 min 30 s"),
    C.COLUMNS_WAIT: Case(facts(unpublished(90, pending="no registry")), Level.WAITS, "of their values: no registry"),
    C.DEAD_LETTERS: Case(
        facts(stored(table=table(rows=2000, dead_letters=30))), Level.NOTE, "30 of 2,000 rows of kafka.orders"
    ),
    C.ROWS_BELOW_FLOOR: Case(
        facts(stored(stored_partition(below_floor=(0, 9), below_floor_ms=NOW - HOUR)), kafka=kafka(kafka_topic())),
        Level.PERSON,
        "offsets 0 to 9 are tiered, and the table has no row of them",
    ),
    C.GAP_UNEXPLAINED: Case(
        facts(stored(stored_partition(gaps=(Gap(10, 19, explained=False),)))), Level.PERSON, "offsets 10 to 19"
    ),
    C.OPEN_TRANSACTION: Case(
        facts(kafka=pending(stable_end=105, stable_ms=NOW - 5 * MINUTE)), Level.WAITS, "began at offset 105 5 min ago"
    ),
    C.WAITING_TRANSACTION: Case(facts(waiting(open=WAITING)), Level.WAITS, "offset 90 for the marker of producer 7"),
    C.PUBLISHING: Case(facts(unpublished(3)), Level.WAITS, "offsets 80 to 99"),
    C.COPY_DELAYED: Case(
        facts(
            kafka=kafka(
                kafka_topic(
                    kafka_partition(
                        end=100 + 4 * 1100, stable_end=100 + 4 * 1100, pending_ms=NOW - HOUR, newest_ms=NOW - 1000
                    ),
                    config={"remote.copy.lag.ms": str(7 * HOUR), "remote.copy.lag.bytes": "-1"},
                )
            )
        ),
        Level.WAITS,
        "each waits until its newest record is 25200000 ms old",
    ),
    C.COPYING: Case(facts(kafka=pending(end=100 + 1100)), Level.WAITS, "about 1 segment closed by now"),
    C.NOTHING_CLOSED: Case(facts(kafka=pending()), Level.WAITS, "nothing closed yet; segment open since 22:12:20 UTC"),
    C.STORE_NOT_READ: Case(
        facts(stored={}, store_problem=AWAY, kafka=pending()), Level.NOTE, "what is tiered is not known"
    ),
    C.GAP_EXPLAINED: Case(
        facts(stored(stored_partition(gaps=(Gap(10, 19, explained=True),)))), Level.NOTE, "offsets 10 to 19"
    ),
    C.NOTHING_PRODUCED: Case(
        facts(stored={}, kafka=kafka(kafka_topic(kafka_partition(end=0, stable_end=0, newest_ms=None)))),
        Level.OK,
        "nothing to tier",
    ),
    C.TIERED: Case(
        facts(stored(stored_partition(publishable_end=None), table=None), catalog_problem=AWAY),
        Level.OK,
        "tiered up to offset 100",
    ),
    C.PUBLISHED: Case(facts(), Level.OK, "published up to offset 100"),
}


def found(report: Report, code: CauseCode) -> list[Finding]:
    return [finding for finding in report.all_findings() if finding.code is code]


@pytest.mark.parametrize("code", list(CauseCode))
def test_each_cause_is_found_where_it_is(code: CauseCode) -> None:
    case = CASES[code]
    report = assess(case.facts)
    (finding,) = found(report, code)
    assert str(code) in as_json(report)
    assert str(code) in as_text(report, every_partition=True, every_place=True)
    assert finding.level is case.level
    assert case.says in finding.said
    assert finding.advice == CAUSES[code].advice


@pytest.mark.parametrize("code", [code for code in CauseCode if code is not CauseCode.PUBLISHED])
def test_a_healthy_topic_has_none_of_them(code: CauseCode) -> None:
    assert not found(assess(facts()), code)


@pytest.mark.parametrize("code", list(CauseCode))
def test_only_what_needs_a_person_makes_the_exit_code(code: CauseCode) -> None:
    report = assess(CASES[code].facts)
    assert (report.level() is Level.PERSON) == any(item.level is Level.PERSON for item in report.all_findings())
    assert report.level(Accepted(frozenset((known, None) for known in CauseCode))) is Level.OK


@pytest.mark.parametrize("code", list(CauseCode))
def test_the_manual_has_every_cause_in_the_same_words(code: CauseCode) -> None:
    cause = CAUSES[code]
    advice = f"{cause.advice} {cause.of_deleted}".rstrip()
    row = f"| `{code}` | {cause.level.name.lower()} | {cause.meaning} | {advice} |"
    assert row in OPERATIONS.read_text(encoding="utf-8")


def test_the_manual_has_no_other_cause() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    levels = "|".join(level.name.lower() for level in Level)
    documented = re.findall(rf"^\| `(\w+)` \| (?:{levels}) \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(CauseCode)


def test_words_and_advice_are_short_and_there() -> None:
    for code, cause in CAUSES.items():
        assert cause.meaning, code
        assert cause.advice.endswith((".", "`")), code
        assert "|" not in cause.meaning + cause.advice + cause.of_deleted, code


def test_ages_decide_between_waiting_and_stuck() -> None:
    assert assess(facts(unpublished(59))).level() is Level.WAITS
    assert assess(facts(unpublished(61))).level() is Level.PERSON
    slow = facts(unpublished(61), publish_interval=30.0)
    assert assess(slow).level() is Level.WAITS  # ten intervals
    old = facts(kafka=pending(stable_end=105, stable_ms=NOW - 21 * MINUTE))
    assert found(assess(old), CauseCode.OPEN_TRANSACTION)[0].level is Level.PERSON
    usual = facts(kafka=pending(stable_end=105, stable_ms=NOW - 5000))
    assert not found(assess(usual), CauseCode.OPEN_TRANSACTION)


def test_a_back_fill_that_moves_is_not_stuck() -> None:
    moving = facts(stored(stored_partition(tiered_ms=NOW - MINUTE)), kafka=pending(end=100_000))
    assert [finding.code for finding in found(assess(moving), CauseCode.COPYING)] == [CauseCode.COPYING]
    assert assess(moving).level() is Level.WAITS


def test_time_closes_a_segment_by_the_records_own_timestamps() -> None:
    # A day's worth of segment.ms lies between the first waiting record and the newest: one has closed.
    before = stored(stored_partition(record_ms=NOW - 26 * HOUR))
    rolled = facts(before, kafka=pending(pending_ms=NOW - 25 * HOUR))
    assert found(assess(rolled), CauseCode.COPYING)
    # An idle partition is closed by no record, and after local retention by Kafka itself.
    idle = facts(kafka=pending(pending_ms=NOW - 25 * HOUR, newest_ms=NOW - 25 * HOUR + 1))
    (finding,) = found(assess(idle), CauseCode.NOTHING_CLOSED)
    assert "with the next record, its time is over" in finding.said
    gone = facts(kafka=pending(pending_ms=NOW - 8 * DAY, newest_ms=NOW - 8 * DAY + 1))
    assert found(assess(gone), CauseCode.COPY_STUCK)


def test_without_anything_tiered_size_is_judged_with_care() -> None:
    def asked(end: int) -> Facts:
        part = kafka_partition(end=end, stable_end=end, pending_ms=NOW - HOUR, newest_ms=NOW, record_bytes=1000)
        return facts(stored={}, kafka=kafka(kafka_topic(part)))

    # 1 MiB segments, 1,000 bytes a record, perhaps compressed ten times: ten thousand may still fit into one.
    assert found(assess(asked(10_000)), CauseCode.NOTHING_CLOSED)
    assert found(assess(asked(40_000)), CauseCode.COPY_STUCK)
    assert "none was ever copied" in found(assess(asked(40_000)), CauseCode.COPY_STUCK)[0].said


def test_a_topic_that_is_being_deleted_calls_nobody() -> None:
    """Kafka deletes one segment after another; what an undelete brought back is not counted."""

    def judged(**changes: Any) -> Report:
        topic, there = beside()
        return assess(facts(stored(**changes), topic, kafka=kafka(there, kafka_topic(topic_id="cd" * 16))))

    assert found(judged(left=2), C.TOPIC_LEFT)
    gone_ms = NOW - int(TOPIC_GONE_SECONDS * 1000)
    assert found(judged(left=2, deleted_ms=gone_ms - 1), C.TOPIC_LEFT)
    for report in (judged(left=2, deleted_ms=gone_ms), judged(left=0)):
        assert not found(report, C.TOPIC_LEFT)
        assert found(report, C.TOPIC_GONE)
    assert not found(judged(left_withdrawn=1, deleted_ms=NOW - 9 * MINUTE), C.TOPIC_LEFT)
    (finding,) = found(judged(left_withdrawn=1), C.TOPIC_LEFT)
    assert "rows of 1 withdrawn copy are in the table" in finding.said


def test_a_disk_must_take_one_more_segment() -> None:
    gib = 1024**3

    def said(free: int | None, **config: str) -> list[Finding]:
        topic = kafka_topic(config={"segment.bytes": str(gib), **config})
        return found(assess(facts(store_free_bytes=free, kafka=kafka(topic))), CauseCode.STORE_FULL)

    assert [item.said for item in said(gib - 1)] == ["1024 MiB are free, and a segment may have 1.0 GiB"]
    assert not said(gib)
    assert not said(None)
    assert not said(gib - 1, **{"remote.storage.enable": "false"})  # never comes to us
    assert said(0)


def test_a_burst_after_silence_is_not_stuck() -> None:
    """The last copy was long ago; what waits has come just now."""
    silent = stored(stored_partition(tiered_ms=NOW - 3 * DAY))
    report = assess(facts(silent, kafka=pending(end=100 + 4 * 1100, pending_ms=NOW - 20_000)))
    assert not found(report, CauseCode.COPY_STUCK)
    assert found(report, CauseCode.COPYING)


def test_after_retention_nobody_says_that_nothing_was_ever_copied() -> None:
    part = kafka_partition(log_start=100, end=40_100, stable_end=40_100, pending_ms=NOW - HOUR, record_bytes=1000)
    emptied = stored(partitions={}, table=table(frontiers={0: 100}))
    for report in (
        assess(facts(emptied, kafka=kafka(kafka_topic(part)))),
        assess(facts(stored={}, kafka=kafka(kafka_topic(part)))),
    ):
        (finding,) = found(report, CauseCode.COPY_STUCK)
        assert "ever" not in finding.said
    assert (
        "nothing is left of what was copied below offset 100"
        in found(assess(facts(emptied, kafka=kafka(kafka_topic(part)))), CauseCode.COPY_STUCK)[0].said
    )


def test_what_an_undelete_brought_back_is_not_left_behind() -> None:
    off = kafka(kafka_topic(kafka_partition(log_start=100), config={"remote.storage.enable": "false"}))
    (left,) = found(assess(facts(stored(restored={0: 1}), kafka=off)), CauseCode.SEGMENTS_LEFT)
    assert left.said == "1 segment of it"
    assert not found(assess(facts(stored(restored={0: 2}), kafka=off)), CauseCode.SEGMENTS_LEFT)


def test_a_mass_delete_whose_time_is_over_calls_nobody() -> None:
    def said(due_ms: int) -> tuple[Level, str]:
        (finding,) = found(
            assess(
                facts(stored(delayed_deletes=(DelayedDelete(segments=1, rows=900, last_ms=NOW - HOUR, due_ms=due_ms),)))
            ),
            CauseCode.MASS_DELETE,
        )
        return finding.level, finding.said

    assert said(NOW + 60_000)[0] is Level.PERSON
    level, words = said(NOW)
    assert level is Level.NOTE
    assert "more" not in words
    assert "mass_delete_grace is over: their objects go as soon as nothing else needs them" in words


def test_gaps_below_the_log_start_or_of_a_topic_that_goes_are_explained() -> None:
    gap = (Gap(10, 19, explained=False),)
    below = facts(stored(stored_partition(gaps=gap)), kafka=kafka(kafka_topic(kafka_partition(log_start=20))))
    gone = facts(stored(stored_partition(gaps=gap)), kafka=kafka(kafka_topic(topic_id="cd" * 16)))
    for report in (assess(below), assess(gone)):
        assert not found(report, CauseCode.GAP_UNEXPLAINED)
        assert found(report, CauseCode.GAP_EXPLAINED)
    beside = facts(stored(stored_partition(gaps=gap)), kafka=kafka(kafka_topic(kafka_partition(log_start=19))))
    assert found(assess(beside), CauseCode.GAP_UNEXPLAINED)


def test_the_freshness_target_makes_waiting_a_persons_matter() -> None:
    for late in (facts(kafka=pending()), facts(waiting(open=WAITING)), facts(unpublished(30))):
        assert assess(late).level() is Level.WAITS
        assert assess(replace(late, freshness_target=600.0)).level() is Level.WAITS
        beyond = assess(replace(late, freshness_target=10.0))
        assert beyond.level() is Level.PERSON
        assert "freshness_target is 10 s" in beyond.all_findings()[0].said


def test_a_topic_of_its_own_settings_is_no_fault_and_has_no_partitions() -> None:
    (topic,) = assess(local(remote_storage_enable="false")).topics
    assert not topic.tiered
    assert topic.partitions == ()
    assert topic.level is Level.NOTE


def test_internal_topics_are_shown_when_asked_for() -> None:
    both = kafka(kafka_topic(), kafka_topic(topic="__consumer_offsets", topic_id="cd" * 16, internal=True))
    assert [topic.topic for topic in assess(facts(kafka=both)).topics] == ["orders"]
    named = assess(facts(kafka=both, wanted="__consumer_offsets")).topics
    assert [topic.topic for topic in named] == ["__consumer_offsets"]


def test_a_topic_created_again_is_two() -> None:
    report = assess(facts(stored(), BESIDE[0], kafka=kafka(kafka_topic(topic_id="cd" * 16), BESIDE[1])))
    found_by_id = {topic.topic_id: topic for topic in report.topics}
    assert {topic.topic for topic in report.topics} == {"orders", "other"}
    assert [finding.code for finding in found_by_id["ab" * 16].findings] == [CauseCode.TOPIC_GONE]
    assert found_by_id["cd" * 16].findings == ()


def test_the_worst_topic_comes_first() -> None:
    fine = stored(topic="a-fine", topic_id="01" * 16)
    bad = stored(topic="z-bad", topic_id="02" * 16, quarantined={"bad_crc": 1})
    assert [topic.topic for topic in assess(facts(fine, bad, kafka=None)).topics] == ["z-bad", "a-fine"]


def test_an_absent_store_is_not_an_unknown_topic() -> None:
    codes = {item.code for item in assess(facts(stored={}, store_problem=AWAY, kafka=None, wanted="orders")).findings}
    assert CauseCode.NO_SUCH_TOPIC not in codes


def test_columns_that_do_not_come_for_ten_minutes_need_a_person() -> None:
    report = assess(facts(unpublished(601, pending="no registry")))
    assert [item.level for item in found(report, C.COLUMNS_WAIT)] == [Level.PERSON]
    assert not found(report, C.PUBLISH_STUCK)
