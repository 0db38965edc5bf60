"""The converter driven as the bridge drives it, with memory in place of a store."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

import pyarrow as pa
import zstandard
from crc32c import crc32c

from benchmarks.meters import Spent, spent
from benchmarks.segments import Segment
from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.codec import block_section, decode_block
from converter.index.model import Block, Directory, StoredObjects
from converter.limits import STEP_BYTES
from converter.parquet.columns import row_schema
from converter.segment.reader import plan_read, replay
from converter.segment.writer import SegmentWriter, TypedPiece
from converter.types import ConvertOptions, UInt8Array
from rsm_bridge.limits import FRAME_BYTES_MAX
from rsm_bridge.storage.segments.chunks import cut

_FRAME_BYTES = FRAME_BYTES_MAX // 2**20 * 2**20  # whole MiB, as the shim sends them
_OBJECTS = StoredObjects(bytes(16), "data", "kept")


@dataclass(frozen=True, slots=True)
class Stored:
    """What one segment became: the three objects and the directory of the index."""

    data: memoryview
    kept: bytes
    index: bytes
    directory: Directory


class Memory(io.RawIOBase):
    """A file in memory that keeps its pages when it is written again, so that no run pays for making them."""

    def __init__(self) -> None:
        super().__init__()
        self._pages = bytearray()
        self._size = 0

    def rewind(self) -> None:
        """Forgets what was written."""
        self._size = 0

    def contents(self) -> memoryview:
        """What was written. Valid until the next rewind."""
        return memoryview(self._pages)[: self._size]

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        end = self._size + len(view)
        if end > len(self._pages):
            self._pages = self._pages + bytes(max(end, 2 * len(self._pages)) - len(self._pages))
        self._pages[self._size : end] = view
        self._size = end
        return len(view)


class CopyColumns(Protocol):
    """Gives the rows of one copy value columns, as a typed topic's copy does."""

    @property
    def proven(self) -> bool:
        """Whether values may be in their columns alone."""
        ...

    @property
    def encodings(self) -> bytes:
        """Of the rows so far: Directory.proven."""
        ...

    def rows(self, rows: pa.RecordBatch) -> Iterable[TypedPiece]:
        """Rows with their columns, in pieces."""
        ...


#: Begins a copy.
Columns = Callable[[], CopyColumns]


def convert(segment: Segment, data: Memory | None = None, columns: Columns | None = None) -> Stored:
    """One copy, from frames of 1 MiB to the finished objects, proof and index included.

    `data` is written from its start; what is returned then lives in it. `columns`: the topic is typed.
    """
    options = ConvertOptions()
    transactions = Transactions.parse(None, None)
    parser = SegmentParser(segment.metadata, options, transactions)
    data, kept = data or Memory(), io.BytesIO()
    data.rewind()
    schema = row_schema(options.value_format) if columns is None else None
    typed = None if columns is None else columns()
    writer = SegmentWriter(
        segment.metadata,
        options,
        schema,
        cast(BinaryIO, data),
        kept,
        columns=None if typed is None else typed.rows,
        proven=typed is not None and typed.proven,
    )
    view = memoryview(segment.data)
    for start in range(0, len(view), _FRAME_BYTES):
        for step in parser.feed(view[start : start + _FRAME_BYTES]):
            writer.add(step)
    for step in parser.finish():
        writer.add(step)
    written = writer.finish({}, transactions, _OBJECTS, proven=b"" if typed is None else typed.encodings)
    return Stored(data.contents(), kept.getvalue(), written.index, written.directory)


def blocks(stored: Stored) -> Iterator[Block]:
    """The index's blocks, decoded from their ranges."""
    for number in range(len(stored.directory.blocks)):
        section = block_section(stored.directory, number)
        data = memoryview(stored.index)[section.offset : section.offset + section.size]
        yield decode_block(stored.directory, number, data)


def chunk(stored: Stored, block: Block, first: int, end: int) -> UInt8Array:
    """The served bytes of the block's batches [first, end), numbered within it."""
    plan = plan_read(stored.directory, block, block.first_batch + first, block.first_batch + end - 1)
    data = [stored.data[start : start + length] for start, length in plan.data]
    kept = [memoryview(stored.kept)[start : start + length] for start, length in plan.kept]
    return replay(stored.directory, block, plan, data, kept)


def replay_all(stored: Stored) -> int:
    """Every block once, in order, as the bridge reads ahead: four chunks at a time; returns the served bytes."""
    served = 0
    for block in blocks(stored):
        plan = cut(block)
        place = 0
        while place < len(plan):
            row = plan.row(place)
            served += len(chunk(stored, block, plan.starts[row.start], plan.starts[row.stop]))
            place = row.stop
    return served


def zstd_floor(data: bytes) -> Spent:
    """zstd-1 of these bytes, 4 MiB at a time, one thread."""
    compressor = zstandard.ZstdCompressor(level=1)
    with spent() as took:
        for start in range(0, len(data), STEP_BYTES):
            compressor.compress(data[start : start + STEP_BYTES])
    return took


def zstd_parts(data: bytes, part_bytes: int) -> list[bytes]:
    """`data` as zstd-1 frames of `part_bytes` each, uncompressed."""
    compressor = zstandard.ZstdCompressor(level=1)
    return [compressor.compress(data[start : start + part_bytes]) for start in range(0, len(data), part_bytes)]


def unzstd_floor(parts: list[bytes]) -> Spent:
    """Decompression of every part and a CRC32C over what comes out: what no replay can do without."""
    decompressor = zstandard.ZstdDecompressor()
    with spent() as took:
        for part in parts:
            crc32c(decompressor.decompress(part))
    return took
