"""`partition_by` and `sort_by` of a projection: texts to terms.

Iceberg spec, "Partition transforms" and "Sort orders". A column is a path of names with dots (`customer.address.city`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: A regular expression for a column: names with dots between them.
COLUMN_PATH: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PARTITION: Final = re.compile(
    rf"(?:(?P<time>year|month|day|hour)s?\(\s*(?P<timed>{COLUMN_PATH})\s*\)"
    rf"|(?P<sized>bucket|truncate)\(\s*(?P<size>[0-9]{{1,9}})\s*,\s*(?P<cut>{COLUMN_PATH})\s*\)"
    rf"|(?P<plain>{COLUMN_PATH}))"
)
_TIMES: Final = frozenset({"year", "month", "day", "hour"})
#: What Iceberg calls the field of a transform, behind the column's name.
_SUFFIX: Final = {"truncate": "trunc"}
_SORT: Final = re.compile(
    rf"(?P<column>{COLUMN_PATH})(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE
)


_INTERLEAVED: Final = re.compile(rf"zorder\(\s*(?P<columns>{COLUMN_PATH}(?:\s*,\s*{COLUMN_PATH})+)\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One field of a partition spec. `transform` as the Iceberg spec writes it: `day`, `bucket[16]`, `identity`."""

    column: str
    transform: str

    def ddl(self) -> str:
        """As Spark's `PARTITIONED BY` and `ADD PARTITION FIELD` take it."""
        column, (name, size) = quoted_path(self.column), self._parts()
        if name == "identity":
            return column
        return f"{name}({size}, {column})" if size else f"{name}s({column})"

    def rule(self) -> str:
        """As `partition_by` takes it."""
        name, size = self._parts()
        if name == "identity":
            return self.column
        return f"{name}({size}, {self.column})" if size else f"{name}({self.column})"

    @property
    def field_name(self) -> str | None:
        """What Iceberg calls the field, a name that no column may have then; None where it is the column's own."""
        return None if self.kind == "identity" else f"{self.column}_{_SUFFIX.get(self.kind, self.kind)}"

    @property
    def kind(self) -> str:
        """The transform without its size."""
        return self._parts()[0]

    @property
    def size(self) -> int:
        """Of a `bucket` or `truncate`; 0 of others."""
        return int(self._parts()[1] or 0)

    def _parts(self) -> tuple[str, str]:
        """The transform's name, and its size where it has one."""
        name, _, size = self.transform.rstrip("]").partition("[")
        return name, size

    def call(self, catalog: str) -> str:
        """As an expression over a row: an Iceberg catalog of Spark has the transforms as functions."""
        return self.ddl() if self.transform == "identity" else f"{catalog}.system.{self.ddl()}"


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One field of a sort order; nulls come first where it ascends, unless said otherwise."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def ddl(self) -> str:
        """As Spark's `ORDERED BY` takes it."""
        return f"{quoted_path(self.column)} {self._way()}"

    def sql(self) -> str:
        """As the argument `sort_order` of `rewrite_data_files` takes it."""
        return f"{self.column} {self._way()}"

    def _way(self) -> str:
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """All of `sort_by`.

    Attributes:
        terms: by which rows of a file are sorted, one after the other.
        interleaved: compaction puts rows together that are near to each other in all of these columns, along a Z-order
            curve; False: it sorts.
    """

    terms: tuple[SortTerm, ...]
    interleaved: bool = False

    def sql(self) -> str:
        """As the argument `sort_order` of `rewrite_data_files` takes it; empty: as it comes."""
        if self.interleaved:
            return f"zorder({', '.join(term.column for term in self.terms)})"
        return ", ".join(term.sql() for term in self.terms)


def partition_term(text: str) -> PartitionTerm:
    """`day(ts)`, `bucket(16, customer.id)`, `truncate(4, code)`, `region`.

    Raises:
        ValueError: it is none of these, or a size is 0.
    """
    found = _PARTITION.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is no partition transform: use year, month, day or hour(column), bucket(n, column), "
            "truncate(n, column) or a column"
        )
    if found["time"]:
        return PartitionTerm(found["timed"], found["time"])
    if found["sized"]:
        if int(found["size"]) == 0:
            raise ValueError(f"{text!r}: the size is 0")
        return PartitionTerm(found["cut"], f"{found['sized']}[{int(found['size'])}]")
    return PartitionTerm(found["plain"], "identity")


def require_apart(terms: Sequence[PartitionTerm]) -> None:
    """Refuses what Iceberg refuses of the fields of one spec.

    Raises:
        ValueError: two are of one column, and are times, or would have one name.
    """
    seen: dict[tuple[str, str], PartitionTerm] = {}
    for term in terms:
        kind = term.kind
        before = seen.setdefault((term.column, "time" if kind in _TIMES else kind), term)
        if before is not term:
            raise ValueError(f"{before.rule()} and {term.rule()}: Iceberg takes one of the two; leave one out")


def sort_term(text: str) -> SortTerm:
    """`amount`, `amount desc`, `amount desc nulls last`.

    Raises:
        ValueError: it is none of these.
    """
    found = _SORT.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is no sort field: use column [asc|desc] [nulls first|last], or zorder(column, column) alone"
        )
    descending = (found["way"] or "asc").lower() == "desc"
    nulls = (found["nulls"] or ("last" if descending else "first")).lower()
    return SortTerm(found["column"], descending, nulls == "first")


def row_order(texts: Sequence[str]) -> RowOrder:
    """Sort fields, or `zorder(a, b)` alone.

    Raises:
        ValueError: it is neither, or a Z-order names a column twice, or one within another.
    """
    found = _INTERLEAVED.fullmatch(texts[0].strip()) if len(texts) == 1 else None
    if found is None:
        return RowOrder(tuple(sort_term(text) for text in texts))
    names = [name.strip() for name in found["columns"].split(",")]
    if len(set(names)) < len(names):
        raise ValueError(f"{texts[0]!r} names a column twice")
    nested = [name for name in names if "." in name]
    if nested:
        raise ValueError(f"{texts[0]!r}: Iceberg takes no {nested[0]}; give it a name of its own in `select`")
    return RowOrder(tuple(SortTerm(name) for name in names), interleaved=True)


def quoted_path(path: str) -> str:
    """A column path with each name in back-quotes, as Spark's SQL takes it."""
    return ".".join(f"`{name}`" for name in path.split("."))
