"""The object store, as little of it as the bridge needs.

One class over obstore with a client for uploads, which may take long, and others for reads, which should answer within
what a consumer waits (`remote.fetch.max.wait.ms`): obstore's time-out covers a whole request. All calls block; callers
run them in a worker thread. A failure is a :class:`~rsm_bridge.errors.StoreError`, a missing object an
:class:`~rsm_bridge.errors.ObjectNotFoundError`, bytes that are not there `corrupt_object`; nothing else is raised.

`LocalStore` has no compare-and-swap: :class:`rsm_bridge.storage.local.LocalObjectStore` emulates it for one process.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from iceberg_catalog import failpoints
from iceberg_catalog.connect.redaction import hide
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import INDEX_BYTES_MAX, KEY_BYTES_MAX, KEY_PART_BYTES_MAX
from rsm_bridge.storage.read_clients import ReadClients
from rsm_bridge.storage.upload import Upload

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore as Client

#: Nothing is ever stored there: the answer "no such object" is the one wanted.
_PROBED = "probe"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One row of a listing; size in bytes, `modified_ms` since the epoch by the store's clock.

    version: names this content, where the store does that. Some tell `modified_ms` of one object by whole seconds only.
    """

    key: str
    size: int
    modified_ms: int
    version: str = ""

    def same(self, other: ListedObject) -> bool:
        """Whether both speak of the same content.

        The size counts beside the version: a store that keeps versions apart from contents may list, while an object is
        replaced, the new version of what it still reads as the old content.
        """
        if self.version and other.version:
            return (self.version, self.size) == (other.version, other.size)
        return (self.size, self.modified_ms) == (other.size, other.modified_ms)


def _listed(meta: ObjectMeta) -> ListedObject:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ListedObject(meta["path"], meta["size"], modified_ms, meta["e_tag"] or "")


@dataclass(frozen=True, slots=True)
class VersionedBytes:
    """An object's bytes and what names this version of them in a compare-and-swap."""

    data: bytes
    version: str


#: How S3 and stores like it say why ("Error responses"), over several lines.
_ANSWER: Final = re.compile(r"<Code>([^<]{1,100})</Code>(?:\s*<Message>([^<]{1,300})</Message>)?")
_SAID_CHARS_MAX: Final = 10_000
_PROLOGUE: Final = re.compile(r"\s*<\?xml[^>]*\?>.*$")


def first_line(error: BaseException) -> str:
    """What an exception says, and the store's answer within it, without the client's debug dump and credentials."""
    text = str(error).strip()
    said = _PROLOGUE.sub("", text.partition("\n")[0]) or type(error).__name__
    answer = _ANSWER.search(text[:_SAID_CHARS_MAX])
    return hide(f"{said} {': '.join(filter(None, answer.groups()))}" if answer else said)


