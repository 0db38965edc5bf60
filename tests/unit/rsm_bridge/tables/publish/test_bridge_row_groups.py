"""Row groups of stored data files are read in pieces."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rsm_bridge.tables.publish.rewritten
from rsm_bridge.errors import BridgeError
from rsm_bridge.tables.publish.rewritten import rows_of_group


def test_a_row_group_of_many_rows_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rsm_bridge.tables.publish.rewritten, "ROW_GROUP_BYTES", 8 * 2 * 100)
    rows = pa.table({"a": range(1050), "b": [None] * 1050})
    file = io.BytesIO()
    pq.write_table(rows, file, row_group_size=600)
    found = list(rows_of_group(pq.ParquetFile(file), 1, "key"))
    assert [batch.num_rows for batch in found] == [100, 100, 100, 100, 50]
    assert pa.Table.from_batches(found).equals(rows.slice(600))


def test_a_damaged_row_group_is_named() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [str(number) * 100 for number in range(500)]}), file)
    source = pq.ParquetFile(file)
    file.seek(4)
    file.write(b"\xff" * 1000)
    with pytest.raises(BridgeError, match="key is damaged"):
        list(rows_of_group(source, 0, "key"))
