"""One Parquet file of what several Parquet writers wrote, each some columns of some of its row groups.

Arrow's writer keeps what it will say of every column chunk in kilobytes, until the file is complete, and needs all
columns of a row group in memory at once. So a file of many column chunks is written by many writers. Each believes that
it writes a whole file: its first bytes and its end are taken away, and the places that its footer and offset indexes
name are moved to where they are. Page indexes lie behind their row groups.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converter.errors import SegmentError
from converter.kernels.kernel import readonly
from converter.kernels.varint_bytes import zigzag
from converter.parquet.arrow_writer import ArrowWriter
from converter.parquet.moved_chunks import (
    CHUNK_GROWTH,
    CHUNKS_SIZE,
    FOOTER_AT,
    INDEX_SIZE,
    RESULTS,
    TOLD,
    move_chunks,
)
from converter.parquet.page_table import LeafPages, check_entries, footer_of, joined_pages
from converter.parquet.sink import CountingSink
from converter.parquet.thrift import binary_at, list_at, spans, structs_head
from converter.types import Int64Array, PageTable

MAGIC = b"PAR1"
# parquet.thrift. FileMetaData: num_rows, row_groups.
_ROWS, _GROUPS = 3, 4
# RowGroup: columns, total_byte_size, num_rows, file_offset, total_compressed_size, ordinal.
_COLUMNS, _BYTES, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED = 1, 2, 3, 5, 6
# Heads of fields: how far the id is from the one before, and the type.
_I64, _I16, _LIST = b"\x16", b"\x14", b"\x19"
_I64_AFTER_ONE = b"\x26"
_STOP = b"\0"


class PartSink(io.RawIOBase):
    """Passes on what one writer writes, without the magic bytes; what it writes from :meth:`hold` on is kept here.

    Attributes:
        shift: what is to be added to the places that the writer knows.
        tail_start: how many bytes it had written at :meth:`hold`.
    """

    def __init__(self, target: CountingSink) -> None:
        super().__init__()
        self._target = target
        self._written = 0
        self._tail: bytearray | None = None
        self.shift = target.size - len(MAGIC)
        self.tail_start = 0

    @property
    def tail(self) -> bytes:
        """What was written from :meth:`hold` on."""
        return bytes(self._tail or b"")

    def hold(self) -> None:
        """Keep what is written from here on."""
        self._tail = bytearray()
        self.tail_start = self._written

    def writable(self) -> bool:
        """True: pyarrow asks."""
        return True

    def write(self, data: object) -> int:
        """Pass on a buffer; returns its size in bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        if self._tail is not None:
            self._tail += view
        else:
            self._target.write(view[max(0, len(MAGIC) - self._written) :])
        self._written += len(view)
        return len(view)


@dataclass(frozen=True, slots=True)
class FilePart:
    """What a writer wrote last, from where in its own file on, and what is to be added to the places it knows."""

    tail: bytes
    tail_start: int
    shift: int


def closed_part(writer: ArrowWriter, sink: PartSink) -> FilePart:
    """Ends a writer whose pages are all written."""
    sink.hold()
    writer.close()
    return FilePart(sink.tail, sink.tail_start, sink.shift)


@dataclass(slots=True, kw_only=True)
class _Group:
    """A row group as it is put together. chunks: of each part, moved; `columns` of them in all."""

    chunks: list[bytes]
    rows: int
    offset: int
    columns: int = 0
    bytes: int = 0
    compressed: int = 0


