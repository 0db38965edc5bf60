"""Frames from the event loop to the worker thread of one copy, through a bounded queue.

The loop waits in :meth:`FrameFeed.put` while the queue is full; it then reads nothing from the call, and gRPC's flow
control holds the client back. Whichever side ends first wakes the other.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator

from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_QUEUE_FRAMES_MAX, FRAME_WAIT_SECONDS_MAX
from rsm_bridge.serving.wire.messages import End, Frame


class FeedClosedError(Exception):
    """The worker has ended and takes no more frames."""


class FrameFeed:
    """One pass of log bytes. `put` and `cancel` belong to the loop, the rest to the worker.

    Attributes:
        received: bytes taken by the worker so far, checked.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: queue.SimpleQueue[Frame | End | None] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(COPY_QUEUE_FRAMES_MAX)
        self._hungry = asyncio.Event()
        self._hungry.set()
        self._closed = False
        self._cancelled = threading.Event()
        self.received = 0

    async def put(self, item: Frame | End) -> None:
        """Hands over one message; waits for room.

        Raises:
            FeedClosedError: the worker has ended.
        """
        await self._room.acquire()
        if self._closed:
            raise FeedClosedError
        self._hungry.clear()
        self._items.put(item)

    async def needed(self) -> None:
        """Waits until the worker has nothing more to go on with, or has ended."""
        await self._hungry.wait()

    def cancel(self) -> None:
        """The call is over: the worker stops at its next step."""
        self._cancelled.set()
        self._items.put(None)

    def check_cancelled(self) -> None:
        """Raises BridgeError `cancelled` once the call is over."""
        if self._cancelled.is_set():
            raise BridgeError("cancelled", "the broker ended the call")

    def close(self) -> None:
        """Worker: no more frames are wanted. Wakes a waiting `put`."""
        self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._closed = True
        self._room.release()
        self._hungry.set()

    def _taken(self) -> None:
        self._room.release()
        if self._items.empty():
            self._hungry.set()

    def frames(self, size: int) -> Iterator[memoryview]:
        """Worker: payloads in order, each compared with its checksum, position and the announced `size` in bytes.

        Raises:
            BridgeError: `damaged_in_transit`, `invalid_segment` (positions or total do not fit), `cancelled`, or
                `deadline` when the client sends nothing for a minute.
        """
        while True:
            try:
                item = self._items.get(timeout=FRAME_WAIT_SECONDS_MAX)
            except queue.Empty:
                raise BridgeError("deadline", f"no frame for {FRAME_WAIT_SECONDS_MAX:.0f} s") from None
            self.check_cancelled()
            if item is None:
                continue
            if isinstance(item, End):
                if not item.size == self.received == size:
                    raise BridgeError(
                        "invalid_segment",
                        f"{self.received} bytes arrived, {item.size} were sent, {size} are in the metadata",
                    )
                return
            if item.position != self.received or item.position + len(item.data) > size:
                raise BridgeError(
                    "invalid_segment",
                    f"a frame of {len(item.data)} bytes at position {item.position} after {self.received} of {size}",
                )
            item.check()
            self.received += len(item.data)
            self._loop.call_soon_threadsafe(self._taken)
            yield item.data
