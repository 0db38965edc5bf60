"""Fetches on the event loop: directory → block → chunk, each cached, then frames.

A merge writes a segment's index anew while it is being read. What was cached before then leads to places that are other
bytes now, or nothing: the fetch starts from the new index. Batches, blocks and chunks are the same in both.

A consumer's fetch reads about 1 MiB and hangs up; Kafka comes back after 500 ms at the latest, for the same position or
the next. So whatever was begun is finished and kept, and a reader that goes forward finds the next chunks on their way,
across the segment's end too.

Waiting for the store and decoding have pools of their own: many may wait, but more that decode than there are
processors only delay each other. In both, what a fetch waits for goes before what is read ahead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from converter.errors import SegmentError
from converter.index.codec import SectionCheck
from converter.index.model import Block, Directory, IndexSection
from converter.segment.reader import find_batch, find_block
from converter.types import IndexType, SegmentMetadata
from rsm_bridge.config.settings import LimitSettings
from rsm_bridge.errors import BridgeError, ObjectNotFoundError, StoreError
from rsm_bridge.limits import (
    DIRECTORY_FRESH_SECONDS,
    FETCH_CHUNK_BYTES,
    FETCH_FRAME_BYTES,
    INDEX_HEAD_BYTES,
    INDEX_RENEWALS_MAX,
    MIB,
    READ_AHEAD_CHUNKS,
)
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.serving.fetch.byte_cache import ByteCache
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority
from rsm_bridge.serving.scheduling.worker_pool import ReadTicket, WorkerPool
from rsm_bridge.storage.keys import index_key, index_prefix, parse_index_key
from rsm_bridge.storage.segments.chunks import ChunkPlan, cut, split
from rsm_bridge.storage.segments.index_at import index_named
from rsm_bridge.storage.segments.reader import SegmentReader, key_of

T = TypeVar("T")


@dataclass(slots=True)
class OpenSegment:
    """A cached directory. `checked` is when no tombstone was last seen; seconds of the monotonic clock."""

    directory: Directory
    checked: float

    @property
    def size(self) -> int:
        """Bytes it takes in the cache, roughly."""
        return self.directory.directory_size + 1024


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A cached block and its chunks."""

    block: Block
    plan: ChunkPlan

    @property
    def size(self) -> int:
        """Bytes it takes in the cache, roughly."""
        block = self.block
        return int(block.batches.nbytes + block.deltas.nbytes + block.encoders.nbytes + 40 * len(block.pages.column))


def _of_another_index(error: BridgeError | SegmentError) -> bool:
    """Whether it is what a read meets when a merge has put another index in the place of the one it goes by."""
    return isinstance(error, ObjectNotFoundError) or error.kind == "corrupt_object"


def _framed(data: memoryview) -> Iterator[memoryview]:
    for at in range(0, len(data), FETCH_FRAME_BYTES):
        yield data[at : at + FETCH_FRAME_BYTES]


def _opened(block: Block) -> OpenBlock:
    return OpenBlock(block, cut(block))


@dataclass(frozen=True, slots=True, order=True)
class ChunkPlace:
    """Block number and chunk number in it."""

    block: int
    chunk: int


@dataclass(frozen=True, slots=True)
class FetchPools:
    """Where fetches work: `reading` from the store, `decoding` on the processors, `priority` over copies."""

    reading: WorkerPool
    decoding: WorkerPool
    priority: FetchPriority


_URGENT = ReadTicket()


