"""Every cause `tierberg status` can name: its stable code, how urgent it is, what it means, what to do.

This is the one place: the report quotes it, `docs/operations.md` repeats it and a test compares the two. A code never
changes its meaning; one that is no longer needed is not used again for something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Level(IntEnum):
    """How urgent: only `PERSON` makes the command exit non-zero."""

    OK = 0
    NOTE = 1  # worth knowing; nothing will change by itself and nothing has to
    WAITS = 2  # goes on by itself
    PERSON = 3  # stays as it is, or gets worse, until somebody acts


class CauseCode(StrEnum):
    """The stable words; what each means is in `CAUSES`."""

    STORE_AWAY = "store_away"
    STORE_SLOW = "store_slow"
    TOPIC_UNREAD = "topic_unread"
    STORE_FULL = "store_full"
    STORE_REFUSES = "store_refuses"
    CATALOG_AWAY = "catalog_away"
    BRIDGE_AWAY = "bridge_away"
    KAFKA_AWAY = "kafka_away"
    KAFKA_CLIENT_MISSING = "kafka_client_missing"
    KAFKA_NOT_ASKED = "kafka_not_asked"
    BROKER_NOT_TIERING = "broker_not_tiering"
    OTHER_PLUGIN = "other_plugin"
    NO_SUCH_TOPIC = "no_such_topic"

    REMOTE_STORAGE_OFF = "remote_storage_off"
    COMPACTED = "compacted"
    INTERNAL_TOPIC = "internal_topic"
    COPY_DISABLED = "copy_disabled"
    VERBATIM_RULE = "verbatim_rule"
    TOPIC_LEFT = "topic_left"
    TOPIC_HIDDEN = "topic_hidden"
    SETTINGS_HIDDEN = "settings_hidden"
    OTHER_CLUSTER = "other_cluster"
    TOPIC_GONE = "topic_gone"
    STATE_MISSING = "state_missing"
    STATE_DAMAGED = "state_damaged"
    TABLE_MISMATCH = "table_mismatch"
    TABLE_UNREADABLE = "table_unreadable"
    TABLE_LOST = "table_lost"
    ANOTHER_TABLE = "another_table"
    STORE_LACKS = "store_lacks"
    INDEX_DAMAGED = "index_damaged"
    UNDELETE_DAMAGED = "undelete_damaged"
    OBJECTS_LOST = "objects_lost"
    SEGMENTS_LEFT = "segments_left"
    FOREIGN_COMMITS = "foreign_commits"  # before what `undelete` and `requeue` cure: they refuse beside it
    FOREIGN_FILES = "foreign_files"
    UNDELETE_NOT_IN_TABLE = "undelete_not_in_table"
    ROWS_NOT_IN_TABLE = "rows_not_in_table"
    MASS_DELETE = "mass_delete"
    VALUES_DIFFER = "values_differ"
    DEAD_LETTERS = "dead_letters"
    QUARANTINED = "quarantined"
    STORED_VERBATIM = "stored_verbatim"
    STORED_BY_RULE = "stored_by_rule"
    FILES_LEFT_OUT = "files_left_out"
    COPY_LOSES_ROWS = "copy_loses_rows"
    COPY_LOST_ROWS = "copy_lost_rows"
    COPY_FAILED = "copy_failed"
    COPY_MAINTENANCE_FAILED = "copy_maintenance_failed"
    COPY_PROGRESS_DAMAGED = "copy_progress_damaged"
    COPY_DEAD_LETTERS = "copy_dead_letters"
    COPY_HOLDS_ROWS = "copy_holds_rows"
    COPY_NEVER_RAN = "copy_never_ran"
    COPY_BEHIND = "copy_behind"
    DATA_INSIDE_TABLE = "data_inside_table"
    PARTLY_READ = "partly_read"
    UNSETTLED = "unsettled"

    NO_LEADER = "no_leader"
    KAFKA_BEHIND = "kafka_behind"
    EPOCHS_CUT = "epochs_cut"
    HISTORY_UNREAD = "history_unread"
    EPOCHS_MISSING = "epochs_missing"
    CONFLICTING_SEGMENT = "conflicting_segment"
    COPY_STUCK = "copy_stuck"
    PUBLISH_STUCK = "publish_stuck"
    ROWS_BELOW_FLOOR = "rows_below_floor"
    GAP_UNEXPLAINED = "gap_unexplained"
    OPEN_TRANSACTION = "open_transaction"
    WAITING_TRANSACTION = "waiting_transaction"
    COLUMNS_WAIT = "columns_wait"
    PUBLISHING = "publishing"
    COPY_DELAYED = "copy_delayed"
    COPYING = "copying"
    NOTHING_CLOSED = "nothing_closed"
    STORE_NOT_READ = "store_not_read"
    GAP_EXPLAINED = "gap_explained"
    NOTHING_PRODUCED = "nothing_produced"
    TIERED = "tiered"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class StatusCause:
    """`level` is the usual one; a report raises `WAITS` to `PERSON` when it takes too long.

    of_deleted: what to do instead where Kafka has the topic no more; empty: the same.
    """

    level: Level
    meaning: str
    advice: str
    of_deleted: str = ""


_C = CauseCode
_WAITS, _NOTE, _PERSON = Level.WAITS, Level.NOTE, Level.PERSON

CAUSES: dict[CauseCode, StatusCause] = {
    # The servers.
    _C.STORE_AWAY: StatusCause(
        _PERSON,
        "the object store does not answer",
        "Mend the store or its credentials; copies, reads of history and publishing resume by themselves.",
    ),
    _C.STORE_SLOW: StatusCause(
        _PERSON,
        "the object store, or the catalog, answers slowly or not any more: topics could not be read in the time of "
        "this command",
        "Ask again with a longer `--deadline`, or for one topic. If it stays so, store, catalog or network are too "
        "slow, or hang: copies and reads of history wait for them, too.",
    ),
    _C.TOPIC_UNREAD: StatusCause(
        _PERSON,
        "the object store answers, and not for what it has of a topic",
        "The error names the object: mend its permissions, or the store. Nothing is known here of such topics; the "
        "others are shown.",
    ),
    _C.STORE_FULL: StatusCause(
        _PERSON,
        "the disk of the store is full, or will not take one more segment",
        "Make room, or give it a larger disk; delete nothing of the store by hand. Copies fail until then "
        "and local disks of brokers grow; copies resume by themselves.",
    ),
    _C.STORE_REFUSES: StatusCause(
        _PERSON,
        "the store answers, and takes no copies",
        "Its answer says why: mounted read-only, a quota, credentials that may not write, too slow. Until it takes "
        "them copies are retried and local disks of brokers grow; copies resume by themselves.",
    ),
    _C.CATALOG_AWAY: StatusCause(
        _PERSON,
        "the Iceberg catalog does not answer",
        "Mend the catalog. Copies and reads go on; tables stand still and catch up by themselves.",
    ),
    _C.BRIDGE_AWAY: StatusCause(
        _PERSON,
        "the bridge does not answer",
        "Start the bridge (`tierberg serve`) and read its log; end one first that runs and says nothing. Until then "
        "copies are retried, local disks of brokers grow, and reads of history fail.",
    ),
    _C.KAFKA_AWAY: StatusCause(
        _PERSON,
        "the brokers do not answer",
        "Check `kafka.bootstrap_servers` and `kafka.properties`, that the address of each broker can be reached from "
        "here, then the brokers. What they did not say is `?`, or is from store and catalog alone.",
    ),
    _C.KAFKA_CLIENT_MISSING: StatusCause(
        _NOTE,
        "nobody could ask Kafka: its client library is not installed",
        "`pip install 'tierberg[kafka]'` where `tierberg status` runs. What follows is from store and catalog alone.",
    ),
    _C.KAFKA_NOT_ASKED: StatusCause(
        _NOTE,
        "Kafka was not asked: what is produced and not yet tiered is not known",
        "Set `kafka.bootstrap_servers`, or pass `--bootstrap-server`.",
    ),
    _C.BROKER_NOT_TIERING: StatusCause(
        _PERSON,
        "the broker runs with remote.log.storage.system.enable=false: it tiers nothing",
        "Set it and the other lines of the README in `server.properties`, then restart brokers one by one.",
    ),
    _C.OTHER_PLUGIN: StatusCause(
        _PERSON,
        "the broker tiers with another plugin",
        "Set remote.log.storage.manager.class.name to io.tierberg.rsm.TierbergRemoteStorageManager once the other "
        "plugin's segments have expired.",
    ),
    _C.NO_SUCH_TOPIC: StatusCause(
        _PERSON,
        "no source knows a topic of this name",
        "Check the name; with Kafka not asked only topics with a tiered segment, or rows in a table, are known.",
    ),
    # Topics.
    _C.REMOTE_STORAGE_OFF: StatusCause(
        _NOTE,
        "not tiered: remote.storage.enable is false on the topic",
        "To tier it: `kafka-configs.sh --bootstrap-server SERVERS --alter --entity-type topics --entity-name TOPIC "
        "--add-config remote.storage.enable=true`. What was tiered before stays as it is.",
    ),
    _C.COMPACTED: StatusCause(
        _NOTE,
        "not tiered: cleanup.policy has compact in it, and Kafka does not tier compacted topics",
        "Nothing, or use another topic with cleanup.policy=delete.",
    ),
    _C.INTERNAL_TOPIC: StatusCause(_NOTE, "not tiered: Kafka does not tier its internal topics", "Nothing."),
    _C.COPY_DISABLED: StatusCause(
        _NOTE,
        "remote.log.copy.disable is true on the topic: nothing new is tiered",
        "Set it to false to go on; local disks of brokers grow meanwhile.",
    ),
    _C.VERBATIM_RULE: StatusCause(
        _NOTE,
        "the first matching rule of `topics` says `mode: verbatim`: new segments are tiered without rows",
        "Nothing, or change the rule: segments tiered later have rows then, and `tierberg requeue TOPIC` gives them to "
        "earlier ones.",
    ),
    _C.TOPIC_LEFT: StatusCause(
        _PERSON,
        "Kafka has no topic of this id any more and has stopped deleting: what is left of it stays, rows too",
        "No bridge answered when the topic was deleted, and Kafka does not ask again. `tierberg topic forget TOPIC` "
        "says what would go, `tierberg topic forget TOPIC --yes` does it.",
    ),
    _C.TOPIC_HIDDEN: StatusCause(
        _NOTE,
        "Kafka does not show this topic to the client that asks: whether it still is there is not known",
        "Give the user of `kafka.properties` the right to describe topics.",
    ),
    _C.SETTINGS_HIDDEN: StatusCause(
        _NOTE,
        "Kafka does not show the settings of this topic to the client that asks: judged as if they were Kafka's own",
        "Give the user of `kafka.properties` the right DescribeConfigs on topics. Until then nobody knows whether it "
        "is tiered, and a copy that is late is seen after a week, or behind two segments of 1 GiB.",
    ),
    _C.OTHER_CLUSTER: StatusCause(
        _NOTE,
        "Kafka has no topic of this id, and is not known to be the topic's own cluster: not judged by what it has",
        "Ask the topic's own cluster, by `--bootstrap-server`. Is it the one that was asked, with none of its topics "
        "left, or gone for good: see `Several clusters in one store` below.",
    ),
    _C.TOPIC_GONE: StatusCause(
        _NOTE,
        "Kafka has no topic of this id any more: it was deleted, perhaps created again; this is the old one's table",
        "Nothing: Kafka deletes its segments, or has. An empty table stays until `tierberg table drop NAME`.",
    ),
    _C.STATE_MISSING: StatusCause(
        _PERSON,
        "the table has files but no recorded state, so nobody may write it",
        "Somebody rolled the table back or rewrote its snapshots. Roll it forward to the newest snapshot with "
        "`tierberg.state` in its summary; rows are safe in the store meanwhile. Where no snapshot has it any more: "
        "`tierberg table drop NAME --unreadable`, and the bridge makes the table anew from the store, without what "
        "other engines wrote: see `A table without recorded state` below.",
    ),
    _C.STATE_DAMAGED: StatusCause(
        _PERSON,
        "the recorded state of the table cannot be read or does not match its hash",
        "Restore the object under `state/` that the head's summary names (bucket versioning, backup); rows are safe "
        "in the store meanwhile. After a restored catalog: `tierberg table drop NAME --unreadable`.",
    ),
    _C.TABLE_MISMATCH: StatusCause(
        _PERSON,
        "the table has other columns of Kafka's, another partitioning or format version than it was made with, or "
        "another owner",
        "Undo what was done to the table. Copies and reads go on. What cannot be undone, as a dropped column: "
        "`tierberg table drop NAME --unreadable`, and the bridge makes the table anew from the store.",
    ),
    _C.TABLE_UNREADABLE: StatusCause(
        _PERSON,
        "the table's metadata cannot be read",
        "Check that metadata and manifests of the table exist and may be read; the message names what failed. After a "
        "restored catalog: `tierberg table drop NAME --unreadable`, and the bridge makes the table anew.",
    ),
    _C.TABLE_LOST: StatusCause(
        _PERSON,
        "the store has a record of a table of the topic, and the catalog and namespace of these settings have none",
        "Are these the bridges' settings? After a change of them see `Another name or namespace` below. A "
        "`catalog.db` that is gone: stop the bridges and restore it. Without a backup they make the table anew from "
        "what Kafka still has; rows that `table_retention` kept are lost to it, and `tierberg undelete TOPIC` may "
        "bring some back.",
        "Of a deleted topic nobody makes the table anew. Where it was dropped, `tierberg table drop UUID` ends it: "
        "objects of the topic's deleted segments go when their grace is over. Where these are not the bridges' "
        "settings, or the catalog was lost, mend that first.",
    ),
    _C.STORE_LACKS: StatusCause(
        _PERSON,
        "the topic's table has rows, and the store has nothing of the topic",
        "Is it the bridges' store, with its disk mounted? Else all index objects of the topic were lost: see `Segments "
        "that the store has lost` below.",
    ),
    _C.ANOTHER_TABLE: StatusCause(
        _PERSON,
        "the topic has another table beside the one of these settings; until it is dropped, data files that either may "
        "name stay in the store",
        "After a catalog that was lost the other one is in its backup, with rows that only it has: restore that first. "
        "Else give all bridges the same `catalog` and `table` rules. Then, with these rules, `tierberg table drop "
        "UUID` of the one that is no longer wanted: see `Another name or namespace` below.",
    ),
    _C.OBJECTS_LOST: StatusCause(
        _PERSON,
        "data files or kept bytes that live segments need are not in the store, or not whole: fetches fail there, and "
        "scans",
        "Restore the named objects; `tierberg verify --topic TOPIC` names all: see `Segments that the store has lost` "
        "below.",
    ),
    _C.SEGMENTS_LEFT: StatusCause(
        _PERSON,
        "tiering is off, and segments below the log start are still in the store, their rows in the table: a delete of "
        "Kafka's failed, and it does not repeat it",
        "With a bridge running, switch `remote.storage.enable` on until they are gone, then off again.",
    ),
    _C.INDEX_DAMAGED: StatusCause(
        _PERSON,
        "segment indexes cannot be read; their topic is not published and these segments are not served",
        "`tierberg verify --topic TOPIC`, then restore the named objects. `unsupported_version`: upgrade this release.",
    ),
    _C.UNDELETE_DAMAGED: StatusCause(
        _PERSON,
        "the record of what `tierberg undelete` brought back cannot be read: its segments are not told from Kafka's",
        "Restore the named object (bucket versioning, backup), or see `A damaged record of an undelete` above. Until "
        "then `tierberg topic forget TOPIC` refuses.",
    ),
    _C.FOREIGN_COMMITS: StatusCause(
        _PERSON,
        "somebody else committed to the table: its rows may be missing, doubled or changed",
        "Put the table back to the snapshot named here with an engine's `rollback_to_snapshot`; it is tagged "
        "`tierberg-before-foreign` and does not expire, and what came after is published again. A requeue or an "
        "undelete of the time since then has to be run again. To take the table as it is, drop the tag: see `Engines` "
        "above.",
    ),
    _C.FOREIGN_FILES: StatusCause(
        _PERSON,
        "the table has files Tierberg did not write: an engine inserted, deleted or rewrote",
        "Find who writes to the table and take the right away, then put the table back as `foreign_commits` says. "
        "Reads through Kafka are not affected.",
    ),
    _C.UNDELETE_NOT_IN_TABLE: StatusCause(
        _PERSON,
        "an undelete died or was refused before its rows came back, or the table was rolled back to before it",
        "`tierberg undelete TOPIC` brings them back, unless one is running; with `--undo` they go again. Until then "
        "nothing of them is removed from the store.",
    ),
    _C.ROWS_NOT_IN_TABLE: StatusCause(
        _PERSON,
        "segments have rows that the table lacks, below what it has: they were first stored without rows, or came "
        "late, or a requeue died before its commit, or the table was rolled back to before it",
        "`tierberg requeue TOPIC` adds them, unless one is running. Reads through Kafka are not affected. Rows that an "
        "engine deleted on purpose: `--accept rows_not_in_table`.",
    ),
    _C.MASS_DELETE: StatusCause(
        _PERSON,
        "over half of the table's rows were deleted within ten minutes; their objects are kept for mass_delete_grace",
        "A mistake: `tierberg undelete TOPIC` brings the rows back. On purpose: nothing, or `--accept mass_delete` "
        "until it is reclaimed. Where the topic's retention explains it, it is a note; so is what `topic forget` "
        "deleted of a topic that Kafka has no more, and, where Kafka was not asked, what looks like retention: set "
        "`kafka.bootstrap_servers`, or a mistake may pass unseen.",
    ),
    _C.VALUES_DIFFER: StatusCause(
        _NOTE,
        "the topic's rule was changed to or from `string`; the table stays as it was made, and new rows come that way",
        "Nothing is lost. Change the rule back, or have a new table made by it: see `Another name or namespace` below.",
    ),
    _C.DEAD_LETTERS: StatusCause(
        _NOTE,
        "rows whose value or key did not decode: their bytes are in the table, their columns are empty",
        "`_kafka_error` of each row says why: see `Dead letters` below. Once that is mended, `tierberg "
        "replay-dead-letters --topic TOPIC`.",
    ),
    _C.QUARANTINED: StatusCause(
        _PERSON,
        "batches whose records cannot become rows: missing from the table, served to Kafka byte for byte",
        "`tierberg inspect segment KEY` shows them, the bridge's log names the segment; `bad_crc`: check the "
        "broker's disk. Once known: `--accept quarantined`.",
    ),
    _C.STORED_VERBATIM: StatusCause(
        _PERSON,
        "segments that could not be converted: their rows are missing from the table, Kafka serves them",
        "Report the reason that the bridge's log gives; after an upgrade `tierberg requeue TOPIC`. Once known: "
        "`--accept stored_verbatim`.",
    ),
    _C.STORED_BY_RULE: StatusCause(
        _NOTE,
        "segments that were tiered while the topic's rule said `mode: verbatim`: the table has no rows of them",
        "Nothing, or `tierberg requeue TOPIC`, which gives them rows.",
    ),
    _C.FILES_LEFT_OUT: StatusCause(
        _PERSON,
        "segments whose producer snapshot was too large to be stored with them: consumers read them, rows of their "
        "open transactions wait for a later segment; a follower that must rebuild from one cannot, until Kafka rolls "
        "the next",
        "Fewer producer ids: look for a client that makes a new producer for each message; a producer snapshot shrinks "
        "with producer.id.expiration.ms. Once known: `--accept files_left_out`.",
    ),
    _C.COPY_LOSES_ROWS: StatusCause(
        _PERSON,
        "rows that Kafka deleted have waited for a projection for over half of its `hold`; then they go unread",
        "Run `tierberg repartition TOPIC`, or find why it does not run. More time: a longer `hold` of the projection. "
        "To let them go: `hold: 0s`, or no such projection.",
    ),
    _C.COPY_LOST_ROWS: StatusCause(
        _NOTE,
        "a projection will never have some offsets: Kafka had deleted them before it read them, and they were held no "
        "longer",
        "A projection that is younger than the topic begins where the table begins. Else: a longer `hold` of the "
        "projection, or more frequent runs.",
    ),
    _C.COPY_FAILED: StatusCause(
        _PERSON,
        "the last run of a projection failed",
        "Do what the message says; the next run begins where the last good one ended.",
    ),
    _C.COPY_MAINTENANCE_FAILED: StatusCause(
        _PERSON,
        "maintenance of a projection failed, and has not gone well since; runs go on",
        "Do what the message says; it is tried again as long as it is due, when the maintenance budget allows. "
        "Until then small files, old snapshots or old rows stay.",
    ),
    _C.COPY_PROGRESS_DAMAGED: StatusCause(
        _PERSON,
        "what a projection says of its progress cannot be read: nothing counts as read, so rows may stay for all of "
        "its hold",
        "`tierberg repartition TOPIC` writes it anew. `unsupported_version`: upgrade this release.",
    ),
    _C.COPY_DEAD_LETTERS: StatusCause(
        _NOTE,
        "records that have no row in a projection, as they did not decode, `select` or `where` failed, or the key is "
        "null: they are in its table of dead letters",
        "`error` of each row there says why. Once that is mended, `tierberg repartition TOPIC --replay`.",
    ),
    _C.COPY_HOLDS_ROWS: StatusCause(
        _WAITS,
        "rows that Kafka deleted stay in the table until a projection has read them",
        "Nothing while `tierberg repartition` runs; it takes them with its next run.",
    ),
    _C.COPY_NEVER_RAN: StatusCause(
        _WAITS,
        "a projection is declared and has never run: it counts as having read nothing",
        "Start `tierberg repartition TOPIC`, or take the projection out of the rule. It needs a person once rows have "
        "waited for over a day and over half of its `hold`.",
    ),
    _C.COPY_BEHIND: StatusCause(
        _WAITS,
        "a projection has not read all that is in the table",
        "Nothing while `tierberg repartition` runs. It needs a person after over a day and over half of its `hold`: "
        "find why no job runs, or why it is too slow.",
    ),
    _C.DATA_INSIDE_TABLE: StatusCause(
        _NOTE,
        "data files lie inside the table's location: an engine's orphan removal can delete what Kafka needs",
        "Keep `remove_orphan_files` away from this table.",
    ),
    _C.PARTLY_READ: StatusCause(
        _NOTE,
        "not all indexes, or tables of the catalog, could be read, for want of time or because one is listed and "
        "denied; counts are of those that were",
        "`--deadline` gives more time for indexes; `tierberg status TOPIC` reads less; `tierberg verify` looks at "
        "every table.",
    ),
    _C.UNSETTLED: StatusCause(
        _NOTE,
        "the topic changed each time it was looked at: much is being deleted, or merged, right now",
        "Ask again in a minute.",
    ),
    # Partitions.
    _C.NO_LEADER: StatusCause(
        _PERSON,
        "the partition has no leader, so nobody copies or serves it",
        "Bring a replica's broker back.",
    ),
    _C.KAFKA_BEHIND: StatusCause(
        _PERSON,
        "Kafka's log lacks what is tiered at its end: an unclean election cut it",
        "The table follows when the new leader's first segment is tiered. Tell readers of the table that rows above "
        "the cut were taken back.",
    ),
    _C.EPOCHS_CUT: StatusCause(
        _PERSON,
        "history that is tiered cannot be read: the leader's epochs begin above it, and it answers OFFSET_OUT_OF_RANGE",
        "Stop that broker now: with a newer first epoch Kafka deletes older history. `tierberg leader-epochs TOPIC "
        "PARTITION` prints the file that mends it: see `History that nobody can read` below.",
    ),
    _C.HISTORY_UNREAD: StatusCause(
        _PERSON,
        "the leader fails to serve records that it has, by its own word; consumers fail there too",
        "Its log and the bridge's say why (`RemoteStorageException`). `tierberg verify --topic TOPIC` names objects "
        "that are lost or damaged: see `Segments that the store has lost` below.",
    ),
    _C.EPOCHS_MISSING: StatusCause(
        _PERSON,
        "the leader's epochs begin above its log start; Kafka copies no segment that lies below them, nor what follows",
        "Move the log start up to the first line of its `leader-epoch-checkpoint`, or mend that file: see `Segments "
        "below all epochs` below.",
    ),
    _C.CONFLICTING_SEGMENT: StatusCause(
        _PERSON,
        "markers contradict the broker's own transaction files, of their segment or another; publishing stops there",
        "`tierberg inspect index KEY`; check that broker's disk. Kafka reads on; the table goes on when retention "
        "has removed the segment.",
    ),
    _C.COPY_STUCK: StatusCause(
        _PERSON,
        "closed segments are not copied",
        "Look for `RemoteStorageException` in the leader's log and for refused copies in the bridge's; both name "
        "segment and cause. See `RemoteCopyErrorsPerSec`. `Custom metadata size … exceeds configured limit` there: set "
        "remote.log.metadata.custom.metadata.max.bytes to 49 or more (128 is the default), restart that broker, and "
        "then `tierberg undelete TOPIC`: Kafka has deleted what it had copied, as if it would never copy it again.",
    ),
    _C.PUBLISH_STUCK: StatusCause(
        _PERSON,
        "tiered segments are not published though nothing holds them back",
        "Is a bridge with this store and catalog running? If so, its log says `publishing failed` and why.",
    ),
    _C.COLUMNS_WAIT: StatusCause(
        _WAITS,
        "rows of a typed topic were stored before their columns could be had: registry or catalog away, a schema in "
        "the middle of a segment, or `decode_budget` used up",
        "They follow by themselves once what is named answers. After ten minutes: `tierberg config check TOPIC` asks "
        "the registry; the bridge's log has a line `rows wait for a schema` with each id and the registry's answer. "
        "Kafka reads on.",
    ),
    _C.ROWS_BELOW_FLOOR: StatusCause(
        _PERSON,
        "Kafka has offsets again that it had deleted; they are tiered and served, and the table has no row of them",
        "A leader without the log had led, deleted, and lost; or tiering was switched off with "
        "`remote.log.delete.on.disable` and on again while brokers had the log on their disks; or copies were made "
        "again whose metadata had been too large for the broker. `tierberg undelete TOPIC` while the deletion is in "
        "the store; after that have the table made anew from its segments: see `Another name or namespace` below.",
    ),
    _C.GAP_UNEXPLAINED: StatusCause(
        _PERSON,
        "tiered or published offsets that no index covers, and no log start explains",
        "Was tiering switched off and on, or were records deleted? Else an index object was lost: restore it, or see "
        "`Segments that the store has lost` below.",
    ),
    _C.OPEN_TRANSACTION: StatusCause(
        _WAITS,
        "a transaction is open in Kafka; Kafka copies no segment that reaches above its first record",
        "It ends by itself within transaction.max.timeout.ms (15 min). Later: `kafka-transactions.sh find-hanging`, "
        "then `abort`.",
    ),
    _C.WAITING_TRANSACTION: StatusCause(
        _WAITS,
        "publishing waits for the marker of a transaction whose first rows are tiered",
        "It goes on when the segment with the marker has closed and is tiered; a smaller `segment.ms` makes that "
        "sooner, `peek.later.txn.indexes` in the brokers' settings does without.",
    ),
    _C.PUBLISHING: StatusCause(_WAITS, "tiered a moment ago, in the table with the next commit", "Nothing."),
    _C.COPY_DELAYED: StatusCause(
        _WAITS,
        "closed segments are held back on purpose: the topic has `remote.copy.lag.ms` and `.bytes` (Kafka 4.4)",
        "Nothing, or set `remote.copy.lag.ms` to 0: tables are as much later as it says.",
    ),
    _C.COPYING: StatusCause(
        _WAITS,
        "a segment has closed and is about to be copied",
        "Nothing. Kafka looks for work every remote.log.manager.task.interval.ms (30 s).",
    ),
    _C.NOTHING_CLOSED: StatusCause(
        _WAITS,
        "what is not tiered lies in a segment that is still open; only closed segments are tiered",
        "For fresher tables set a smaller `segment.ms` on the topic.",
    ),
    _C.STORE_NOT_READ: StatusCause(
        _NOTE,
        "the store was not read: how far the partition is tiered is not known",
        "The finding `store_away` or `store_slow` says why.",
    ),
    _C.GAP_EXPLAINED: StatusCause(
        _NOTE,
        "offsets that were never tiered because Kafka had already deleted them",
        "Nothing.",
    ),
    _C.NOTHING_PRODUCED: StatusCause(Level.OK, "the partition is empty", "Nothing."),
    _C.TIERED: StatusCause(
        Level.OK,
        "everything closed is tiered; it has no table, or none that could be read",
        "Nothing, unless another line says why the table could not be read.",
    ),
    _C.PUBLISHED: StatusCause(Level.OK, "everything tiered is in the table", "Nothing."),
}
