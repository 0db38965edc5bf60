"""Which of `partition_by` and `sort_by` queries would profit from, by what they compare. Pure, and modest.

A partition field lets a query leave out files where it compares the field's column; a bucket only by values. A sort
order does so where the query compares its first columns, once compaction has sorted across files. Nothing is said of
how many files: that depends on the data, and `tierberg advise` shows it once the projection is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from repartition.advise.report import How
from rsm_bridge.config.layout_terms import partition_term, row_order

#: A query that opens no more than this share of a table's files has nothing to gain.
_FEW: Final = 0.1
#: Columns that are suggested at once.
_COLUMNS_SHOWN: Final = 2
#: Types of which columns are worth a place in a Z-order; times rather make partitions.
_INTERLEAVED: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"})
_EQUAL: Final = frozenset({"EQ", "IN"})
_RANGE: Final = frozenset({"LT", "LT_EQ", "GT", "GT_EQ", "STARTS_WITH"})
_WORDS: Final[Mapping[How, str]] = {"equal": "by value", "range": "by a range"}


@dataclass(frozen=True, slots=True)
class CurrentLayout:
    """A table. `types`: Spark's names of column types, by path. `files`: data files it has."""

    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    files: int
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that could be planned on it: the data files it opens, and what it compares."""

    query: str
    files: int
    compared: Mapping[str, How]


def compared(expression: Any) -> dict[str, How]:
    """Columns that every row of the result is compared by.

    Args:
        expression: an `org.apache.iceberg.expressions.Expression`.
    """
    operation = expression.op().name()
    if operation == "AND":
        return both(compared(expression.left()), compared(expression.right()))
    if operation == "OR":
        return either(compared(expression.left()), compared(expression.right()))
    if operation in _EQUAL or operation in _RANGE:
        return {str(expression.ref().name()): "equal" if operation in _EQUAL else "range"}
    return {}


def both(left: Mapping[str, How], right: Mapping[str, How]) -> dict[str, How]:
    """Where both conditions hold: a value says more than a range."""
    return {**left, **right, **{name: "equal" for name, how in left.items() if how == "equal"}}


def either(left: Mapping[str, How], right: Mapping[str, How]) -> dict[str, How]:
    """Where one of the conditions holds: only what both compare."""
    return {name: "equal" if left[name] == right[name] == "equal" else "range" for name in left if name in right}


def suggestion(layout: CurrentLayout, seen: Sequence[PlannedQuery]) -> str:
    """One or two sentences on a table's layout and the queries."""
    if not seen:
        return "No query could be planned on it."
    if layout.files <= 1:
        return f"It has {'one data file' if layout.files else 'no data file'}: no layout would leave out more."
    filtered = [item for item in seen if item.compared]
    if not filtered:
        return (
            "No query compares a column by =, IN or a range in a way that tables can use: "
            "neither partition_by nor sort_by would help."
        )
    poor = [item for item in filtered if item.files > max(1, _FEW * layout.files)]
    if not poor:
        return f"The queries that compare columns open few of its {layout.files} files: nothing to change."
    wanted = _wanted(layout, poor)
    if not wanted:
        return (
            f"{_queries([item.query for item in poor])} what it is laid out by, and still need many of its "
            f"{layout.files} files: wide ranges, or files that compaction has yet to sort. Nothing to change."
        )
    shown = wanted[:_COLUMNS_SHOWN]
    # Iceberg takes no column within another.
    along = [
        name for name, how, _ in shown if how == "range" and _kind(layout, name) in _INTERLEAVED and "." not in name
    ]
    if len(along) == len(shown) > 1:
        return _advice_of_all(shown)
    return " ".join(_advice(layout, *item) for item in shown)


def _wanted(layout: CurrentLayout, poor: Sequence[PlannedQuery]) -> list[tuple[str, How, list[str]]]:
    """Columns the layout does nothing for: how they are compared and by which queries. Those of most queries first."""
    found: dict[tuple[str, How], list[str]] = {}
    for item in poor:
        if any(_served(layout, name, item.compared) for name in item.compared):
            continue
        for name, how in item.compared.items():
            found.setdefault((name, how), []).append(item.query)
    ordered = sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0][1] != "equal", pair[0][0]))
    chosen: list[tuple[str, How, list[str]]] = []
    for (name, how), queries in ordered:
        if name not in {other for other, _, _ in chosen}:
            chosen.append((name, how, queries))
    return chosen


def _served(layout: CurrentLayout, column: str, compared_by: Mapping[str, How]) -> bool:
    """Whether the layout lets a query that compares `column` leave out files."""
    for text in layout.partition_by:
        term = partition_term(text)
        if term.column == column and (compared_by[column] == "equal" or not term.transform.startswith("bucket")):
            return True
    order = row_order(layout.sort_by)
    for sorted_by in (term.column for term in order.terms):
        if sorted_by == column:
            return True
        if compared_by.get(sorted_by) != "equal" and not order.interleaved:
            return False
    return False


def _kind(layout: CurrentLayout, column: str) -> str:
    """Spark's name of a column's type, without its size."""
    return layout.types.get(column, "").partition("(")[0]


def _advice_of_all(wanted: Sequence[tuple[str, How, list[str]]]) -> str:
    """Of columns that are all compared by ranges: sorted by one, a table would not be by the others."""
    names = [name for name, _, _ in wanted]
    asking = list(dict.fromkeys(query for _, _, queries in wanted for query in queries))
    said = f"{_queries(asking)} {' and '.join(f'`{name}`' for name in names)} by ranges, which it is not laid out by"
    one = "it" if len(asking) == 1 else "them"
    return f"{said}: `sort_by: [zorder({', '.join(names)})]`, once compacted, would let {one} leave out files."


def _advice(layout: CurrentLayout, column: str, how: How, queries: Sequence[str]) -> str:
    kind = _kind(layout, column)
    if kind.startswith("timestamp") or kind == "date":
        what = f"`partition_by: [day({column})]`"
    elif kind == "boolean":
        what = f"`partition_by: [{column}]`"
    elif how == "equal":
        what = f"`partition_by: [bucket(16, {column})]`, or `sort_by: [{column}]` once compacted,"
    else:
        what = f"`sort_by: [{column}]`, once compacted,"
    said = f"{_queries(queries)} `{column}` {_WORDS[how]}, which it is not laid out by"
    return f"{said}: {what} would let {'it' if len(queries) == 1 else 'them'} leave out files."


def _queries(names: Sequence[str]) -> str:
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"Query {listed} compares" if len(names) == 1 else f"Queries {listed} compare"
