"""Every limit of the bridge that is not a setting. Units are last in the names.

A limit here protects the process; what an operator may want to change is in `config/settings.py`.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

PROTOCOL_VERSION = 1

# What one message may hold. A copy's frame, or a piece of a file beside the log, is at most 1 MiB + 64 KiB. The first
# message of a copy has the metadata of a segment of LEADER_EPOCHS_MAX epochs, and LATER_INDEX_BYTES_MAX; a request to
# fetch or to delete has names and ids alone.
FRAME_BYTES_MAX = MIB + 64 * KIB
MESSAGE_BYTES_MAX = MIB + 256 * KIB
REQUEST_BYTES_MAX = 64 * KIB
LEADER_EPOCHS_MAX = 20_000  # of one segment; every restart of a broker is one
OFFSET_MAX = 2**63 - 2  # so that the offset after it is one
LATER_INDEXES_MAX = 32  # transaction indexes of later segments that come with a copy
LATER_INDEX_BYTES_MAX = 256 * KIB  # of all of them together
NAME_CHARS_MAX = 1024
SEGMENT_BYTES_MAX = 2**31 - 1  # Kafka's segment.bytes is an int32

# Keys of the store, UTF-8. Folders and several servers allow 255 bytes per part, of which a file that is being written
# takes 22 for its number; all stores allow 1,024 in all, with the root's own prefix.
KEY_PART_BYTES_MAX = 232
KEY_BYTES_MAX = 1024

# Copies.
COPY_QUEUE_FRAMES_MAX = 5  # between the event loop and the worker of one copy
COPY_FILES_BYTES_MAX = 128 * MIB  # of the files beside a log, but OFFSET: a snapshot of 2.8 million producer ids
COPY_FILES_BYTES_USUAL = 32 * MIB  # copies with more of them take turns: serving/scheduling/copy_memory.py
COPY_MEMORY_BYTES = 128 * MIB  # what one running copy is charged against the memory budget
LARGE_VALUE_BYTES = 256 * MIB  # what a value of converter.limits.VALUE_CELLS_MAX takes while it becomes columns
LARGE_FILES_BYTES = 2 * COPY_FILES_BYTES_MAX  # and what large files beside a log take while they become an index
REWRITE_BYTES = 192 * MIB  # what a data file takes while it is written anew; tables take turns with it
REWRITE_LOOK_UP_SECONDS = 2.0  # that look-ups of schemas may be waited for while others wait for that; they go on
REWRITE_WAIT_SECONDS = 5.0  # of a publisher, for its turn with that; then others have its worker, and it tries again
LARGE_WAIT_SECONDS_MAX = 1800.0  # of the publisher, for its turn with a large value; of a merge, with a data file
LARGE_TURN_CHECK_SECONDS = 0.5  # a copy that waits for its turn with a large batch or value looks whether it is wanted
HEARTBEAT_SECONDS = 2.0
COPY_SECONDS_MAX = 3600.0  # after this no index is put, whatever the client's deadline
COPY_WAIT_SECONDS_MAX = 1800.0  # for a place; half of COPY_SECONDS_MAX is left for the copy itself
KERNEL_LOADING_SECONDS = 5.0  # loading compiled kernels takes half a second; what takes longer is compiling, and said
KERNEL_FILL_SECONDS = 10.0  # for another start in the same folder, which copies 20 MB
KERNEL_BYTES_FREE_MIN = 128 * MIB  # where there are none yet: all of them compiled, a few times over
START_SECONDS_MAX = 10.0  # from the beginning of a copy's call to its first message
FRAME_WAIT_SECONDS_MAX = 60.0  # a client that sends nothing for so long is gone
CONTENDED_SILENCE_SECONDS = 5.0  # and for so long while copies of others wait for its place
COPY_RATE_MIN_BYTES = 256 * KIB  # a second, in all, while they do; a segment of 1 GiB takes COPY_SECONDS_MAX so
PEER_TICK_SECONDS = 0.5  # between two looks at whether a peer is overdue
ANSWER_SECONDS_MAX = 60.0  # a peer that takes nothing for so long is gone
STREAMS_PER_CONNECTION_MAX = 512  # calls of one connection; a client keeps further ones until some end
HOST_SHARE = 3  # calls of one host for each that is left to others: serving/scheduling/peers.py
CANCEL_NOTICE_SECONDS = 0.5  # from the end of a cancelled call's messages until gRPC tells of the cancellation
COPY_PAUSE_SECONDS_MAX = 0.1  # between two steps, while fetches wait
AHEAD_PAUSE_SECONDS_MAX = 0.5  # before a chunk that nobody waits for is decoded, while others are
UPLOAD_PART_BYTES = 8 * MIB
UPLOAD_PARTS_IN_FLIGHT_MAX = 2

# What `tierberg verify` finds wrong in a table it looks for again, while bridges go on.
VERIFY_LOOKS_MAX = 5

# Fetches.
FETCH_FRAME_BYTES = 256 * KIB
FETCH_CLAIM_SECONDS = 0.1  # a fetch whose reader takes a frame later than that holds up no copy
WARM_UP_BYTES = 64 * KIB  # zeros for a plugin that has just started
FETCH_CHUNK_BYTES = MIB  # aim for the served bytes of one cached chunk
FETCH_CHUNK_BYTES_MAX = SEGMENT_BYTES_MAX  # one batch may be nearly a segment; what claims more is damaged
DIRECTORY_FRESH_SECONDS = 15.0  # after this a cached directory is compared with the store again
INDEX_RENEWALS_MAX = 3  # times one read starts again because a merge wrote the segment's index anew
READ_AHEAD_CHUNKS = 3  # behind the one being sent
READ_AHEAD_BYTES = 5 * MIB  # read and decoded in one go: four chunks, each a little more than 1 MiB
FETCH_PATIENCE_SECONDS = 5.0  # what a read gets when the store is slower than `store.fetch_timeout`
SLOW_STORE_SECONDS = 10.0  # after a read that took longer than that, reads begin with patience
INDEX_HEADS_MAX = 64  # starts of indexes, of at most INDEX_HEAD_BYTES each unless the directory is larger
INDEX_HEAD_BYTES = 256 * KIB  # first read of an index whose directory size is not known

# Control calls.
DELETE_SECONDS_MAX = 10.0
LATE_COPY_SECONDS = 15.0  # a tombstone without an index stays so long, whatever reclaim_grace: a copy may be on its way
LATE_PUT_SECONDS = 600.0  # how long after its deadline another bridge's put, with all retries, may still land
COPY_RECHECK_SECONDS = 1.0  # a tombstone waits for a copy of this process: look again
OTHER_TABLE_RECHECK_SECONDS = 60.0  # a tombstone waits for another table of its topic id: look again
ROLLBACK_RECHECK_SECONDS = 3600.0  # a tombstone waits until snapshots expire, mostly with a commit, which looks anyway
RETENTION_LATE_SECONDS = 3600.0  # Kafka deletes what is over within this; it looks every five minutes
MASS_DELETE_WINDOW_SECONDS = 600.0  # over half a table's rows deleted within it: tables/reclaim/mass_delete.py
TOMBSTONE_SWAPS_MAX = 5  # attempts of one compare-and-swap against a moving index

# Who may call.
TOPIC_OWNERS_MAX = 100_000  # topic ids whose cluster is remembered
OWNER_INDEXES_MAX = 8  # that are read to know a topic's cluster: the first that is sound tells
OWNER_TOMBSTONES_MAX = 1000  # objects that are looked at for it; beyond, only who may do everything may write
OWNER_HEAD_BYTES = 64 * KIB  # first read of each: most directories, and any tombstone that replaced nothing
OWNER_BYTES_MAX = 8 * MIB  # of one look-up; a directory with 100,000 leader epochs has 4 MiB
OWNER_SECONDS_MAX = 5.0  # of one look-up, and of a call's wait for it
OWNER_WORKERS = 4  # look-ups at once
OWNER_LOOKUPS_MAX = 128  # running and waiting, shared like fetches; one more is refused as `overloaded`
OWNER_UNKNOWN_MAX = 10_000  # topic ids that are known as without an owner
OWNER_UNKNOWN_SECONDS = 2.0  # so long

# Processes around the calls.
PUBLISH_QUEUE_MAX = 100_000
PUBLISH_BACKOFF_SECONDS_MIN = 0.5
PUBLISH_BACKOFF_SECONDS_MAX = 30.0
STATE_SWEEP_COMMITS = 16  # a table's state objects are listed once in so many commits
RELIST_SECONDS = 60.0  # how often what other bridges stored is looked for
WHOLE_LISTING_SECONDS = 600.0  # a topic id is listed whole at least so often
WHOLE_LISTING_SHARE = 0.1  # of a table's time that whole listings may take beyond that
LIST_PAGE_KEYS = 1000  # what one request of a listing returns
INDEX_READS_MAX = 2000  # indexes that a run reads before it publishes what it has
LISTINGS_MAX = 8  # of one run, until none shows a new leader below what was listed before
INDEX_READERS = 8  # of all tables together
SWAP_RETRY_SECONDS = 5.0  # a commit of the reclaimer lost its swap, or a reader's snapshot may soon expire: look again
SNAPSHOT_AGE_SECONDS_MAX = 5 * 24 * 3600  # older ones expire in maintenance, as Iceberg's own default has it
RUNS_TO_LAND_MAX = 20  # tries of an undelete or a requeue to commit, against publishers that are faster
MISSING_FILES_MAX = 1_000  # files of a table that one pass asks the store for, because no listing has them
MERGE_SECONDS_MAX = 3600.0  # of one merge; like a copy it asks for nothing after it
MERGE_COMMITS_MAX = 10  # tries of its commit against publishers that are faster
LEASE_SECONDS = 30.0  # a maintenance lease that is not renewed for so long is taken over
CLOCK_SKEW_SECONDS_MAX = 600.0  # between the clocks of bridges, store and catalog's storage
CLOCK_FRESH_SECONDS = 600.0  # the store is asked for its time so often, where something may go by its age
STOP_GRACE_SECONDS = 10.0  # for the calls that run
START_STOP_SECONDS_MAX = 3.0  # for a stop before the bridge is ready: a compiler cannot be interrupted
STOP_SECONDS_MAX = 15.0  # for those and what publishes and maintains; then the process ends as if it was killed
PUBLISH_WORKERS = 4  # tables published at once
PUBLISH_RETRY_WORKERS = 2  # tables tried again at once after a failure
INDEX_BYTES_MAX = 1024 * MIB  # of an index; nothing larger is put, or read whole

# Progress of projections.
PROJECTION_PROGRESS_BYTES_MAX = 8 * MIB  # 100,000 partitions stay below it
PROJECTION_PROGRESS_TEXT_CHARS_MAX = 2000  # of a failure's message, and of its advice
PROJECTION_PROGRESS_FRESH_SECONDS = 5.0  # what a publisher has read of it serves its runs so long
PROJECTION_BEHIND_SECONDS = (
    86400.0  # a projection that is behind for longer, and for over half of its hold, needs a person
)

# The schema registry.
REGISTRY_WORKERS = 4  # look-ups at once
REGISTRY_SCHEMAS_MAX = 10_000  # cached; ids never change
REGISTRY_CACHE_BYTES_MAX = 64 * MIB  # of their texts
REGISTRY_MISSES_MAX = 10_000  # ids and subjects that are known as unknown
REGISTRY_MISS_SECONDS = 30.0  # so long
REGISTRY_AGAIN_SECONDS = 2.0  # after a failure nothing is asked for so long
REGISTRY_REFUSED_SECONDS = 600.0  # rows wait so long for ids that the registry answers for with something else
REGISTRY_REFUSED_TRIES_MIN = 4  # and so many answers about one id
SCHEMA_BYTES_MAX = 4 * MIB  # of a schema with all it refers to
REGISTRY_ANSWER_BYTES_MAX = 16 * MIB  # one schema as JSON: every character of it may be escaped
SCHEMA_REFERENCES_MAX = 256
SCHEMA_REFERENCE_DEPTH_MAX = 32

# Typed values.
INFERRED_VALUES_MAX = 2000  # values that a JSON schema is inferred from
DECODERS_BYTES_MAX = 64 * MIB  # of decoders of all topics that are kept, as estimated
TIMELESS_MAX = 1000  # schemas of one topic whose values have their times as text where they do not fit
VERSIONS_MAX = 32  # of an inferred schema; then values that fit none are dead letters
ADDED_PLACES_MAX = 500  # names that an inferred schema gets later, within others too; the rest stays in `_additional`
ADDITIONS_MAX = 100  # times that it does
LOOKS_BETWEEN_MAX = 1024  # times that rows with other names are not looked at, after looks that found none to add
MISFITS_READ_MAX = 200  # values of some thousand that do not fit, from which a wider schema is made
MISFIT_BYTES_READ_MAX = 1 << 20  # of those together; no schema is made wider for a larger one
MISFIT_CELLS_MAX = 1 << 18  # that one of those may take; the same
WRITERS_COLUMNS_MAX = 10_000  # of the decoders that some thousand rows are given to; rows of rarer schemas have none
COMPILER_TRIES_MAX = 3  # of a Protobuf schema with which the compiler dies or does not end; then it is unusable
REFUSED_MAX = 10_000  # writers of one topic of which is known that its table cannot take them
EVOLUTION_WORKERS = 4  # threads that ask the catalog for copies
EVOLUTION_SECONDS_MAX = 5.0  # a copy waits so long for the catalog to change a table
CATALOG_AGAIN_SECONDS = 5.0  # after a failure of that it is not asked for so long
COLUMN_IDS_SWAPS_MAX = 16  # of one small object, among bridges that give a table columns
DECODE_BURST_SECONDS = 10.0  # of its decode_budget a topic may save up
PLANS_PER_RUN_MAX = 16  # plans of one publisher run, while pending segments turn out to wait
HELD_SECONDS = 5.0  # until a publisher run looks again whether pending segments can have their columns
PENDING_RUN_MAX = 4  # segments of a partition whose values one publisher run decodes

# `tierberg bucket init`.
BUCKET_CONNECT_SECONDS = 5.0
BUCKET_REQUEST_SECONDS = 30.0  # without a byte of an answer
BUCKET_TRIES = 3

PROJECTIONS_AT_ONCE_MAX = 16  # of one job of `tierberg repartition`

# `tierberg status` and the probes of the metrics page.
STATUS_READERS = 8  # indexes read at once
STATUS_TOPICS = 8  # topics read at once
STATUS_FAILURES_MAX = 16  # topics one after the other for which the store fails, before it is called away
STATUS_BATCHES_KEPT = 64  # segments whose batches are not read again for the next question
STATUS_BATCHES_AHEAD = 31  # segments whose batches are read beside those that are asked for
BELOW_FLOOR_UNASKED_SECONDS = 3600.0  # without Kafka's answer: what it deletes for not being its own is gone by then
TOPIC_GONE_SECONDS = 600.0  # a deleted topic whose last segment went longer ago is not being deleted any more
FORGET_WATCH_SECONDS = 10.0  # Kafka must say twice that a topic is gone: a broker that starts knows none at first
FORGET_KAFKA_SECONDS = 15.0  # all that Kafka is asked for that
STORE_FREE_BYTES_MIN = 64 * MIB  # a disk with less counts as full, whatever the segments' size
STATUS_LOOKS_MAX = 5  # at a topic that changes under every look
STORE_REFUSAL_SECONDS_MIN = 20.0  # copies failed that long, and none worked: the store takes none
STORE_REFUSAL_SECONDS_MAX = 180.0  # the last of them is no longer ago; Kafka repeats a failed copy every 30 s
STATUS_SERVER_WATCH_SECONDS = 3.0  # a server that does not answer must not do so again: a restart takes so long
STATUS_LEADER_WATCH_SECONDS = 10.0  # a partition without a leader
STATUS_PUBLISH_WATCH_SECONDS = 10.0  # a commit that does not come
STATUS_COPY_WATCH_SECONDS = 60.0  # twice Kafka's remote.log.manager.task.interval.ms
STATUS_ANSWER_SECONDS = 10.0  # a first look that took longer has waited for servers already
STATUS_FETCH_SECONDS = 5.0  # one request to the store
STATUS_CATALOG_SECONDS = 10.0  # opening the catalog and its first answer
STATUS_KAFKA_SECONDS = 15.0  # all of Kafka
STATUS_BRIDGE_SECONDS = 3.0  # the bridge's health
STATUS_HISTORY_SECONDS = 5.0  # reading one record at the beginning of what is tiered
STATUS_LOST_OBJECTS_MAX = 50  # objects of a topic that a listing lacks and that are asked for one by one
STATUS_LOST_TABLES_MAX = 1000  # tables whose topic the store does not name that are looked at
STATUS_UNREAD_SECONDS = 2.0  # errors for so long are the answer: clients try again every half second
STATUS_TIMESTAMPS_MAX = 1000  # partitions whose first waiting record is read
PROBE_SECONDS = 2.0  # the event loop answers a health probe within this
REACH_SECONDS = 3.0  # store and catalog answer within this, or are said to be away
REACH_AGAIN_SECONDS = 5.0  # until one that is away is asked again
REACH_SOUND_SECONDS = 30.0  # until one that answered is
REACH_REMIND_SECONDS = 60.0  # between two lines about one outage
PROBE_FRESH_SECONDS = 2.0  # an answer of the store serves all probes so long
METRICS_PARTITIONS_MAX = 1000  # partitions with gauges of their own; beyond, each table's worst one alone
SETTINGS_FILE_BYTES_MAX = MIB  # tierberg.yaml
DURATION_SECONDS_MAX = 100 * 365 * 86400.0  # of any setting; what waits cannot take more than three times as much
CHECKPOINT_BYTES_MAX = 8 * MIB  # a broker's `leader-epoch-checkpoint` for a command; 200,000 epochs stay below it
LOG_WAITING_CHARS_MAX = 8 * MIB  # of log lines that wait for whoever reads standard error; those beyond are lost
SETTINGS_VALUES_MAX = 100_000  # values in it, those that YAML anchors repeat counted each time
