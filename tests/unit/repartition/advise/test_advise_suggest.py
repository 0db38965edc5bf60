"""What is suggested of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repartition.advise.report import How
from repartition.advise.suggest import CurrentLayout, PlannedQuery, both, compared, either, suggestion

TYPES = {
    "id": "bigint",
    "who": "string",
    "ts": "timestamp",
    "day": "date",
    "open": "boolean",
    "amount": "decimal(9,2)",
    "at.lat": "double",
}


def layout(*partition_by: str, sort_by: tuple[str, ...] = (), files: int = 40) -> CurrentLayout:
    return CurrentLayout(partition_by, sort_by, files, TYPES)


def seen(files: int = 40, **columns: How) -> PlannedQuery:
    return PlannedQuery("q1", files, columns)


@pytest.mark.parametrize(
    ("table", "queries", "said"),
    [
        (layout(), [], "No query could be planned"),
        (layout(files=0), [seen(0, id="equal")], "no data file:"),
        (layout(files=1), [seen(1, id="equal")], "one data file: no layout"),
        (layout(), [seen()], "neither partition_by nor sort_by would help"),
        (layout(), [seen(4, id="equal")], "nothing to change"),
        (layout(files=3), [seen(1, id="equal")], "nothing to change"),
        (layout(files=3), [seen(2, id="equal")], "bucket(16, id)"),
        (layout(), [seen(5, id="equal")], "`partition_by: [bucket(16, id)]`, or `sort_by: [id]` once compacted"),
        (layout(), [seen(id="range")], "`sort_by: [id]`, once compacted"),
        (layout(), [seen(ts="range")], "`partition_by: [day(ts)]`"),
        (layout(), [seen(day="equal")], "`partition_by: [day(day)]`"),
        (layout(), [seen(open="equal")], "`partition_by: [open]`"),
        (layout("bucket(4, id)"), [seen(id="equal")], "Nothing to change"),
        (layout("bucket(4, id)"), [seen(id="range")], "`sort_by: [id]`"),
        (layout("truncate(4, who)"), [seen(who="range")], "Nothing to change"),
        (layout("day(ts)"), [seen(ts="range", id="equal")], "Nothing to change"),
        (layout("day(ts)"), [seen(id="equal")], "bucket(16, id)"),
        (layout(sort_by=("id", "who")), [seen(id="range")], "Nothing to change"),
        (layout(sort_by=("id", "who")), [seen(who="equal")], "bucket(16, who)"),
        (layout(sort_by=("id desc", "who")), [seen(id="equal", who="range")], "Nothing to change"),
        (layout(sort_by=("zorder(id, who)",)), [seen(who="range")], "Nothing to change"),
        (layout(), [seen(id="range", who="range")], "compares `id` and `who` by ranges, which it is not laid out by"),
        (layout(), [seen(id="range"), seen(who="range")], "`sort_by: [zorder(id, who)]`, once compacted"),
        (layout(), [seen(id="range", amount="range")], "`sort_by: [amount]`"),
        (layout(), [PlannedQuery("q1", 40, {"id": "range", "at.lat": "range"})], "`sort_by: [at.lat]`"),
    ],
)
def test_suggestions(table: CurrentLayout, queries: list[PlannedQuery], said: str) -> None:
    assert said in suggestion(table, queries)


def test_columns_of_most_queries_come_first() -> None:
    queries = [PlannedQuery(f"n{n}", 40, {"id": "equal"}) for n in range(5)]
    queries += [PlannedQuery("late", 40, {"ts": "range"}), PlannedQuery("other", 40, {"who": "equal"})]
    said = suggestion(layout(), queries)
    assert said.startswith("Queries n0, n1, n2 and 2 more compare `id` by value")
    assert said.count("would let") == 2
    assert said.index("`id`") < said.index("`who`")
    assert "ts" not in said


HOWS = st.dictionaries(st.sampled_from(list(TYPES)), st.sampled_from(["equal", "range"]), max_size=4)
TERMS = st.sampled_from(["id", "bucket(4, id)", "day(ts)", "truncate(2, who)", "who"])


@given(st.lists(st.tuples(st.integers(0, 50), HOWS), max_size=6), st.lists(TERMS, max_size=2), st.integers(0, 50))
def test_nothing_is_suggested_that_is_there_or_not_asked_for(
    queries: list[tuple[int, dict[str, How]]], terms: list[str], files: int
) -> None:
    table = layout(*terms, files=files)
    said = suggestion(table, [PlannedQuery(f"q{n}", opened, columns) for n, (opened, columns) in enumerate(queries)])
    assert said.endswith(".")
    asked = {name for _, columns in queries for name in columns}
    for name in TYPES:
        if f"({name})" in said or f"[{name}]" in said or f", {name})" in said:
            assert name in asked
    for term in terms:
        assert f"partition_by: [{term}]" not in said


@dataclass
class Named:
    """What py4j shows of an Iceberg expression."""

    text: str
    parts: tuple[Any, ...] = ()
    column: str = ""

    def op(self) -> Named:
        return self

    def ref(self) -> Named:
        return self

    def name(self) -> str:
        return self.text

    def left(self) -> Any:
        return self.parts[0]

    def right(self) -> Any:
        return self.parts[1]


@dataclass
class Leaf(Named):
    def ref(self) -> Named:
        return Named(self.column)


def leaf(operation: str, column: str = "a") -> Leaf:
    return Leaf(operation, column=column)


def test_comparisons_of_an_expression() -> None:
    assert compared(leaf("EQ")) == compared(leaf("IN")) == {"a": "equal"}
    for operation in ("LT", "LT_EQ", "GT", "GT_EQ", "STARTS_WITH"):
        assert compared(leaf(operation)) == {"a": "range"}
    for operation in ("NOT_EQ", "NOT_IN", "IS_NULL", "NOT_NULL", "NOT_NAN", "TRUE", "FALSE", "NOT", "NOT_STARTS_WITH"):
        assert compared(leaf(operation)) == {}
    assert compared(Named("AND", (leaf("GT"), Named("AND", (leaf("EQ", "b"), leaf("LT")))))) == {
        "a": "range",
        "b": "equal",
    }
    assert compared(Named("OR", (leaf("EQ"), leaf("IN")))) == {"a": "equal"}
    assert compared(Named("OR", (leaf("EQ"), leaf("LT")))) == {"a": "range"}
    assert compared(Named("OR", (leaf("EQ"), leaf("EQ", "b")))) == {}


@given(HOWS, HOWS)
def test_and_knows_more_than_or(left: dict[str, How], right: dict[str, How]) -> None:
    every, some = both(left, right), either(left, right)
    assert set(every) == set(left) | set(right)
    assert set(some) == set(left) & set(right)
    assert every == both(right, left)
    assert some == either(right, left)
    assert {name for name, how in every.items() if how == "equal"} == {
        name for one in (left, right) for name, how in one.items() if how == "equal"
    }
