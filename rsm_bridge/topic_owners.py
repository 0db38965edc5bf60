"""Whose a topic id is: the cluster that its stored segments name.

A request says its cluster itself; this is what the store says. Tombstones are looked into, not believed: anybody who
may delete wrote them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.index_at import directory_under
from rsm_bridge.layout import index_prefix
from rsm_bridge.limits import OWNER_INDEXES_MAX, OWNER_TOMBSTONES_MAX, TOPIC_OWNERS_MAX
from rsm_bridge.store import ObjectStore
from rsm_bridge.tombstone import decode_tombstone, is_tombstone


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
        """The cluster; None where no segment of the topic is stored.

        Raises:
            BridgeError: `store_unavailable`; `not_allowed`: of what is stored nothing tells whose it is.
        """
        if (known := self.known(topic_id)) is not None:
            return known
        # Anybody may put tombstones where nothing was: they tell nothing, and must not hide what lies behind them.
        silent = looked_at = 0
        for listed in islice(self.store.list_after(index_prefix(topic_id)), OWNER_TOMBSTONES_MAX):
            found, empty = self._cluster_in(listed.key)
            if found is not None:
                self._remember(topic_id, found)
                return found
            looked_at += 1
            silent += not empty
            if silent == OWNER_INDEXES_MAX:
                break
        if silent or looked_at == OWNER_TOMBSTONES_MAX:
            raise BridgeError("not_allowed", f"of the indexes of topic id {topic_id.hex()} none tells whose it is")
        return None

    def _remember(self, topic_id: bytes, cluster: str) -> None:
        with self._lock:
            self._known[topic_id] = cluster
            if len(self._known) > TOPIC_OWNERS_MAX:
                self._known.popitem(last=False)

    def _cluster_in(self, key: str) -> tuple[str | None, bool]:
        """The cluster that an object tells; whether it is a tombstone that replaced no index."""
        try:
            data = self.store.read(key).data
            index = decode_tombstone(data).index if is_tombstone(data) else data
            return (directory_under(key, index).metadata.cluster_name, False) if index else (None, True)
        except ObjectNotFoundError:
            return None, True
        except SegmentError:
            return None, False
        except BridgeError as error:
            if error.kind == "store_unavailable":
                raise
            return None, False
