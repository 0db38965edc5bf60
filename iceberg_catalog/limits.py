"""Every limit of this room."""

from __future__ import annotations

from typing import Final

#: Longest table name made from a topic; Kafka allows 249 characters, file systems 255 bytes with our suffix.
TABLE_NAME_CHARS_MAX: Final = 200
#: Attempts to create a namespace or table against other bridges that do the same.
CREATE_ATTEMPTS_MAX: Final = 4
#: Snapshots a table keeps; older ones expire in the same commit that adds new ones.
SNAPSHOTS_KEPT_MAX: Final = 20
#: Snapshots of one branch, from its head on, that the retention set on it keeps beyond these. A table commits every few
#: seconds, and each of its metadata.json lists all that are kept.
SNAPSHOTS_HELD_MAX: Final = 1_000
#: Previous metadata.json files kept; more than a commit can be behind without losing the swap anyway.
METADATA_VERSIONS_KEPT_MAX: Final = 50
#: Bytes of a metadata.json that is read only to learn whose it is; a larger one counts as another table's.
METADATA_JSON_BYTES_MAX: Final = 64 * 1024 * 1024
#: Manifests of one table that are read at once.
MANIFEST_READERS: Final = 8
#: Entries written to one manifest.
MANIFEST_ENTRIES_MAX: Final = 1000
#: Manifests with fewer live entries than this are small, and folded once there are MANIFESTS_SMALL_MAX of them.
MANIFEST_SMALL_ENTRIES: Final = 500
MANIFESTS_SMALL_MAX: Final = 20
#: Small manifests that maintenance leaves alone: another snapshot would be no gain.
MANIFESTS_FOLDED_MIN: Final = 5
#: Tries to reload the table after a commit whose reply was lost, before its outcome is called unknown.
RELOAD_ATTEMPTS_MAX: Final = 3
RELOAD_PAUSE_MS: Final = 200
#: Open transactions of one partition that may be decided before their marker is tiered; the others wait for it.
PEEKED_MAX: Final = 1000
#: Rewinds, and repairs, of one partition that its state remembers; a reader that was away for more reads anew.
EVENTS_KEPT: Final = 8
#: Segments of one partition that a merge asks whether rows of theirs are to come yet, and how many behind each it looks
#: at for markers. What it does not ask it does not merge over; the next pass asks again.
MERGE_ASKED_MAX: Final = 64
MERGE_MARKERS_WITHIN: Final = 16
#: Live files of one table whose leader epochs, read from their footers, are remembered.
FILE_EPOCHS_KEPT_MAX: Final = 1_000
#: Leader epochs of one partition that its recorded lineage has; older ones are read from the indexes. Kafka's producers
#: make none, brokers' restarts do.
LINEAGE_ENTRIES_MAX: Final = 1_000
#: Recorded state of one table: 2,000 partitions with LINEAGE_ENTRIES_MAX epochs each stay below it, 100,000 with few.
STATE_BYTES_MAX: Final = 64 * 1024 * 1024
#: Characters of `tierberg.gaps` and of `tierberg.lost` in one snapshot's summary: with all kept snapshots, three of a
#: commit, metadata.json stays small. What has no room is counted.
SUMMARY_RANGES_BYTES_MAX: Final = 400
#: Clients of tables' storage that are kept; one is enough unless each table has credentials of its own.
FILE_SYSTEMS_MAX: Final = 64
#: REST catalog: time to connect, and between two bytes of an answer.
REST_CONNECT_TIMEOUT_MS: Final = 2_000
REST_READ_TIMEOUT_MS: Final = 30_000
#: REST catalog with requests signed for AWS: how often one that only reads is sent again.
SIGNED_RETRIES_MAX: Final = 2
#: SQLite catalog: how long a writer waits for another's lock.
SQLITE_BUSY_TIMEOUT_MS: Final = 30_000
#: Credentials that servers issued while the process runs, and that logs still blank.
ISSUED_SECRETS_MAX: Final = 256
#: Credentials that a catalog lends with a table are renewed before a commit when they are older than this, or end
#: sooner than that: writing manifests and the request itself must fit in.
LENT_AGE_MS_MAX: Final = 20_000
LENT_LEFT_MS_MIN: Final = 30_000

#: Encoded bytes after which a block of a manifest ends; what Avro's own Java writer takes.
MANIFEST_BLOCK_BYTES: Final = 64_000

#: Columns of one table, nested fields, elements, keys and values counted: what lists of columns, metadata.json and
#: footers still carry well.
COLUMNS_MAX: Final = 2_000
#: Characters of a column's name that come from its field's; some catalogs allow 255.
COLUMN_NAME_CHARS_MAX: Final = 200
#: Characters of a field's name that is taken at all.
SOURCE_NAME_CHARS_MAX: Final = 1_000
#: Names one column may be written under.
SOURCE_NAMES_MAX: Final = 16
#: Characters of a column's description that come from the writer's schema.
COLUMN_DOC_CHARS_MAX: Final = 1_000
#: Top-level value columns that files keep bounds of.
METRICS_COLUMNS_MAX: Final = 30
#: Swaps of a table's schema that are tried against other bridges, how long in all, and the pause between two.
EVOLVE_ATTEMPTS_MAX: Final = 10
EVOLVE_DEADLINE_MS: Final = 120_000
EVOLVE_PAUSE_MS: Final = 200
#: Requests for several writers' columns that the catalog refuses for what they say; then each writer's are asked alone.
EVOLVE_REFUSALS_MAX: Final = 3
