"""Whose a call is, and how much one caller may have of what all share.

Two levels, so that neither many calls on one connection nor many connections of one machine keep others out. Brokers
have one connection to a bridge; several on one machine, or behind one address, share the machine's part.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import HOST_SHARE


@dataclass(frozen=True, slots=True)
class Peer:
    """A caller. `connection` names one connection of `host`; all callers on a unix socket are one."""

    host: str
    connection: str


class Call(Protocol):
    """A call that is being served, as gRPC has it."""

    def peer(self) -> str:
        """`ipv4:address:port`, `ipv6:[address]:port` or `unix:…`."""
        ...


def peer_of(call: Call) -> Peer:
    """The caller, by its address."""
    name = call.peer()
    return Peer(name if name.startswith("unix") else name.rpartition(":")[0], name)


def admits(mine: int, of_host: int, total: int, maximum: int) -> bool:
    """Whether one more call may come.

    A connection may have as many as are left for others, so a half when it is alone, and a host HOST_SHARE times as
    many, three quarters: whoever comes next finds some.

    Args:
        mine: calls of the connection.
        of_host: calls of its host.
        total: calls of all.
        maximum: the limit of `total`.
    """
    free = maximum - total
    return free > 0 and mine <= free and of_host <= HOST_SHARE * free


class Admission:
    """Counts open calls of one kind. For the event loop alone.

    Args:
        maximum: open at once.
        what: they are, in words: `copies are running and waiting`.
    """

    def __init__(self, maximum: int, what: str) -> None:
        self._maximum = maximum
        self._what = what
        self._connections: Counter[Peer] = Counter()
        self._hosts: Counter[str] = Counter()

    @contextlib.contextmanager
    def of(self, peer: Peer) -> Iterator[None]:
        """One call of the peer during the block.

        Raises:
            BridgeError: `overloaded`.
        """
        total, mine = self._connections.total(), self._connections[peer]
        if not admits(mine, self._hosts[peer.host], total, self._maximum):
            raise BridgeError("overloaded", f"{total} {self._what}, {mine} of them for this connection")
        self._connections[peer] += 1
        self._hosts[peer.host] += 1
        try:
            yield
        finally:
            self._connections[peer] -= 1
            self._hosts[peer.host] -= 1
            self._connections += Counter()  # keeps what is above zero
            self._hosts += Counter()
