"""Layouts that no table with these columns can have are refused in words of the rule."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from repartition.errors import RepartitionError
from repartition.run.layout_check import is_floating, require_layout
from rsm_bridge.config.layout_terms import partition_term
from rsm_bridge.config.projections import ProjectionRule

INNER = StructType().add("id", IntegerType()).add("share", DoubleType())
SCHEMA = (
    StructType()
    .add("i", IntegerType())
    .add("n", LongType())
    .add("m", DecimalType(12, 3))
    .add("x", DoubleType())
    .add("s", StringType())
    .add("b", BinaryType())
    .add("d", DateType())
    .add("ts", TimestampType())
    .add("plain", TimestampNTZType())
    .add("tags", ArrayType(StringType()))
    .add("at", INNER)
    .add("ts_day", DateType())
)


def checked(**rule: Any) -> str:
    """What is said of a layout; empty: nothing."""
    try:
        require_layout(SCHEMA, ProjectionRule(table="t", **rule))
    except RepartitionError as error:
        return f"{error.kind}: {error}"
    return ""


@pytest.mark.parametrize(
    "term",
    [
        *(f"bucket(4, {name})" for name in ("i", "n", "m", "s", "b", "d", "ts", "plain", "at.id")),
        *(f"truncate(4, {name})" for name in ("i", "n", "m", "s", "b")),
        *(f"{time}({name})" for time in ("year", "month", "day") for name in ("d", "plain")),
        *("hour(ts)", "hour(plain)", "x", "s", "at.share"),
    ],
)
def test_what_iceberg_takes(term: str) -> None:
    assert checked(partition_by=[term]) == ""


@pytest.mark.parametrize(
    ("term", "kind"),
    [
        ("bucket(4, x)", "double"),
        ("bucket(4, at)", "struct"),
        ("truncate(4, d)", "date"),
        ("truncate(4, at.share)", "double"),
        ("hour(d)", "date"),
        ("day(s)", "string"),
        ("tags", "array"),
        ("at", "struct"),
    ],
)
def test_what_it_does_not_take_is_said_with_the_columns_type(term: str, kind: str) -> None:
    assert checked(partition_by=[term]) == f"bad_rule: partition_by: {term} cannot be made of a column of type {kind}"


def test_columns_that_are_not_there_and_names_that_are_taken() -> None:
    assert "no column at.missing" in checked(partition_by=["day(at.missing)"])
    assert "no column missing" in checked(sort_by=["missing desc"])
    assert "no column s.x" in checked(sort_by=["s.x"])
    assert "would be called ts_day, as a column is" in checked(partition_by=["day(ts)"])
    assert "sort_by: tags is a column of type array" in checked(sort_by=["tags"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (NullType(), "nothing is of type void"),
        (ArrayType(NullType()), "nothing.element is of type void"),
        (StructType().add("in", DayTimeIntervalType()), "nothing.in is of type daytimeinterval"),
        (MapType(StringType(), NullType()), "nothing.value is of type void"),
        (StructType(), "nothing is of type struct, which no table has"),
        (VariantType(), "nothing is of type variant, which is of format_version 3"),
    ],
)
def test_types_that_no_table_has_are_said_with_their_column(made: DataType, said: str) -> None:
    schema = StructType().add("id", IntegerType()).add("nothing", made)
    with pytest.raises(RepartitionError, match=said) as found:
        require_layout(schema, ProjectionRule(table="t"))
    assert found.value.kind == "bad_rule"


def test_a_variant_is_a_column_of_version_3() -> None:
    require_layout(StructType().add("v", VariantType()), ProjectionRule(table="t", format_version=3))


def test_floating_columns_are_known_where_they_are_taken_as_they_are() -> None:
    assert is_floating(SCHEMA, partition_term("x"))
    assert is_floating(SCHEMA, partition_term("at.share"))
    assert not any(is_floating(SCHEMA, partition_term(text)) for text in ("i", "m", "bucket(4, n)", "at.id"))
