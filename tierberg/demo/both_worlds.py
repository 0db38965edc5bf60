"""Side by side: the columns of both tables, and one record as Kafka's consumer gives it and as the engines do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from repartition.advise.report import AdviceReport
from repartition.advise.text import spelled
from rsm_bridge.words import size
from tierberg.demo.engines import Engine, Row
from tierberg.demo.events import Event


def kafka_row(partition: int, offset: int, event: Event) -> Row:
    """A record of the ledger, which the consumer's records were compared with, as a row."""
    return Row(
        partition=partition,
        offset=offset,
        timestamp_ms=event.timestamp_ms,
        key=event.key,
        value=event.value,
        headers=event.headers,
    )


def show_columns(console: Console, types: Mapping[str, Mapping[str, str]]) -> None:
    """Print the value's columns of each topic's table with their Iceberg types."""
    table = Table(title="Columns of the value", title_justify="left")
    table.add_column("")
    for topic in types:
        table.add_column(topic)
    for name in dict.fromkeys(name for columns in types.values() for name in columns):
        table.add_row(name, *(columns.get(name, "") for columns in types.values()))
    console.print(table)


def show_side_by_side(console: Console, kafka: Row, engines: Sequence[Engine]) -> None:
    """Print one record, a column for each world."""
    table = Table(title=f"partition {kafka.partition}, offset {kafka.offset}", title_justify="left")
    table.add_column("")
    table.add_column("Kafka consumer", overflow="fold")
    for engine in engines:
        table.add_column(engine.name, overflow="fold")
    worlds = [kafka, *(engine.sample for engine in engines)]
    _add(table, "timestamp (ms)", [str(row.timestamp_ms) for row in worlds])
    _add(table, "key", [str(row.key) for row in worlds])
    _add(table, "headers", ["\n".join(f"{name}={content!r}" for name, content in row.headers) for row in worlds])
    _add(table, "value", [(row.value or b"").decode("utf-8", "replace") for row in worlds])
    console.print(table)


def show_layouts(console: Console, report: AdviceReport) -> None:
    """Print what each question needs of the topic's own table and of its projections; a line for each question."""
    table = Table(title="What each question has to open", title_justify="left")
    table.add_column("")
    for one in report.tables:
        table.add_column(one.name)
    for query in report.queries:
        found = [answer.figures for answer in query.answers]
        table.add_row(
            query.name, *("" if each is None else f"{spelled(each)}, {size(each.size_bytes)}" for each in found)
        )
    console.print(table)


def _add(table: Table, name: str, cells: Sequence[str]) -> None:
    # As text: record content is no markup.
    table.add_row(name, *map(Text, cells))
