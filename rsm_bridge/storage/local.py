"""The embedded default store: a folder.

Three things obstore's `LocalStore` does not give are added here.

* Durable before acknowledged: a written file and every folder that is new are fsynced. Tombstones of ids that nobody
  has seen are the exception (`put_if_absent(..., sync=False)`): what they guard against is a copy still running in this
  process, and that cannot outlive a power failure either.
* Compare-and-swap: a lock, a file lock and a comparison of the bytes. One bridge owns the folder
  (:meth:`LocalObjectStore.own`); the file lock is for commands that swap and delete beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from obstore.store import LocalStore

from iceberg_catalog import failpoints
from rsm_bridge.errors import InUseError, ObjectNotFoundError, StoreError
from rsm_bridge.storage.object_store import ListedObject, ObjectStore, VersionedBytes, check_size, store_errors
from rsm_bridge.storage.read_clients import ReadClients
from rsm_bridge.storage.upload import Upload

#: What a file is called before its upload or put has ended; obstore does so too.
_STAGED = re.compile(r"#\d+$")
#: A staged file that a crash left may be another name of a live object: it is never opened again.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


#: Locks in the folder of a store are called as files that are being written: no listing shows them.
_OWNED: Final = ".bridge.lock#1"
_SWAPPED: Final = ".swap.lock#1"


class FolderLock:
    """Exclusive use of a folder, until the process ends.

    Args:
        folder: made if need be.
        what: what errors call it.
        name: of the file in it that is locked.

    Raises:
        InUseError: another process has it.
    """

    def __init__(self, folder: Path, what: str = "data_dir", name: str = "bridge.lock") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / name).open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InUseError(f"{what} {folder} is in use by another bridge or command: stop it first") from error

    def close(self) -> None:
        """Lets another bridge have the folder."""
        self._file.close()


def own_folders(store: ObjectStore, data_dir: Path, stack: contextlib.ExitStack) -> None:
    """A store that is a folder, and the `data_dir` beside it, are this process's alone until `stack` ends.

    Raises:
        InUseError: one of them is another's. StoreError: the store's cannot be written to.
    """
    if isinstance(store, LocalObjectStore):
        stack.callback(FolderLock(data_dir).close)
        stack.callback(store.own().close)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_and_close(descriptor: int, data: bytes, *, sync: bool = False) -> None:
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalObjectStore(ObjectStore):
    """Objects as files under one folder."""

    single_process = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        client = LocalStore(self._folder, mkdir=True)
        super().__init__(client, ReadClients(client), f"file://{self._folder}")  # as it is: no engine decodes a path
        # Not the device: a disk that comes back may be another one by its number.
        self._inode = self._folder.stat().st_ino
        self._lock = threading.Lock()
        self._durable_folders: set[Path] = set()
        self._staged = itertools.count(2**32 + secrets.randbits(62))

    def own(self) -> FolderLock:
        """Makes the folder this process's alone, and removes what uploads that died have left in it.

        Raises:
            InUseError: it is another's, perhaps by another `data_dir`. StoreError: it cannot be written to.
        """
        with store_errors(self.root_uri):
            lock = FolderLock(self._folder, "store", _OWNED)
            for folder, _, names in os.walk(self._folder):
                for name in names:
                    if _STAGED.search(name) and name not in (_OWNED, _SWAPPED):
                        Path(folder, name).unlink(missing_ok=True)
        return lock

    def _make_durable(self, key: str) -> None:
        path = self._folder / key
        _fsync(path)
        _fsync(path.parent)
        folder = path.parent
        while folder not in self._durable_folders and folder != self._folder:
            _fsync(folder.parent)
            self._durable_folders.add(folder)
            folder = folder.parent

    def _check_root(self) -> None:
        """A write makes folders: where the disk is not mounted any more it would begin an empty store."""
        try:
            there = self._folder.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there:
            said = f"{self._folder} is gone, or another folder than this process began with"
            raise StoreError(f"{said}: is its disk mounted?")

    def unhurried(self) -> LocalObjectStore:
        """See ObjectStore; files have no time-outs."""
        return self

    def check(self) -> None:
        """See ObjectStore; a folder that is gone, or whose disk is, does not answer."""
        with store_errors(self.root_uri), os.scandir(self._folder) as entries:
            next(entries, None)

    def free_bytes(self) -> int:
        """See ObjectStore; what this user may still write. A disk without a free inode takes nothing more."""
        with store_errors(self.root_uri):
            disk = os.statvfs(self._folder)
        return 0 if disk.f_files and not disk.f_favail else disk.f_bavail * disk.f_frsize

    def put_if_absent(self, key: str, data: bytes, *, sync: bool = True) -> bool:
        """See ObjectStore; with `sync`, file and folders are on disk on return."""
        failpoints.hit("store-put", key)
        self._check_key(key)
        self._check_root()
        with store_errors(key):
            written = self._create(f"{self._folder}/{key}", data)
            if written and sync:
                self._make_durable(key)
        return written

    def _create(self, path: str, data: bytes) -> bool:
        """Puts a whole file at `path` unless there is one; True when written.

        Staged beside it and linked, as obstore does it, without the switches of thread that a put through it takes.
        Staged files end in `#` and a number: obstore hides them in listings. Its own numbers begin with 1.
        """
        staged = f"{path}#{next(self._staged)}"
        try:
            descriptor = os.open(staged, _NEW_FILE, 0o600)
        except FileNotFoundError:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(staged, _NEW_FILE, 0o600)
        try:
            _write_and_close(descriptor, data)
            os.link(staged, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(staged)  # noqa: PTH108 half the time of a Path
        return True

    def replace(self, key: str, data: bytes, version: str) -> bool:
        """See ObjectStore; atomic among the threads of this process and the commands beside it."""
        failpoints.hit("store-put", key)
        self._check_key(key)
        self._check_root()
        with self._lock, self._swap_lock(key):
            try:
                current = self.read(key)
            except ObjectNotFoundError:
                return False
            if current.version != version:
                return False
            with store_errors(key):
                self._overwrite(f"{self._folder}/{key}", data)
        return True

    def _overwrite(self, path: str, data: bytes) -> None:
        """Renames a whole file over the one at `path`, on disk before: else a power cut may leave neither's bytes."""
        staged = f"{path}#{next(self._staged)}"
        try:
            _write_and_close(os.open(staged, _NEW_FILE, 0o600), data, sync=True)
            Path(staged).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)  # noqa: PTH108 half the time of a Path
        _fsync(Path(path).parent)

    @contextlib.contextmanager
    def _swap_lock(self, key: str) -> Iterator[None]:
        """Commands may swap and delete while a bridge owns the folder: `undelete`, `requeue` and others."""
        with store_errors(key):
            descriptor = os.open(self._folder / _SWAPPED, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self, key: str) -> VersionedBytes:
        """See ObjectStore; the version is the SHA-256 of the bytes."""
        with store_errors(key), (self._folder / key).open("rb") as file:
            check_size(key, os.fstat(file.fileno()).st_size)
            data = file.read()
        return VersionedBytes(data, hashlib.sha256(data).hexdigest())

    def head_bytes(self, key: str, length: int) -> memoryview:
        """See ObjectStore."""
        with store_errors(key), (self._folder / key).open("rb", buffering=0) as file:
            return memoryview(file.read(length))

    def list_after(self, prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        """See ObjectStore."""
        if after is not None:
            return self._list_names(prefix, after)
        # The file system lists in no order.
        return iter(sorted(super().list_after(prefix), key=lambda listed: listed.key))

    def _list_names(self, prefix: str, after: str) -> Iterator[ListedObject]:
        """By names first: files that come before `after` are not looked at."""
        base = f"{self._folder}/"
        walked = os.walk(f"{base}{prefix}".rstrip("/"))
        found = (f"{folder}/{name}".removeprefix(base) for folder, _, names in walked for name in names)
        for key in sorted(key for key in found if not _STAGED.search(key)):
            if key > after:
                with contextlib.suppress(ObjectNotFoundError):  # deleted meanwhile
                    yield self.stat(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        """See ObjectStore; never between comparison and write of a swap, which would bring the object back."""
        for key in keys:
            with self._lock, self._swap_lock(key), store_errors(key):
                (self._folder / key).unlink(missing_ok=True)

    def open_upload(self, key: str) -> Upload:
        """See ObjectStore; a committed upload is on disk."""
        self._check_key(key)
        self._check_root()
        return _DurableUpload(self, key)

    def commit_durably(self, upload: Upload) -> None:
        """Completes an upload of this store and fsyncs it."""
        self._check_root()
        Upload.commit(upload)
        with store_errors(upload.key):
            self._make_durable(upload.key)


class _DurableUpload(Upload):
    def __init__(self, store: LocalObjectStore, key: str) -> None:
        super().__init__(store._uploads, key)  # noqa: SLF001 the store's own half
        self._store = store

    def commit(self) -> None:
        self._store.commit_durably(self)
