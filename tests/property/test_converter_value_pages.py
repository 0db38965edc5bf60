"""Typed columns out of single pages: whatever they hold, the rows asked for are those that were written."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.parquet.columns import row_schema, value_fields
from converter.parquet.page_columns import read_columns
from converter.parquet.pages import ByteRange, PageReader
from converter.parquet.writer import RowFile
from converter.types import PageTable
from tests.support.examples import examples

LEAVES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"), pa.decimal128(38, 10), pa.decimal128(7, 0), pa.decimal128(2, 2), pa.decimal128(18, 4),
]  # fmt: skip
KEYS = [pa.string(), pa.bool_(), pa.int32(), pa.int64()]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        st.tuples(st.sampled_from(KEYS), inner).map(lambda pair: pa.map_(*pair)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", kinds[i]) for i in range(len(kinds))])
        ),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=6)


def a_value(kind: pa.DataType, chance: random.Random, nulls: float) -> Any:
    """Any value of a type, null with a chance."""
    if chance.random() < nulls:
        return None
    if pa.types.is_struct(kind):
        return {field.name: a_value(field.type, chance, nulls) for field in kind}
    if pa.types.is_map(kind):
        return [
            (a_value(kind.key_type, chance, 0), a_value(kind.item_type, chance, nulls)) for _ in range(size(chance))
        ]
    if pa.types.is_list(kind):
        return [a_value(kind.value_type, chance, nulls) for _ in range(size(chance))]
    return a_leaf(kind, chance)


def size(chance: random.Random) -> int:
    return chance.choice((0, 1, 2, 5))


def a_leaf(kind: pa.DataType, chance: random.Random) -> Any:
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_integer(kind):
        edge = 2 ** (kind.bit_width - 1)
        return chance.choice((0, -1, edge - 1, -edge, chance.randrange(-edge, edge)))
    if pa.types.is_floating(kind):
        return chance.choice((0.0, -0.0, float("inf"), chance.uniform(-1e300, 1e300)))
    if pa.types.is_string(kind):
        return chance.choice(("", "a", "ü€😀" * chance.randrange(5), "x" * chance.randrange(3000)))
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.choice((0, 1, 7, 500)))
    if pa.types.is_decimal(kind):
        digits = chance.choice(
            (0, 1, -1, 10**kind.precision - 1, 1 - 10**kind.precision, chance.randrange(10**kind.precision))
        )
        with decimal.localcontext(prec=50):
            return decimal.Decimal(digits).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return dt.date(1970, 1, 1) + dt.timedelta(chance.randrange(-700_000, 2_000_000))
    zone = dt.UTC if kind.tz else None
    return dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(microseconds=chance.randrange(-(10**15), 10**15))


class Written:
    """A data file of some rows, in pages as small as the rows' sizes make them."""

    def __init__(self, columns: pa.StructArray, sizes: list[int], row_groups: int = 1) -> None:
        plain = row_schema("raw")
        self.schema = pa.schema([*columns.type, *plain])
        rows = pa.RecordBatch.from_arrays(
            [*columns.flatten(), *(pa.nulls(len(columns), field.type) for field in plain)],
            schema=pa.schema([field.with_nullable(True) for field in self.schema]),
        )
        place = rows.schema.get_field_index("_kafka_value_size")
        arrays = list(rows.columns)
        arrays[place] = pa.array(sizes, pa.int32())
        for name in ("_kafka_partition", "_kafka_offset"):
            at = rows.schema.get_field_index(name)
            arrays[at] = pa.array(range(len(columns)), rows.schema.field(at).type)
        self.target = io.BytesIO()
        file = RowFile(self.schema, self.target, "raw", proven=True)
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        edges = [len(columns) * i // row_groups for i in range(row_groups + 1)]
        for first, end in pairwise(edges):
            file.add(rows.slice(first, end - first))
            file.flush()
        pages = file.close(())
        assert pages is not None
        self.pages: PageTable = pages

    def read(self, names: set[str], first: int, end: int) -> pa.StructArray:
        data = self.target.getvalue()
        reader = PageReader(self.pages, [ByteRange(0, len(data))], [data])
        return read_columns(reader, value_fields(self.schema), names, first, end)


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 60),
    nulls=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    big=st.sampled_from([1, 100_000, 600_000]),
    groups=st.integers(1, 3),
)
@examples(300)
def test_rows_come_out_of_their_pages(
    kinds: list[pa.DataType], seed: int, rows: int, nulls: float, big: int, groups: int
) -> None:
    chance = random.Random(seed)
    kind = pa.struct([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    values = [{field.name: a_value(field.type, chance, nulls) for field in kind} for _ in range(rows)]
    columns = pa.array(values, kind)
    written = Written(columns, [chance.randrange(big) for _ in range(rows)], groups)
    for _ in range(5):
        first = chance.randrange(rows)
        end = chance.randrange(first, rows) + 1
        names = {name for name in kind.names if chance.random() < 0.7} or {kind.names[0]}
        found = written.read(names, first, end)
        found.validate(full=True)
        wanted = [{name: row[name] for name in kind.names if name in names} for row in columns.to_pylist()[first:end]]
        assert found.to_pylist() == wanted


def test_a_fetch_of_a_few_rows_reads_a_few_pages() -> None:
    columns = pa.array([{"a": i, "b": "x" * (i % 50), "l": [i] * (i % 3)} for i in range(20_000)])
    written = Written(columns, [512] * 20_000)
    pages = written.pages
    own = pages.column >= 100
    rows_of = pages.row_count[own]
    assert rows_of.max() <= 1100
    assert len(rows_of) >= 3 * 18


def test_damaged_pages_give_an_error_or_something_consistent() -> None:
    chance = random.Random(7)
    lists, inner = pa.map_(pa.string(), pa.list_(pa.bool_())), pa.struct([("x", pa.int32()), ("y", pa.binary())])
    kind = pa.struct([("a", pa.int64()), ("s", pa.string()), ("m", lists), ("d", pa.decimal128(12, 2)), ("t", inner)])
    columns = pa.array([{f.name: a_value(f.type, chance, 0.2) for f in kind} for _ in range(400)], kind)
    written = Written(columns, [4000] * 400)
    good = written.target.getvalue()
    errors = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 4))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        reader = PageReader(written.pages, [ByteRange(0, len(data))], [bytes(data)])
        try:
            found = read_columns(reader, value_fields(written.schema), set(kind.names), 100, 300)
        except SegmentError as error:
            errors += error.kind == "corrupt_object"
        else:
            found.validate()
            assert len(found) == 200
    assert errors > 300


def test_rows_that_no_page_holds_are_an_error() -> None:
    written = Written(pa.array([{"a": i} for i in range(10)]), [10] * 10)
    with pytest.raises(SegmentError, match="page table lacks rows of a"):
        written.read({"a"}, 5, 11)
    written.pages.first_row[np.flatnonzero(written.pages.column == 100)] += 5
    with pytest.raises(SegmentError, match="gap"):
        written.read({"a"}, 0, 10)
