"""Files of many column chunks: their rows wait compressed, and several Parquet writers write one file."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import converter.parquet.arrow_writer
import converter.parquet.packed_rows
import converter.parquet.writer
from converter.kernels.kernel import readonly
from converter.limits import (
    COLUMN_CHUNKS_MAX,
    COLUMN_CHUNKS_USUAL,
    PACKED_CELLS_MAX,
    ROW_GROUP_BYTES,
    STATISTICS_BYTES_MAX,
)
from converter.parquet import columns
from converter.parquet.arrow_writer import ArrowWriter, empty_footer
from converter.parquet.columns import leaf_paths, value_fields
from converter.parquet.moved_chunks import CHUNK_GROWTH, FOOTER_AT, TOLD, move_chunks
from converter.parquet.page_table import footer_metadata, footer_of, page_table
from converter.parquet.parts import FilePart, PartedFile, PartSink, closed_part
from converter.parquet.sink import CountingSink
from converter.parquet.thrift import list_at, spans
from converter.parquet.writer import RowFile
from converter.types import LeaderEpoch, PageTable
from tests.support.examples import examples
from tests.worlds.index_support import Batch, Record, write

VALUES = [
    pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
    pa.field("s", pa.string()),
    pa.field("st", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.float64()))])),
    pa.field("m", pa.map_(pa.string(), pa.int32())),
    pa.field("d", pa.decimal128(20, 3)),
    pa.field("b", pa.bool_()),
    *[pa.field(f"n{number}", pa.int64()) for number in range(5)],
]
SCHEMA = pa.schema(
    [*VALUES, *columns.row_schema("raw"), pa.field(columns.ERROR, pa.string())], metadata={"tierberg.table": "x"}
)
NOW = datetime(2020, 1, 1, tzinfo=UTC)


def sizes(monkeypatch: pytest.MonkeyPatch, *, usual: int, group: int = 60_000) -> None:
    monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", usual, raising=False)
    for module in (converter.parquet.writer, converter.parquet.packed_rows):
        monkeypatch.setattr(module, "ROW_GROUP_BYTES", group, raising=False)
    for module in (converter.parquet.writer, converter.parquet.arrow_writer):
        monkeypatch.setattr(module, "PAGE_BYTES", 5_000)
    monkeypatch.setattr(converter.parquet.writer, "PROVEN_PAGE_BYTES", 5_000)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_STEP_BYTES", group // 2)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_BYTES_MAX", group)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_COLUMNS", 4)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_RUN_BYTES_MAX", 2 * group)


def some_rows(seed: int) -> list[pa.RecordBatch]:
    rng = random.Random(seed)

    def maybe(value: object, often: float = 0.6) -> Any:
        return value if rng.random() < often else None

    def row(offset: int) -> dict[str, Any]:
        return {
            "a": maybe(rng.randrange(1 << 60)),
            "s": maybe("x" * rng.randrange(40)),
            "st": maybe({"x": maybe(offset), "y": maybe([1.5] * rng.randrange(4))}),
            "m": maybe([("k", 1), ("j", offset)]),
            "d": maybe(Decimal("1.234")),
            "b": maybe(True),
            "n0": 1,
            "n1": maybe(offset, 0.1),
            columns.PARTITION: 0,
            columns.OFFSET: offset,
            columns.TIMESTAMP: NOW,
            columns.TIMESTAMP_TYPE: 0,
            columns.KEY: maybe(b"k" * rng.randrange(30)),
            columns.HEADERS: [{"key": "h", "value": b"v" * rng.randrange(9)}] * rng.randrange(3),
            columns.RAW_VALUE: maybe(b"v" * rng.randrange(300), 0.9),
            columns.VALUE_SIZE: rng.randrange(200),
        }

    made: list[pa.RecordBatch] = []
    offset = 0
    for _ in range(40):
        count = rng.randrange(1, 150)
        made.append(pa.RecordBatch.from_pylist([row(offset + number) for number in range(count)], schema=SCHEMA))
        offset += count
    return made


def written(rows: list[pa.RecordBatch], *, proven: bool, schema: pa.Schema | None) -> tuple[bytes, RowFile, PageTable]:
    target = io.BytesIO()
    file = RowFile(schema, target, "raw", proven=proven)
    for number, batch in enumerate(rows):
        file.add(batch)
        if number % 17 == 16:
            file.flush()
    pages = file.close([LeaderEpoch(3, 0)])
    assert pages is not None
    assert file.rows == sum(batch.num_rows for batch in rows)
    assert file.size == len(target.getvalue())
    return target.getvalue(), file, pages


@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize("schema", [None, SCHEMA])
@pytest.mark.parametrize("usual", [0, 60])
def test_a_file_of_many_parts_is_a_parquet_file_as_any(
    usual: int, schema: pa.Schema | None, proven: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = some_rows(usual)
    sizes(monkeypatch, usual=10**9)
    plain, of_one, _ = written(rows, proven=proven, schema=schema)
    sizes(monkeypatch, usual=usual)
    data, file, pages = written(rows, proven=proven, schema=schema)
    assert 3 < file.row_groups < of_one.row_groups
    expected = pa.Table.from_batches(rows)
    found = pq.read_table(io.BytesIO(data))
    found.validate(full=True)
    assert found.equals(expected)
    footer, other = pq.read_metadata(io.BytesIO(data)), pq.read_metadata(io.BytesIO(plain))
    assert footer.equals(footer_metadata(file.footer))
    assert (footer.schema, footer.metadata, footer.num_rows) == (other.schema, other.metadata, other.num_rows)
    assert footer.metadata[b"tierberg.leader-epochs"] == b"3.0"
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(leaf) for leaf in range(group.num_columns)]
        assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
        assert all(chunk.has_offset_index for chunk in chunks)
        assert [chunk.path_in_schema for chunk in chunks] == [leaf for field in SCHEMA for leaf in leaf_paths(field)]
        offsets = pq.ParquetFile(io.BytesIO(data)).read_row_group(number, columns=[columns.OFFSET])[columns.OFFSET]
        statistics = chunks[[chunk.path_in_schema for chunk in chunks].index(columns.OFFSET)].statistics
        assert (statistics.min, statistics.max) == (offsets[0].as_py(), offsets[-1].as_py())
    leaves = [leaf for field in value_fields(SCHEMA) for leaf in leaf_paths(field)] if proven else []
    again = page_table(data, 0, "raw", leaves)
    for name in ("column", "first_row", "row_count", "offset", "length"):
        assert np.array_equal(getattr(pages, name), getattr(again, name)), name
    path = tmp_path / "rows.parquet"
    path.write_bytes(data)
    said = duckdb.sql(f"select count(*), sum(a), count(s), sum({columns.OFFSET}), sum(n1) from '{path}'")
    assert said is not None
    sums = [sum(value or 0 for value in expected[name].to_pylist()) for name in ("a", columns.OFFSET, "n1")]
    assert said.fetchall() == [(len(expected), sums[0], len(expected["s"].drop_null()), sums[1], sums[2])]


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_a_segment_is_read_from_the_pages_of_many_parts(value_format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes(monkeypatch, usual=0, group=3000)
    values = random.Random(1)
    records = [Record(number, key=b"k", value=values.randbytes(number % 90).hex().encode()) for number in range(500)]
    batches = [Batch(10 * start, records[:10], 9) for start in range(50)]
    batches.append(Batch(500, records, 499))
    stored = write([batches[start : start + 3] for start in range(0, len(batches), 3)], value_format)
    assert footer_metadata(stored.written.footer).num_row_groups > 3
    for chunk_bytes in (1, 500, 1 << 20):
        assert stored.read_all(chunk_bytes) == stored.served


def test_an_aborted_file_of_many_parts_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes(monkeypatch, usual=0)
    target = io.BytesIO()
    file = RowFile(SCHEMA, target, "raw")
    for batch in some_rows(1):
        file.add(batch)
    assert file.row_groups > 3
    size = len(target.getvalue())
    file.abort()
    del file
    assert len(target.getvalue()) == size


def wide(columns_count: int, rows: int, *, filled: bool) -> tuple[pa.Schema, pa.RecordBatch]:
    """Tombstones, or rows of zeros, beside Kafka's columns."""
    kafka = columns.row_schema("raw")
    schema = pa.schema([*[pa.field(f"c{number}", pa.int64()) for number in range(columns_count)], *kafka])
    cells = pa.array(np.zeros(rows, dtype=np.int64)) if filled else pa.nulls(rows, pa.int64())
    own = [pa.nulls(rows, field.type) if field.nullable else pa.array(np.zeros(rows), field.type) for field in kafka]
    return schema, pa.RecordBatch.from_arrays([*[cells] * columns_count, *own], schema=schema)


