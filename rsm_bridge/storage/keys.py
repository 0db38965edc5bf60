"""Keys of the store (docs/architecture.md, "Store layout"), and back.

Ids are 32 hex digits, offsets 20 decimal digits, so that byte order of keys is the order of offsets.
"""

from __future__ import annotations

import re
import secrets
import uuid
from dataclasses import dataclass

from converter.types import SegmentMetadata
from iceberg_catalog.commit.head import normal_path
from rsm_bridge.storage.object_store import ObjectStore

INDEX_ROOT = "index/"
DATA_ROOT = "data/"
KEPT_ROOT = "kept/"
STATE_ROOT = "state/"
LEASE_ROOT = "lease/"
UNDELETE_ROOT = "undelete/"
DROP_ROOT = "drop/"
PROJECTIONS_ROOT = "copies/"
TABLES_ROOT = "tables/"
COLUMNS_ROOT = "columns/"

_TOPIC_FOLDER = re.compile(r"(?:index|data|kept)/([0-9a-f]{32})/?")
_PARTITION_FOLDER = re.compile(r"index/[0-9a-f]{32}/([0-9]{1,10})/?")
_INDEX_KEY = re.compile(r"index/([0-9a-f]{32})/([0-9]{1,10})/([0-9]{20})-([0-9]{20})-([0-9a-f]{32})")
_STORED = re.compile(
    r"(?:data|kept)/[0-9a-f]{32}/([0-9]{1,10})/([0-9]{20})-([0-9]{20})-(?:d-?[0-9]+-[0-9a-f]{32}-|tail-)?[0-9a-f]{32}\.(?:parquet|kept)"
)
_DERIVED = re.compile(r".*-d(-?[0-9]+)-([0-9a-f]{32})-[0-9a-f]{32}\.parquet")
_TABLE_RECORD = re.compile(r"tables/([0-9a-f]{32})/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKey:
    """What an index's key says. `base` and `last` are inclusive offsets; ids are 16 bytes."""

    topic_id: bytes
    partition: int
    last: int
    base: int
    segment_id: bytes

    def __str__(self) -> str:
        return (
            f"{INDEX_ROOT}{self.topic_id.hex()}/{self.partition}/"
            f"{self.last:020d}-{self.base:020d}-{self.segment_id.hex()}"
        )


def index_key(segment: SegmentMetadata) -> IndexKey:
    """The key of a segment's index or tombstone; ordered by last offset within a partition."""
    return IndexKey(
        topic_id=segment.topic_id,
        partition=segment.partition,
        last=segment.end_offset,
        base=segment.start_offset,
        segment_id=segment.segment_id,
    )


def parse_index_key(key: str) -> IndexKey | None:
    """The parts of an index key, or None for a key of another form."""
    match = _INDEX_KEY.fullmatch(key)
    if match is None:
        return None
    topic, partition, last, base, segment = match.groups()
    return IndexKey(
        topic_id=bytes.fromhex(topic),
        partition=int(partition),
        last=int(last),
        base=int(base),
        segment_id=bytes.fromhex(segment),
    )


def index_prefix(topic_id: bytes, partition: int | None = None) -> str:
    """Prefix of all indexes of a topic id, or of one of its partitions."""
    prefix = f"{INDEX_ROOT}{topic_id.hex()}/"
    return prefix if partition is None else f"{prefix}{partition}/"


def topic_of_folder(folder: str) -> bytes | None:
    """The topic id whose objects lie in a folder of indexes, data files or kept bytes; None for any other folder.

    Anybody may put things beside ours. What has not the exact form of a topic id is no topic, and is passed over.
    """
    match = _TOPIC_FOLDER.fullmatch(folder)
    return None if match is None else bytes.fromhex(match[1])


def partition_of_folder(folder: str) -> int | None:
    """The partition whose indexes lie in a folder; None for any other folder."""
    match = _PARTITION_FOLDER.fullmatch(folder)
    return None if match is None else int(match[1])


def projections_prefix(topic_id: bytes) -> str:
    """Prefix of what the projections of a topic's table say of themselves."""
    return f"{PROJECTIONS_ROOT}{topic_id.hex()}/"


def table_records_prefix(topic_id: bytes) -> str:
    """Prefix of the records of all tables that were written for a topic id."""
    return f"{TABLES_ROOT}{topic_id.hex()}/"


def table_record_key(topic_id: bytes, table_uuid: uuid.UUID) -> str:
    """Key of the record of one table (table_records.py)."""
    return f"{table_records_prefix(topic_id)}{table_uuid}.json"


def column_ids_key(topic_id: bytes, table_uuid: uuid.UUID) -> str:
    """Key of the highest field id of a table (values/typed/column_ids.py)."""
    return f"{COLUMNS_ROOT}{topic_id.hex()}/{table_uuid}.json"


def parse_table_record_key(key: str) -> tuple[bytes, uuid.UUID] | None:
    """Topic id and table in the key of a table's record; None for a key of another form."""
    match = _TABLE_RECORD.fullmatch(key)
    return None if match is None else (bytes.fromhex(match[1]), uuid.UUID(match[2]))


def table_folder(topic_id: bytes) -> str:
    """Folder of a topic's data files; with `catalog.layout: inside`, of its table's metadata too (`…/metadata/`)."""
    return f"{DATA_ROOT}{topic_id.hex()}"


def state_prefix(table_uuid: uuid.UUID) -> str:
    """Prefix of all recorded states of a table."""
    return f"{STATE_ROOT}{table_uuid}/"


def state_key(table_uuid: uuid.UUID, sha256: str, commit_id: str) -> str:
    """Key of the state that one attempt to commit records: its content's hash, and whose it is."""
    return f"{state_prefix(table_uuid)}{sha256}-{commit_id}.json"


def new_attempt_id() -> bytes:
    """16 random bytes: names the objects of one attempt to copy a segment."""
    return secrets.token_bytes(16)


def data_key(segment: SegmentMetadata, attempt: bytes) -> str:
    """Key of the data file one attempt writes."""
    return _data_key(segment.topic_id, segment.partition, segment.start_offset, segment.end_offset, attempt.hex())


def tail_key(segment: SegmentMetadata, attempt: bytes) -> str:
    """Key of the data file with the rows from the segment's first undecided one on."""
    name = f"tail-{attempt.hex()}"
    return _data_key(segment.topic_id, segment.partition, segment.start_offset, segment.end_offset, name)


def derived_key(
    topic_id: bytes, partition: int, first: int, last: int, table_uuid: uuid.UUID, head_snapshot: int | None
) -> str:
    """A new key for rows of [first, last] cut out of other data files, planned on this table's head (publish rule R13).

    No index ever names it, so that no other table does.
    """
    name = f"d{head_snapshot or 0}-{table_uuid.hex}-{new_attempt_id().hex()}"
    return _data_key(topic_id, partition, first, last, name)


def rewritten_key(topic_id: bytes, partition: int, first: int, last: int) -> str:
    """A new key for rows that other data files of the table have already, offsets in [first, last].

    Unlike a derived file's it names no head: the same file may be committed on a later head, within the deadline that
    protects it from the sweep.
    """
    return _data_key(topic_id, partition, first, last, new_attempt_id().hex())


def _data_key(topic_id: bytes, partition: int, first: int, last: int, name: str) -> str:
    return f"{DATA_ROOT}{topic_id.hex()}/{partition}/{first:020d}-{last:020d}-{name}.parquet"


def is_stored_object(key: str) -> bool:
    """Whether the key is one that a copy or a publisher gives to a data file or to kept bytes."""
    return _STORED.fullmatch(key) is not None


def stored_range(key: str) -> tuple[int, int, int] | None:
    """Partition, first and last offset in the key of a data file or of kept bytes; None for a key of another form."""
    match = _STORED.fullmatch(key)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def derived_head(path: str) -> int | None:
    """The snapshot a derived data file was planned on, 0 for a table without one; None for any other file."""
    match = _DERIVED.fullmatch(path)
    return None if match is None else int(match[1])


def derived_table(path: str) -> uuid.UUID | None:
    """The table a derived data file was planned for; None for any other file."""
    match = _DERIVED.fullmatch(path)
    return None if match is None else uuid.UUID(match[2])


def kept_key(segment: SegmentMetadata, attempt: bytes) -> str:
    """Key of the kept bytes one attempt writes."""
    return (
        f"{KEPT_ROOT}{segment.topic_id.hex()}/{segment.partition}/"
        f"{segment.start_offset:020d}-{segment.end_offset:020d}-{attempt.hex()}.kept"
    )


def stored_key(store: ObjectStore, path: str) -> str | None:
    """The key of a path, normalised or not; None when it lies outside of the store."""
    prefix = f"{normal_path(store.root_uri)}/"
    name = normal_path(path)
    return name[len(prefix) :] if name.startswith(prefix) else None
