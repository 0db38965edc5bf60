"""What `tierberg status` knows before it judges: one place per source, and None wherever a source did not say.

Offsets are Kafka's; `*_end` is exclusive. Times are milliseconds since the epoch: of records as producers or brokers
stamped them, of index objects by the store's clock, of commits by the bridge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_catalog.commit.foreign import ForeignCommits
from iceberg_catalog.plan.types import Runs
from rsm_bridge.storage.keys import parse_index_key
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.storage.projections.progress import ProjectionProgress


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, last] (inclusive) between tiered segments that no index covers.

    `explained`: a later copy brought a log start beyond the gap, so Kafka itself no longer has these records.
    """

    first: int
    last: int
    explained: bool


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Offsets from `first` on that only copies have which Kafka withdrew, the first of them at `since_ms`."""

    first: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class UnfinishedTransaction:
    """A transaction whose marker is in no tiered segment; `since_ms`: when its first row was tiered."""

    first_offset: int
    producer_id: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """What the store's index objects say of one partition.

    Attributes:
        segments: live indexes.
        start: lowest offset of them.
        tiered_end: the end of what is tiered of the newest history; what an unclean election cut off may lie above.
        history: leader epochs of that, each with its first offset.
        tiered_ms: when the newest segment was tiered, by the store's clock.
        record_ms: the newest record timestamp that is tiered.
        source_bytes: log bytes of the live segments as brokers had them, which `tiered_end - start` offsets took.
        publishable_end: what the publish plan reaches with what is stored now; None without the table's state.
        unpublished_ms: when the oldest segment beyond the table's frontier was tiered.
        open: the transaction that publishing waits for.
        conflict: key of the segment whose markers contradict the broker's files, when publishing waits before it.
        gaps: stretches that were never uploaded.
        covered_from: where what was deleted begins that lies right below `start`, or below which the table's floor
            explains that nothing is there; None: not known.
        cut_start: where the leader epochs of the newest copy begin, when live segments lie wholly below; None: none do.
        pending: why the first segment beyond the table's frontier was stored without its typed columns, if it was.
        below_floor: rows of live segments, or of a part of one, that a table which follows Kafka has none of, because
            they lie below what Kafka had deleted: from the first to the last of their offsets; below_floor_ms: when the
            newest of these segments was tiered.
    """

    segments: int
    start: int
    tiered_end: int
    tiered_ms: int
    record_ms: int
    source_bytes: int
    history: Runs = ()
    publishable_end: int | None = None
    unpublished_ms: int | None = None
    open: UnfinishedTransaction | None = None
    conflict: str | None = None
    gaps: tuple[Gap, ...] = ()
    covered_from: int | None = None
    pending: str | None = None
    cut_start: int | None = None
    below_floor: tuple[int, int] | None = None
    below_floor_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The topic's table. `frontiers`: first offset not published, by partition. `committed_ms`: its last commit.

    `foreign`: files that others added; `foreign_commits`: what others did, also where no file of theirs is left.
    `values`: what it was made for, `raw` or `string`. `data_inside`: data files lie under the table's own location,
    where engines look for orphans. `dead_letters`: rows with an error, of `rows`.
    """

    name: str
    frontiers: Mapping[int, int]
    committed_ms: int | None
    foreign: tuple[str, ...] = ()
    foreign_commits: ForeignCommits | None = None
    data_inside: bool = False
    values: str = "raw"
    rows: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """What a source answered instead of facts: the stable kind of the error, one sentence, the table's full name."""

    kind: str
    message: str
    table: str | None = None


def problem_of(error: BaseException) -> Problem:
    """Kind and one sentence of any exception, and the table that it is about."""
    kind = getattr(error, "kind", None)
    said = f"{type(error).__name__}: {first_line(error)}"
    return Problem(kind if isinstance(kind, str) else "unavailable", said, getattr(error, "table", None))


