"""Rows of older data files under the table's present columns, by field id; and never too many cells at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from converter.parquet.columns import row_schema
from converter.values import rows as module
from converter.values.rows import as_written_now, by_name, pieces, typed_rows
from iceberg_catalog.tables.schema import expected_field_ids

RAW = row_schema("raw", expected_field_ids("raw"))


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={module.FIELD_ID: str(number).encode()})


def raw_rows(count: int) -> pa.RecordBatch:
    values = [
        {"_kafka_partition": 0, "_kafka_offset": n, "_kafka_headers": [{"key": "h", "value": b"v"}] if n % 2 else None}
        for n in range(count)
    ]
    return pa.RecordBatch.from_pylist(values, schema=RAW)


def test_a_renamed_widened_and_grown_column_is_found_by_its_id() -> None:
    inner = pa.struct([field("x", pa.int32(), 22)])
    old = pa.schema([field("was", pa.int32(), 20), field("s", inner, 21), *RAW])
    grown = pa.struct([field("y", pa.string(), 23), field("x", pa.int64(), 22)])
    new = pa.schema([field("s", grown, 21), field("now", pa.int64(), 20), field("was", pa.string(), 30), *RAW])
    plain = raw_rows(3)
    s = pa.array([{"x": 1}, None, {"x": None}], inner)
    given = typed_rows(plain, old, {"was": pa.array([1, None, 3], pa.int32()), "s": s}, None)
    found = as_written_now(given, new)
    found.validate(full=True)
    assert found.schema.equals(new, check_metadata=True)
    assert found.column("now").to_pylist() == [1, None, 3]
    assert found.column("was").null_count == 3
    assert found.column("s").to_pylist() == [{"y": None, "x": 1}, None, {"y": None, "x": None}]
    assert found.select(RAW.names).to_pylist() == plain.to_pylist()


def test_what_lies_under_a_row_without_columns_is_not_seen() -> None:
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2])], fields=[pa.field("n", pa.int64())], mask=pa.array([False, True])
    )
    assert by_name(hidden)["n"].to_pylist() == [1, None]


def test_rows_of_a_wide_table_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_CELLS_MAX", 1000)
    wide = pa.schema([*(field(f"c{n}", pa.int64(), 20 + n) for n in range(90)), *RAW])
    rows = raw_rows(57)
    parts = list(pieces(rows, wide))
    assert max(part.num_rows for part in parts) == 1000 // 99
    assert pa.Table.from_batches(parts).to_pylist() == rows.to_pylist()
    assert [part.num_rows for part in pieces(rows, RAW)] == [57]
