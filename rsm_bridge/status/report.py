"""What `tierberg status` says: findings, and how far each partition has come. Made by assess.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rsm_bridge.metrics.progress.facts import Gap, UnfinishedTransaction, WaitingRows
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.storage.projections.progress import ProjectionFailure, ProjectionSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause at one place. `partition` is None for a whole topic, `topic` None for servers.

    `said` is one sentence with the figures; `level` can be higher than the cause's usual one. `since_ms`: when it began
    or was last met, as far as somebody said; None: nobody did. `topic_id`: 32 hex digits, where the report has several
    topics of the name. `named`: what capitals of the advice beside those of the place stand for, as (`UUID`, value).
    of_deleted: Kafka has the topic no more, and the advice is that for deleted topics, where the cause has one.
    """

    code: CauseCode
    level: Level
    said: str
    topic: str | None = None
    partition: int | None = None
    since_ms: int | None = None
    topic_id: str | None = None
    named: tuple[tuple[str, str], ...] = ()
    of_deleted: bool = False

    @property
    def advice(self) -> str:
        """What to do about it, wherever it is: cures.py has it for this place."""
        cause = CAUSES[self.code]
        return cause.of_deleted if self.of_deleted and cause.of_deleted else cause.advice


@dataclass(frozen=True, slots=True)
class Accepted:
    """Causes that are known and call nobody: each anywhere (None), or of one topic."""

    causes: frozenset[tuple[CauseCode, str | None]] = frozenset()

    def has(self, finding: Finding) -> bool:
        """Whether this finding is one of them."""
        return bool({(finding.code, None), (finding.code, finding.topic)} & self.causes)


NOTHING_ACCEPTED = Accepted()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """Produced → closed → tiered → published; ends are exclusive offsets, None where nobody could say.

    Attributes:
        log_start: Kafka's first offset.
        produced_end: Kafka's end.
        stable_end: its last stable offset.
        closed_end: equal to `tiered_end` when nothing beyond it has closed; None when something may have, since Kafka
            tells nobody where its open segment begins.
        tiered_end: end of what is in the store.
        published_end: the table's frontier.
        newest_ms: newest record timestamp in Kafka.
        pending_ms: timestamp of the first record that is not tiered.
        tiered_ms: when the newest segment was tiered.
        unpublished_ms: when the oldest segment that is not published was tiered.
        waiting: the transaction publishing waits for.
        lag_s: age of the oldest record known that is not in the table; 0 when there is none.
        findings: worst first, never empty; the first one's code is the partition's cause.
        gaps: every stretch of offsets that no index covers.
    """

    partition: int
    log_start: int | None
    produced_end: int | None
    stable_end: int | None
    closed_end: int | None
    tiered_end: int | None
    published_end: int | None
    newest_ms: int | None
    pending_ms: int | None
    tiered_ms: int | None
    unpublished_ms: int | None
    waiting: UnfinishedTransaction | None
    lag_s: float
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...] = ()

    @property
    def cause(self) -> CauseCode:
        """Why it is where it is."""
        return self.findings[0].code

    @property
    def level(self) -> Level:
        """The worst finding's."""
        return self.findings[0].level


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionReport:
    """One declared projection of a topic's table. Times in milliseconds since the epoch, None: never.

    Attributes:
        table: its name, namespaces first; `catalog`: of its catalog.
        snapshot_id: of the topic's table, which it has read; `table_snapshot_id`: the one of now.
        succeeded_ms: its last run that succeeded; `caught_up_ms`: the last that left nothing unread.
        lag_offsets: offsets of the table it has not read; `lag_rows`: rows there.
        lag_s: seconds since it had caught up, 0 when it has now; None: it never had.
        hold_s: seconds that rows which Kafka deleted may wait for it.
        waiting: those that do now, and `waiting_s` seconds until the first of them may go; None: none.
        size: of the projection; `failure`: of its last run; `failed_chores`: of its maintenance, by chore.
        dead_letters: rows of its table of dead letters.
        lost_offsets: that it will never have; `lost_ms`: when a run last met some.
    """

    table: str
    catalog: str
    snapshot_id: int | None
    table_snapshot_id: int | None
    succeeded_ms: int | None
    caught_up_ms: int | None
    lag_offsets: int
    lag_rows: int
    lag_s: float | None
    hold_s: float
    waiting: WaitingRows | None
    waiting_s: float | None
    size: ProjectionSize | None
    failure: ProjectionFailure | None
    failed_chores: Mapping[str, ProjectionFailure]
    dead_letters: int
    lost_offsets: int
    lost_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic id. `tiered` is False when the topic's own settings keep it local and nothing of it is in the store.

    `damaged`: keys of all indexes that cannot be read. `clusters`: names that its segments have. `namesakes`: other
    topics of the report have the name.
    """

    topic: str
    topic_id: str
    table: str | None
    committed_ms: int | None
    tiered: bool
    foreign_files: int
    quarantined: int
    findings: tuple[Finding, ...]
    partitions: tuple[PartitionReport, ...]
    projections: tuple[ProjectionReport, ...] = ()
    damaged: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    namesakes: bool = False

    def told_apart(self) -> TopicReport:
        """The same with its id at every finding, for a report where others have its name."""

        def named(findings: Iterable[Finding]) -> tuple[Finding, ...]:
            return tuple(replace(finding, topic_id=self.topic_id) for finding in findings)

        parts = tuple(replace(part, findings=named(part.findings)) for part in self.partitions)
        return replace(self, findings=named(self.findings), partitions=parts, namesakes=True)

    @property
    def level(self) -> Level:
        """The worst of the topic's and its partitions' findings."""
        return max([finding.level for finding in self.all_findings()], default=Level.OK)

    def all_findings(self) -> Iterable[Finding]:
        """The topic's own, then its partitions'."""
        yield from self.findings
        for partition in self.partitions:
            yield from partition.findings


@dataclass(frozen=True, slots=True)
class Report:
    """The whole answer. `findings` are the servers', `topics` come worst first."""

    at_ms: int
    freshness_target: float | None
    findings: tuple[Finding, ...]
    topics: tuple[TopicReport, ...]

    def all_findings(self) -> list[Finding]:
        """Every finding, worst first; of equals servers before topics."""
        found = [*self.findings, *(finding for topic in self.topics for finding in topic.all_findings())]
        return worst_first(found)

    def level(self, accepted: Accepted = NOTHING_ACCEPTED) -> Level:
        """The worst level of all findings that are not accepted."""
        return max([item.level for item in self.all_findings() if not accepted.has(item)], default=Level.OK)


_ORDER = {code: number for number, code in enumerate(CauseCode)}


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By level, and in the order of the enumeration, which puts causes before their effects; of equals the newest."""
    return sorted(findings, key=lambda item: (-item.level, _ORDER[item.code], -(item.since_ms or 0)))
