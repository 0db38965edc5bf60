"""What SegmentWriter writes: objects, sizes, checksums, summary, and that the data file is a good Parquet file."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

import converter.index.block_writer
import converter.parquet.writer
import converter.segment.writer
from converter import limits
from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.index.codec import decode_directory, footer_bytes, section_bytes
from converter.index.model import CauseCount, OpenTransaction, StoredObject, UndecidedTransaction
from converter.limits import SUMMARY_TRANSACTIONS_MAX
from converter.parquet.columns import leaf_columns, row_schema
from converter.parquet.page_table import READ_LEAVES, footer_metadata, page_table
from converter.segment.writer import FooterTooLargeError, SegmentWriter
from converter.types import BatchFlag, Cause, ConvertOptions, IndexType, LeaderEpoch
from tests.worlds.index_support import FILES, OBJECTS, Batch, Record, StepBuilder, metadata, simple_batches, write


def test_round_trip_in_chunks_of_any_size() -> None:
    stored = write([simple_batches(30, 3), simple_batches(0)])
    for chunk_bytes in (1, 500, 1 << 20):
        assert stored.read_all(chunk_bytes) == stored.served


def test_objects_are_described_by_size_and_checksum() -> None:
    batches = simple_batches(9)
    batches[4].kept = True
    stored = write([batches])
    directory = stored.directory
    assert directory.data == StoredObject("data/key.parquet", len(stored.data), crc32c(stored.data))
    assert directory.kept == StoredObject("kept/key.kept", len(stored.kept), crc32c(stored.kept))
    assert (stored.written.data_size, stored.written.data_crc32c) == (len(stored.data), crc32c(stored.data))
    assert (stored.written.kept_size, stored.written.kept_crc32c) == (len(stored.kept), crc32c(stored.kept))
    assert directory.total_size == len(stored.written.index)
    assert stored.written.rows == directory.summary.rows == 9


def test_decoded_directory_is_the_returned_one() -> None:
    stored = write([simple_batches(5)])
    decoded = decode_directory(stored.written.index[: stored.directory.directory_size])
    assert np.array_equal(decoded.blocks, stored.directory.blocks)
    for name in ("metadata", "options", "attempt_id", "data", "kept", "summary", "files", "footer", "total_size"):
        assert getattr(decoded, name) == getattr(stored.directory, name)


def test_kafkas_indexes_come_back_and_offset_is_our_own() -> None:
    stored = write([simple_batches(5)])
    for kind, section in stored.directory.files.items():
        found = section_bytes(section, stored.written.index[section.offset : section.offset + section.size])
        assert found == (b"" if kind == IndexType.OFFSET else FILES[kind])
    assert IndexType.TRANSACTION not in stored.directory.files


def test_segment_without_batches() -> None:
    stored = write([])
    assert stored.directory.data is None
    assert stored.directory.kept is None
    assert stored.directory.footer is None
    assert (stored.data, stored.kept, stored.written.footer, stored.written.rows) == (b"", b"", b"", 0)
    assert len(stored.directory.blocks) == 0
    assert stored.read_all() == b""


def test_segment_of_kept_batches_only_has_no_data_file() -> None:
    batches = [Batch(i, kept=True, cause=Cause.NO_ROWS, attributes=0x30) for i in range(4)]
    stored = write([batches])
    assert stored.directory.data is None
    assert stored.data == b""
    assert stored.kept == stored.served == stored.read_all()
    assert stored.directory.summary.kept == (CauseCount(Cause.NO_ROWS, 4, 0, 4 * 61),)


def test_kept_batches_with_rows_are_rows_and_are_served_as_kept() -> None:
    batches = simple_batches(6)
    for batch in batches[::2]:
        batch.kept, batch.cause = True, Cause.SERVED_SIZE
    stored = write([batches])
    assert pq.read_table(io.BytesIO(stored.data)).num_rows == 6
    for chunk_bytes in (1, 1 << 20):
        assert stored.read_all(chunk_bytes) == stored.served


def test_blocks_are_cut_and_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.index.block_writer, "BLOCK_BATCHES_MAX", 4)
    stored = write([simple_batches(3), simple_batches(0)[:0], simple_batches(11)[3:]])
    blocks = stored.directory.blocks
    assert blocks["batches"].tolist() == [4, 4, 3]
    assert blocks["first_batch"].tolist() == [0, 4, 8]
    assert blocks["first_offset"].tolist() == [0, 4, 8]
    assert blocks["last_offset"].tolist() == [3, 7, 10]
    assert blocks["row_start"].tolist() == [0, 4, 8]
    assert stored.read_all(1) == stored.read_all() == stored.served


def test_blocks_are_cut_early_by_timestamp_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.index.block_writer, "BLOCK_DELTAS", 5)
    batches = simple_batches(9, 2)
    for batch in batches:
        batch.exact = True
    stored = write([batches[:4], batches[4:]])
    assert stored.directory.blocks["deltas"].tolist() == [6, 6, 6]
    assert stored.read_all(1) == stored.read_all() == stored.served


def test_a_batch_with_more_deltas_than_a_block_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.index.block_writer, "BLOCK_DELTAS", 2)
    batches = simple_batches(3, 7)
    batches[1].exact = True
    stored = write([batches])
    assert stored.directory.blocks["deltas"].tolist() == [7, 0]
    assert stored.read_all(1) == stored.served


def test_many_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 1000)
    stored = write([simple_batches(10), simple_batches(40)[10:], simple_batches(50)[40:]])
    assert footer_metadata(stored.written.footer).num_row_groups == 3
    assert stored.read_all(300) == stored.served


def test_footer_in_the_index_is_the_files_footer() -> None:
    stored = write([simple_batches(20)])
    section = stored.directory.footer
    assert section is not None
    footer = footer_bytes(stored.directory, stored.written.index[section.offset : section.offset + section.size])
    assert footer == stored.written.footer
    assert footer_metadata(footer).equals(pq.read_metadata(io.BytesIO(stored.data)))


def test_field_ids_and_nullability_reach_the_file() -> None:
    names = [field.name for field in row_schema("string")]
    names += ["_kafka_headers.element", "_kafka_headers.element.key", "_kafka_headers.element.value"]
    ids = {name: number for number, name in enumerate(names, start=5)}
    stored = write([simple_batches(4)], "string", field_ids=ids)
    schema = pq.read_schema(io.BytesIO(stored.data))
    assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema} == {
        name: number for name, number in ids.items() if "." not in name
    }
    element = schema.field("_kafka_headers").type.value_field
    assert int(element.metadata[b"PARQUET:field_id"]) == ids["_kafka_headers.element"]
    assert {f.name: f.nullable for f in schema if not f.nullable} == {"_kafka_partition": False, "_kafka_offset": False}
    assert b"ARROW:schema" not in (pq.read_metadata(io.BytesIO(stored.data)).metadata or {})


def test_statistics_of_the_small_columns() -> None:
    stored = write([simple_batches(20)])
    group = footer_metadata(stored.written.footer).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert (columns["_kafka_offset"].statistics.min, columns["_kafka_offset"].statistics.max) == (0, 19)
    assert columns["_kafka_partition"].statistics.max == 3
    assert columns["_kafka_value"].statistics is None
    assert set(columns["_kafka_value"].encodings) == {"PLAIN", "RLE"}
    assert "DELTA_BINARY_PACKED" in columns["_kafka_offset"].encodings


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_levels_the_page_reader_assumes(value_format: str) -> None:
    """converter/parquet/pages.py knows definition and repetition levels by heart: they must be the file's."""
    stored = write([simple_batches(4)], value_format)  # type: ignore[arg-type]
    schema = footer_metadata(stored.written.footer).schema
    levels = {schema.column(i).path: schema.column(i) for i in range(len(schema))}
    assert tuple(levels) == leaf_columns(value_format)  # type: ignore[arg-type]
    for leaf in READ_LEAVES:
        if leaf in levels:
            flat = "headers" not in leaf
            expected = (0 if leaf == "_kafka_offset" else 1, 0) if flat else (4, 1)
            assert (levels[leaf].max_definition_level, levels[leaf].max_repetition_level) == expected


