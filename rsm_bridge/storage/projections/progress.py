"""How far a projection of a topic's table has come, as one small object in the store.

`tierberg repartition` writes it after each run; the bridge and `tierberg status` read it. It is advisory: the truth is
in the projection's own table. What it decides is only how long rows stay that Kafka's retention deleted (hold.py). So
an object that is damaged, or is none, counts as nothing read: rows may then stay too long, and never go too soon.

JSON: `{"crc32c": …, "progress": {"version": 1, "catalog": "…", "table": "ns.name", "read": {"0": [4711, 0, 0]}, …}}`.
`read` has per Kafka partition the next offset to read, and how many rewinds and repairs of the topic's table had been
seen by then. What a job knows nothing of may be left out. The checksum is of the progress with sorted keys and without
spaces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import crc32c

from converter.stored_json import field as field_of
from converter.stored_json import fields, listed, numbered, parse, text
from converter.stored_json import whole as _whole
from iceberg_catalog.plan.hold import ReadTo
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import PROJECTION_PROGRESS_BYTES_MAX, PROJECTION_PROGRESS_TEXT_CHARS_MAX, TOMBSTONE_SWAPS_MAX
from rsm_bridge.storage.keys import projections_prefix
from rsm_bridge.storage.object_store import ObjectStore

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ProjectionSize:
    """Of the projection's table after the last run that succeeded."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ProjectionLoss:
    """What a projection could not read of one partition, since Kafka had deleted it and it was not held.

    offsets: how many in all. end: the one after the last of them. at_ms: when a run last met some.
    """

    offsets: int
    end: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ProjectionFailure:
    """Why a run or a chore failed. `advice`: what to do about it, one sentence, or empty."""

    at_ms: int
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionProgress:
    """One projection of one topic id. Times in milliseconds since the epoch, None: never.

    Attributes:
        topic_id: 16 bytes.
        catalog: name of the projection's catalog, as the settings have it.
        table: its name, namespaces first, with dots.
        read: by Kafka partition; one that is missing was not read.
        snapshot_id: of the topic's table, that the last run which succeeded has read.
        succeeded_ms: when that ended.
        caught_up_ms: when a run last left nothing unread of the snapshot it had pinned, and pinned that.
        size: of the projection, where it is known.
        failure: of the last run; None: it succeeded.
        lost: by Kafka partition, what it will never have.
        failed_chores: why maintenance failed, by chore; of those alone that are due and have not gone well since.
        dead_letters: rows of its table of dead letters after the last run that succeeded, where that is known.
    """

    topic_id: bytes
    catalog: str
    table: str
    read: Mapping[int, ReadTo] = field(default_factory=dict)
    snapshot_id: int | None = None
    succeeded_ms: int | None = None
    caught_up_ms: int | None = None
    size: ProjectionSize | None = None
    failure: ProjectionFailure | None = None
    lost: Mapping[int, ProjectionLoss] = field(default_factory=dict)
    failed_chores: Mapping[str, ProjectionFailure] = field(default_factory=dict)
    dead_letters: int = 0

    @property
    def key(self) -> str:
        """Of the object."""
        return progress_key(self.topic_id, self.catalog, self.table)

    def encode(self) -> bytes:
        """The object's bytes; equal progress gives equal bytes. Long texts of a failure are cut.

        Raises:
            BridgeError: `bad_request` if it would be larger than PROJECTION_PROGRESS_BYTES_MAX and could not be read.
        """
        document: dict[str, object] = {
            "version": _VERSION,
            "topic_id": self.topic_id.hex(),
            "catalog": self.catalog,
            "table": self.table,
            "read": {str(number): [item.next, item.rewinds, item.repairs] for number, item in self.read.items()},
            "snapshot_id": self.snapshot_id,
            "succeeded_ms": self.succeeded_ms,
            "caught_up_ms": self.caught_up_ms,
            "lost": {str(number): [item.offsets, item.end, item.at_ms] for number, item in self.lost.items()},
        }
        if self.size is not None:
            document["size"] = [self.size.rows, self.size.files, self.size.bytes]
        if self.failure is not None:
            document["failure"] = _listed(self.failure)
        if self.failed_chores:
            document["failed_chores"] = {chore: _listed(failure) for chore, failure in self.failed_chores.items()}
        if self.dead_letters:
            document["dead_letters"] = self.dead_letters
        data = _canonical({"crc32c": crc32c.crc32c(_canonical(document)), "progress": document})
        if len(data) > PROJECTION_PROGRESS_BYTES_MAX:
            raise BridgeError("bad_request", f"the progress of projection {self.table} has {len(data)} bytes")
        return data


def progress_key(topic_id: bytes, catalog: str, table: str) -> str:
    """Key of the progress of one projection: whose it is, and the digest of its name, which may be long."""
    digest = hashlib.sha256(json.dumps([catalog, table]).encode()).hexdigest()
    return f"{projections_prefix(topic_id)}{digest[:32]}.json"


