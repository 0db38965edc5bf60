"""The first bytes of indexes that were just opened: what follows the directory there need not be asked for again.

A first fetch of a segment asks for its directory, three of Kafka's indexes and a block of the batch table, one after
the other. Most indexes are small, and one request brings all of that. The bytes are kept only for the fetches that come
next.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from converter.index_model import Directory
from rsm_bridge.limits import INDEX_HEADS_MAX


@dataclass(slots=True)
class IndexHeads:
    """The newest INDEX_HEADS_MAX of them, by the directory they begin with. Any thread."""

    _heads: OrderedDict[int, tuple[Directory, memoryview]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, directory: Directory, head: memoryview) -> None:
        """Remembers what was read together with a directory."""
        with self._lock:
            self._heads[id(directory)] = (directory, head)
            while len(self._heads) > INDEX_HEADS_MAX:
                self._heads.popitem(last=False)

    def part(self, directory: Directory, start: int, length: int) -> memoryview | None:
        """Bytes [start, start + length) of the object this very directory was read from, if they were."""
        with self._lock:
            found = self._heads.get(id(directory))
        if found is None or start + length > len(found[1]):
            return None
        return memoryview(bytes(found[1][start : start + length]))  # a cached block must not keep the rest in memory
