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
import pyarrow.parquet as pq

from converter.kernels.varint_bytes import zigzag
from converter.limits import PAGE_BYTES, STATISTICS_BYTES_MAX
from converter.parquet.page_table import LeafPages, check_entries, footer_of, joined_pages, locations
from converter.parquet.sink import CountingSink
from converter.parquet.thrift import Span, list_at, spans, structs_head
from converter.types import Int64Array, PageTable

MAGIC = b"PAR1"
# parquet.thrift. FileMetaData: num_rows, row_groups.
_ROWS, _GROUPS = 3, 4
# RowGroup: columns, total_byte_size, num_rows, file_offset, total_compressed_size, ordinal.
_COLUMNS, _BYTES, _GROUP_ROWS, _GROUP_OFFSET, _COMPRESSED = 1, 2, 3, 5, 6
# ColumnChunk: file_offset, meta_data, offset_index_offset and _length, column_index_offset and _length.
_META, _OFFSET_INDEX, _OFFSET_INDEX_SIZE, _COLUMN_INDEX, _COLUMN_INDEX_SIZE = 3, 4, 5, 6, 7
# ColumnMetaData: path_in_schema, num_values, data_page_offset, dictionary_page_offset, statistics.
_PATH, _VALUES, _DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS = 3, 5, 9, 11, 12
# Statistics: null_count.
_NULLS = 3
# OffsetIndex: page_locations.
_LOCATIONS = 1
# Heads of fields: how far the id is from the one before, and the type.
_I64, _I32, _I16, _LIST, _STRUCT = b"\x16", b"\x15", b"\x14", b"\x19", b"\x1c"
_I64_AFTER_ONE, _I64_AFTER_TWO = b"\x26", b"\x36"
_STOP = b"\0"


class PartSink(io.RawIOBase):
    """Passes on what one writer writes, without the magic bytes; what it writes from :meth:`hold` on is kept here.

    Pages of few bytes are passed on together: who takes them may hold an object for each.

    Attributes:
        shift: what is to be added to the places that the writer knows.
        tail_start: how many bytes it had written at :meth:`hold`.
    """

    def __init__(self, target: CountingSink) -> None:
        super().__init__()
        self._target = target
        self._written = 0
        self._small = bytearray()
        self._tail: bytearray | None = None
        self.shift = target.size - len(MAGIC)
        self.tail_start = 0

    @property
    def tail(self) -> bytes:
        """What was written from :meth:`hold` on."""
        return bytes(self._tail or b"")

    def pass_on(self) -> None:
        """Pass on all that was written so far."""
        if self._small:
            self._target.write(bytes(self._small))
            self._small.clear()

    def hold(self) -> None:
        """Keep what is written from here on."""
        self.pass_on()
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
            self._small += view[max(0, len(MAGIC) - self._written) :]
            if len(self._small) >= PAGE_BYTES:
                self.pass_on()
        self._written += len(view)
        return len(view)


@dataclass(frozen=True, slots=True)
class FilePart:
    """What a writer wrote last, from where in its own file on, and what is to be added to the places it knows."""

    tail: bytes
    tail_start: int
    shift: int


def closed_part(writer: pq.ParquetWriter, sink: PartSink) -> FilePart:
    """Ends a writer whose pages are all written."""
    sink.hold()
    writer.close()
    return FilePart(sink.tail, sink.tail_start, sink.shift)


@dataclass(slots=True, kw_only=True)
class _Group:
    """A row group as it is put together."""

    columns: list[bytes]
    rows: int
    offset: int
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
                    _LIST + structs_head(len(group.columns)),
                    *group.columns,
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
        index = bytearray()
        _, position = spans(footer, until=_GROUPS)
        count, position = list_at(footer, position)
        row_start = self.rows
        for number in range(count):
            chunks, position = list_at(footer, spans(footer, position, until=_COLUMNS)[1])
            columns: list[bytes] = []
            pages: list[tuple[int, Int64Array]] = []
            for _ in range(chunks):
                chunk, position = spans(footer, position, inside=_META)
                path = b".".join(chunk[_META].value[_PATH].value).decode()
                leaf = self._wanted.get(path)
                if leaf is not None:
                    check_entries(path, chunk[_META].value[_VALUES].value)
                    pages.append((leaf, _locations(part, chunk)))
                columns.append(self._moved(part, footer, chunk, index))
            rest, position = spans(footer, position, before=_COLUMNS)
            rows = rest[_GROUP_ROWS].value
            if first:
                groups.append(_Group(columns=[], rows=rows, offset=rest[_GROUP_OFFSET].value + part.shift))
            group = groups[number]
            group.columns += columns
            group.bytes += rest[_BYTES].value
            group.compressed += rest[_COMPRESSED].value
            for leaf, found in pages:
                self._pages.setdefault(leaf, []).append((found, row_start, rows))
            row_start += rows
        self._sink.write(index)

    def _moved(self, part: FilePart, footer: bytes, chunk: dict[int, Span], index: bytearray) -> bytes:
        """A ColumnChunk with its places moved; its page indexes go to `index`, which the file is to go on with."""
        out = [_I64_AFTER_ONE, zigzag(0), _STRUCT]
        at = chunk[_META].start
        for field in (_DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS):
            said = chunk[_META].value.get(field)
            if said is not None:
                new = _short(footer, said) if field == _STATISTICS else zigzag(said.value + part.shift)
                out += [footer[at : said.start], new]
                at = said.end
        out.append(footer[at : chunk[_META].end])
        offsets = _offset_index(part, chunk)
        out += [_I64, zigzag(self._sink.size + len(index)), _I32, zigzag(len(offsets))]
        index += offsets
        if _COLUMN_INDEX in chunk:  # columns without statistics have none
            at, size = chunk[_COLUMN_INDEX].value - part.tail_start, chunk[_COLUMN_INDEX_SIZE].value
            out += [_I64, zigzag(self._sink.size + len(index)), _I32, zigzag(size)]
            index += part.tail[at : at + size]
        return b"".join([*out, _STOP])


def _short(footer: bytes, said: Span) -> bytes:
    """Statistics; without smallest and largest value where these are long, as Arrow leaves out those over 4 KiB."""
    if said.end - said.start <= STATISTICS_BYTES_MAX:
        return footer[said.start : said.end]
    nulls = said.value.get(_NULLS)
    return _STOP if nulls is None else _I64_AFTER_TWO + zigzag(nulls) + _STOP


def _locations(part: FilePart, chunk: dict[int, Span]) -> Int64Array:
    """See pagetable.locations; of the file."""
    at, size = chunk[_OFFSET_INDEX].value - part.tail_start, chunk[_OFFSET_INDEX_SIZE].value
    found: Int64Array = locations(part.tail, at, size) + np.array([part.shift, 0, 0])
    return found


def _offset_index(part: FilePart, chunk: dict[int, Span]) -> bytes:
    """An OffsetIndex with its places moved; what else it says stays."""
    at = chunk[_OFFSET_INDEX].value - part.tail_start
    fields, end = spans(part.tail, at)
    pages = _locations(part, chunk).tolist()
    moved = b"".join(
        _I64 + zigzag(offset) + _I32 + zigzag(size) + _I64 + zigzag(row) + _STOP for offset, size, row in pages
    )
    return _LIST + structs_head(len(pages)) + moved + part.tail[fields[_LOCATIONS].end : end]
