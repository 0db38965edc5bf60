"""A queue in which hosts take turns, within a host its connections, and calls of one connection in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from rsm_bridge.serving.scheduling.peers import Peer

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Pure bookkeeping. However much one caller has queued, another's first entry waits for one turn of each host."""

    def __init__(self) -> None:
        # Whoever was served last stands last.
        self._hosts: dict[str, dict[Peer, deque[T]]] = {}

    def put(self, peer: Peer, item: T) -> None:
        """Queues an item at the end of the peer's own."""
        self._hosts.setdefault(peer.host, {}).setdefault(peer, deque()).append(item)

    def remove(self, peer: Peer, item: T) -> None:
        """Takes an item out, wherever it stands; one that is not there is no error."""
        items = self._hosts.get(peer.host, {}).get(peer)
        if items is not None and item in items:
            items.remove(item)
            self._tidy(peer)

    def take(self) -> T | None:
        """The next item; None when there is none."""
        for host, connections in self._hosts.items():
            for peer, items in connections.items():
                item = items.popleft()
                self._hosts[host] = self._hosts.pop(host)
                connections[peer] = connections.pop(peer)
                self._tidy(peer)
                return item
        return None

    def _tidy(self, peer: Peer) -> None:
        connections = self._hosts[peer.host]
        if not connections[peer]:
            del connections[peer]
        if not connections:
            del self._hosts[peer.host]

    def __iter__(self) -> Iterator[T]:
        """All items in the order in which they would be taken now."""
        return _in_turn([_in_turn([iter(items) for items in host.values()]) for host in self._hosts.values()])

    def __len__(self) -> int:
        return sum(len(items) for host in self._hosts.values() for items in host.values())

    def others(self, peer: Peer) -> int:
        """How many entries are somebody else's."""
        return len(self) - len(self._hosts.get(peer.host, {}).get(peer, ()))

    def ahead_of(self, item: T) -> int:
        """How many come before an item, as things stand; all of them when it is not there."""
        count = 0
        for other in self:
            if other is item:
                break
            count += 1
        return count


def _in_turn(rows: Sequence[Iterator[T]]) -> Iterator[T]:
    """One of each row, again and again, until all are at their end."""
    left = deque(rows)
    while left:
        row = left.popleft()
        for item in row:
            yield item
            left.append(row)
            break
