"""How long a copy may keep its place, or the turn for its large files, while nothing comes from its peer.

A place is for work, and so is the turn (serving/scheduling/copy_memory.py). A peer that is silent keeps them as long as
nobody else wants them, FRAME_WAIT_SECONDS_MAX at most. While another connection waits for the place, or anybody for the
turn, it must go on within CONTENDED_SILENCE_SECONDS, and may make the bridge wait for no longer in all than its bytes
take at
COPY_RATE_MIN_BYTES a second: drops that just keep a call alive are silence too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rsm_bridge.errors import BridgeError, release_frames
from rsm_bridge.limits import CONTENDED_SILENCE_SECONDS, COPY_RATE_MIN_BYTES, FRAME_WAIT_SECONDS_MAX, PEER_TICK_SECONDS


def overdue(silent: float, waited: float, received: int, contended: bool) -> str | None:
    """Why the peer has lost what its copy holds; None: it has not.

    Args:
        silent: seconds without a message.
        waited: seconds the bridge has waited for messages of the call, these among them.
        received: bytes that came in the call.
        contended: whether somebody else waits for what the copy holds.
    """
    if silent >= FRAME_WAIT_SECONDS_MAX:
        return f"no message for {FRAME_WAIT_SECONDS_MAX:.0f} s"
    if contended and silent >= CONTENDED_SILENCE_SECONDS:
        return f"no message for {CONTENDED_SILENCE_SECONDS:.0f} s while other copies wait"
    if contended and waited >= CONTENDED_SILENCE_SECONDS + received / COPY_RATE_MIN_BYTES:
        return f"{received} bytes in {waited:.0f} s while other copies wait"
    return None


class Patience:
    """Of one call. Waiting is counted in ticks that the event loop has kept: a bridge that hangs blames nobody.

    Args:
        contended: whether somebody else waits for what this call holds.
    """

    def __init__(self, contended: Callable[[], bool]) -> None:
        self._contended = contended
        self._waited = 0.0
        self._received = 0

    async def message(self, read: Coroutine[Any, Any, object]) -> object:
        """The next message.

        Raises:
            BridgeError: `deadline`: the peer is overdue.
        """
        silent = 0.0
        loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(read)
        reading.add_done_callback(retrieve)
        try:
            while not reading.done():
                started = loop.time()
                await asyncio.wait((reading,), timeout=PEER_TICK_SECONDS)
                passed = min(loop.time() - started, PEER_TICK_SECONDS)
                silent += passed
                self._waited += passed
                late = overdue(0.0 if reading.done() else silent, self._waited, self._received, self._contended())
                if late is not None:
                    raise BridgeError("deadline", late)
            data = reading.result()
        finally:
            reading.cancel()
        if isinstance(data, bytes):
            self._received += len(data)
        return data


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Looks at a failure nobody may wait for any more, so that asyncio does not complain about it."""
    if not ended.cancelled() and (error := ended.exception()) is not None:
        release_frames(error)
