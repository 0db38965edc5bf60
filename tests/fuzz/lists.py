"""Lists of few bytes and many entries, nulls above all: written under the rules of `proven`, and read row by row."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import converter.parquet.writer
from converter.limits import ENTRY_WITHOUT_VALUE, ROW_GROUP_ENTRIES
from converter.parquet.columns import OFFSET, PARTITION, VALUE_SIZE, row_schema, value_fields
from converter.parquet.page_columns import read_columns
from converter.parquet.pages import ByteRange, PageReader
from converter.parquet.writer import RowFile
from converter.types import PageTable
from tests.fuzz.target import MIB, Outcome, Target, WrongError

_KINDS = {
    "bool": pa.bool_(),
    "long": pa.int64(),
    "string": pa.string(),
    "record": pa.struct([("x", pa.bool_()), ("y", pa.int32())]),
}
_SIZES = (0, 0, 1, 3, 1000, 70_000, 900_000)
_ENTRIES = (0, 10_000, 10_000, 200_000, 200_000, 200_000, 2_000_000, 12_000_000)


class ListPages(Target):
    """A file of rows whose lists are null, empty, full of nulls, or full of values."""

    name = "list-pages"
    memory_bytes_max = 320 * MIB

    def prepare(self) -> None:
        for seed in range(4):
            self.run(self.make(random.Random(seed), ()))

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        batches, left = [], rng.choice(_ENTRIES)
        for _ in range(rng.randrange(1, 12)):
            rows = []
            for _ in range(rng.choice((1, 1, 2, 30))):
                size = min(left, rng.choice(_SIZES))
                left -= size
                rows.append([size if rng.random() < 0.9 else None, rng.random() < 0.7, rng.choice((1, size, 600_000))])
            batches.append(rows)
        kind = rng.choice(sorted(_KINDS))
        return json.dumps({"kind": kind, "parted": rng.random() < 0.5, "batches": batches}).encode()

    def run(self, data: bytes) -> Outcome:
        facts = json.loads(data)
        batches = [_rows(_KINDS[facts["kind"]], rows) for rows in facts["batches"]]
        target = io.BytesIO()
        with patch.object(converter.parquet.writer, "COLUMN_CHUNKS_USUAL", 0 if facts["parted"] else 2**60):
            file = RowFile(batches[0].schema, target, "raw", proven=True)
            for batch in batches:
                file.add(batch)
            pages = file.close(())
        if pages is None:
            raise WrongError("rows, and no file")
        return Outcome(f"{facts['kind']} {file.row_groups}", lambda: _judge(batches, target.getvalue(), pages))


def _rows(kind: pa.DataType, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """rows: of each the elements of its list, None for no list, whether all are null, and the bytes of its value."""
    parts = [_elements(kind, size or 0, null=null) for size, null, _ in rows]
    offsets = np.cumsum([0, *(size or 0 for size, _, _ in rows)])
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.concat_arrays(parts), mask=pa.array([size is None for size, _, _ in rows])
    )
    schema = pa.schema([("a", pa.list_(kind)), *row_schema("raw")])
    own = {
        "a": lists,
        PARTITION: pa.array([0] * len(rows), pa.int32()),
        OFFSET: pa.array(range(len(rows)), pa.int64()),
        VALUE_SIZE: pa.array([size for _, _, size in rows], pa.int32()),
    }
    arrays = [own[field.name] if field.name in own else pa.nulls(len(rows), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _elements(kind: pa.DataType, size: int, *, null: bool) -> pa.Array:
    if null:
        return pa.nulls(size, kind)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(
            [_elements(f.type, size, null=f.name == "y") for f in kind], fields=list(kind)
        )
    numbers = pa.array(np.arange(size) % 2)
    return numbers.cast(kind)


def _judge(batches: Sequence[pa.RecordBatch], data: bytes, pages: PageTable) -> None:
    schema = value_fields(batches[0].schema)
    wanted = pa.Table.from_batches(batches).column("a").combine_chunks()
    reader = PageReader(pages, [ByteRange(0, len(data))], [data])
    most = 3 * ROW_GROUP_ENTRIES // ENTRY_WITHOUT_VALUE  # a row group that is almost full, and twice what fills one
    for row in range(len(wanted)):
        for page in reader.open(100, "a", row, row + 1, 0, nested=True):
            if page.values > most:
                raise WrongError(f"a page of {page.values} entries, most are {most}")
        found = read_columns(reader, schema, {"a"}, row, row + 1)
        found.validate(full=True)
        if not found.field("a").equals(wanted.slice(row, 1)):
            raise WrongError(f"row {row} of {len(wanted)} is read as another one")
