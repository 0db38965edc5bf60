"""When a fetch holds up copies: while we work for it, not while it waits for its reader.

A broker reads about 1 MiB and hangs up. One that leaves a stream open, or never reads it, must not slow the copies of
the whole bridge, and must not keep the stream for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import ANSWER_SECONDS_MAX, FETCH_CLAIM_SECONDS


class FetchClaim:
    """One fetch's claim on precedence, from its beginning to :meth:`end` or the end of the block.

    Args:
        fetching: claims it for the time of a block.
    """

    def __init__(self, fetching: Callable[[], AbstractContextManager[None]]) -> None:
        self._fetching = fetching
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(self._fetching())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Copies need not wait for this fetch any more, whatever it does."""
        self._held.close()

    async def written(self, write: Awaitable[None]) -> None:
        """Hands a frame to gRPC; the claim ends when the reader leaves it lying for FETCH_CLAIM_SECONDS.

        Raises:
            BridgeError: `deadline`: the reader has taken nothing for ANSWER_SECONDS_MAX.
        """
        lapse = asyncio.get_running_loop().call_later(FETCH_CLAIM_SECONDS, self.end)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await write
        except TimeoutError as error:
            raise BridgeError("deadline", f"the reader took nothing for {ANSWER_SECONDS_MAX:.0f} s") from error
        finally:
            lapse.cancel()