@pytest.mark.parametrize(("size", "count"), [(20, 40_000), (1000, 3000), (16_000, 200), (1_000_000, 6), (0, 50)])
def test_pages_are_about_a_quarter_megabyte(size: int, count: int) -> None:
    stored = write([[Batch(0, [Record(i, value=b"x" * size) for i in range(count)], count - 1)]])
    block = stored.block(0)
    table = page_table(stored.data, 0, "raw")
    assert np.array_equal(table.offset, block.pages.offset)
    values = table.column == 8
    largest = max(int(rows) * (size + 4) for rows in table.row_count[values])
    assert largest <= max(2 * 256 * 1024 + size, 2 * (size + 4))
    assert stored.read_all() == stored.served


def test_other_readers_read_the_values(tmp_path: Path) -> None:
    records = [
        Record(0, 5, None, None),
        Record(1, 6, b"", b"", ((b"a", None), (b"", b""), (b"a", b"\xff"))),
        Record(2, 7, b"k", b"caf\xc3\xa9"),
    ]
    stored = write([[Batch(100, records, 2)]], "string")
    rows = pq.read_table(io.BytesIO(stored.data)).to_pylist()
    assert [row["_kafka_offset"] for row in rows] == [100, 101, 102]
    assert [row["value"] for row in rows] == [None, "", "café"]
    assert [row["_kafka_value_size"] for row in rows] == [None, 0, 5]
    assert rows[1]["_kafka_headers"] == [
        {"key": "a", "value": None},
        {"key": "", "value": b""},
        {"key": "a", "value": b"\xff"},
    ]
    path = tmp_path / "rows.parquet"
    path.write_bytes(stored.data)
    rows = duckdb.sql(
        f"select _kafka_offset, epoch_ms(_kafka_timestamp), _kafka_key, len(_kafka_headers), typeof(_kafka_timestamp), "
        f"value from '{path}' order by 1"
    )
    assert rows is not None
    found = rows.fetchall()
    base = 1_700_000_000_000
    zone = "TIMESTAMP WITH TIME ZONE"
    assert found == [
        (100, base + 5, None, 0, zone, None),
        (101, base + 6, b"", 3, zone, ""),
        (102, base + 7, b"k", 0, zone, "café"),
    ]


