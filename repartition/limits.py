"""Every limit of this room."""

from __future__ import annotations

from typing import Final

#: Runs that others' commits may beat, with the projection no further, before it is left to the next round.
RACES_MAX: Final = 5
#: A job that was beaten waits for a random time up to that of the lost run, but no longer, and lets the other go ahead.
RACE_WAIT_S_MAX: Final = 60.0
#: Causes of an error of Java's that are looked at.
CAUSES_MAX: Final = 20
#: Data files that runs have added since the last compaction, before there is another.
COMPACTION_FILES_MIN: Final = 20
#: Delete files that runs have added since then, before they are merged into the data files.
COMPACTION_DELETE_FILES_MIN: Final = 5
#: Files of one partition and tier that are worth to be made one. A tier holds files of up to so many times the size of
#: the one below, so that each row is written anew once per tier; the lowest begins near so many bytes.
COMPACTION_INPUT_FILES_MIN: Final = 8
COMPACTION_TIERS_APART: Final = 8
COMPACTION_LOWEST_TIER_BYTES: Final = 1 << 20
#: The share of a data file's rows that are deleted, from which on it is written anew.
COMPACTION_DELETED_SHARE_MIN: Final = 0.1
#: Manifests of a table before they are folded.
MANIFESTS_MAX: Final = 50
#: Snapshots stay so long, for queries that run on them, and so many in any case.
SNAPSHOT_AGE_MS: Final = 24 * 3_600_000
SNAPSHOTS_KEPT: Final = 5
#: Some are older in every round, and the tag keeps one for as long as nothing new is read.
EXPIRY_EVERY_MS: Final = 3_600_000
#: Files of no snapshot, and branches of runs, before they count as left over; how often such files are looked for.
ORPHAN_AGE_MS: Final = 3 * 24 * 3_600_000
ORPHANS_EVERY_MS: Final = 24 * 3_600_000
#: How often rows are looked for that are older than the rule's `retention`.
RETENTION_EVERY_MS: Final = 3_600_000
#: What is read in one run, up to which changes are sent to the table's rows instead of both being sorted by key.
FEW_OFFSETS_MAX: Final = 500_000
FEW_BYTES_MAX: Final = 64 << 20
#: Bytes of the same once they are worked out, in Spark's memory: driver and executors have them twice while they send.
FEW_WORKED_OUT_BYTES_MAX: Final = 64 << 20
#: A longer key is not compared with the bounds of data files.
KEY_CHARS_COMPARED_MAX: Final = 200
#: A file of queries for `tierberg advise`; how many it may have, how long each may be, and each one's name.
QUERIES_FILE_BYTES_MAX: Final = 1 << 20
QUERIES_MAX: Final = 50
QUERY_CHARS_MAX: Final = 20_000
QUERY_NAME_CHARS_MAX: Final = 60
#: Runs of each query that count, after the first; and characters of an error that are shown.
ADVISE_ROUNDS: Final = 5
ERROR_CHARS_MAX: Final = 300
