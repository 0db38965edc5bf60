"""Look-ups of topics' owners for calls: few at once, in turns, one for each topic id, with a deadline.

Whoever may write anywhere can name any topic id. So look-ups have threads of their own, and wait in a queue in which
callers take turns: neither deletes nor other callers wait for what one of them asks. What is known needs no look-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial

from rsm_bridge.call_pool import CallPool
from rsm_bridge.errors import BridgeError
from rsm_bridge.expiring_cache import ExpiringCache
from rsm_bridge.fair_queue import FairQueue
from rsm_bridge.limits import (
    OWNER_LOOKUPS_MAX,
    OWNER_SECONDS_MAX,
    OWNER_UNKNOWN_MAX,
    OWNER_UNKNOWN_SECONDS,
    OWNER_WORKERS,
)
from rsm_bridge.peers import Admission, Peer
from rsm_bridge.topic_owners import TopicOwners


@dataclass(eq=False, frozen=True, slots=True)
class _LookUp:
    topic_id: bytes
    answer: asyncio.Future[str | None]


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
        self._flights: dict[bytes, asyncio.Future[str | None]] = {}
        self._admission = Admission(OWNER_LOOKUPS_MAX, "look-ups of topics' owners are running and waiting")
        # Why nobody owns a topic id: the text of the refusal, or nothing where nothing is stored.
        self._nobody: ExpiringCache[bytes, str] = ExpiringCache(OWNER_UNKNOWN_MAX, 0)

    async def cluster_of(self, topic_id: bytes, peer: Peer) -> str | None:
        """The cluster whose topic it is; None where no segment of it is stored, or was OWNER_UNKNOWN_SECONDS ago.

        Raises:
            BridgeError: `overloaded`, `deadline`, `store_unavailable`; `not_allowed`: what is stored does not tell.
        """
        if (known := self._owners.known(topic_id)) is not None:
            return known
        if (nobody := self._nobody.get(topic_id, time.monotonic())) is not None:
            if nobody:
                raise BridgeError("not_allowed", nobody)
            return None
        answer = self._flights.get(topic_id) or self._begin(topic_id, peer)
        try:
            async with asyncio.timeout(OWNER_SECONDS_MAX):
                return await asyncio.shield(answer)
        except TimeoutError as error:
            text = f"whose topic id {topic_id.hex()} is was not found out within {OWNER_SECONDS_MAX:.0f} s"
            raise BridgeError("deadline", text) from error

    def stored(self, topic_id: bytes) -> None:
        """A segment of the topic was stored here: it has an owner now."""
        self._nobody.drop(topic_id)

    def _begin(self, topic_id: bytes, peer: Peer) -> asyncio.Future[str | None]:
        with contextlib.ExitStack() as place:
            place.enter_context(self._admission.of(peer))
            look_up = _LookUp(topic_id, asyncio.get_running_loop().create_future())
            self._queue.put(peer, look_up)
            held = place.pop_all()  # whoever leaves: the look-up goes on, and counts until its end
        self._flights[topic_id] = look_up.answer
        look_up.answer.add_done_callback(partial(self._ended, topic_id, held))
        self._next()
        return look_up.answer

    def _next(self) -> None:
        while self._running < OWNER_WORKERS and (look_up := self._queue.take()) is not None:
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

    def _ended(self, topic_id: bytes, held: contextlib.ExitStack, answer: asyncio.Future[str | None]) -> None:
        held.close()
        del self._flights[topic_id]
        if answer.cancelled():
            return
        end, error = time.monotonic() + OWNER_UNKNOWN_SECONDS, answer.exception()
        if error is None and answer.result() is None:
            self._nobody.put(topic_id, "", end=end)
        elif isinstance(error, BridgeError) and error.kind == "not_allowed":
            self._nobody.put(topic_id, str(error), end=end)
