"""Places for copies that run, handed out in turns (fair_queue.py). For the event loop alone."""

from __future__ import annotations

import asyncio

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_WAIT_SECONDS_MAX
from rsm_bridge.serving.scheduling.fair_queue import FairQueue
from rsm_bridge.serving.scheduling.peers import Peer


class Ticket:
    """One copy's place: waited for with :meth:`CopyPlaces.take`, had until :meth:`CopyPlaces.give_back`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def holds(self) -> bool:
        """Whether the place has been given."""
        return self.granted.done() and not self.granted.cancelled()


class CopyPlaces:
    """So many copies run at once as there are places."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: FairQueue[Ticket] = FairQueue()
        self._leaving: set[Ticket] = set()

    async def take(self, ticket: Ticket) -> None:
        """Waits for a place.

        Raises:
            BridgeError: `overloaded`: none was free for COPY_WAIT_SECONDS_MAX.
        """
        if self._free:  # nobody waits then
            self._free -= 1
            ticket.granted.set_result(None)
            return
        self._queue.put(ticket.peer, ticket)
        try:
            async with asyncio.timeout(COPY_WAIT_SECONDS_MAX):
                await asyncio.shield(ticket.granted)
        except BaseException as error:
            if ticket.holds:
                self.give_back(ticket)
            else:
                self._queue.remove(ticket.peer, ticket)
                ticket.granted.cancel()
            if isinstance(error, TimeoutError):
                raise BridgeError(
                    "overloaded", f"no place for the copy became free for {COPY_WAIT_SECONDS_MAX:.0f} s"
                ) from error
            raise

    def give_back(self, ticket: Ticket) -> None:
        """The place goes to the next that waits."""
        self._leaving.discard(ticket)
        following = self._queue.take()
        if following is None:
            self._free += 1
        else:
            following.granted.set_result(None)

    def leave(self, ticket: Ticket) -> None:
        """The place will be given back as soon as its worker is; until then nobody else need leave for the same one."""
        if ticket.holds:
            self._leaving.add(ticket)

    def ahead_of(self, ticket: Ticket) -> int:
        """How many copies come before one that waits; 0 for one that runs."""
        return 0 if ticket.granted.done() else self._queue.ahead_of(ticket)

    def wanted_by_others(self, ticket: Ticket) -> bool:
        """Whether the place is missed: more copies of others wait than places are about to become free."""
        return ticket.holds and self._queue.others(ticket.peer) > len(self._leaving)
