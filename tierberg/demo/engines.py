"""What an SQL engine gave: the same form for Spark and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from tierberg.demo.events import Headers


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """A statement with its column names and rows."""

    statement: str
    columns: Sequence[str]
    rows: Sequence[tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table in terms of a Kafka record; times in milliseconds since 1970 UTC."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """All that one engine was asked about one table.

    Attributes:
        name: the engine's.
        answers: to `tierberg.demo.queries.QUERIES`, in their order.
        rows: how many rows the table has.
        checksum: over all of them as records, see `tierberg.demo.canonical`.
        columns: over all their typed columns, see `tierberg.demo.columns`.
        errors: rows that have no typed columns, and say why in `_kafka_error`.
        sample: the row that was asked for.
    """

    name: str
    answers: Sequence[EngineAnswer]
    rows: int
    checksum: int
    columns: int
    errors: int
    sample: Row


def show(console: Console, engine: str, answer: EngineAnswer) -> None:
    """Print a statement and its rows."""
    console.print(f"[bold]{engine}")
    console.print(Syntax(answer.statement, "sql", background_color="default", word_wrap=True))
    console.print(_table(answer))


def show_once(console: Console, answers: Sequence[tuple[str, EngineAnswer]]) -> None:
    """Print the rows of all who answered one question: a table for those who agree, so one if nobody differs.

    Args:
        console: gets them.
        answers: who, and what.
    """
    said: dict[tuple[tuple[object, ...], ...], list[str]] = {}
    for name, answer in answers:
        said.setdefault(tuple(map(tuple, answer.rows)), []).append(name)
    first = {tuple(map(tuple, answer.rows)): answer for _, answer in reversed(answers)}
    for rows, names in said.items():
        console.print(_table(first[rows]))
        console.print(f"[dim]{' = '.join(names)}", highlight=False)


def _table(answer: EngineAnswer) -> Table:
    table = Table()
    for column in answer.columns:
        table.add_column(column)
    for row in answer.rows:
        table.add_row(*map(str, row))
    return table
