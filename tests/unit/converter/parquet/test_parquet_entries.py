"""Entries of lists and maps, for which a page has levels whether or not it has bytes."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import converter.parquet.packed_rows
import converter.parquet.page_table
import converter.parquet.writer
from converter import limits
from converter.parquet.columns import OFFSET, PARTITION, VALUE_SIZE, row_schema, value_fields
from converter.parquet.entries import ALL, EMPTY, EntryCounter
from converter.parquet.packed_rows import PackedRows
from converter.parquet.page_columns import read_columns
from converter.parquet.page_header import FIELDS, NUM_VALUES, read_page_header
from converter.parquet.page_table import UnreadablePagesError
from converter.parquet.pages import ByteRange, PageReader
from converter.parquet.writer import RowFile
from converter.types import PageTable

INNER = pa.struct([("x", pa.int32()), ("deep", pa.list_(pa.string()))])
NESTED = pa.schema(
    [
        ("flat", pa.int64()),
        ("bools", pa.list_(pa.bool_())),
        ("lists", pa.list_(pa.list_(pa.int64()))),
        ("map", pa.map_(pa.string(), INNER)),
        ("struct", pa.struct([("y", pa.float64()), ("in", pa.list_(INNER))])),
    ]
)


def some(kind: pa.DataType, rng: random.Random) -> Any:
    """A value of which much is null or empty."""
    if rng.random() < 0.3:
        return None
    if pa.types.is_struct(kind):
        return {field.name: some(field.type, rng) for field in kind}
    if pa.types.is_map(kind):
        return [(str(number), some(kind.item_type, rng)) for number in range(rng.randrange(4))]
    if pa.types.is_list(kind):
        return [some(kind.value_type, rng) for _ in range(rng.randrange(4))]
    return "s" if pa.types.is_string(kind) else rng.randrange(2) == 1 if pa.types.is_boolean(kind) else rng.randrange(9)


@pytest.mark.parametrize("seed", range(20))
def test_entries_are_those_that_parquet_counts(seed: int) -> None:
    rng = random.Random(seed)
    rows = pa.RecordBatch.from_pylist(
        [{field.name: some(field.type, rng) for field in NESTED} for _ in range(60)], schema=NESTED
    ).slice(rng.randrange(20), rng.randrange(1, 40))
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), file)
    group = pq.read_metadata(file).row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    within = [leaf for leaf in leaves if ".list." in leaf.path_in_schema or ".key_value." in leaf.path_in_schema]
    counter = EntryCounter(NESTED)
    found = counter.count(rows)
    assert found[ALL].tolist() == [leaf.num_values for leaf in within]
    assert found[EMPTY].tolist() == [leaf.statistics.null_count for leaf in within]
    tops = [leaf.path_in_schema.split(".")[0] for leaf in within]
    assert [NESTED.names[number] for number in counter.columns.tolist()] == tops
    assert counter.most_per_row(rows).tolist() == [most(row) for row in rows.to_pylist()]


def most(row: dict[str, Any]) -> int:
    """Elements of the longest leaf."""
    outer, entries = row["lists"] or (), row["map"] or ()
    inside = (row["struct"] or {}).get("in") or ()
    return max(
        len(row["bools"] or ()),
        sum(len(one or ()) for one in outer),
        len(entries),
        sum(len((item or {}).get("deep") or ()) for _, item in entries),
        len(inside),
        sum(len((item or {}).get("deep") or ()) for item in inside),
    )


def batch(schema: pa.Schema, first: int, columns: dict[str, pa.Array], sizes: list[int]) -> pa.RecordBatch:
    """Rows with these columns, all others null."""
    rows = len(sizes)
    own = {
        PARTITION: pa.array([0] * rows, pa.int32()),
        OFFSET: pa.array(range(first, first + rows), pa.int64()),
        VALUE_SIZE: pa.array(sizes, pa.int32()),
        **columns,
    }
    arrays = [own[field.name] if field.name in own else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def schema_of(kind: pa.DataType, wide: int = 0) -> pa.Schema:
    many = [(f"c{number}", pa.int64()) for number in range(wide)]
    return pa.schema([("n", pa.int64()), ("a", pa.list_(kind)), *many, *row_schema("raw")])


def nulls(kind: pa.DataType, first: int, rows: int, each: int, wide: int = 0) -> pa.RecordBatch:
    """Rows of lists of nothing but nulls, one byte of a value each."""
    offsets = pa.array(range(0, rows * each + 1, each), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.nulls(rows * each, kind))
    return batch(schema_of(kind, wide), first, {"a": lists}, [each] * rows)


class Stored:
    """A file of batches, and what its pages say."""

    def __init__(self, batches: list[pa.RecordBatch], *, proven: bool = True) -> None:
        self.target, self.schema = io.BytesIO(), batches[0].schema
        file = RowFile(self.schema, self.target, "raw", proven=proven)
        for one in batches:
            file.add(one)
        pages = file.close(())
        assert pages is not None
        self.pages: PageTable = pages
        self.rows = file.rows
        footer = pq.read_metadata(self.target)
        leaf = [footer.schema.column(number).path for number in range(len(footer.schema))].index("a.list.element")
        self.groups = [footer.row_group(number).column(leaf).num_values for number in range(footer.num_row_groups)]

    def entries_of_pages(self) -> list[int]:
        """Of the list's leaf, which is the second of the value's."""
        data, found = np.frombuffer(self.target.getvalue(), dtype=np.uint8), []
        for number in np.flatnonzero(self.pages.column == 101).tolist():
            start, fields = int(self.pages.offset[number]), np.empty(FIELDS, dtype=np.int64)
            page = data[start : start + int(self.pages.length[number])]
            assert read_page_header(page, fields) > 0
            found.append(int(fields[NUM_VALUES]))
        return found

    def read(self, first: int, end: int) -> pa.StructArray:
        data = self.target.getvalue()
        reader = PageReader(self.pages, [ByteRange(0, len(data))], [data])
        return read_columns(reader, value_fields(self.schema), {"a"}, first, end)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("parted", [False, True])
def test_a_page_of_nothing_but_nulls_is_small(parted: bool, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ended only where values were encoded: 134 million entries were one, and one fetch decoded them all."""
    if parted:
        monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0)
    each, rows = 900_000, 60
    stored = Stored([nulls(kind, number, 1, each) for number in range(rows)])
    assert sum(stored.groups) == each * rows
    most_of_group = limits.PACKED_ENTRIES_MAX if parted else limits.ROW_GROUP_ENTRIES // limits.ENTRY_WITHOUT_VALUE
    assert max(stored.groups) <= most_of_group + each
    assert max(stored.entries_of_pages()) <= limits.ROW_GROUP_ENTRIES // limits.ENTRY_WITHOUT_VALUE + each
    if parted:  # larger row groups, so pages have to end by themselves
        assert max(stored.groups) >= limits.PACKED_ENTRIES_MAX or pa.types.is_int64(kind)
        assert stored.entries_of_pages()[-1] == each
    found = stored.read(rows - 2, rows).field("a")
    assert [len(found[number]) for number in range(2)] == [each, each]
    assert found.values.null_count == 2 * each