def test_abort_leaves_no_readable_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 1000)
    builder = StepBuilder()
    data = io.BytesIO()
    writer = SegmentWriter(metadata(10**6), ConvertOptions(), builder.schema, data, io.BytesIO())
    writer.add(builder.step(simple_batches(50)))
    written = len(data.getvalue())
    assert written
    writer.abort()
    del writer
    assert len(data.getvalue()) == written
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(data.getvalue()))


@pytest.mark.parametrize("name", ["COLUMN_CHUNKS_MAX", "FOOTER_BYTES_MAX"])
def test_a_footer_that_nothing_would_read_again_is_an_error_of_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No SegmentError: such a segment is stored as it is, and not refused again and again."""

    def write() -> SegmentWriter:
        builder = StepBuilder()
        writer = SegmentWriter(metadata(10**6), ConvertOptions(), builder.schema, io.BytesIO(), io.BytesIO())
        for _ in range(3):
            writer.add(builder.step(simple_batches(50)))
        return writer

    monkeypatch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", 1000)
    file = write()._file
    assert file.row_groups == 3
    assert file.column_chunks == 3 * len(leaf_columns("raw"))
    file.close(())
    size = {"COLUMN_CHUNKS_MAX": file.column_chunks, "FOOTER_BYTES_MAX": len(file.footer)}[name]
    assert size < getattr(limits, name)

    def whole() -> None:
        writer = write()
        writer.finish(FILES, Transactions(), OBJECTS)

    monkeypatch.setattr(converter.segment.writer, name, 2 * size)
    whole()
    monkeypatch.setattr(converter.segment.writer, name, size - 1)
    with pytest.raises(FooterTooLargeError):
        whole()


def test_contradictory_steps_are_refused() -> None:
    builder = StepBuilder()
    writer = SegmentWriter(metadata(10**6), ConvertOptions(), builder.schema, io.BytesIO(), io.BytesIO())
    step = builder.step(simple_batches(3))
    step.rows = step.rows.slice(1)
    with pytest.raises(ValueError, match="rows"):
        writer.add(step)
    step = builder.step(simple_batches(3))
    step.kept = [b"x"]
    with pytest.raises(ValueError, match="kept"):
        writer.add(step)
    step = builder.step(simple_batches(3))
    step.timestamp_deltas = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="deltas"):
        writer.add(step)


def test_more_bytes_than_announced_are_refused() -> None:
    builder = StepBuilder()
    writer = SegmentWriter(metadata(2**30 + 5), ConvertOptions(), builder.schema, io.BytesIO(), io.BytesIO())
    step = builder.step(simple_batches(3))
    step.batches["length"] = 2**29
    step.batches["served_size"] = 2**29
    with pytest.raises(SegmentError) as caught:
        writer.add(step)
    assert caught.value.kind == "invalid_segment"


def test_summary() -> None:
    batches = simple_batches(8)
    batches[2].flags = batches[5].flags = int(BatchFlag.UNDECIDED)
    batches[2].producer_id = batches[5].producer_id = 77
    batches[3].kept, batches[3].cause, batches[3].flags = True, Cause.BAD_CRC, int(BatchFlag.QUARANTINED)
    batches[4].kept, batches[4].cause, batches[4].flags = True, Cause.NO_ROWS, int(BatchFlag.CONTROL)
    for batch in batches[6:]:
        batch.leader_epoch = 4
    opened = Transactions(opened=np.array([[77, 2]], dtype=np.int64))
    summary = write([batches[:3], batches[3:]], transactions=opened).directory.summary
    assert (summary.batches, summary.rows, summary.markers) == (8, 6, 1)
    assert summary.served_bytes == sum(len(batch.encode()) for batch in batches)
    assert summary.leader_epochs == (LeaderEpoch(0, 0),)  # the metadata's, whatever the batches say
    assert summary.undecided == (UndecidedTransaction(77, 2, 5),)
    assert not summary.undecided_overflow
    assert summary.open_transactions == (OpenTransaction(77, 2),)
    sizes = [len(batch.encode()) for batch in batches]
    assert summary.quarantined == (CauseCount(Cause.BAD_CRC, 1, 1, sizes[3]),)
    assert summary.kept == (CauseCount(Cause.BAD_CRC, 1, 1, sizes[3]), CauseCount(Cause.NO_ROWS, 1, 1, sizes[4]))
    assert not summary.verbatim
    assert not summary.transaction_conflict


def test_files_that_do_not_say_what_is_open_are_not_taken_for_none_open() -> None:
    written = write([simple_batches(3)], transactions=Transactions.parse(None, None))
    assert written.directory.summary.open_transactions is None
    assert decode_directory(written.written.index).summary.open_transactions is None
    none_open = write([simple_batches(3)], transactions=Transactions())
    assert decode_directory(none_open.written.index).summary.open_transactions == ()


def test_too_many_undecided_transactions_set_a_flag() -> None:
    batches = simple_batches(SUMMARY_TRANSACTIONS_MAX + 1)
    for number, batch in enumerate(batches):
        batch.flags, batch.producer_id = int(BatchFlag.UNDECIDED), number
    assert len(write([batches[:-1]]).directory.summary.undecided) == SUMMARY_TRANSACTIONS_MAX
    summary = write([batches]).directory.summary
    assert summary.undecided_overflow
    assert summary.undecided == ()


def test_conflicts_and_verbatim_are_recorded() -> None:
    writer = SegmentWriter(
        metadata(100), ConvertOptions(mode="verbatim"), row_schema("raw"), io.BytesIO(), io.BytesIO()
    )
    summary = writer.finish(FILES, Transactions(), OBJECTS, transaction_conflicts=2).directory.summary
    assert summary.verbatim
    assert summary.transaction_conflict