class PartedFile:
    """The footer and page table of such a file.

    Args:
        sink: all parts were written to it; page indexes and footer follow.
        wanted: pagetable.wanted_leaves.

    Attributes:
        rows: of all row groups.
        row_groups: how many there are.
        footer_bytes: that they take in the footer.
    """

    def __init__(self, sink: CountingSink, wanted: Mapping[str, int]) -> None:
        self._sink = sink
        self._wanted = wanted
        self._groups: list[bytes] = []
        self._pages: LeafPages = {}
        self._leaves: dict[bytes, tuple[str, int | None]] = {}
        self.rows = 0
        self.footer_bytes = 0

    @property
    def row_groups(self) -> int:
        """Row groups so far."""
        return len(self._groups)

    def add(self, parts: Sequence[FilePart]) -> None:
        """Row groups whose columns are those of all parts, in their order; writes their page indexes.

        Raises:
            UnreadablePagesError: see pagetable.check_entries.
        """
        groups: list[_Group] = []
        for number, part in enumerate(parts):
            self._add_part(part, groups, first=number == 0)
        for group in groups:
            packed = b"".join(
                [
                    _LIST + structs_head(group.columns),
                    *group.chunks,
                    _I64 + zigzag(group.bytes),
                    _I64 + zigzag(group.rows),
                    _I64_AFTER_ONE + zigzag(group.offset),
                    _I64 + zigzag(group.compressed),
                    _I16 + zigzag(len(self._groups)),
                    _STOP,
                ]
            )
            self._groups.append(packed)
            self.footer_bytes += len(packed)
            self.rows += group.rows

    def finish(self, empty: bytes) -> tuple[bytes, PageTable]:
        """Writes the footer; returns it and the page table. `empty`: the footer of such a file without row groups."""
        fields, _ = spans(empty)
        rows, groups = fields[_ROWS], fields[_GROUPS]
        footer = b"".join(
            [
                empty[: rows.start],
                zigzag(self.rows),
                empty[rows.end : groups.start],
                structs_head(len(self._groups)),
                *self._groups,
                empty[groups.end :],
            ]
        )
        self._groups.clear()
        self._sink.write(footer)
        self._sink.write(len(footer).to_bytes(4, "little") + MAGIC)
        return footer, joined_pages(self._pages)

    def _add_part(self, part: FilePart, groups: list[_Group], *, first: bool) -> None:
        footer = footer_of(part.tail)
        _, position = spans(footer, until=_GROUPS)
        count, position = list_at(footer, position)
        row_start = self.rows
        moved = _MovedChunks(part, footer, self._sink.size)
        for number in range(count):
            chunks, position = list_at(footer, spans(footer, position, until=_COLUMNS)[1])
            columns, told, position = moved.next(chunks, position)
            rest, position = spans(footer, position, before=_COLUMNS)
            rows = rest[_GROUP_ROWS].value
            if first:
                groups.append(_Group(chunks=[], rows=rows, offset=rest[_GROUP_OFFSET].value + part.shift))
            group = groups[number]
            group.chunks.append(columns)
            group.columns += chunks
            group.bytes += rest[_BYTES].value
            group.compressed += rest[_COMPRESSED].value
            for path_start, path_end, entries, pages_start, pages_end in told:
                path, leaf = self._leaf(footer[path_start:path_end])
                if leaf is not None:
                    check_entries(path, entries)
                    pages = moved.places[pages_start:pages_end].copy()
                    self._pages.setdefault(leaf, []).append((pages, row_start, rows))
            row_start += rows
        self._sink.write(moved.index)

    def _leaf(self, said: bytes) -> tuple[str, int | None]:
        """A column's path, and its number in page tables if it is wanted; `said`: a list of names, as a footer has it.

        Footers name it again for each row group.
        """
        known = self._leaves.get(said)
        if known is None:
            count, position = list_at(said, 0)
            names: list[bytes] = []
            for _ in range(count):
                name, position = binary_at(said, position)
                names.append(name)
            path = b".".join(names).decode()
            known = self._leaves[said] = (path, self._wanted.get(path))
        return known


class _MovedChunks:
    """The column chunks of a part, row group by row group.

    Attributes:
        places: page locations of the row group.
    """

    def __init__(self, part: FilePart, footer: bytes, index_start: int) -> None:
        self._part = part
        self._footer = readonly(np.frombuffer(footer, np.uint8), np.uint8)
        self._tail = readonly(np.frombuffer(part.tail, np.uint8), np.uint8)
        self._index = np.empty(3 * len(part.tail), np.uint8)
        self._index_start = index_start
        self._results = np.zeros(RESULTS, np.int64)
        self.places: Int64Array = np.empty((len(part.tail) // 7 + 1, 3), np.int64)

    @property
    def index(self) -> bytes:
        """Page indexes so far, which the file is to go on with."""
        return self._index[: self._results[INDEX_SIZE]].tobytes()

    def next(self, chunks: int, position: int) -> tuple[bytes, list[list[int]], int]:
        """So many that begin at a position of the footer: moved, what is told of each, and the position after them.

        Raises:
            SegmentError: `corrupt_object` where they are not as Arrow writes them.
        """
        out = np.empty(len(self._footer) - position + chunks * CHUNK_GROWTH, np.uint8)
        told = np.empty((chunks, TOLD), np.int64)
        results = self._results
        results[FOOTER_AT], results[CHUNKS_SIZE] = position, 0
        part = self._part
        index_start = self._index_start
        written = (out, self._index, self.places, told, results)
        if not move_chunks(self._footer, self._tail, part.tail_start, part.shift, index_start, *written):
            raise SegmentError("corrupt_object", "column chunks of a Parquet footer do not parse", position=position)
        return out[: results[CHUNKS_SIZE]].tobytes(), told.tolist(), int(results[FOOTER_AT])