@dataclass(frozen=True, slots=True)
class DelayedSegment:
    """One segment that a mass delete took, as it was then.

    Attributes:
        bytes: of its log, at the broker.
        age_ms: of the newest record of it and of those below that went with it; None: its records have no time.
        tiered_ms: since its copy began, by the broker's clock.
        old: it had been tiered for ten minutes or more when the first of all was deleted. What came and went meanwhile
            is traffic.
    """

    bytes: int
    age_ms: int | None
    tiered_ms: int
    old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedPart:
    """What a mass delete took of one partition, in log bytes at the broker.

    Attributes:
        left_bytes: of what was left, and is tiered by now: it is live, or went later; what is reclaimed by now is
            estimated, and may have come later.
        largest_bytes: of the largest segment.
        tiered_end: the end of what was ever tiered.
        bytes_per_offset: of all these segments.
        pause_ms: the longest between two copies, or the last one and the delete, by the broker's clock.
    """

    partition: int
    segments: tuple[DelayedSegment, ...]
    left_bytes: int
    largest_bytes: int
    tiered_end: int
    bytes_per_offset: float
    pause_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedDelete:
    """A mass delete whose objects are still in the store: its segments and rows, when it ended, when it is reclaimed.

    `parts`: what Kafka deleted, one for each partition. `restored`: how many segments an undelete had brought back.
    `unsure`: indexes that cannot be read may have so many rows that it is none. `forgotten`: not Kafka did it, but
    `tierberg topic forget`.
    """

    segments: int
    rows: int
    last_ms: int
    due_ms: int
    parts: tuple[DelayedPart, ...] = ()
    restored: int = 0
    unsure: bool = False
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """What stays in a table for one projection though Kafka deleted it; from `ends_ms` on the first of it may go."""

    rows: int
    files: int
    bytes: int
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionFacts:
    """A declared projection of a topic's table.

    Attributes:
        table: its name, namespaces first; `catalog`: of its catalog.
        hold_s: how long rows that Kafka deleted may wait for it, seconds.
        progress: what it says of itself; None: it never ran, or `damage` says why that cannot be read.
        snapshot_id: of the topic's table now.
        lag_offsets: of all partitions, from what it has read to the table's frontier.
        lag_rows: that the table's files say they have there; of one that is read in part at most as many as offsets.
        unread_ms: when the oldest live segment that it has not read whole was tiered; None: there is none.
        waiting: what waits for it; None: nothing.
    """

    table: str
    catalog: str
    hold_s: float
    progress: ProjectionProgress | None
    damage: Problem | None
    snapshot_id: int | None
    lag_offsets: int
    lag_rows: int = 0
    unread_ms: int | None = None
    waiting: WaitingRows | None = None


@dataclass(frozen=True, slots=True)
class NotBack:
    """Segments that an undelete was to bring back, and their rows, which the table has not.

    `still`: how many of them are still deleted.
    """

    segments: int
    rows: int
    still: int = 0


@dataclass(frozen=True, slots=True)
class NotAdded:
    """Segments of whose rows the table lacks some below the frontier; the first missing offset's place."""

    segments: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """What store and catalog say of one topic id.

    Attributes:
        topic_id: 32 hex digits.
        clusters: names that its segments have, of those that were read.
        partitions: those with live segments or published rows.
        quarantined: batches of live segments whose records are withheld, by cause; `quarantined_key` has some.
        verbatim: live segments stored as they are because their conversion failed; `verbatim_key` is one.
        verbatim_by_rule: live segments stored as they are because the rule of the topic said so then.
        withheld_ms: when the newest segment with batches withheld, or that failed, was tiered.
        delayed_deletes: mass deletes that can still be undone.
        indexes, indexes_read: index objects listed, and how many of them were looked into before the deadline.
        damaged: (key, problem) of indexes that cannot be read, each found so twice in the same content, newest first;
            `damaged_ms`: when the newest of these objects was written.
        table: None when there is none, or `table_problem` says why it could not be read.
        projections: declared ones, where the table could be read and all indexes were looked at.
        left: live segments, without those that an undelete brought back; restored: these, by partition.
        deleted_ms: when Kafka last deleted one.
        forgotten: `tierberg topic forget` took the last of it, and nothing of it is live.
        left_out: index keys of live segments stored without their producer snapshot, which was too large, newest first.
        left_withdrawn: copies that Kafka withdrew with rows in the table that no deletion has reached.
        others: (uuid, name) of other tables that the store has records of; none while nobody knows the topic's own.
        lost_tables: (uuid, name) of those it has records of, where the catalog has no table of the topic.
        lost: keys of objects that live segments need and the store does not have, of one that it has cut with its size;
            known where all were looked at.
        unindexed: by partition, published offsets of which the store has no index, live or deleted, up to the frontier.
        unsettled: indexes or the table changed under every look, so that nothing is said of publishing.
        withdrawn: by partition, what above all other copies Kafka has withdrawn and not copied again.
        undelete_problem: why the record of what undeletes brought back cannot be read: it counts as none.
        not_back: what an undelete that is not in the table was to bring back; None: there is none.
        not_added: what a requeue would add below the frontier; None: nothing.
    """

    topic: str
    topic_id: str
    partitions: Mapping[int, StoredPartition]
    clusters: frozenset[str] = frozenset()
    quarantined: Mapping[str, int] = field(default_factory=dict)
    quarantined_key: str | None = None
    verbatim: int = 0
    verbatim_key: str | None = None
    verbatim_by_rule: int = 0
    delayed_deletes: tuple[DelayedDelete, ...] = ()
    indexes: int = 0
    indexes_read: int = 0
    damaged: tuple[tuple[str, Problem], ...] = ()
    table: TableFacts | None = None
    table_problem: Problem | None = None
    projections: tuple[ProjectionFacts, ...] = ()
    left: int = 0
    restored: Mapping[int, int] = field(default_factory=dict)
    left_withdrawn: int = 0
    left_out: tuple[str, ...] = ()
    deleted_ms: int | None = None
    forgotten: bool = False
    others: tuple[tuple[str, str], ...] = ()
    lost_tables: tuple[tuple[str, str], ...] = ()
    unsettled: bool = False
    unindexed: Mapping[int, Gap] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    withheld_ms: int | None = None
    damaged_ms: int | None = None
    withdrawn: Mapping[int, Withdrawn] = field(default_factory=dict)
    undelete_problem: Problem | None = None
    not_back: NotBack | None = None
    not_added: NotAdded | None = None

    @property
    def damaged_offsets(self) -> dict[int, list[tuple[int, int]]]:
        """By partition, first and last offset of the indexes that cannot be read: their keys say these."""
        found: dict[int, list[tuple[int, int]]] = {}
        for key in (parse_index_key(name) for name, _ in self.damaged):
            if key is not None:
                found.setdefault(key.partition, []).append((key.base, key.last))
        return found


