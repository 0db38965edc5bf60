"""An index that is made to name a merged data file serves what it served before, batch for batch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.index.codec import decode_directory, decode_index, section_bytes
from converter.index.model import Directory, StoredObject
from converter.parquet import arrow_writer, writer
from converter.parquet.columns import row_schema
from converter.parquet.writer import RowFile
from converter.segment.repoint import first_row_of, repoint
from converter.types import Cause, PageTable, ValueFormat
from tests.support.examples import examples
from tests.worlds.index_support import Batch, Record, Stored, simple_batches, write

WRITTEN_MS = 1_700_000_000_000


def merged(parts: Sequence[Stored], value_format: ValueFormat = "raw") -> tuple[bytes, StoredObject, PageTable]:
    """One file with the rows of all parts: its bytes, what an index says of it, its page table."""
    target = io.BytesIO()
    tables = [pq.read_table(io.BytesIO(part.data)) for part in parts if part.data]
    file = RowFile(tables[0].schema, target, value_format)
    for table in tables:
        for batch in table.combine_chunks().to_batches():
            file.add(batch)
    pages = file.close(())
    assert pages is not None
    return target.getvalue(), StoredObject("data/merged.parquet", file.size, file.crc32c), pages


def pointed(part: Stored, data: bytes, named: StoredObject, pages: PageTable, first_row: int) -> Stored:
    """The segment, read through its new index."""
    index = repoint(part.written.index, named, pages, row_schema("raw"), first_row, WRITTEN_MS)
    written = replace(part.written, index=index, directory=decode_directory(index))
    return Stored(written, data, part.kept, part.served)


def same_but_for_places(old: Directory, new: Directory) -> None:
    assert (new.metadata, new.options, new.attempt_id, new.kept, new.summary) == (
        old.metadata,
        old.options,
        old.attempt_id,
        old.kept,
        old.summary,
    )
    for name in ("first_batch", "batches", "first_offset", "last_offset", "position", "rows", "deltas_start"):
        assert np.array_equal(old.blocks[name], new.blocks[name])
    assert old.files.keys() == new.files.keys()


BATCHES = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 400)), min_size=1, max_size=12
)


def made(shapes: Sequence[tuple[int, bool, bool, int]], base: int, value_format: ValueFormat) -> Stored:
    """A segment of batches of some records, kept or rebuilt, with exact timestamps or not."""
    batches = []
    for count, kept, exact, size in shapes:
        records = [Record(k, 5 * k, b"k" * k, None if size % 7 == 3 else b"v" * size) for k in range(count)]
        cause = Cause.NOT_CANONICAL if kept else Cause.NONE
        plain = not count
        batches.append(
            Batch(
                base,
                records,
                max(count - 1, 0),
                kept=kept or plain,
                exact=exact and not plain and not kept,
                cause=cause,
            )
        )
        base += max(count, 1)
    return write([batches], value_format, start_offset=batches[0].base_offset)


@examples(60)
@given(shapes=st.lists(BATCHES, min_size=1, max_size=5), string=st.booleans(), page=st.sampled_from([64, 1000, 2**18]))
def test_every_segment_of_a_merged_file_serves_what_it_served(
    shapes: list[list[tuple[int, bool, bool, int]]], string: bool, page: int
) -> None:
    value_format: ValueFormat = "string" if string else "raw"
    parts, base = [], 0
    for shape in shapes:
        parts.append(made(shape, base, value_format))
        base += 100
    if not any(part.data for part in parts):
        return
    with pytest.MonkeyPatch.context() as patched:
        for module in (writer, arrow_writer):
            patched.setattr(module, "PAGE_BYTES", page)
        patched.setattr(writer, "ROW_GROUP_ROWS", 7)
        data, named, pages = merged(parts, value_format)
    first_row = 0
    for part in parts:
        if not part.data:
            continue
        again = pointed(part, data, named, pages, first_row)
        assert again.read_all(300) == part.served
        assert again.directory.merged
        same_but_for_places(part.directory, again.directory)
        # Once more into another file, where it lies first: what was merged can be merged again.
        last = pointed(again, part.data, part.directory.data or named, merged([part], value_format)[2], 0)
        assert last.read_all() == part.served
        first_row += part.written.rows
    assert first_row == len(pq.read_table(io.BytesIO(data)))


def test_blocks_and_kafkas_files_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.index.block_writer.BLOCK_BATCHES_MAX", 16)
    part = write([simple_batches(100)])
    data, named, pages = merged([part, part])
    monkeypatch.setattr("converter.index.block_writer.BLOCK_BATCHES_MAX", 4096)
    again = pointed(part, data, named, pages, 100)
    assert len(again.directory.blocks) == 7
    assert again.read_all() == part.served
    assert first_row_of(decode_index(again.written.index)[1]) == 100
    for kind, section in part.directory.files.items():
        there = again.directory.files[kind]
        old = part.written.index[section.offset : section.offset + section.size]
        assert section_bytes(there, again.written.index[there.offset : there.offset + there.size]) == old
    assert again.directory.checksum != part.directory.checksum


def test_the_rows_of_another_segment_do_not_pass_for_its_own() -> None:
    first, second = write([simple_batches(50, value=b"a" * 50)]), write([simple_batches(50, value=b"b" * 50)])
    data, named, pages = merged([first, second])
    assert pointed(first, data, named, pages, 0).read_all() == first.served
    with pytest.raises(SegmentError, match="does not come back"):
        pointed(first, data, named, pages, 50).read_all()


def test_an_index_without_rows_names_no_data_file() -> None:
    bare = write([[Batch(0, [], kept=True, cause=Cause.NO_ROWS)]])
    _, named, pages = merged([write([simple_batches(3)])])
    with pytest.raises(SegmentError, match="without rows"):
        repoint(bare.written.index, named, pages, row_schema("raw"), 0, WRITTEN_MS)
