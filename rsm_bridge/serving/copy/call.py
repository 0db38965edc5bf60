"""The CopySegment call on the event loop: messages in, heartbeats and one result out.

A copy goes through `waiting` (for memory and a worker), `receiving`, `writing` and `indexing`, and is `waiting` again
while it needs the turn for more memory and another copy has it (serving/scheduling/copy_memory.py). While it waits
nothing is read, so the client is held back by flow control. While it has its place the client must send
(peer_patience.py), or the place goes to somebody else. When the conversion meets an error of ours, the client is asked
once to send the log bytes again (`restart`), and they are stored as they are. A call that is over its deadline, or
whose client cannot be told that it still works, ends wherever it is; place and turn are given back when its worker is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import structlog
from grpc import aio

from converter.batches.later_indexes import LaterAborts
from converter.errors import SegmentError
from converter.index.model import Directory
from converter.types import Cause, ConvertOptions, SegmentMetadata
from iceberg_catalog import failpoints
from rsm_bridge.errors import BridgeError, release_frames
from rsm_bridge.limits import (
    ANSWER_SECONDS_MAX,
    CANCEL_NOTICE_SECONDS,
    COPY_FILES_BYTES_USUAL,
    COPY_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    START_SECONDS_MAX,
)
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.copy.attempt import CopyAttempt, custom_metadata, store_segment
from rsm_bridge.serving.copy.files_beside import CopyFiles
from rsm_bridge.serving.copy.frame_feed import FeedClosedError, FrameFeed
from rsm_bridge.serving.copy.peer_patience import Patience, retrieve
from rsm_bridge.serving.scheduling.copy_memory import CopyMemory, CopyShare
from rsm_bridge.serving.scheduling.copy_places import CopyPlaces, Ticket
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority
from rsm_bridge.serving.scheduling.peers import peer_of
from rsm_bridge.serving.wire.messages import CopyMessage, End, File, Frame, Start, parse_copy_request
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.values.typed.copy import TypedCopy


@dataclass(slots=True, kw_only=True)
class Copier:
    """What all copies share.

    Attributes:
        priority: of fetches, before each step of a worker and each frame that it does not need yet.
        running: what the reclaimer asks before a tombstone goes.
        places: as many as fit the memory budget and the workers.
        memory: the account that says how many places there are, and whose turn a copy takes where it needs more.
        options: a topic's conversion options, by its rule.
        columns: what gives the rows of one copy the columns of their values.
        finished: told about each finished copy, and how many of its rows did not decode, by code.
    """

    store: ObjectStore
    priority: FetchPriority
    running: RunningCopies
    executor: Executor
    places: CopyPlaces
    memory: CopyMemory
    metrics: Metrics
    options: Callable[[str], ConvertOptions]
    columns: Callable[[SegmentMetadata], TypedCopy | None]
    finished: Callable[[SegmentMetadata, Directory, Mapping[str, int]], None]
    log: structlog.typing.FilteringBoundLogger


@dataclass(slots=True, kw_only=True)
class CopyCall:
    """One call.

    `allow` raises BridgeError where the caller may not copy the segment, and gives what the worker is to ask again.
    """

    copier: Copier
    context: aio.ServicerContext[bytes, bytes]
    allow: Callable[[SegmentMetadata], Awaitable[Callable[[], None] | None]]
    stage: str = "waiting"
    attempt: CopyAttempt | None = None
    frames_seen: bool = False
    running: list[asyncio.Future[Directory]] = field(default_factory=list)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ticket: Ticket = field(init=False)
    _turn: CopyShare = field(init=False)
    _files: CopyFiles = field(default_factory=CopyFiles)
    _unheard: Exception | None = None
    _reading: asyncio.Task[CopyMessage] | None = None
    _allowed: Callable[[], None] | None = None
    _patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self._ticket = Ticket(peer_of(self.context))
        self._turn = self.copier.memory.share()
        places, ticket, turn = self.copier.places, self._ticket, self._turn
        # Not a method: what refers to itself keeps a copy's files in memory until Python collects.
        self._patience = Patience(lambda: places.wanted_by_others(ticket) or turn.wanted_by_others)

    async def run(self) -> SegmentMetadata:
        """Serves the call to its end; returns the segment for the log line.

        Raises:
            BridgeError, SegmentError: why the copy failed.
        """
        started = time.monotonic()
        first = await self._start()
        structlog.contextvars.bind_contextvars(
            topic=first.segment.topic, partition=first.segment.partition, segment=first.segment.segment_id.hex()
        )
        directory = await self._served(first, started + COPY_SECONDS_MAX)
        self.copier.metrics.copy_seconds.observe(time.monotonic() - started)
        if self.attempt is None or not self.attempt.repeated:
            self.copier.finished(first.segment, directory, self._failed())
        return first.segment

    async def _served(self, first: Start, deadline: float) -> Directory:
        """The copy from `start` to the answer, which ends at the deadline or when its client takes no heartbeat."""
        end = asyncio.timeout(deadline - time.monotonic())
        try:
            async with end:
                self._allowed = await self.allow(first.segment)
                later = LaterAborts.parse(first.later, complete=first.later_complete)
                heartbeats = asyncio.ensure_future(self._heartbeats(end))
                try:
                    return await self._answered(first, later, deadline)
                finally:
                    heartbeats.cancel()
        except TimeoutError as error:
            if not end.expired():
                raise
            if self._unheard is None:
                raise BridgeError("deadline", f"the copy did not end within {COPY_SECONDS_MAX:.0f} s") from error
            if isinstance(self._unheard, BridgeError):
                raise self._unheard from error
            raise BridgeError("cancelled", "the client can no longer be told of its copy") from self._unheard

    async def _answered(self, first: Start, later: LaterAborts, deadline: float) -> Directory:
        segment = first.segment
        with self.copier.running.of(segment.segment_id):
            async with self._slot():
                directory = await self._copy(first.described(), later, deadline)
        await self._write(rsm_pb2.CopyResponse(result=rsm_pb2.CopyResult(custom_metadata=custom_metadata(directory))))
        await failpoints.hit_async("after-answer", segment.topic_id.hex())
        return directory

    async def _start(self) -> Start:
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                first = await self._read()
        except TimeoutError as error:
            raise BridgeError("deadline", f"no `start` for {START_SECONDS_MAX:.0f} s") from error
        if not isinstance(first, Start):
            raise BridgeError("bad_request", "a copy begins with `start`")
        return first

    def _failed(self) -> Mapping[str, int]:
        """Rows that did not decode, by code; of a segment that is stored as it is none were asked."""
        attempt = self.attempt
        columns = None if attempt is None or attempt.options.mode != "table" else attempt.columns
        return {} if columns is None else columns.failed

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Memory and a worker for the time of the block, and until the worker really is back."""
        copier = self.copier
        with copier.metrics.copies_waiting.track_inprogress():
            await copier.places.take(self._ticket)
        copier.metrics.copies_running.inc()
        self.stage = "receiving"
        try:
            yield
        finally:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None
            if self.attempt is not None:
                self.attempt.feed.cancel()
            pending = [future for future in self.running if not future.done()]
            if pending:
                pending[-1].add_done_callback(lambda _: self._release())
            else:
                self._release()

    def _release(self) -> None:
        self._files.drop()
        self._turn.leave()
        self.copier.metrics.copies_running.dec()
        self.copier.places.give_back(self._ticket)

    async def _copy(self, segment: SegmentMetadata, later: LaterAborts, deadline: float) -> Directory:
        files = self._files
        message = await self._read()
        while isinstance(message, File):
            before = files.announced
            files.add(message)
            if before <= COPY_FILES_BYTES_USUAL < files.announced:
                await self._turn.keep()
            message = await self._read()
        return await self._stored(segment, later, deadline, message)

    async def _stored(
        self,
        segment: SegmentMetadata,
        later: LaterAborts,
        deadline: float,
        message: CopyMessage,
    ) -> Directory:
        """Converts what comes from `message` on, or stores it as it is when that fails."""
        options, files = self.copier.options(segment.topic), self._files
        whole = files.whole()
        if files.left_out:
            said = ", ".join(f"{kind.name} of {size} bytes" for kind, size in files.left_out.items())
            self.copier.log.warning("the producer snapshot is too large, storing the segment without", files=said)
        attempt = CopyAttempt(
            segment=segment,
            options=options,
            files=whole,
            feed=FrameFeed(),
            deadline=deadline,
            yield_to_fetches=self.copier.priority.yield_to_fetches,
            later=later,
            columns=self.copier.columns(segment),
            turn=self._turn,
            left_out=files.left_out,
            allowed=self._allowed,
        )
        try:
            return await self._pass(attempt, message)
        except (SegmentError, BridgeError):
            raise
        except Exception as error:
            if options.mode == "verbatim":
                raise
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self.copier.log.exception("conversion failed, storing the segment verbatim", reason=reason)
            self.copier.metrics.verbatim_segments.labels("internal").inc()
        message = await self._restart(reason)
        again = replace(
            attempt,
            options=replace(options, mode="verbatim"),
            feed=FrameFeed(),
            verbatim_cause=Cause.INTERNAL,
            stage="receiving",
        )
        return await self._pass(again, message)

    async def _pass(self, attempt: CopyAttempt, message: CopyMessage) -> Directory:
        """Feeds one attempt from `message` on and waits for its end."""
        self.attempt = attempt
        loop = asyncio.get_running_loop()
        worker = loop.run_in_executor(self.copier.executor, self._work, attempt)
        self.running.append(worker)
        try:
            while True:
                if not isinstance(message, Frame | End):
                    raise BridgeError("bad_request", "only frames and `end` may follow the files")
                self.frames_seen = True
                await attempt.feed.put(message)
                if isinstance(message, End):
                    break
                if self.copier.priority.claimed:
                    await attempt.feed.needed()
                reading = self._next()
                await asyncio.wait((reading, worker), return_when=asyncio.FIRST_COMPLETED)
                if worker.done():
                    break  # its answer does not wait for a client that says nothing more
                self._reading, message = None, reading.result()
        except FeedClosedError:
            pass
        except BaseException:
            attempt.feed.cancel()
            worker.add_done_callback(retrieve)
            raise
        try:
            return await asyncio.shield(worker)
        except asyncio.CancelledError:
            worker.add_done_callback(retrieve)
            raise

    def _work(self, attempt: CopyAttempt) -> Directory:
        # Longer than the call: a worker that hangs in a put outlives the broker's patience.
        with self.copier.running.of(attempt.segment.segment_id):
            try:
                return store_segment(self.copier.store, attempt)
            except BaseException as error:
                # What the worker had in memory ends with it, and not with the last who looks at the failure.
                release_frames(error)
                raise

    async def _restart(self, reason: str) -> Frame:
        """Asks for the log bytes once more and drops what was still on its way."""
        if not self.frames_seen:
            await self._read()  # so that the next frame at position 0 is the new one
        await self._write(rsm_pb2.CopyResponse(restart=rsm_pb2.Restart(reason=reason)))
        while True:
            message = await self._next()
            self._reading = None
            if isinstance(message, Frame) and message.position == 0:
                return message

    def _next(self) -> asyncio.Task[CopyMessage]:
        """The read that is under way, or a new one: gRPC takes one at a time, and a dropped one loses its message."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(retrieve)
        return self._reading

    async def _read(self) -> CopyMessage:
        try:
            data = await self._patience.message(self.context.read())
        except BridgeError:
            self.copier.places.leave(self._ticket)
            raise
        if not isinstance(data, bytes):  # gRPC's end-of-stream mark
            # A call that is over, by its deadline or a lost client, looks like this too, until gRPC cancels us.
            await asyncio.sleep(CANCEL_NOTICE_SECONDS)
            raise BridgeError("bad_request", "the client closed the call before `end`")
        return parse_copy_request(data)

    async def _write(self, response: rsm_pb2.CopyResponse) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX), self._writing:
                await self.context.write(response.SerializeToString())
        except TimeoutError as error:
            raise BridgeError("deadline", f"the client took nothing for {ANSWER_SECONDS_MAX:.0f} s") from error

    async def _heartbeats(self, end: asyncio.Timeout) -> None:
        """Tells the client every HEARTBEAT_SECONDS where its copy is; when it cannot be told, the call ends."""
        try:
            while True:
                await self._write(rsm_pb2.CopyResponse(heartbeat=self._heartbeat()))
                await asyncio.sleep(HEARTBEAT_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody hears of this copy any more
            self._unheard = error
            with contextlib.suppress(RuntimeError):  # the deadline ends it just now
                end.reschedule(asyncio.get_running_loop().time())

    def _heartbeat(self) -> rsm_pb2.Heartbeat:
        attempt, turn = self.attempt, self._turn
        stage = self.stage if attempt is None else attempt.stage
        return rsm_pb2.Heartbeat(
            received_bytes=0 if attempt is None else attempt.feed.received,
            stage="waiting" if turn.waits else stage,
            copies_ahead=turn.ahead or self.copier.places.ahead_of(self._ticket),
        )
