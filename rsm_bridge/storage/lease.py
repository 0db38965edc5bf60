"""A lease per table, so that two bridges do not maintain it at the same time.

One small object per table, taken and renewed by conditional puts. Nobody's clock is compared with another's: a holder
writes a new version at least every third of the TTL, and whoever sees the same version for a whole TTL, by a clock of
its own that only goes forward, takes it over. So a killed holder is replaced within two TTLs, one of them at most spent
before the first look.

A lease saves work and never guards data: a holder that slept through its TTL goes on believing. What it does then is
refused by the swap of the table's head, or was right whatever anybody else did (publish rules R12 and R13).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from converter import stored_json
from iceberg_catalog import failpoints
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import LEASE_SECONDS
from rsm_bridge.storage.keys import LEASE_ROOT
from rsm_bridge.storage.object_store import ObjectStore, VersionedBytes

_FREE = "free"


@contextlib.contextmanager
def kept(lease: Lease) -> Iterator[None]:
    """Renews an acquired lease on a thread of its own during the block, however long that is, and lets go after it."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(lease.ttl / 3):
            with contextlib.suppress(BridgeError):  # the store is away: the next try, or another bridge, has it
                lease.renew()

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(BridgeError):  # it ends by itself
            lease.release()


def lease_key(name: str) -> str:
    """Key of the lease of a topic id, 32 hex digits."""
    return f"{LEASE_ROOT}{name}.json"


@dataclass(slots=True, kw_only=True)
class Lease:
    """One would-be holder of one lease. Not for several threads.

    Attributes:
        store: where it lies.
        key: of the lease object.
        holder: says who, for people; what makes a version unique is drawn anew each time.
        ttl: seconds; the same for everybody.
        clock: seconds, only ever forward.
    """

    store: ObjectStore
    key: str
    holder: str
    ttl: float = LEASE_SECONDS
    clock: Callable[[], float] = time.monotonic
    _seen: bytes | None = field(default=None, init=False)
    _seen_at: float = field(default=0.0, init=False)
    _ours: bytes | None = field(default=None, init=False)
    _renewed_at: float = field(default=0.0, init=False)

    def acquire(self) -> bool:
        """One attempt; True when it is ours now. Called again, it renews.

        Raises:
            StoreError: the store did not say.
        """
        now = self.clock()
        failpoints.hit("before-lease", self.key)
        try:
            current = self.store.read(self.key)
        except ObjectNotFoundError:
            mine = self._version(self.holder)
            return self.store.put_if_absent(self.key, mine) and self._take(mine, now)
        if current.data != self._ours and not self._may_take(current, now):
            return False
        mine = self._version(self.holder)
        return self.store.replace(self.key, mine, current.version) and self._take(mine, now)

    def renew(self) -> bool:
        """Keeps it, with a request only once a third of the TTL has passed; False when it was lost.

        Raises:
            StoreError: the store did not say; it may still be ours.
        """
        if self._ours is None:
            return False
        return self.clock() - self._renewed_at < self.ttl / 3 or (self._still_ours() and self.acquire())

    def release(self) -> None:
        """Lets others have it at once. Does nothing when it is not ours.

        Raises:
            StoreError: the store did not say; the lease ends by itself after its TTL.
        """
        ours, self._ours = self._ours, None
        if ours is None:
            return
        try:
            current = self.store.read(self.key)
        except ObjectNotFoundError:
            return
        if current.data == ours:
            failpoints.hit("lease-release", self.key)
            self.store.replace(self.key, self._version(_FREE), current.version)

    def _may_take(self, current: VersionedBytes, now: float) -> bool:
        """Whether somebody else's lease is free, or has stood still for a TTL of ours."""
        if current.data != self._seen:
            self._seen, self._seen_at = current.data, now
        return _holder(current.data) == _FREE or now - self._seen_at >= self.ttl

    def _still_ours(self) -> bool:
        try:
            same = self.store.read(self.key).data == self._ours
        except ObjectNotFoundError:
            same = False
        if not same:
            self._ours = None
        return same

    def _take(self, mine: bytes, now: float) -> bool:
        self._ours, self._renewed_at = mine, now
        failpoints.hit("after-lease", self.key)
        return True

    @staticmethod
    def _version(holder: str) -> bytes:
        return json.dumps({"holder": holder, "version": secrets.token_hex(16)}, sort_keys=True).encode()


def _holder(data: bytes) -> str | None:
    """Who a lease object names; None when it cannot be read: it is taken over like one that stands still."""
    try:
        return stored_json.text(stored_json.field(stored_json.parse(data), "holder"))
    except ValueError:
        return None


def holder_name() -> str:
    """Who holds a lease, for people."""
    return f"{socket.gethostname()}:{threading.get_native_id()}"


_POLL_SECONDS = 1.0


@contextlib.contextmanager
def leased(store: ObjectStore, topic_id: bytes) -> Iterator[None]:
    """The table's lease during the block; waits for two TTLs, within which a dead holder is replaced."""
    lease = Lease(store=store, key=lease_key(topic_id.hex()), holder=holder_name())
    end = time.monotonic() + 2 * LEASE_SECONDS
    while not lease.acquire():
        if time.monotonic() > end:
            raise BridgeError("overloaded", f"a bridge is maintaining topic id {topic_id.hex()}; try again later")
        time.sleep(_POLL_SECONDS)
    with kept(lease):
        yield
