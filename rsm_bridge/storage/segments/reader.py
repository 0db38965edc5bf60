"""Blocking reads of stored segments, for worker threads: directories, blocks, chunks of served bytes, index files.

Keeps nothing but the start of indexes that were just opened. Every byte that leaves was compared with a checksum: the
index's sections here, each rebuilt batch by the converter. Of a file beside the log that is read in pieces, the last
leaves only when the whole has its checksum.

The first bytes of indexes that were just opened: what follows the directory there need not be asked for again.

A first fetch of a segment asks for its directory, three of Kafka's indexes and a block of the batch table, one after
the other. Most indexes are small, and one request brings all of that. The bytes are kept only for the fetches that come
next.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from converter.errors import SegmentError
from converter.index.codec import (
    HEADER_SIZE,
    SectionCheck,
    block_section,
    decode_block,
    header_checksum,
    header_directory_size,
)
from converter.index.model import Block, Directory, IndexSection, StoredObject
from converter.parquet.pages import ByteRange
from converter.segment.reader import ReadPlan, plan_read, replay
from converter.types import IndexType, SegmentMetadata
from iceberg_catalog import failpoints
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import FETCH_CHUNK_BYTES, INDEX_HEAD_BYTES, INDEX_HEADS_MAX
from rsm_bridge.storage.custom_metadata import CustomMetadata, decode_custom_metadata
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.index_at import directory_under, index_named, named_damage
from rsm_bridge.storage.tombstone import is_tombstone


@dataclass(slots=True)
class IndexHeads:
    """The newest INDEX_HEADS_MAX of them, by the directory they begin with. Any thread."""

    _heads: OrderedDict[int, tuple[Directory, memoryview]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, directory: Directory, head: memoryview) -> None:
        """Remembers what was read together with a directory."""
        with self._lock:
            self._heads[id(directory)] = (directory, head)
            while len(self._heads) > INDEX_HEADS_MAX:
                self._heads.popitem(last=False)

    def part(self, directory: Directory, start: int, length: int) -> memoryview | None:
        """Bytes [start, start + length) of the object this very directory was read from, if they were."""
        with self._lock:
            found = self._heads.get(id(directory))
        if found is None or start + length > len(found[1]):
            return None
        return memoryview(bytes(found[1][start : start + length]))  # a cached block must not keep the rest in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """What was read for one chunk, not yet looked at."""

    directory: Directory
    block: Block
    plan: ReadPlan
    data: list[memoryview]
    kept: list[memoryview]

    def decode(self) -> memoryview:
        """The half of :meth:`SegmentReader.chunk` that takes the processor; same errors."""
        failpoints.hit("fetch-decode", self.directory.metadata.topic_id.hex())
        try:
            return replay(self.directory, self.block, self.plan, self.data, self.kept).data
        except SegmentError as error:
            raise named_damage(key_of(self.directory), error) from error


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """Reads from one store. `helpers` runs the second half of a round trip that touches two objects."""

    store: ObjectStore
    helpers: Executor
    _heads: IndexHeads = field(default_factory=IndexHeads)

    def directory_of(self, segment: SegmentMetadata) -> Directory:
        """The directory of the segment Kafka asks about.

        Raises:
            BridgeError: `foreign_segment`, `segment_deleted`, `not_found`, `corrupt_object`, `store_unavailable`.
            SegmentError: `corrupt_object`, `unsupported_version`.
        """
        known = decode_custom_metadata(segment.custom_metadata)
        key = str(index_key(segment))
        failpoints.hit("fetch-open", key)
        try:
            directory = self.directory_at(key, INDEX_HEAD_BYTES if known is None else _first_read(known))
        except ObjectNotFoundError:
            if known is None:
                # Kafka asks for finished segments only, and ours always have custom metadata.
                raise BridgeError("foreign_segment", "the segment was not written by Tierberg") from None
            raise BridgeError("not_found", f"the segment's index {key} is not in the store") from None
        if known is not None and directory.attempt_id != known.attempt:
            raise BridgeError("corrupt_object", f"{key} is the index of another attempt than Kafka knows")
        return directory

    def directory_at(self, key: str, size_hint: int) -> Directory:
        """The directory at an index key; one read when `size_hint` bytes hold it, else two.

        Raises:
            ObjectNotFoundError: there is neither index nor tombstone.
            BridgeError: `segment_deleted`, `corrupt_object`.
        """
        head = self.store.head_bytes(key, max(size_hint, HEADER_SIZE))
        self._refuse_tombstone(head)
        needed = header_directory_size(head)
        if len(head) < needed:
            head = self.store.head_bytes(key, needed)
        directory = directory_under(key, head)
        self._heads.keep(directory, head)
        return directory

    def is_current(self, directory: Directory) -> bool:
        """Whether the index in the store still is the one the directory was read from; a merge writes another.

        Raises:
            BridgeError: `segment_deleted` when a tombstone has taken its place; `not_found` when nothing is there: the
                tombstone was reclaimed too, or the index was lost, and a reader cannot tell which.
        """
        key = str(index_key(directory.metadata))
        try:
            head = self.store.head_bytes(key, HEADER_SIZE)
        except ObjectNotFoundError:
            raise BridgeError("not_found", f"the segment's index {key} is not in the store any more") from None
        self._refuse_tombstone(head)
        return header_checksum(head) == directory.checksum

    @staticmethod
    def _refuse_tombstone(head: memoryview) -> None:
        if is_tombstone(head):
            raise BridgeError("segment_deleted", "the segment was deleted")

    def block(self, directory: Directory, number: int) -> Block:
        """One block of the batch table. Raises SegmentError `corrupt_object`."""
        with index_named(key_of(directory)):
            section = block_section(directory, number)
            return decode_block(directory, number, self._part(directory, section.offset, section.size))

    def _part(self, directory: Directory, start: int, length: int) -> memoryview:
        """Bytes of the index object the directory is from."""
        head = self._heads.part(directory, start, length)
        return head if head is not None else self.store.get_range(str(index_key(directory.metadata)), start, length)

    @staticmethod
    def file_section(directory: Directory, kind: IndexType) -> IndexSection:
        """Where one of Kafka's indexes lies: byte for byte what the broker sent, OFFSET being our own.

        Raises:
            BridgeError: `no_index` when the segment never had one; `invalid_segment` when it was too large to store.
        """
        if (size := directory.left_out.get(kind)) is not None:
            raise BridgeError(
                "invalid_segment", f"the {kind.name} file had {size} bytes, too many to be stored with its segment"
            )
        section = directory.files.get(kind)
        if section is None:
            # Only this kind: Kafka takes a transaction index that is not found for one without aborts.
            raise BridgeError("no_index", f"the segment has no {kind.name} index")
        return section

    def file_piece(self, directory: Directory, section: IndexSection, start: int) -> memoryview:
        """Bytes of a file from `start` on, FETCH_CHUNK_BYTES or what is left. Whoever reads them all checks them."""
        length = min(section.size - start, FETCH_CHUNK_BYTES)
        if length == 0:
            return memoryview(b"")
        failpoints.hit("fetch-index", directory.metadata.topic_id.hex())
        return self._part(directory, section.offset + start, length)

    def check_file(self, directory: Directory, kind: IndexType) -> None:
        """Reads one of Kafka's indexes and compares its checksum. Raises SegmentError `corrupt_object`."""
        section = self.file_section(directory, kind)
        check = SectionCheck(section)
        with index_named(key_of(directory)):
            for start in range(0, max(section.size, 1), FETCH_CHUNK_BYTES):
                check.add(self.file_piece(directory, section, start))

    def chunk(self, directory: Directory, block: Block, first: int, last: int) -> memoryview:
        """The record batches [first, last] (inclusive, numbers in the segment) as a consumer gets them.

        Raises:
            SegmentError: `corrupt_object` when a batch does not come back with its checksum.
        """
        return self.read_chunk(directory, block, first, last).decode()

    def read_chunk(self, directory: Directory, block: Block, first: int, last: int) -> StoredChunk:
        """The stored bytes of batches [first, last]: the half of :meth:`chunk` that waits for the store."""
        with index_named(key_of(directory)):
            plan = plan_read(directory, block, first, last)
        kept_flight = None
        if plan.kept and directory.kept is not None:
            kept_flight = self.helpers.submit(self.store.get_ranges, directory.kept.key, plan.kept)
        data: list[memoryview] = []
        if plan.data:
            if directory.data is None:
                text = f"{key_of(directory)}: the index names rows and no data file"
                raise SegmentError("corrupt_object", text, batch=first)
            data = self._data(directory.data, directory.tail, plan.data)
        kept = kept_flight.result() if kept_flight is not None else []
        return StoredChunk(directory=directory, block=block, plan=plan, data=data, kept=kept)

    def _data(self, main: StoredObject, tail: StoredObject | None, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Ranges of the data file and, from its size on, of the tail; both at once where both are needed."""
        behind = [ByteRange(part.start - main.size, part.length) for part in ranges if part.start >= main.size]
        if not behind or tail is None:
            return self.store.get_ranges(main.key, ranges)
        before = ranges[: len(ranges) - len(behind)]
        flight = self.helpers.submit(self.store.get_ranges, tail.key, behind)
        return [*(self.store.get_ranges(main.key, before) if before else []), *flight.result()]


def key_of(directory: Directory) -> str:
    """Of the index that a directory is from."""
    return str(index_key(directory.metadata))


def _first_read(known: CustomMetadata) -> int:
    """How much of an index to read at first: all of a small one, in the same round trip as its directory."""
    return max(known.directory_size, min(known.index_size, INDEX_HEAD_BYTES))
