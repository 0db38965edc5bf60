"""Look-ups of topics' owners for calls: few at once, in turns, one for each topic id, with a deadline.

Whoever may write anywhere can name any topic id. So look-ups have threads of their own, and wait in a queue in which
callers take turns: neither deletes nor other callers wait for what one of them asks. What is known needs no look-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from functools import partial

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import (
    OWNER_LOOKUPS_MAX,
    OWNER_SECONDS_MAX,
    OWNER_UNKNOWN_MAX,
    OWNER_UNKNOWN_SECONDS,
    OWNER_WORKERS,
)
from rsm_bridge.serving.scheduling.call_pool import CallPool
from rsm_bridge.serving.scheduling.fair_queue import FairQueue
from rsm_bridge.serving.scheduling.peers import Admission, Peer
from rsm_bridge.storage.segments.topic_owners import TopicOwners
from rsm_bridge.values.registry.expiring_cache import ExpiringCache


@dataclass(eq=False, slots=True, kw_only=True)
class _LookUp:
    """One question to the store.

    Attributes:
        topic_id: whose owner is asked for.
        answer: for all who wait.
        peers: in whose queues it stands or stood; whoever's turn comes first begins it.
        begun: when, by time.monotonic(); None: not yet.
        stored: a segment of the topic was stored since, so that what it finds may be too old to be kept.
    """

    topic_id: bytes
    answer: asyncio.Future[str | None]
    peers: set[Peer] = field(default_factory=set)
    begun: float | None = None
    stored: bool = False


class OwnerLookups:
    """All look-ups of one server. For the event loop alone.

    Args:
        owners: what is known, and how the store is asked.
        pool: of OWNER_WORKERS threads, for nothing else.
    """

    def __init__(self, owners: TopicOwners, pool: CallPool) -> None:
        self._owners = owners
        self._pool = pool
        self._running = 0
        self._queue: FairQueue[_LookUp] = FairQueue()
        self._flights: dict[bytes, _LookUp] = {}
        self._admission = Admission(OWNER_LOOKUPS_MAX, "look-ups of topics' owners are running and waiting")
        # Why nobody owns a topic id: the text of the refusal, or nothing where nothing is stored.
        self._nobody: ExpiringCache[bytes, str] = ExpiringCache(OWNER_UNKNOWN_MAX, 0)

    async def cluster_of(self, topic_id: bytes, peer: Peer) -> str | None:
        """The cluster whose topic it is; None where no segment of it is stored, or was OWNER_UNKNOWN_SECONDS ago.

        What another caller asks for already is asked once, at whichever's turn comes first.

        Raises:
            BridgeError: `overloaded`, `deadline`, `store_unavailable`; `not_allowed`: what is stored does not tell.
        """
        if (known := self._owners.known(topic_id)) is not None:
            return known
        if (nobody := self._nobody.get(topic_id, time.monotonic())) is not None:
            if nobody:
                raise BridgeError("not_allowed", nobody)
            return None
        look_up = self._flights.get(topic_id) or self._begin(topic_id, peer)
        self._queue_for(look_up, peer)
        try:
            async with asyncio.timeout(OWNER_SECONDS_MAX):
                return await asyncio.shield(look_up.answer)
        except TimeoutError as error:
            text = f"whose topic id {topic_id.hex()} is was not found out within {OWNER_SECONDS_MAX:.0f} s"
            raise BridgeError("deadline", text) from error

    def owner_now(self, topic_id: bytes) -> str | None:
        """What the store says now, unless it is known; in the caller's thread, for one that runs a copy.

        Raises:
            BridgeError: as :meth:`cluster_of`.
        """
        return self._owners.cluster_of(topic_id)

    def known(self, topic_id: bytes) -> bool:
        """Whether the owner is known, so that nothing can change it."""
        return self._owners.known(topic_id) is not None

    def stored(self, topic_id: bytes) -> None:
        """A segment of the topic was stored here: it has an owner now."""
        self._nobody.drop(topic_id)
        if (look_up := self._flights.get(topic_id)) is not None:
            look_up.stored = True

    def _begin(self, topic_id: bytes, peer: Peer) -> _LookUp:
        with contextlib.ExitStack() as place:
            place.enter_context(self._admission.of(peer))
            held = place.pop_all()  # whoever leaves: the look-up goes on, and counts until its end
        look_up = _LookUp(topic_id=topic_id, answer=asyncio.get_running_loop().create_future())
        self._flights[topic_id] = look_up
        look_up.answer.add_done_callback(partial(self._ended, look_up, held))
        return look_up

    def _queue_for(self, look_up: _LookUp, peer: Peer) -> None:
        """Whoever joins a look-up need not wait for the turn of who asked first."""
        if look_up.begun is not None or peer in look_up.peers:
            return
        look_up.peers.add(peer)
        self._queue.put(peer, look_up)
        self._next()

    def _next(self) -> None:
        while self._running < OWNER_WORKERS and (look_up := self._queue.take()) is not None:
            if look_up.begun is not None:
                continue
            look_up.begun = time.monotonic()
            self._running += 1
            self._pool.submit(self._owners.cluster_of, look_up.topic_id).add_done_callback(
                partial(self._answered, look_up)
            )

    def _answered(self, look_up: _LookUp, work: asyncio.Future[str | None]) -> None:
        self._running -= 1
        if work.cancelled():
            look_up.answer.cancel()
        elif (error := work.exception()) is not None:
            look_up.answer.set_exception(error)
        else:
            look_up.answer.set_result(work.result())
        self._next()

    def _ended(self, look_up: _LookUp, held: contextlib.ExitStack, answer: asyncio.Future[str | None]) -> None:
        held.close()
        del self._flights[look_up.topic_id]
        if answer.cancelled():
            return
        error = answer.exception()
        if look_up.stored or look_up.begun is None:
            return
        end = look_up.begun + OWNER_UNKNOWN_SECONDS
        if error is None and answer.result() is None:
            self._nobody.put(look_up.topic_id, "", end=end)
        elif isinstance(error, BridgeError) and error.kind == "not_allowed":
            self._nobody.put(look_up.topic_id, str(error), end=end)
