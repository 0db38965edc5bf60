"""A file that is given up after Arrow refused its rows. In a process of its own: it ended by a segmentation fault."""

from __future__ import annotations

import subprocess
import sys

import pytest

GIVEN_UP = """
import io
import pyarrow as pa
from converter.parquet.columns import row_schema
from converter.parquet.writer import RowFile

rows = pa.RecordBatch.from_pylist([], schema=row_schema("raw"))
inner = pa.field("a", pa.int64(), nullable=False)
mine = inner if {top} else pa.field("s", pa.struct([inner]))
own = [pa.nulls(5, field.type) for field in rows.schema]
column = pa.array([1, None, 3, 4, 5], pa.int64()) if {top} else pa.nulls(5, mine.type)
schema = pa.schema([mine, *(field.with_nullable(True) for field in rows.schema)])
file = RowFile(schema, io.BytesIO(), "raw", proven={proven})
try:
    file.add(pa.RecordBatch.from_arrays([column, *own], schema=schema))
    file.close(())
except pa.ArrowInvalid as error:
    file.abort()
    kept = error
del file
print("alive", kept)
"""


@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize("proven", [True, False])
def test_a_file_whose_rows_arrow_refuses_costs_nothing_but_itself(top: bool, proven: bool) -> None:
    code = GIVEN_UP.format(top=top, proven=proven)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "alive Column 'a' is declared non-nullable but contains nulls" in done.stdout