@pytest.mark.parametrize("beyond", [0, 1])
def test_pages_end_without_bytes_only_where_a_list_beside_them_needs_it(
    beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, rows = 1000, 20
    assert each * rows < limits.PACKED_EMPTY_MAX < limits.PACKED_ENTRIES_MAX
    monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0)
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_ENTRIES", each)  # the first row group has one row
    monkeypatch.setattr(converter.parquet.writer, "PROVEN_PAGE_BYTES", each)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_EMPTY_MAX", each * (rows - 1) - beyond)
    stored = Stored([nulls(pa.bool_(), number, 1, each, wide=64) for number in range(rows)])
    counts = [int(np.count_nonzero(stored.pages.column == number)) for number in range(100, 166)]
    assert set(counts[:32]) == ({rows} if beyond else {2})
    assert set(counts[32:]) == {2}  # Arrow sees nothing but nulls


@pytest.mark.parametrize("proven", [False, True])
def test_rows_that_come_together_are_parted(proven: bool) -> None:
    """A merge reads a row group as one batch, of an older file with any number of entries."""
    each, rows = 1000, 20_000
    stored = Stored([nulls(pa.bool_(), 0, rows, each)], proven=proven)
    assert sum(stored.groups) == each * rows
    assert max(stored.groups) <= 2 * limits.ROW_GROUP_ENTRIES // limits.ENTRY_WITHOUT_VALUE
    assert stored.rows == rows