class Fetcher:
    """All fetches of one server."""

    def __init__(self, reader: SegmentReader, pools: FetchPools, limits: LimitSettings, metrics: Metrics) -> None:
        self._reader = reader
        self._pools = pools
        self._metrics = metrics
        self._tickets: dict[Hashable, ReadTicket] = {}  # of what is read ahead
        lookups = metrics.cache_lookups
        half = limits.index_cache_mib * MIB // 2
        self._segments: ByteCache[OpenSegment] = ByteCache("directory", half, lambda s: s.size, lookups)
        self._blocks: ByteCache[OpenBlock] = ByteCache("block", half, lambda b: b.size, lookups)
        self._chunks: ByteCache[memoryview] = ByteCache("chunk", limits.chunk_cache_mib * MIB, len, lookups)

    async def _read(self, work: Callable[[], T], ticket: ReadTicket = _URGENT) -> T:
        return await asyncio.wrap_future(self._pools.reading.submit(ticket, work))

    def fetching(self) -> AbstractContextManager[None]:
        """A broker waits for bytes during the block; copies give way."""
        return self._pools.priority.fetching()

    def forget(self, segment_id: bytes) -> None:
        """A deleted segment leaves the caches."""

        def belongs(key: object) -> bool:
            return isinstance(key, tuple) and key[0] == segment_id

        for cache in (self._segments, self._blocks, self._chunks):
            cache.drop(belongs)

    async def directory(self, segment: SegmentMetadata) -> Directory:
        """The segment's directory, at most 15 s after it was last seen without a tombstone.

        Raises:
            BridgeError: `foreign_segment`, `segment_deleted`, `not_found`, `store_unavailable`, …
        """
        # A fetch with other custom metadata than the cached one must go the whole way.
        key = (segment.segment_id, segment.custom_metadata)

        async def load() -> OpenSegment:
            return OpenSegment(await self._read(lambda: self._reader.directory_of(segment)), time.monotonic())

        found = await self._segments.get(key, load)
        if time.monotonic() - found.checked > DIRECTORY_FRESH_SECONDS:
            directory = found.directory
            try:
                current = await self._read(lambda: self._reader.is_current(directory))
            except BridgeError as error:
                if error.kind in ("segment_deleted", "not_found"):
                    self.forget(segment.segment_id)
                raise
            if not current:
                self._forget_directories(segment.segment_id)
                found = await self._segments.get(key, load)
            found.checked = time.monotonic()
        return found.directory

    def _forget_directories(self, segment_id: bytes) -> None:
        self._segments.drop(lambda key: isinstance(key, tuple) and key[0] == segment_id and isinstance(key[1], bytes))

    async def _renewing(self, directory: Directory, work: Callable[[Directory], Awaitable[T]]) -> T:
        """Does `work`, again with what has taken the directory's place when it fails for that."""
        for _ in range(INDEX_RENEWALS_MAX):
            try:
                return await work(directory)
            except (BridgeError, SegmentError) as error:
                if not _of_another_index(error):
                    raise
                directory = await self._successor_of(directory, error)
        return await work(directory)

    async def _successor_of(self, directory: Directory, error: BridgeError | SegmentError) -> Directory:
        """The directory that a merge wrote after this one; raises `error` when none did."""
        metadata = directory.metadata

        async def load() -> OpenSegment:
            key, size = str(index_key(metadata)), directory.directory_size
            found = await self._read(lambda: self._reader.directory_at(key, size))
            if found.checksum == directory.checksum or found.attempt_id != directory.attempt_id:
                raise error
            return OpenSegment(found, time.monotonic())

        renewed = await self._segments.get((metadata.segment_id, directory.checksum), load)
        self._forget_directories(metadata.segment_id)
        return renewed.directory

    async def file_frames(self, segment: SegmentMetadata, kind: IndexType) -> AsyncIterator[memoryview]:
        """One index file in payloads of at most 256 KiB. No more than FETCH_CHUNK_BYTES of it are in memory.

        A file of one piece is compared with its checksum before its first byte leaves, a longer one before its last
        piece does: nobody gets a whole file that is not what was stored.

        Raises:
            BridgeError, SegmentError: before the first byte or between frames; `no_index` when it has none,
                `store_unavailable` when a merge wrote the index anew meanwhile.
        """

        async def begin(current: Directory) -> tuple[Directory, IndexSection, SectionCheck, memoryview]:
            section = self._reader.file_section(current, kind)
            check = SectionCheck(section)
            return current, section, check, await self._piece(current, section, 0, check)

        directory, section, check, piece = await self._renewing(await self.directory(segment), begin)
        for frame in _framed(piece):
            yield frame
        for start in range(FETCH_CHUNK_BYTES, section.size, FETCH_CHUNK_BYTES):
            try:
                piece = await self._piece(directory, section, start, check)
            except (BridgeError, SegmentError) as error:
                if not _of_another_index(error) or await self._read(lambda: self._reader.is_current(directory)):
                    raise
                text = f"the index of the {kind.name} file was written anew while it was read: repeat the call"
                raise StoreError(text) from error
            for frame in _framed(piece):
                yield frame

    async def _piece(self, directory: Directory, section: IndexSection, start: int, check: SectionCheck) -> memoryview:
        """The next piece of a file, taken in by its check."""

        def read() -> memoryview:
            piece = self._reader.file_piece(directory, section, start)
            with index_named(key_of(directory)):
                check.add(piece)
            return piece

        return await self._read(read)

    async def _block(self, directory: Directory, number: int) -> OpenBlock:
        async def read(current: Directory) -> OpenBlock:
            return await self._read(lambda: _opened(self._reader.block(current, number)))

        key = (directory.metadata.segment_id, number, directory.checksum)
        return await self._blocks.get(key, lambda: self._renewing(directory, read))

    async def _load(self, directory: Directory, block: int, chunks: range, ticket: ReadTicket) -> list[memoryview]:
        """Neighbouring chunks of one block, read and decoded in one go."""
        return await self._renewing(directory, lambda current: self._load_from(current, block, chunks, ticket))

    async def _load_from(self, directory: Directory, block: int, chunks: range, ticket: ReadTicket) -> list[memoryview]:
        opened = await self._block(directory, block)
        starts = [opened.plan.starts[chunk] for chunk in (*chunks, chunks.stop)]
        first = opened.block.first_batch
        stored = await self._read(
            lambda: self._reader.read_chunk(directory, opened.block, first + starts[0], first + starts[-1] - 1), ticket
        )
        at = opened.plan.bytes_at
        ends = [at[chunk] - at[chunks.start] for chunk in (*chunks, chunks.stop)]
        parts = await asyncio.wrap_future(self._pools.decoding.submit(ticket, lambda: split(stored.decode(), ends)))
        self._metrics.served_batches.inc(starts[-1] - starts[0])
        return parts

    async def _chunk(self, directory: Directory, place: ChunkPlace) -> memoryview:
        """A chunk somebody waits for; one that is being read ahead is hurried up."""
        key = (directory.metadata.segment_id, place)
        if (ticket := self._tickets.get(key)) is not None:
            self._pools.reading.hurry(ticket)
            self._pools.decoding.hurry(ticket)

        return await self._chunks.get(key, lambda: self._alone(directory, place))

    async def _alone(self, directory: Directory, place: ChunkPlace) -> memoryview:
        """One chunk that somebody waits for, without its neighbours."""
        return (await self._load(directory, place.block, range(place.chunk, place.chunk + 1), _URGENT))[0]

    async def frames(self, segment: SegmentMetadata, start: int, end: int | None) -> AsyncIterator[memoryview]:
        """Payloads of at most 256 KiB, from the batch that contains position `start` to position `end` (inclusive).

        Raises:
            BridgeError, SegmentError: before the first byte or between frames.
        """
        directory = await self.directory(segment)
        if start < 0 or (end is not None and end < start):
            raise BridgeError("bad_request", f"positions {start} to {end} are no range")
        number = find_block(directory, start)
        if number is None:
            if directory.summary.served_bytes:
                raise SegmentError("corrupt_object", "the index has no batches")
            return  # a segment of no bytes
        opened = await self._block(directory, number)
        batch = find_batch(opened.block, start) - opened.block.first_batch
        place = ChunkPlace(number, opened.plan.chunk_of(batch))
        sizes = opened.block.batches["served_size"]
        skip = int(sizes[opened.plan.starts[place.chunk] : batch].sum())
        rest = None if end is None else await self._served_between(directory, number, batch, end)
        while rest is None or rest > 0:
            chunk = (await self._chunk(directory, place))[skip:]
            skip = 0
            self._read_on(directory, place, await self._block(directory, place.block))
            following = await self._next(directory, place)
            if rest is not None:
                chunk = chunk[:rest]
                rest -= len(chunk)
            for frame in _framed(chunk):
                yield frame
            if following is None:
                return
            place = following

    async def _served_between(self, directory: Directory, number: int, batch: int, end: int) -> int:
        """Served bytes from a batch on to position `end`, inclusive.

        The last batch is whole when `end` reaches the next one's position; otherwise it is cut as far in as `end`.
        """
        total = 0
        last_block = max(find_block(directory, end) or 0, number)
        for current in range(number, last_block + 1):
            block = (await self._block(directory, current)).block
            sizes, positions = block.batches["served_size"], block.batches["position"]
            first = batch if current == number else 0
            if current < last_block:
                total += int(sizes[first:].sum())
                continue
            last = max(find_batch(block, end) - block.first_batch, first)
            total += int(sizes[first:last].sum())
            if last + 1 < len(positions):
                following = int(positions[last + 1])
            elif current + 1 < len(directory.blocks):
                following = int(directory.blocks["position"][current + 1])
            else:
                following = int(positions[last]) + int(sizes[last])
            inside = end - int(positions[last]) + 1
            total += int(sizes[last]) if end + 1 >= following else min(inside, int(sizes[last]))
        return total

    async def _next(self, directory: Directory, place: ChunkPlace) -> ChunkPlace | None:
        opened = await self._block(directory, place.block)
        if place.chunk + 1 < len(opened.plan):
            return ChunkPlace(place.block, place.chunk + 1)
        return ChunkPlace(place.block + 1, 0) if place.block + 1 < len(directory.blocks) else None

    def _read_on(self, directory: Directory, place: ChunkPlace, opened: OpenBlock) -> None:
        """Begins to read the chunks behind `place` for a reader that goes forward.

        Going forward is known by the chunk before: somebody has just had it. A segment's first chunk counts too.
        """
        if place.chunk > 0:
            forward = (directory.metadata.segment_id, ChunkPlace(place.block, place.chunk - 1)) in self._chunks
        else:
            forward = True
        if not forward:
            return
        for chunk in range(place.chunk + 1, place.chunk + 1 + READ_AHEAD_CHUNKS):
            if chunk >= len(opened.plan):
                if place.block + 1 < len(directory.blocks):
                    self._ahead(directory, place.block + 1, range(1))
                else:
                    self._ahead_of_segment(directory)
                return
            if (directory.metadata.segment_id, ChunkPlace(place.block, chunk)) not in self._chunks:
                self._ahead(directory, place.block, self._absent(directory, place.block, opened.plan.row(chunk)))
                return

    def _absent(self, directory: Directory, block: int, chunks: range) -> range:
        """The chunks before the first that is there or on its way; one at least."""
        end = chunks.start + 1
        while end < chunks.stop and (directory.metadata.segment_id, ChunkPlace(block, end)) not in self._chunks:
            end += 1
        return range(chunks.start, end)

    def _ahead(self, directory: Directory, block: int, chunks: range) -> None:
        ticket = ReadTicket(urgent=False)
        flight = asyncio.ensure_future(self._load(directory, block, chunks, ticket))
        # Whoever waits for a chunk hears of a failure; nobody need wait.
        flight.add_done_callback(lambda task: task.cancelled() or task.exception())
        for number, chunk in enumerate(chunks):
            key = (directory.metadata.segment_id, ChunkPlace(block, chunk))
            if key not in self._chunks:
                self._tickets[key] = ticket
                part = self._chunks.start(key, self._part_maker(directory, ChunkPlace(block, chunk), flight, number))
                part.add_done_callback(partial(self._arrived, key))

    def _arrived(self, key: Hashable, _: object) -> None:
        self._tickets.pop(key, None)

    def _part_maker(
        self, directory: Directory, place: ChunkPlace, flight: asyncio.Future[list[memoryview]], number: int
    ) -> Callable[[], Awaitable[memoryview]]:
        async def part() -> memoryview:
            try:
                return (await flight)[number]
            except SegmentError:
                # Damage in one chunk must not fail its neighbours.
                return await self._alone(directory, place)

        return part

    def _ahead_of_segment(self, directory: Directory) -> None:
        """Begins to read the segment that follows in the log."""
        key = (directory.metadata.segment_id, "successor")
        if key not in self._segments:
            self._segments.start(key, lambda: self._successor(directory))

    async def _successor(self, directory: Directory) -> OpenSegment:
        successor = await self._read(lambda: self._find_successor(directory), ReadTicket(urgent=False))
        opened = OpenSegment(successor or directory, time.monotonic())
        if successor is not None and len(successor.blocks):
            self._ahead(successor, 0, range(1))
        return opened

    def _find_successor(self, directory: Directory) -> Directory | None:
        metadata = directory.metadata
        store = self._reader.store
        for listed in store.list_after(index_prefix(metadata.topic_id, metadata.partition), str(index_key(metadata))):
            key = parse_index_key(listed.key)
            if key is not None and key.base <= metadata.end_offset + 1 <= key.last:
                try:
                    return self._reader.directory_at(listed.key, INDEX_HEAD_BYTES)
                except (BridgeError, SegmentError):
                    continue
            if key is not None and key.base > metadata.end_offset + 1:
                break
        return None