@contextlib.contextmanager
def store_errors(key: str) -> Iterator[None]:
    """Turns what obstore and the file system raise into the bridge's errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFoundError(key) from error
    except (BaseError, OSError, ValueError) as error:
        raise StoreError(f"{key}: {first_line(error)}") from error


def check_size(key: str, size: int) -> None:
    """Raises BridgeError `corrupt_object` for an object that is larger than any of those that are read whole."""
    if size > INDEX_BYTES_MAX:
        raise BridgeError("corrupt_object", f"{key} has {size} bytes; nothing of ours here has over {INDEX_BYTES_MAX}")


def _whole(client: Client, key: str, names_versions: Literal["e_tag", "version"]) -> VersionedBytes:
    result = obstore.get(client, key)
    check_size(key, int(result.meta["size"]))
    return VersionedBytes(bytes(result.bytes()), result.meta[names_versions] or "")


class ObjectStore:
    """Objects under one root.

    Args:
        uploads: client with long time-outs, for copies, listings and deletes.
        reads: clients with short ones.
        root_uri: the root as table metadata names it, without a slash at its end.

    Attributes:
        single_process: only this process writes to the store.
    """

    single_process = False

    def __init__(self, uploads: Client, reads: ReadClients, root_uri: str) -> None:
        self._uploads = uploads
        self._reads = reads
        self.root_uri = root_uri

    def unhurried(self) -> ObjectStore:
        """The same store for work that no consumer waits for: its reads may take as long as uploads."""
        return ObjectStore(self._uploads, ReadClients(self._uploads), self.root_uri)

    def uri(self, key: str) -> str:
        """The object's full name, as the table's metadata has it."""
        return f"{self.root_uri}/{key}"

    def key(self, uri: str) -> str | None:
        """The key of a full name; None when it lies outside of this store."""
        prefix = f"{self.root_uri}/"
        return uri[len(prefix) :] if uri.startswith(prefix) else None

    def put_if_absent(self, key: str, data: bytes, *, sync: bool = True) -> bool:  # noqa: ARG002 the local store's
        """Writes an object unless one has this key; True when written.

        Durable on return, except that a local store skips its fsync when `sync` is False.
        """
        failpoints.hit("store-put", key)
        self._check_key(key)
        with store_errors(key):
            try:
                obstore.put(self._uploads, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def replace(self, key: str, data: bytes, version: str) -> bool:
        """Overwrites the object if it still has `version` (from :meth:`read`); False when it changed or went."""
        failpoints.hit("store-put", key)
        self._check_key(key)
        # Google's store compares generations, the others entity tags; each looks only at its own.
        mode: UpdateVersion = {"e_tag": version, "version": version}
        with store_errors(key):
            try:
                obstore.put(self._uploads, key, data, mode=mode, use_multipart=False)
            except (PreconditionError, FileNotFoundError):
                return False
        return True

    def read(self, key: str) -> VersionedBytes:
        """A whole small object with its version.

        Raises:
            BridgeError: `corrupt_object` for one of over INDEX_BYTES_MAX; `not_found`, `store_unavailable`.
        """
        names_versions: Literal["e_tag", "version"] = "version" if self.root_uri.startswith("gs://") else "e_tag"
        with store_errors(key):
            return self._reads.ask(lambda client: _whole(client, key, names_versions))

    def size(self, key: str) -> int:
        """Size in bytes, as the store has it."""
        with store_errors(key):
            return int(obstore.head(self._uploads, key)["size"])

    def stat(self, key: str) -> ListedObject:
        """What a listing would say of the object now."""
        with store_errors(key):
            return _listed(self._reads.ask(lambda client: obstore.head(client, key)))

    def check(self) -> None:
        """Asks the store one small thing, with the time-outs of fetches.

        Raises:
            StoreError: it does not answer, or not with these credentials; or there is no such bucket.
        """
        try:
            with store_errors(_PROBED):
                obstore.head(self._reads.current, _PROBED)
        except ObjectNotFoundError:
            # The answer is the same where the bucket is missing; only a listing tells.
            try:
                with store_errors(_PROBED):
                    obstore.list_with_delimiter(self._reads.current, f"{_PROBED}/")
            except ObjectNotFoundError:
                raise StoreError(f"there is no {self.root_uri}") from None

    def free_bytes(self) -> int | None:
        """How much more it takes; None: nobody says, or it has no end.

        Raises:
            StoreError: it does not answer.
        """
        return None

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """Bytes [start, start + length).

        Raises:
            BridgeError: `corrupt_object` when the object is shorter.
        """
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Bytes of (start, length) pairs, in their order, in one parallel round trip.

        Raises:
            BridgeError: `corrupt_object` when the object is shorter.
        """
        failpoints.hit("store-get", key)
        if not ranges:
            return []
        starts = [start for start, _ in ranges]
        lengths = [length for _, length in ranges]
        try:
            with store_errors(key):
                parts = self._reads.ask(lambda client: obstore.get_ranges(client, key, starts=starts, lengths=lengths))
        except StoreError as error:
            # A range past the end is an error in some stores and short in others; damage is not an outage. Asked with
            # the fetches' deadline: in an outage nobody waits for this answer as long as for an upload.
            with store_errors(key):
                size = int(obstore.head(self._reads.current, key)["size"])
            if size < max(start + length for start, length in ranges):
                raise BridgeError("corrupt_object", f"{key} is shorter than its index says") from error
            raise
        views = [memoryview(part) for part in parts]
        if any(len(view) != length for view, length in zip(views, lengths, strict=True)):
            raise BridgeError("corrupt_object", f"{key} is shorter than its index says")
        return views

    def head_bytes(self, key: str, length: int) -> memoryview:
        """The first `length` bytes, or all when the object is shorter."""
        try:
            with store_errors(key):
                # One round trip: stores give what there is of a range that begins inside of an object.
                return memoryview(
                    self._reads.ask(lambda client: obstore.get_range(client, key, start=0, length=length))
                )
        except StoreError:
            # No range begins inside of an empty object.
            with store_errors(key):
                size = int(obstore.head(self._reads.current, key)["size"])
            if size:
                raise
            return memoryview(b"")

    def list_after(self, prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        """Objects whose key begins with `prefix` and is greater than `after`, ascending by key."""
        with store_errors(prefix):
            for page in obstore.list(self._uploads, prefix, offset=after):
                for meta in page:
                    yield _listed(meta)

    def list_folders(self, prefix: str) -> list[str]:
        """The folders directly under `prefix`, which ends with a slash."""
        with store_errors(prefix):
            found = obstore.list_with_delimiter(self._uploads, prefix)
            return list(found["common_prefixes"])

    def delete_many(self, keys: Sequence[str]) -> None:
        """Deletes objects; those that are not there are no error."""
        if keys:
            with store_errors(keys[0]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._uploads, list(keys))

    def open_upload(self, key: str) -> Upload:
        """A streaming multipart upload that nobody can read before `commit`."""
        self._check_key(key)
        return Upload(self._uploads, key)

    def _check_key(self, key: str) -> None:
        """Refuses to write under a key that not every store takes. Raises BridgeError `internal`."""
        whole = f"{self.root_uri.partition('://')[2].partition('/')[2]}/{key}"
        if len(whole.encode()) > KEY_BYTES_MAX and not self.single_process:
            raise BridgeError("internal", f"{key}: with the store's prefix it is longer than {KEY_BYTES_MAX} bytes")
        if any(len(part.encode()) > KEY_PART_BYTES_MAX for part in key.split("/")):
            raise BridgeError("internal", f"{key}: a part of it is longer than {KEY_PART_BYTES_MAX} bytes")
