"""Rows from the first undecided one on are a data file of their own; both files together serve what was copied."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from converter.errors import SegmentError
from converter.index.codec import decode_directory, footer_bytes
from converter.parquet.columns import OFFSET
from converter.parquet.page_table import footer_metadata
from converter.segment.reader import plan_read
from converter.types import BatchFlag
from tests.worlds.index_support import Batch, Stored, simple_batches, write


def batches(count: int, undecided: set[int], value: bytes = b"v" * 100) -> list[Batch]:
    made = simple_batches(count, records=3, value=value)
    for number in undecided:
        made[number].flags |= BatchFlag.UNDECIDED
    return made


def offsets(stored: Stored) -> list[list[int]]:
    files = [pq.read_table(io.BytesIO(file), columns=[OFFSET]) for file in stored.data_files()]
    return [file.column(OFFSET).to_pylist() for file in files]


@pytest.mark.parametrize("steps", [[6], [4, 2], [1, 1, 1, 1, 1, 1], [3, 3]])
def test_the_tail_begins_with_the_first_undecided_batch(steps: list[int]) -> None:
    made = batches(6, {3, 5})
    parts = [made[sum(steps[:n]) : sum(steps[: n + 1])] for n in range(len(steps))]
    stored = write(parts)
    assert offsets(stored) == [list(range(9)), list(range(9, 18))]
    assert stored.read_all() == stored.served
    assert stored.written.rows == 18


@pytest.mark.parametrize(("undecided", "files"), [(set(), 1), ({0}, 1), ({0, 4}, 1), ({1}, 2), ({5}, 2)])
def test_no_tail_without_an_undecided_row_or_without_one_before(undecided: set[int], files: int) -> None:
    stored = write([batches(6, undecided)])
    assert len(stored.data_files()) == files
    assert [row for file in offsets(stored) for row in file] == list(range(18))
    assert stored.read_all(1) == stored.served


def test_each_file_has_its_footer_in_the_index() -> None:
    stored = write([batches(6, {4})])
    directory = decode_directory(stored.written.index)
    assert directory.tail == stored.directory.tail is not None
    for tail, rows in ((False, 12), (True, 6)):
        section = directory.tail_footer if tail else directory.footer
        assert section is not None
        data = stored.written.index[section.offset : section.offset + section.size]
        assert footer_metadata(footer_bytes(directory, data, tail=tail)).num_rows == rows
    without = write([batches(2, set())]).directory
    with pytest.raises(SegmentError, match="no footer"):
        footer_bytes(without, b"", tail=True)


def test_no_range_crosses_from_one_file_into_the_other() -> None:
    stored = write([batches(40, {20}, value=b"w" * 500)])
    directory = stored.directory
    assert directory.data is not None
    plan = plan_read(directory, stored.block(0), 15, 25)
    border = directory.data.size
    assert any(part.start < border for part in plan.data)
    assert any(part.start >= border for part in plan.data)
    assert all(part.start >= border or part.start + part.length <= border for part in plan.data)


def test_a_page_across_the_border_is_damage() -> None:
    stored = write([batches(8, {4})])
    block, directory = stored.block(0), stored.directory
    assert directory.data is not None
    first = int(block.pages.offset.min())
    block.pages.length[block.pages.offset == first] = directory.data.size
    with pytest.raises(SegmentError, match="outside the data file"):
        plan_read(directory, block, 0, 7)
