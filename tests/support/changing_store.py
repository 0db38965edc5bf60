"""A store in which something happens just before the n-th time it is asked: what another process does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from rsm_bridge.storage.object_store import ObjectStore

#: What only asks.
ASKING = frozenset({"get_range", "get_ranges", "head_bytes", "list_after", "list_folders", "read", "size", "stat"})


class ChangingStore:
    """Passes everything on to `store`. `meanwhile`: what happens before the question of this number, from 0 on."""

    def __init__(self, store: ObjectStore, meanwhile: Mapping[int, Callable[[], object]]) -> None:
        self.store = store
        self.meanwhile = dict(meanwhile)
        self.asked = 0
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if name not in ASKING:
            return found

        def ask(*arguments: Any, **options: Any) -> Any:
            self.tick()
            return found(*arguments, **options)

        return ask

    def tick(self) -> None:
        """One question more; of whatever is not the store, too. Questions of other threads wait for what happens."""
        with self._lock:
            number, self.asked = self.asked, self.asked + 1
            act = self.meanwhile.pop(number, None)
            if act is not None:
                act()
