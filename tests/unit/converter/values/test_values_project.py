"""project(): what a binding that does not fit says, and the corners a table meets every day."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from converter.values.model import Bound
from converter.values.project import project


def test_a_null_value_is_a_null_row_and_a_missing_field_a_null_column() -> None:
    columns = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}], pa.struct([("a", "int32"), ("b", "string")]))
    target = pa.struct([("b", "string"), ("new", pa.list_(pa.int64())), ("a", "int64")])
    result = project(columns, [Bound(1), Bound(None), Bound(0)], target)
    assert result.to_pylist() == [{"b": "x", "new": None, "a": 1}, None, {"b": "y", "new": None, "a": None}]


def test_digits_under_a_null_may_be_more_than_the_type_has() -> None:
    """A decoder that fills only what is valid leaves whatever was in memory."""
    narrow = pa.decimal128(3, 1)
    digits = np.array([15, 0, 2**62, 2**62], np.int64)  # two values of 16 bytes; the second is too large by far
    child = pa.Array.from_buffers(narrow, 2, [None, pa.py_buffer(digits)])
    validity = pa.py_buffer(np.packbits([True, False], bitorder="little"))
    columns = pa.Array.from_buffers(pa.struct([("d", narrow)]), 2, [validity], children=[child])
    wide = pa.struct([("d", pa.decimal128(20, 1))])
    assert [row and str(row["d"]) for row in project(columns, [Bound(0)], wide).to_pylist()] == ["1.5", None]


def test_a_null_list_hides_nothing_in_the_result() -> None:
    lists = pa.Array.from_buffers(
        pa.list_(pa.int32()),
        3,
        [pa.py_buffer(np.packbits([True, False, True], bitorder="little")), pa.py_buffer(np.array([0, 1, 3, 4], "i4"))],
        children=[pa.array([1, 2, 3, 4], pa.int32())],
    )
    columns = pa.StructArray.from_arrays([lists], names=["l"])
    result = project(columns, [Bound(0, (Bound(0),))], pa.struct([("l", pa.list_(pa.int64()))]))
    assert result.field(0).values.to_pylist() == [1, 4]
    assert result.field(0).to_pylist() == [[1], None, [4]]


def test_no_rows() -> None:
    columns = pa.array([{"m": [("k", [1])]}], pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int32())))]))[:0]
    target = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int64())))])
    result = project(columns, [Bound(0, (Bound(0, (Bound(0),)),))], target)
    result.validate(full=True)
    assert (len(result), result.type) == (0, target)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.decimal128(9, 2), pa.decimal128(5, 2)),
        (pa.decimal128(5, 2), pa.decimal128(9, 3)),
        (pa.int32(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int32())),
    ],
)
def test_a_cast_that_could_lose_something_is_refused(written: pa.DataType, wanted: pa.DataType) -> None:
    columns = pa.nulls(1, pa.struct([("a", written)]))
    with pytest.raises(ValueError, match="cannot be filled from"):
        project(columns, [Bound(0, (Bound(0),))], pa.struct([("a", wanted)]))


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ([], "0 bindings for the 1 fields"),
        ([Bound(3, (Bound(0),))], "column a is bound to field 3"),
        ([Bound(0)], "0 bindings for what list"),
    ],
)
def test_a_binding_of_another_shape_is_refused(bound: list[Bound], message: str) -> None:
    kind = pa.struct([("a", pa.list_(pa.int32()))])
    with pytest.raises(ValueError, match=message):
        project(pa.nulls(1, kind), bound, kind)
