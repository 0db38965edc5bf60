"""What `tierberg advise` found: the model of its report, and its JSON form. Pure.

The JSON form is one object; fields are only ever added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

#: How a query compares a column: with values, or with bounds.
How = Literal["equal", "range"]
JSON_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one query needs of one table, over all its scans.

    Attributes:
        files: data files that have to be opened.
        data_bytes: their sizes, whole.
        delete_files: delete files and deletion vectors that apply to them.
        delete_bytes: the sizes of these, whole; of deletion vectors their own, not those of the files they share.
        rows: in those files by their metadata, or, where `counted`, that the scans gave.
        counted: whether the query was run.
        result_rows: of the query; None: it was not run.
        first_s: the first run; None: it was not run.
        median_s: of the runs after; None: it was not run.
    """

    files: int = 0
    data_bytes: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    rows: int = 0
    counted: bool = False
    result_rows: int | None = None
    first_s: float | None = None
    median_s: float | None = None

    @property
    def size_bytes(self) -> int:
        """Of everything that has to be opened."""
        return self.data_bytes + self.delete_bytes

    def plus(self, other: Figures) -> Figures:
        """Of two scans of one query."""
        return replace(
            self,
            files=self.files + other.files,
            data_bytes=self.data_bytes + other.data_bytes,
            delete_files=self.delete_files + other.delete_files,
            delete_bytes=self.delete_bytes + other.delete_bytes,
            rows=self.rows + other.rows,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One query on one table: figures, or why there are none. `compared`: columns the scans are filtered by."""

    table: str
    figures: Figures | None = None
    error: str | None = None
    compared: Mapping[str, How] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryReport:
    """One query on every table, in the order of the report's tables."""

    name: str
    sql: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table as a whole.

    Attributes:
        name: as the report calls it.
        kind: `topic` for the topic's own table, else the projection's mode.
        partition_by: the topic's table's spec, or what is declared for a projection.
        sort_by: what is declared for a projection.
        snapshot_id: that everything was asked of; None: it has none.
        whole: of a query that reads all of it; None with an error.
        error: why it cannot be asked.
    """

    name: str
    kind: str
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    snapshot_id: int | None = None
    whole: Figures | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport:
    """Of one topic. `at_ms`: since the epoch. `suggestions`: a table's name and what is said of it, in order."""

    topic: str
    at_ms: int
    ran: bool
    tables: tuple[TableReport, ...]
    queries: tuple[QueryReport, ...]
    suggestions: tuple[tuple[str, str], ...] = ()


def as_json(report: AdviceReport) -> str:
    """The report for programs: one object."""
    document = {
        "version": JSON_VERSION,
        "topic": report.topic,
        "at_ms": report.at_ms,
        "ran": report.ran,
        "tables": [_table(item) for item in report.tables],
        "queries": [
            {"name": query.name, "sql": query.sql, "tables": [_answer(item) for item in query.answers]}
            for query in report.queries
        ],
        "suggestions": [{"table": table, "said": said} for table, said in report.suggestions],
    }
    return json.dumps(document, indent=2, sort_keys=True)


def _table(table: TableReport) -> dict[str, Any]:
    return {
        "table": table.name,
        "kind": table.kind,
        "partition_by": list(table.partition_by),
        "sort_by": list(table.sort_by),
        "snapshot_id": table.snapshot_id,
        "whole": None if table.whole is None else asdict(table.whole),
        "error": table.error,
    }


def _answer(answer: Answer) -> dict[str, Any]:
    figures = None if answer.figures is None else asdict(answer.figures)
    return {"table": answer.table, "figures": figures, "error": answer.error, "compared": dict(answer.compared)}