@dataclass(frozen=True, slots=True)
class Unread:
    """An offset that a leader does not serve, and its error; `why` None: it says that the offset is out of range."""

    offset: int
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """What the broker says of one partition.

    `stable_end` is the last stable offset: what lies above belongs to, or follows, an open transaction, whose first
    record has the timestamp `stable_ms`. `pending_ms`: timestamp of the first record that is not tiered, and
    `record_bytes` its uncompressed size; `newest_ms`: the newest timestamp of all, which `newest_offset` has,
    of the leader epoch `newest_epoch`.
    `unread`: an offset at or above the log start that the leader does not serve: the lowest tiered one, or the first
    that is not tiered. `start_has_epoch`: False when the leader's epochs begin above its log start. `leader`: its id
    and address.
    """

    has_leader: bool
    log_start: int | None = None
    end: int | None = None
    stable_end: int | None = None
    stable_ms: int | None = None
    pending_ms: int | None = None
    record_bytes: int | None = None
    newest_ms: int | None = None
    newest_offset: int | None = None
    newest_epoch: int | None = None
    unread: Unread | None = None
    start_has_epoch: bool = True
    leader: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """A topic as Kafka has it; `config` holds the topic's effective settings, `topic_id` 32 hex digits.

    `config_refused`: why Kafka does not show the settings to who asks; None: it does.
    """

    topic: str
    topic_id: str
    internal: bool
    config: Mapping[str, str]
    partitions: Mapping[int, KafkaPartition]
    config_refused: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """One cluster. `broker_config`: effective settings of one of its brokers, empty when they may not be read.

    `hidden`: names of stored topics that are not among `topics` and that Kafka does not say to be unknown either.
    `unanswered`: which brokers did not answer though others did; None: all did.
    """

    topics: Mapping[str, KafkaTopic]
    broker_config: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    unanswered: str | None = None


@dataclass(frozen=True, slots=True)
class LostTopic:
    """A topic of which the store has nothing; `table` is its name, namespaces first, and has `rows`."""

    topic: str
    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything one report is made from.

    Attributes:
        now_ms: when it was gathered.
        freshness_target: seconds a record may take into the table; None: no promise was made.
        publish_interval: seconds, of the settings.
        wanted: only this topic; None: all.
        stored: by topic id.
        verbatim_topics: topics whose rule says `mode: verbatim`.
        lost: by topic id, topics that the store has nothing of and whose table has rows.
        tables_unread: why not every table of the catalog was looked at for such topics; None: all were.
        values: by topic, what its rule would have a new table made for.
        store_problem, catalog_problem, kafka_problem, bridge_problem: the source did not answer. A Kafka problem of
            kind `kafka_client_missing` means that nobody could ask.
        topics_unread: ids of topics that the store has something of, and for which time did not suffice.
        store_unread: how many were read then; None: all.
        store_stalled: the same, where for long none was done any more.
        store_failed: by id of a topic, why the store did not give what it has of it.
        store_free_bytes: what the store's disk still takes; None: it does not say.
        store_refusal: why the store, which answers, takes no copies of the bridge; None: it does, or nobody says.
        kafka: None when it was not asked or did not answer.
        kafka_clusters: names of clusters on topics beside `stored` that Kafka has by id.
    """

    now_ms: int
    freshness_target: float | None
    publish_interval: float
    wanted: str | None = None
    stored: Mapping[str, StoredTopic] = field(default_factory=dict)
    verbatim_topics: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, LostTopic] = field(default_factory=dict)
    tables_unread: str | None = None
    store_problem: Problem | None = None
    catalog_problem: Problem | None = None
    kafka_problem: Problem | None = None
    bridge_problem: Problem | None = None
    topics_unread: frozenset[str] = frozenset()
    store_unread: str | None = None
    store_stalled: str | None = None
    store_failed: Mapping[str, Problem] = field(default_factory=dict)
    store_free_bytes: int | None = None
    store_refusal: str | None = None
    kafka: KafkaFacts | None = None
    kafka_clusters: frozenset[str] = frozenset()


PLUGIN_CLASS = "io.tierberg.rsm.TierbergRemoteStorageManager"


def why_nothing(broker_config: Mapping[str, str]) -> tuple[str, str] | None:
    """Why a broker with these settings gives a bridge nothing: the code of the cause, and what it says; else None."""
    if broker_config.get("remote.log.storage.system.enable") == "false":
        return "broker_not_tiering", "remote.log.storage.system.enable=false"
    plugin = broker_config.get("remote.log.storage.manager.class.name")
    if plugin not in (None, "", PLUGIN_CLASS):
        return "other_plugin", f"the broker's plugin is {plugin}"
    return None
