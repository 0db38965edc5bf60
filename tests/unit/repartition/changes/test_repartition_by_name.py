"""What a write adds to a plan where types are the table's: nothing."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from repartition.changes.by_name import _alike, as_type


def nested(*names: str, inner: DataType, nullable: bool, comment: str = "") -> DataType:
    """A struct with a list of maps of structs."""
    struct = StructType()
    for name in names:
        struct.add(name, inner, nullable, {"comment": comment} if comment else None)
    deep = ArrayType(MapType(StringType(), struct, nullable), nullable)
    return StructType().add("first", LongType(), nullable).add("deep", deep, nullable)


def test_types_that_differ_in_nulls_and_comments_alone_are_alike() -> None:
    column = object()
    given = nested("a", "b: int", inner=DecimalType(9, 2), nullable=False)
    wanted = nested("a", "b: int", inner=DecimalType(9, 2), nullable=True, comment="c")
    assert given != wanted
    assert as_type(column, given, wanted, lossy=False) is column
    assert as_type(column, given, wanted, lossy=True) is column


@pytest.mark.parametrize(
    "other",
    [
        nested("a", "b", "c", inner=DecimalType(9, 2), nullable=True),
        nested("b", "a", inner=DecimalType(9, 2), nullable=True),
        nested("a", inner=DecimalType(9, 2), nullable=True),
        nested("a", "B", inner=DecimalType(9, 2), nullable=True),
        nested("a", "b", inner=DecimalType(10, 2), nullable=True),
        nested("a", "b", inner=TimestampType(), nullable=True),
        ArrayType(LongType()),
        LongType(),
    ],
)
def test_types_that_differ_in_anything_else_are_not(other: DataType) -> None:
    assert not _alike(nested("a", "b", inner=DecimalType(9, 2), nullable=True), other)
    assert not _alike(other, nested("a", "b", inner=DecimalType(9, 2), nullable=True))
    assert not _alike(TimestampNTZType(), TimestampType())
