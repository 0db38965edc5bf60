"""Whose a topic id is: the cluster that its stored segments name.

A request says its cluster itself; this is what the store says. Tombstones are looked into, not believed: anybody who
may delete wrote them. Only the heads of objects are read: an index may have a GiB, and its directory has a checksum of
its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock

from converter.errors import SegmentError
from converter.index.codec import header_directory_size
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import (
    OWNER_BYTES_MAX,
    OWNER_HEAD_BYTES,
    OWNER_INDEXES_MAX,
    OWNER_SECONDS_MAX,
    OWNER_TOMBSTONES_MAX,
    TOPIC_OWNERS_MAX,
)
from rsm_bridge.storage.keys import index_prefix
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.index_at import directory_under
from rsm_bridge.storage.tombstone import decode_tombstone, index_start, is_tombstone


@dataclass(slots=True)
class TopicOwners:
    """What is known is kept: a topic id belongs to one cluster for good. May be used by several threads."""

    store: ObjectStore
    _known: OrderedDict[bytes, str] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def known(self, topic_id: bytes) -> str | None:
        """The cluster, without a look at the store."""
        with self._lock:
            return self._known.get(topic_id)

    def cluster_of(self, topic_id: bytes) -> str | None:
        """The cluster; None where no segment of the topic is stored. Reads OWNER_BYTES_MAX bytes at most.

        Raises:
            BridgeError: `store_unavailable`; `deadline`: after OWNER_SECONDS_MAX; `not_allowed`: of what is stored
                nothing tells whose it is.
        """
        if (known := self.known(topic_id)) is not None:
            return known
        heads, end = _Heads(self.store), time.monotonic() + OWNER_SECONDS_MAX
        # Anybody may put tombstones where nothing was: they tell nothing, and must not hide what lies behind them.
        silent = looked_at = 0
        for listed in islice(self.store.list_after(index_prefix(topic_id)), OWNER_TOMBSTONES_MAX):
            found, empty = heads.cluster_in(listed.key)
            if found is not None:
                self._remember(topic_id, found)
                return found
            looked_at += 1
            silent += not empty
            if silent == OWNER_INDEXES_MAX:
                break
            if time.monotonic() > end:
                raise BridgeError("deadline", f"whose topic id {topic_id.hex()} is was not found out in time")
        if silent or looked_at == OWNER_TOMBSTONES_MAX:
            raise BridgeError("not_allowed", f"of the indexes of topic id {topic_id.hex()} none tells whose it is")
        return None

    def _remember(self, topic_id: bytes, cluster: str) -> None:
        with self._lock:
            self._known[topic_id] = cluster
            if len(self._known) > TOPIC_OWNERS_MAX:
                self._known.popitem(last=False)


@dataclass(slots=True)
class _Heads:
    """The heads that one look-up reads; `left` bytes more may be read."""

    store: ObjectStore
    left: int = OWNER_BYTES_MAX

    def cluster_in(self, key: str) -> tuple[str | None, bool]:
        """The cluster that an object tells; whether it is a tombstone that replaced no index."""
        try:
            index = self._index_at(key)
            return (None, True) if index is None else (directory_under(key, index).metadata.cluster_name, False)
        except ObjectNotFoundError:
            return None, True
        except SegmentError:
            return None, False
        except BridgeError as error:
            if error.kind == "store_unavailable":
                raise
            return None, False

    def _index_at(self, key: str) -> memoryview | None:
        """The beginning of the index that lies at the key or in the tombstone there, with all of its directory."""
        head, start = self._read(key, OWNER_HEAD_BYTES), 0
        if is_tombstone(head):
            if len(head) < OWNER_HEAD_BYTES:
                return memoryview(index) if (index := decode_tombstone(bytes(head)).index) else None
            start = index_start(head)
        needed = start + header_directory_size(head[start:])
        if needed > len(head) == OWNER_HEAD_BYTES:
            head = self._read(key, needed)
        return head[start:]

    def _read(self, key: str, length: int) -> memoryview:
        if length > self.left:
            raise BridgeError("corrupt_object", f"{key} has a longer directory than is read to know its owner")
        head = self.store.head_bytes(key, length)
        self.left -= len(head)
        return head