def decode_progress(data: bytes | memoryview, key: str) -> ProjectionProgress:
    """The inverse of :meth:`ProjectionProgress.encode`.

    Args:
        data: of the object, or the first PROJECTION_PROGRESS_BYTES_MAX + 1 bytes of it.
        key: where it lies.

    Raises:
        BridgeError: `corrupt_object`: too large, does not parse, or another projection's; `unsupported_version`.
    """
    if len(data) > PROJECTION_PROGRESS_BYTES_MAX:
        raise BridgeError(
            "corrupt_object", f"{key}: the progress of a projection has more than {PROJECTION_PROGRESS_BYTES_MAX} B"
        )
    try:
        whole = parse(data)
        document = fields(field_of(whole, "progress"))
        if crc32c.crc32c(_canonical(document)) != field_of(whole, "crc32c"):
            raise ValueError("it fails its checksum")
        progress = _decoded(document) if _whole(field_of(document, "version")) == _VERSION else None
    except (ValueError, RecursionError) as error:
        raise BridgeError("corrupt_object", f"{key}: the progress of a projection does not parse: {error}") from error
    if progress is None:
        raise BridgeError("unsupported_version", f"{key}: the progress of a projection is of a newer release")
    if progress.key != key:
        raise BridgeError(
            "corrupt_object", f"{key}: the progress of another projection, {progress.table[:200]}, lies here"
        )
    return progress


def write_progress(
    store: ObjectStore, nothing: ProjectionProgress, change: Callable[[ProjectionProgress], ProjectionProgress]
) -> None:
    """Puts what `change` makes of what is there. What another job writes meanwhile is changed, not lost.

    Args:
        store: the topic's.
        nothing: what there is in the place of an object that is missing, or damaged.
        change: called once for each try; may return what it was given, and nothing is put then.

    Raises:
        BridgeError: `bad_request` if it is too large; `store_unavailable`.
    """
    for _ in range(TOMBSTONE_SWAPS_MAX):
        before, version = _versioned(store, nothing)
        after = change(before)
        if after == before and version is not None:
            return
        data = after.encode()
        if store.put_if_absent(after.key, data) if version is None else store.replace(after.key, data, version):
            return
    raise StoreError(f"{nothing.key} changed again and again: are several jobs writing this projection?")


def _versioned(store: ObjectStore, nothing: ProjectionProgress) -> tuple[ProjectionProgress, str | None]:
    """What is there, and its version; None: there is no object."""
    try:
        found = store.read(nothing.key)
    except ObjectNotFoundError:
        return nothing, None
    try:
        return decode_progress(found.data, nothing.key), found.version
    except BridgeError:  # damaged: it is written anew
        return nothing, found.version


def read_one(store: ObjectStore, key: str) -> ProjectionProgress | None:
    """What is at a key; None when there is nothing.

    Raises:
        BridgeError: `corrupt_object`, `unsupported_version`, `store_unavailable`.
    """
    try:
        return decode_progress(store.head_bytes(key, PROJECTION_PROGRESS_BYTES_MAX + 1), key)
    except ObjectNotFoundError:
        return None


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _decoded(document: Mapping[str, Any]) -> ProjectionProgress:
    size, failure = document.get("size"), document.get("failure")
    topic_id = bytes.fromhex(text(document.get("topic_id")))
    return ProjectionProgress(
        topic_id=topic_id,
        catalog=text(document.get("catalog")),
        table=text(document.get("table")),
        read={number: _read_to(entry) for number, entry in numbered(document.get("read")).items()},
        snapshot_id=_whole_or_none(document.get("snapshot_id")),
        succeeded_ms=_whole_or_none(document.get("succeeded_ms")),
        caught_up_ms=_whole_or_none(document.get("caught_up_ms")),
        size=None if size is None else ProjectionSize(*(_whole(item) for item in listed(size, 3))),
        failure=None if failure is None else _failure(listed(failure, 3)),
        lost={
            number: ProjectionLoss(*(_whole(item) for item in listed(entry, 3)))
            for number, entry in numbered(document.get("lost")).items()
        },
        failed_chores={
            chore: _failure(listed(entry, 3)) for chore, entry in fields(document.get("failed_chores", {})).items()
        },
        dead_letters=_whole(document.get("dead_letters", 0), 0),
    )


def _read_to(entry: object) -> ReadTo:
    return ReadTo(*(_whole(item, 0) for item in listed(entry, 3)))


def _listed(failure: ProjectionFailure) -> list[object]:
    texts = [text[:PROJECTION_PROGRESS_TEXT_CHARS_MAX] for text in (failure.message, failure.advice)]
    return [failure.at_ms, *texts]


def _failure(entry: list[Any]) -> ProjectionFailure:
    return ProjectionFailure(_whole(entry[0]), text(entry[1]), text(entry[2]))


def _whole_or_none(value: object) -> int | None:
    return None if value is None else _whole(value)
