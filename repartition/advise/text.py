"""The report of `tierberg advise` for a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from repartition.advise.report import AdviceReport, Answer, Figures
from rsm_bridge.words import size

_WIDTH_MIN = 80


def as_text(report: AdviceReport, width: int, *, colour: bool = False) -> str:
    """The report as lines of at most `width` characters. `colour`: with escapes."""
    out = io.StringIO()
    console = Console(file=out, width=max(width, _WIDTH_MIN), force_terminal=colour, highlight=False)
    console.print(Text(headline(report), style="bold"))
    console.print(_tables(report))
    console.print(_queries(report))
    for table, said in report.suggestions:
        console.print(Text.assemble((f"{table}: ", "bold"), said))
    return out.getvalue().rstrip("\n")


def _tables(report: AdviceReport) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("TABLE", "KIND", "PARTITION BY", "SORT BY"):
        table.add_column(name, overflow="fold")
    for name in ("FILES", "BYTES", "ROWS"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in report.tables:
        by = [Text(item.name), Text(item.kind), Text(", ".join(item.partition_by)), Text(", ".join(item.sort_by))]
        if item.whole is None:
            table.add_row(*by, "", "", Text("none", style="red"))
        else:
            table.add_row(*by, files(item.whole), size(item.whole.size_bytes), f"{item.whole.rows:,}")
    return table


def _queries(report: AdviceReport) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("QUERY", overflow="fold")
    table.add_column("TABLE", overflow="fold")
    for name in ("FILES", "BYTES", "ROWS READ" if report.ran else "ROWS IN FILES"):
        table.add_column(name, justify="right", no_wrap=True)
    if report.ran:
        for name in ("RESULT", "MEDIAN", "FIRST"):
            table.add_column(name, justify="right", no_wrap=True)
    if _errors(report):
        table.add_column("ERROR", style="red", overflow="fold")
    for query in report.queries:
        for number, answer in enumerate(query.answers):
            names = [Text("" if number else query.name), Text(answer.table)]
            said = [Text(answer.error or "")] if _errors(report) else []
            table.add_row(*names, *_cells(report, answer), *said)
        table.add_section()
    return table


def _cells(report: AdviceReport, answer: Answer) -> list[str]:
    found = answer.figures
    if found is None:
        return [""] * (6 if report.ran else 3)
    cells = [files(found), size(found.size_bytes), f"{found.rows:,}"]
    if found.result_rows is not None and found.median_s is not None and found.first_s is not None:
        cells += [f"{found.result_rows:,}", seconds(found.median_s), seconds(found.first_s)]
    return cells


def _errors(report: AdviceReport) -> bool:
    return any(answer.error is not None for query in report.queries for answer in query.answers)


def seconds(value: float) -> str:
    """`0.004 s`, `0.25 s`, `3.10 s`, `12.5 s`, `125 s`."""
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} s"


def files(figures: Figures) -> str:
    """`3`, and with delete files `3 + 2 deletes`."""
    more = f" + {figures.delete_files} deletes" if figures.delete_files else ""
    return f"{figures.files}{more}"


def spelled(figures: Figures) -> str:
    """`1 file`, `40 files + 2 deletes`."""
    count, _, more = files(figures).partition(" ")
    return f"{count} file{'' if figures.files == 1 else 's'} {more}".rstrip()


def headline(report: AdviceReport) -> str:
    """Topic, date, and how many rows its own table has."""
    day = datetime.fromtimestamp(report.at_ms / 1000, UTC).strftime("%Y-%m-%d")
    whole = report.tables[0].whole
    rows = "no rows" if whole is None else f"{whole.rows:,} row{'' if whole.rows == 1 else 's'}"
    return f"topic {report.topic}, {day}, {rows}"
