"""A cache that is bounded by entries and by weight, whose entries may end with time."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """The least recently used leave first. Not for use by several threads at once. Times are of the caller's clock."""

    def __init__(self, entries_max: int, weight_max: int) -> None:
        """Empty. What alone weighs more than `weight_max` is not kept."""
        self._entries_max = entries_max
        self._weight_max = weight_max
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """The value, or None when there is none any more."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, end = entry
        if now >= end:
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, weight: int = 0, end: float = math.inf) -> None:
        """Keeps the value until `end`, exclusive, instead of the one there was."""
        if key in self._entries:
            self._remove(key)
        self._entries[key] = (value, weight, end)
        self._weight += weight
        while len(self._entries) > self._entries_max or self._weight > self._weight_max:
            self._remove(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        """Forgets a key; one that is not there is no error."""
        if key in self._entries:
            self._remove(key)

    def _remove(self, key: K) -> None:
        self._weight -= self._entries.pop(key)[1]