@pytest.mark.parametrize("filled", [False, True])
def test_rows_of_a_wide_table_that_hold_little_make_few_column_chunks(
    filled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone takes one byte on the wire, and 16 KB as Arrow has it in a table of 2,000 columns."""
    schema, rows = wide(500, 1000, filled=filled)
    monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 2000, raising=False)
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 4 * 2**20)
    file = RowFile(schema, io.BytesIO(), "raw")
    for _ in range(60):
        file.add(rows)
    file.close(())
    assert file.rows == 60_000
    assert file.row_groups <= 6  # sixty of 4 MiB


def test_pages_of_few_bytes_are_passed_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload holds what it was given until a part of it is full."""
    writes: list[int] = []

    class Target(io.BytesIO):
        def write(self, data: Any) -> int:
            writes.append(len(data))
            return super().write(data)

    schema, rows = wide(2000, 500, filled=False)
    monkeypatch.setattr(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0)
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_CELLS_MAX", 500 * 2000)
    file = RowFile(schema, Target(), "raw")
    file.add(rows)
    writes.clear()
    file.add(rows)
    assert file.row_groups == 2
    assert len(writes) < 200  # 2,000 columns


def test_large_values_of_a_wide_table_do_not_end_a_row_group_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes(monkeypatch, usual=0)
    rows = some_rows(2)
    file = RowFile(SCHEMA, io.BytesIO(), "raw")
    for batch in rows[:30]:
        file.add(batch)
        file.flush()
    assert 1 < file.row_groups < 15


def test_an_ordinary_file_is_one_part() -> None:
    """What a table of 60 columns makes of four GiB of Arrow data."""
    assert 60 * (4 * 2**30 // ROW_GROUP_BYTES) < COLUMN_CHUNKS_USUAL
    assert COLUMN_CHUNKS_USUAL < COLUMN_CHUNKS_MAX
    # Rows of 2,000 columns, however they are filled with what compresses.
    assert COLUMN_CHUNKS_MAX // 2000 * (PACKED_CELLS_MAX // 2000) > 2_000_000


def test_long_values_of_many_columns_are_in_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 columns of 4 KB texts: Arrow would keep 16 MB of them for each row group, five times."""
    monkeypatch.setattr(converter.parquet.writer, "EXTREMES_BYTES_USUAL", 100_000, raising=False)
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 100_000)
    monkeypatch.setattr(converter.parquet.packed_rows, "PACKED_RUN_BYTES_MAX", 200_000)
    fields = [pa.field(name, kind) for name, kind in (("n", pa.int64()), ("short", pa.string()), ("t", pa.string()))]
    fields += [
        pa.field("l", pa.list_(pa.struct([("x", pa.binary())]))),
        pa.field("m", pa.map_(pa.string(), pa.string())),
    ]
    schema = pa.schema([*fields, *columns.row_schema("raw")])
    long, short = "t" * 4000, "t" * (STATISTICS_BYTES_MAX // 3)
    values = {"n": 1, "short": short, "t": long, "l": [{"x": long.encode()}] * 2, "m": [(long, None)]}
    rows = [{columns.PARTITION: 0, columns.OFFSET: offset, **(values if offset % 3 else {})} for offset in range(30)]
    target = io.BytesIO()
    file = RowFile(schema, target, "raw")
    for _ in range(8):
        file.add(pa.RecordBatch.from_pylist(rows, schema=schema))
    file.close(())
    footer = footer_metadata(file.footer)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert len(groups) > 3
    assert {group.column(0).statistics.max for group in groups} == {1}
    assert {group.column(1).statistics.max for group in groups} == {short}
    for leaf in range(2, 5):
        assert not any(group.column(leaf).statistics.has_min_max for group in groups)
    nulls = [sum(group.column(leaf).statistics.null_count for group in groups) for leaf in range(6)]
    assert nulls == [80, 80, 80, 80, 80, 240]
    assert pq.read_table(io.BytesIO(target.getvalue())).num_rows == 240


def part_of(target: CountingSink) -> FilePart:
    """A writer's own file, whose places are to be moved by 5."""
    target.write(b"PAR1.....")
    sink = PartSink(target)
    rows = some_rows(1)[0]
    writer = ArrowWriter(rows.schema, sink, "raw", proven=True)
    writer.write(pa.Table.from_batches([rows]))
    return closed_part(writer, sink)


def test_places_are_moved_by_what_lies_before() -> None:
    target = io.BytesIO()
    sink = CountingSink(target)
    part = part_of(sink)
    file = PartedFile(sink, {columns.KEY: 3})
    file.add([part])
    _, pages = file.finish(empty_footer(SCHEMA, "raw", []))
    data = target.getvalue()
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0)
    key = next(chunk.column(n) for n in range(chunk.num_columns) if chunk.column(n).path_in_schema == columns.KEY)
    assert pages.offset.tolist()[0] == key.data_page_offset
    assert pages.column.tolist() == [3] * len(pages.column)
    assert pq.read_table(io.BytesIO(data)).to_pylist() == some_rows(1)[0].to_pylist()


@examples(200)
@given(changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4), cut=st.integers(0, 2**16))
def test_any_bytes_are_safe_as_column_chunks(changes: list[tuple[int, int]], cut: int) -> None:
    part = part_of(CountingSink(io.BytesIO()))
    tail = bytearray(part.tail)
    for place, byte in changes:
        tail[place % len(tail)] = byte
    footer = footer_of(part.tail)
    start = len(tail) - len(footer) - 8
    damaged = bytes(tail[start : start + max(1, len(footer) - cut % (2 * len(footer)))])
    position = list_at(footer, spans(footer, list_at(footer, spans(footer, until=4)[1])[1], until=1)[1])[1]
    out = np.empty(len(footer) + 100 * CHUNK_GROWTH, np.uint8)
    results = np.array([position, 0, 0])
    told = np.empty((sum(len(leaf_paths(field)) for field in SCHEMA), TOLD), np.int64)
    index = np.empty(3 * len(tail), np.uint8)
    places = np.empty((len(tail) // 7 + 1, 3), np.int64)
    arrays = [readonly(np.frombuffer(data, np.uint8), np.uint8) for data in (damaged, bytes(tail))]
    well = move_chunks(arrays[0], arrays[1], part.tail_start, 5, 1000, out, index, places, told, results)
    assert well or changes or cut
    assert not well or results[FOOTER_AT] <= len(damaged)