def test_elements_without_bytes_end_pages() -> None:
    """A list of empty records has as many as its count says, and each is there."""
    each, rows = 100_000, 60
    offsets = pa.array(range(0, rows * each + 1, each), pa.int32())
    there = pa.ListArray.from_arrays(offsets, pa.array(np.ones(rows * each, dtype=np.bool_)))
    stored = Stored([batch(schema_of(pa.bool_()), 0, {"a": there}, [4] * rows)])
    assert max(stored.entries_of_pages()) <= limits.PROVEN_PAGE_BYTES + each


def test_rows_that_wait_are_joined_by_entries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is joined is one chunk of a column, and Arrow has the levels of a chunk in memory at once."""
    assert limits.PACKED_STEP_ENTRIES * 4 <= limits.PACKED_STEP_BYTES  # as many as numbers of four bytes
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_STEP_ENTRIES", 1000)
    schema = schema_of(pa.bool_())
    packed, counter = PackedRows(schema, lambda rows: [0, rows.num_rows]), EntryCounter(schema)
    for number in range(10):
        rows = nulls(pa.bool_(), number, 1, 400)
        packed.add(rows, counter.count(rows))
    joined = [[batch.num_rows for batch in run] for run in packed.runs()]
    assert joined == [[3, 3, 3, 1]]
    assert packed.edges == [[0, 3], [0, 3], [0, 3], [0, 1]]


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("proven", [False, True])
def test_lists_of_numbers_lie_as_if_nobody_counted(parted: bool, proven: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if parted:
        monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0)
    each, rows = 1000, 500
    offsets = pa.array(range(0, rows * each + 1, each), pa.int32())
    numbers = pa.ListArray.from_arrays(offsets, pa.array(np.arange(rows * each) % 100, pa.int32()))
    made = [batch(schema_of(pa.int32()), rows * k, {"a": numbers}, [1 + each] * rows) for k in range(20)]
    counted = Stored(made, proven=proven)
    assert len(counted.groups) > 1 or parted
    for module, name in (("writer", "ROW_GROUP"), ("packed_rows", "PACKED_STEP"), ("packed_rows", "PACKED_EMPTY")):
        limit = f"{name}_MAX" if name.endswith("EMPTY") else f"{name}_ENTRIES"
        monkeypatch.setattr(getattr(converter.parquet, module), limit, 2**60)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_ENTRIES_MAX", 2**60)
    monkeypatch.setattr(EntryCounter, "most_per_row", lambda _, rows: np.zeros(rows.num_rows, dtype=np.int64))
    assert Stored(made, proven=proven).target.getvalue() == counted.target.getvalue()


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_file_that_would_not_be_read_again_is_not_completed(
    beyond: int, parted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parted:
        monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0)
    made = [nulls(pa.bool_(), number, 1, 1000) for number in range(3)]
    most = 3000 if not parted else 2000  # the first row group is written as usual
    if parted:
        monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_ENTRIES", 1000)
    monkeypatch.setattr(converter.parquet.page_table, "PAGE_VALUES_MAX", most - beyond)
    if beyond:
        with pytest.raises(UnreadablePagesError, match=r"a\.list\.element has \d+ entries"):
            Stored(made)
    else:
        assert sum(Stored(made).groups) == 3000


def test_no_row_group_comes_near_what_a_page_may_have() -> None:
    """A batch of twice a row group's entries is parted; a row has VALUE_CELLS_MAX, or a header in RECORD_BYTES."""
    row = max(limits.VALUE_CELLS_MAX, limits.DECOMPRESSED_BATCH_BYTES_CEILING // limits.RECORD_BYTES)
    added = max(2 * limits.ROW_GROUP_ENTRIES, row)
    assert max(limits.ROW_GROUP_ENTRIES, limits.PACKED_ENTRIES_MAX) + added < limits.PAGE_VALUES_MAX // 4
